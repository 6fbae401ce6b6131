"""A mosquitto for the tests of this folder: the reference that the client is tested against."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.mosquitto import run_mosquitto


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a mosquitto of this module."""
    with run_mosquitto(tmp_path_factory.mktemp("mosquitto"), "allow_anonymous true", "max_queued_messages 0") as port:
        yield port
