from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from enmasse.stores import RedisSettings, SqliteSettings, StoreSettings
from tests.redis_server import RedisServer

_numbers = count(1)


@pytest.fixture(scope="session")
def shared_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server for tests that leave it as it was."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A server of the test's own."""
    server = RedisServer(tmp_path / "redis")
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(params=["sqlite", "redis"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> StoreSettings:
    """An empty store, of each kind."""
    if request.param == "sqlite":
        return SqliteSettings(str(tmp_path / "folder" / "store.sqlite"))
    server: RedisServer = request.getfixturevalue("shared_redis")
    return RedisSettings(server.url, f"test-{next(_numbers)}")
