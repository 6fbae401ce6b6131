"""Peers whose entry is withdrawn, or has another secret: their open connections end, at each inner listener."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from enmasse.aio.client import Client
from enmasse.amqp.codec.errors import AmqpError
from enmasse.identity.processes.credentials import new_secret
from enmasse.identity.processes.roles import Role
from enmasse.testing import free_port
from tests.identity.kit import DEADLINE, REFUSED, Service, Suite, dial, name_of, refused_events
from tests.kit.running import asyncio_test
from tests.kit.waiting import until


class Place(NamedTuple):
    """A listener, and two roles that may connect to it."""

    suite: Suite
    service: Service
    port: int
    first: Role
    second: Role


def broker(folder: Path, suite: Suite, port: int) -> Service:
    return Service("broker", listen=f"127.0.0.1:{port}", peers=str(suite.file))


def configserv(folder: Path, suite: Suite, port: int) -> Service:
    config = folder / "config"
    config.mkdir()
    for name in ("addresses.json", "flavors.json"):
        (config / name).write_text("{}")
    where = {"config_dir": str(config), "data_dir": str(folder / "data")}
    return Service("configserv", listen=f"127.0.0.1:{port}", peers=str(suite.file), **where)


def router(folder: Path, suite: Suite, port: int) -> Service:
    sasl = {"saslMechanisms": "SCRAM-SHA-256", "authenticatePeer": True, "access": "services"}
    entity = ["listener", {"name": "services", "host": "127.0.0.1", "port": str(port), **sasl}]
    entities = [["router", {"id": "r1", "mode": "standalone"}], entity]
    return Service("router", entities=entities, peers=str(suite.file))


PLACES: dict[str, tuple[Callable[[Path, Suite, int], Service], Role, Role]] = {
    "broker": (broker, Role.ROUTER, Role.OPERATOR),
    "configserv": (configserv, Role.AGENT, Role.SUPERVISOR),
    "router": (router, Role.GATEWAY, Role.SUBSERV),
}


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    start, first, second = PLACES[request.param]
    suite, port = Suite(tmp_path), free_port()
    with start(tmp_path, suite, port) as service:
        yield Place(suite, service, port, first, second)


async def reason(c: Client) -> AmqpError:
    """Return why a connection has ended."""
    await asyncio.wait_for(asyncio.shield(c._gone), DEADLINE)
    assert c.error is not None
    return c.error


@pytest.mark.parametrize("change", ["is gone", "has another secret"])
@asyncio_test
async def test_open_connections_end_when_their_entry_is_removed_or_changed(place: Place, change: str) -> None:
    suite, name = place.suite, name_of(place.first)
    first, second = dial(place.port, suite.credential(place.first)), dial(place.port, suite.credential(place.second))
    async with first, second:
        if change == "is gone":
            del suite.secrets[name]
        else:
            suite.secrets[name] = place.first, new_secret()
        suite.write()
        error = await reason(first)
        assert error.condition == REFUSED
        assert f"{name} ({place.first}) is no longer among the peers, or has another secret" in error.description
        assert second.error is None
        assert [event["name"] for event in refused_events(place.service.log())] == [name]
        if change == "has another secret":
            async with dial(place.port, suite.credential(place.first)) as again:
                await until(lambda: again.connection.state == "open")


@asyncio_test
async def test_an_unreadable_file_ends_no_connection(place: Place) -> None:
    suite = place.suite
    async with dial(place.port, suite.credential(place.first)) as first:
        suite.file.write_text("{")
        async with dial(place.port, suite.credential(place.second)) as second:  # the file has been read for it
            assert (first.error, second.error) == (None, None)
