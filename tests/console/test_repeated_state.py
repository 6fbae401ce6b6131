"""A follower that has missed too much gets the whole state a second time: the console takes nothing of it for new."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import proton
import pytest

from enmasse.amqp.messages.sections import Sections
from enmasse.amqp.termini import SPACE
from enmasse.control import ControlLink, ControlSender, listen
from enmasse.live_state import MAX_REMOVED, NODE, ROWS, LivePublisher
from enmasse.live_state import Rows as LiveRows
from enmasse.process.places import Places
from services.console.following import followers
from services.console.following.configuration import Configuration
from services.console.following.followers import Live
from services.console.following.process_events import Events
from tests.kit.running import asyncio_test
from tests.kit.waiting import until
from tests.router.world import Clock


class Follower:
    """Gives events of the messages that it gets to the console's `events`. `full`: number of states that began."""

    def __init__(self) -> None:
        self.ready = True
        self.full = 0
        self.events = Events()

    def reply(self, payload: bytes) -> None:
        body = json.loads(Sections(payload).body()[1][0])
        self.full += body["full"]
        self.events.take(body)

    def seen(self) -> list[str]:
        return sorted(row.condition for _, row in self.events.rows)


def test_events_of_a_repeated_state_are_not_new() -> None:
    rows, follower, clock = LiveRows("router-0", "router", time.time), Follower(), Clock()

    def nothing() -> Iterator[None]:
        yield from ()

    publisher = LivePublisher(rows, nothing, lambda: [follower], clock)

    def second() -> None:
        publisher.start()
        clock.run()

    second()  # it begins, without rows
    for number in range(ROWS + 1):  # a state of several messages
        rows.put("connections", str(number), {})
    rows.event({"condition": "first"})
    second()
    assert (follower.full, follower.seen()) == (1, ["first"])
    follower.ready = False
    for number in range(MAX_REMOVED + 2):
        rows.put("links", str(number), {})
        rows.drop("links", str(number))
    rows.event({"condition": "second"})
    second()
    follower.ready = True
    second()
    assert (follower.full, follower.seen()) == (2, ["first", "second"])
    rows.event({"condition": "third"})
    second()
    assert (follower.full, follower.seen()) == (2, ["first", "second", "third"])


class Router:
    """Offers live state that the test gives. `links`: those of followers, by source."""

    def __init__(self) -> None:
        self.links: dict[str, list[ControlSender]] = {}

    def accepted(self, connection: Any) -> None:
        connection.on_attach = self._attach

    def _attach(self, link: ControlLink) -> None:
        assert isinstance(link, ControlSender)
        self.links.setdefault(str(link.remote_source), []).append(link)
        link.accept()

    def tell(self, *, full: bool, complete: bool, **rows: Any) -> None:
        body = {
            "schema": 1, "component": "router-0", "kind": "router", "run": "1", "started": 0.0, "at": 0.0,
            "full": full, "complete": complete, **rows,
        }  # fmt: skip
        self.links[NODE][0].send(proton.Message(json.dumps(body)), settled=True)


@asyncio_test
async def test_gateways_are_followed_on_while_the_state_of_their_router_is_repeated() -> None:
    patch = pytest.MonkeyPatch()
    patch.setattr(followers, "AGAIN", 0.01)
    router = Router()
    listener = await listen("127.0.0.1", 0, router.accepted, container="router-0")
    place = Places(("127.0.0.1", listener.port))
    console = Live(Configuration("127.0.0.1:1", "console", None), place, {}, "console", None)
    of_space = {"role": "mqtt_gateway", "container": "g@one", "properties": {SPACE: "one"}}
    gateway = {"0": of_space, "1": {"role": "mqtt_gateway", "container": "g", "properties": {}}}
    try:
        with console.followed():
            await until(lambda: NODE in router.links)
            router.tell(full=True, complete=True, connections=gateway)
            await until(lambda: f"{NODE}/g" in router.links, "the gateway is followed")
            node, complete = console.gateways["g"], console.router.complete
            router.tell(full=True, complete=False, connections={"2": {}})
            await until(lambda: not complete.is_set(), "the repeated state is incomplete")
            router.tell(full=False, complete=True, connections=gateway)
            await until(complete.is_set)
            assert console.gateways == {"g": node} and len(router.links[f"{NODE}/g"]) == 1
            assert router.links.keys() == {NODE, f"{NODE}/g"}, "a gateway is followed once, over whichever connection"
    finally:
        await console.close()
        await listener.close()
        patch.undo()
