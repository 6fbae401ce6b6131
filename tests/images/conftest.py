"""The engine that runs the containers of all these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.images.containers import engine


@pytest.fixture(scope="session", autouse=True)
def podman_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with engine(tmp_path_factory.mktemp("podman")):
        yield
