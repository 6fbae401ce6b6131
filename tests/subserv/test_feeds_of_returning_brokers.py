"""The feed of retained messages of a broker that is read again, over the same connection or as another broker."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from enmasse.amqp.messages.message import Message
from enmasse.control import Artemis, connect
from enmasse.control.reports import BoundReporter
from enmasse.identity.annotations import RETAIN
from enmasse.model.feeds import Placement, Placements
from enmasse.model.names import AddressName
from enmasse.stores import Change
from enmasse.testing import free_port
from services.subserv.brokers.conversation import BrokerConversation, Want
from services.subserv.brokers.retained_feed import RetainedFeed
from services.subserv.preparing import Preparing
from services.subserv.retained.retained_messages import RetainedMessages
from tests.broker.harness import BrokerProcess
from tests.kit.running import asyncio_test
from tests.kit.waiting import until
from tests.subserv.harness import Gateway, World, world
from tests.subserv.test_conversation import Owner
from tests.subserv.test_retained_feed import published


class Failing(Owner):
    """Fails once with an error after which the state of the broker is unknown."""

    suite = "suite"
    fails = False

    def want(self, broker: str, id: str, *, held: bool) -> Want | None:
        if self.fails:
            self.fails = False
            raise ValueError("the outcome is unknown")
        return super().want(broker, id, held=held)


@asyncio_test
async def test_after_a_round_that_failed_the_feed_is_read_on(tmp_path: Path) -> None:
    """The connection lives: what had come and was not stored comes again, in its order."""
    broker = BrokerProcess(tmp_path).start()
    stored: list[bytes] = []
    go_on = asyncio.Event()

    async def store(broker: str, messages: Sequence[tuple[int, bytes]]) -> None:
        await go_on.wait()
        stored.extend(data[-1:] for _, data in messages)

    try:
        publisher = await connect("127.0.0.1", broker.port, container="publisher")
        await (await Artemis(publisher).opened()).invoke("broker", "createAddress", "news", "MULTICAST")
        connection = await connect("127.0.0.1", broker.port, container="subserv")
        owner = Failing()
        talk = BrokerConversation("b1", owner, RetainedFeed("b1", store, itertools.count()))
        running = asyncio.ensure_future(talk.session(connection))
        await until(lambda: talk.connected)
        await published(publisher, b"1")
        await published(publisher, b"2")
        owner.wants["a"], owner.fails = 1, True
        talk.touch(["a"])
        await until(lambda: not owner.fails and not talk.connected)
        await published(publisher, b"3")
        go_on.set()
        bound = asyncio.ensure_future(talk.bound("a"))
        await until(bound.done)
        await (await bound).before
        assert stored == [b"1", b"2", b"3"]
        assert not connection.is_gone
        running.cancel()
        await asyncio.wait([running])
    finally:
        broker.kill()


@pytest.mark.parametrize("moved", [False, True], ids=["it was not needed", "it has another port"])
@asyncio_test
async def test_a_new_subscriber_gets_retained_messages_of_a_broker_that_was_away(tmp_path: Path, moved: bool) -> None:
    """The broker is known anew: what comes over its feed now is behind all that came before."""
    async with world(tmp_path, brokers=2) as w:
        gateway = await w.gateway()
        for number in range(20):
            await w.publish_to(f"news/{number}", b"kept", retain=True)
        await until(lambda: w.health()["counts"]["retained"] == 20)
        if moved:
            await asyncio.to_thread(moves, w.brokers["b1"])
        else:
            await leaves(w)
        await w.publish()
        await w.ready()
        await gateway.open("late")
        await subscribed(gateway, "late", "news/#")
        assert len(await w.take("$sub/b1/mqtt.late", 20)) == 20


def moves(broker: BrokerProcess) -> None:
    """As a pod that gets another address."""
    broker.kill()
    broker.port = free_port()
    broker.url = f"127.0.0.1:{broker.port}"
    broker.start()


async def leaves(w: World) -> None:
    """As a broker that no address needs for a while."""
    prepared = {"broker": "b2", "state": "prepared", "type": "topic", "epoch": 1}
    w.configserv.place({"alarms": [prepared]}, {"b2": {"host": "127.0.0.1", "port": w.brokers["b2"].port}})
    await until(lambda: w.configserv.bound.get("alarms") == {"b2": 1}, "the change to be taken in")


async def subscribed(gateway: Gateway, client: str, filter: str) -> None:
    async def granted() -> bool:
        return bool((await gateway.subscribe(client, filter))["codes"] == [1])

    await until(granted)


class Slow:
    """A store whose write waits until it may go on."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.writes = asyncio.Event()
        self.may = asyncio.Event()

    async def write(self, changes: Sequence[Change]) -> None:
        self.writes.set()
        await self.may.wait()
        self.written += [each.key for each in changes]


@asyncio_test
async def test_what_is_stored_is_in_the_index_though_the_connection_was_lost_meanwhile() -> None:
    store = Slow()
    retained = RetainedMessages(cast(Any, store))
    message = Message("v", to="news/1", annotations={RETAIN: True}).encode()
    taking = asyncio.ensure_future(retained.take("b1", [(1, message)]))
    await store.writes.wait()
    taking.cancel()
    store.may.set()
    await until(lambda: store.written == ["news/1"])
    await until(lambda: retained.index.count == 1)


class Conversation:
    """A broker whose feed is read at last when it is told so."""

    is_unasked = False
    has_feed = connected = True

    def __init__(self) -> None:
        self.conversation = self.feed = self
        self.read: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.asked = asyncio.Event()

    async def read_now(self) -> None: ...

    def differing(self, ids: Sequence[str]) -> list[str]:
        return []

    def mark(self) -> asyncio.Future[int]:
        self.asked.set()
        return self.read


class Everything:
    """The owner of no subscribers, what is desired, and the brokers."""

    complete = True

    def __init__(self, broker: Conversation) -> None:
        self._broker = broker

    def subscribers(self) -> list[Any]:
        return []

    def open(self, name: AddressName, broker: str) -> None: ...

    def get(self, name: str) -> Conversation:
        return self._broker


@asyncio_test
async def test_nothing_is_reported_as_bound_before_the_feed_there_has_been_read() -> None:
    """The topic was there before: its older retained messages come before it moves back."""
    broker = Conversation()
    all_of_it = cast(Any, Everything(broker))
    preparing = Preparing(all_of_it, all_of_it, all_of_it)
    reported: list[tuple[str, str, int]] = []
    preparing.reporter = cast(BoundReporter, Reporter(reported))
    place = Placement(broker="b1", state="prepared", type="topic", epoch=5)
    preparing.follow(Placements(brokers={}, addresses={AddressName("news"): [place]}))
    await broker.asked.wait()
    assert reported == []
    broker.read.set_result(1)
    await until(lambda: reported == [("news", "b1", 5)])


class Reporter:
    def __init__(self, reported: list[tuple[str, str, int]]) -> None:
        self._reported = reported

    def bound(self, name: str, broker: str, epoch: int) -> None:
        self._reported.append((name, broker, epoch))
