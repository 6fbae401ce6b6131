from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from enmasse.stores import RedisSettings, SqliteSettings, StoreSettings
from tests.kit.marks import first_soon
from tests.mqtt_lwt.house import House
from tests.redis_server import RedisServer

_numbers = count(1)


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module", params=first_soon(["sqlite", "redis"]))
def house(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """For each kind of store. Each test starts the service; its store goes on from test to test."""
    folder: Path = tmp_path_factory.mktemp("house")
    store: StoreSettings = SqliteSettings(str(folder / "wills.sqlite"))
    if request.param == "redis":
        store = RedisSettings(request.getfixturevalue("redis_server").url, f"test-{next(_numbers)}")
    made = House(folder, store)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def running(house: House) -> House:
    """With a service that runs."""
    if house.service.ended:
        house.service.start()
    return house
