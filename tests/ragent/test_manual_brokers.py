"""Brokers made by hand: what is missing there is read and reported; nobody makes it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from enmasse.control import ControlConnection, Listener, listen
from enmasse.control.listings import address_rows, queue_rows
from enmasse.model.address_types import StoredType
from enmasse.model.names import AddressName
from enmasse.testing import free_port
from services.ragent import sweep
from services.ragent.manual_brokers import Offer, missing, offer
from tests.ragent.conftest import Scenario, World
from tests.ragent.doubles import until
from tests.ragent.test_agent import ALL
from tests.ragent.test_with_engines import Engines, everything_works

Play = Callable[[Scenario], None]
CREATE_Q = ("createQueue", "q", "ANYCAST", "q", None, True, -1, False, True)


def scene(folder: Path, play: Play, story: Callable[[World, Engines], Any]) -> None:
    async def scenario(world: World) -> None:
        engines = Engines(world, folder)
        try:
            world.router.kill()
            await engines.start()
            by_hand(world, engines.broker_port)
            world.configserv.addresses(ALL)
            await world.ready(*ALL)
            await story(world, engines)
        finally:
            await engines.stop()

    play(scenario)


def by_hand(world: World, port: int) -> None:
    placed = {name: [{"broker": "mine", "state": "active", "type": ALL[name]["type"]}] for name in ("q", "t")}
    world.configserv.place(placed, {"mine": {"host": "127.0.0.1", "port": port, "byHand": True}})


def test_what_is_missing_on_the_broker_is_not_ready(tmp_path: Path, play: Play) -> None:
    async def story(world: World, engines: Engines) -> None:
        await everything_works(engines)
        await engines.manage("deleteAddress", "t", True)
        await world.reported("t", "broker mine has no topic 't': make an address of this name with MULTICAST there")
        assert world.configserv.ready("ragent") == {"any", "multi", "q"}
        await engines.manage("createAddress", "t", "MULTICAST")
        await world.ready(*ALL)
        await engines.manage("destroyQueue", "q", True, True)
        await world.reported(
            "q", "broker mine has no queue 'q': make an address with an ANYCAST queue of this name there"
        )
        assert world.configserv.ready("ragent") == {"any", "multi", "t"}
        await engines.manage(*CREATE_Q)
        await world.ready(*ALL)
        await everything_works(engines)

    scene(tmp_path, play, story)


def test_a_broker_that_is_away_or_elsewhere(tmp_path: Path, play: Play) -> None:
    async def story(world: World, engines: Engines) -> None:
        await engines.kill("broker")
        await world.reported("t", f"broker mine cannot be reached at 127.0.0.1:{engines.broker_port}")
        assert world.configserv.ready("ragent") == {"any", "multi"}
        await engines.start_broker()
        await world.ready(*ALL)
        nobody = free_port()
        by_hand(world, nobody)
        await world.reported("t", f"broker mine cannot be reached at 127.0.0.1:{nobody}")
        by_hand(world, engines.broker_port)
        await world.ready(*ALL)
        by_hand(world, world.client_port)
        await world.reported("t", "broker mine is a router: name the host and port of a broker")
        by_hand(world, engines.broker_port)
        await world.ready(*ALL)

    scene(tmp_path, play, story)


def test_brokers_of_a_storage_controller_are_left_to_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        placed = {"q": [{"broker": "theirs", "state": "active", "type": "queue"}]}
        world.configserv.place(placed, {"theirs": {"host": "127.0.0.1", "port": free_port()}})
        world.configserv.addresses({"q": ALL["q"]})
        await world.ready("q")  # that is the router's state; the agent does not judge what lies on the broker

    play(scenario)


def test_a_broker_of_another_product_is_not_asked(play: Play) -> None:
    """It may make an address of what it is asked for. What can be known are the routers' links."""

    async def scenario(world: World) -> None:
        attached: list[str] = []

        def accepted(connection: ControlConnection) -> None:
            connection.on_attach = lambda link: attached.append(link.name)

        other = await listen("127.0.0.1", free_port(), accepted, container="other", properties={"product": "Other"})
        try:
            by_hand(world, other.port)
            world.configserv.addresses(ALL)
            await world.ready(*ALL)
            await world.reported("t", "whether broker mine has this topic cannot be looked up")
            assert not world.configserv.message("ragent", "q")
            assert attached == []
        finally:
            await other.close()
        await world.reported("t", f"broker mine cannot be reached at 127.0.0.1:{other.port}")

    play(scenario)


def test_a_broker_that_restarts_is_not_ready_before_the_routers_are_connected_again(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read of their links is of the process before."""
    monkeypatch.setattr(sweep, "SWEEP_EVERY", 3600.0)

    async def scenario(world: World) -> None:
        port = free_port()

        async def start() -> Listener:
            return await listen("127.0.0.1", port, lambda _: None, container="other", properties={"product": "Other"})

        other = await start()
        try:
            by_hand(world, port)
            world.configserv.addresses(ALL)
            await world.ready(*ALL)
            await other.close()
            await world.reported("t", f"broker mine cannot be reached at 127.0.0.1:{port}")
            world.router.brokers_down.add("mine")
            world.configserv.history.clear()
            other = await start()
            await world.reported("t", "is inactive: refused")
            world.router.brokers_down.clear()
            await world.ready(*ALL)
        finally:
            await other.close()

    play(scenario)


SEEN = Offer(frozenset({"q", "both"}), frozenset({"t", "both"}))


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("q", "queue", ""),
        ("t", "topic", ""),
        ("both", "queue", ""),
        ("both", "topic", ""),
        ("x", "queue", "broker b has no queue 'x': make"),
        ("t", "queue", "broker b has no queue 't' (only a topic of this name): make"),
        ("x", "topic", "broker b has no topic 'x': make"),
        ("q", "topic", "broker b has no topic 'q' (only a queue of this name): make"),
    ],
)
def test_what_is_to_be_made(name: AddressName, kind: StoredType, expected: str) -> None:
    found = missing("b", name, kind, SEEN)
    assert found.startswith(expected) and bool(found) == bool(expected)


def test_what_a_broker_offers() -> None:
    queues = [
        {"name": "q", "address": "q", "routingType": "ANYCAST"},
        {"name": "other", "address": "r", "routingType": "ANYCAST", "temporary": "false"},
        {"name": "reply", "address": "reply", "routingType": "ANYCAST", "temporary": "true"},
        {"name": "s", "address": "t", "routingType": "MULTICAST"},
    ]
    addresses = [{"name": "t", "routingTypes": '["MULTICAST"]'}, {"name": "q", "routingTypes": '["ANYCAST"]'}]

    found = offer(queue_rows(json.dumps({"data": queues})), address_rows(json.dumps({"data": addresses})))
    assert found == Offer(frozenset({"q", "r"}), frozenset({"t"}))
    for text in ("", "[]", '{"data": 1}'):
        with pytest.raises(ValueError, match=r"."):
            offer(queue_rows(text), ())


def test_placements_say_who_made_a_broker(play: Play) -> None:
    """A broker that was made by hand, and then is one of a storage controller, is not asked any more."""

    async def scenario(world: World) -> None:
        nobody = free_port()
        placed = {"q": [{"broker": "b", "state": "active", "type": "queue"}]}
        world.configserv.addresses({"q": ALL["q"]})
        world.configserv.place(placed, {"b": {"host": "127.0.0.1", "port": nobody, "byHand": True}})
        await world.reported("q", "cannot be reached")
        world.configserv.addresses(ALL)
        await world.reported("t", "no broker carries it yet; with a brokers.json, name it, or its flavor, there")
        world.configserv.addresses({"q": ALL["q"]})
        world.configserv.place(placed, {"b": {"host": "127.0.0.1", "port": nobody}})
        await until(lambda: world.configserv.ready("ragent") == {"q"})

    play(scenario)
