"""One running suite for everything here that leaves it as it was; two gateways, reached one by one or together."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from enmasse.testing import Suite, running
from tests.conformance.wire import Raw

QUEUE, TOPIC = "small-persisted-queue", "small-persisted-topic"
ADDRESSES = {
    "field": {"type": "topic", "flavor": TOPIC, "mqttDefault": True},
    "news": {"type": "topic", "flavor": TOPIC},
    "orders": {"type": "queue", "flavor": QUEUE},
    "direct": {"type": "anycast"},
    "all": {"type": "multicast"},
}
_numbers = itertools.count(1)


@dataclass
class Server:
    """`host`, `port` of MQTT, and connections of the running test."""

    host: str
    port: int
    made: list[Raw]

    def raw(self, version: int) -> Raw:
        """A connection on which nothing was sent yet."""
        self.made.append(Raw(self.host, self.port, version))
        return self.made[-1]

    def opened(self, version: int, client: str, **more: Any) -> Raw:
        """A connection whose CONNECT was accepted; `more` as in `wire.connect`."""
        raw = self.raw(version)
        raw.open(client, **more)
        return raw


@pytest.fixture(scope="package")
def running_suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with running(tmp_path_factory.mktemp("conformance"), ADDRESSES, options=()) as suite:
        suite.up()
        yield suite
        assert suite.down() == 0


@pytest.fixture(scope="package")
def at(request: pytest.FixtureRequest) -> tuple[str, int]:
    """Where MQTT is spoken. MQTT_AT=HOST:PORT runs the tests of packets against another server, to try the tests."""
    if other := os.environ.get("MQTT_AT"):
        host, _, port = other.rpartition(":")
        Raw.SECONDS = 5
        return host, int(port)
    suite: Suite = request.getfixturevalue("running_suite")
    return "127.0.0.1", suite.mqtt_port


@pytest.fixture
def server(at: tuple[str, int]) -> Iterator[Server]:
    server = Server(*at, [])
    yield server
    for raw in server.made:
        raw.cut()


@pytest.fixture
def unique() -> Callable[[str], str]:
    """A name that no other test uses: of a client, of a topic level."""

    def name(what: str = "c") -> str:
        return f"{what}{os.getpid()}n{next(_numbers)}"

    return name


@pytest.fixture(params=[4, 5], ids=["v3.1.1", "v5"])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)
