"""The feed of retained messages when keeping one fails in a way that nobody has foreseen."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import proton

from enmasse.amqp.messages.sections import Sections
from enmasse.control import Artemis, ControlConnection, connect
from services.subserv.brokers.broker_requests import BrokerManagement
from services.subserv.brokers.retained_feed import RetainedFeed
from tests.broker.harness import BrokerProcess
from tests.kit.running import asyncio_test
from tests.kit.waiting import until


class Unforeseen(BaseException):
    """What no `except Exception` holds up."""


class Kept:
    """Keeps bodies, and fails on some."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.fatal = False

    async def take(self, broker: str, messages: Sequence[tuple[int, bytes]]) -> None:
        bodies = [bytes(Sections(data).body()[1][0]) for _, data in messages]
        if b"odd" in bodies:
            raise RuntimeError("an error of ours")
        if self.fatal:
            self.fatal = False
            raise Unforeseen
        self.bodies += bodies


async def published(connection: ControlConnection, *bodies: bytes) -> None:
    sender = connection.sender("news")
    for body in bodies:
        message = proton.Message(address="news", body=body, durable=True, inferred=True)
        message.annotations = {proton.symbol("x-opt-retain-message"): True}
        outcome = await sender.deliver(message)
        assert outcome.accepted, outcome
    sender.close()


@asyncio_test
async def test_a_message_that_cannot_be_stored_becomes_a_dead_letter_and_the_feed_goes_on(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path).start()
    try:
        publisher = await connect("127.0.0.1", broker.port, container="publisher")
        management = await Artemis(publisher).opened()
        await management.invoke("broker", "createAddress", "news", "MULTICAST")
        await management.invoke("broker", "createQueue", json.dumps({"name": "dead", "routing-type": "ANYCAST"}))
        dead = json.dumps({"deadLetterAddress": "dead"})
        await management.invoke("broker", "addAddressSettings", "#", dead)
        kept = Kept()
        feed = RetainedFeed("b1", kept.take, itertools.count())
        connection = await _attached(broker, feed)
        await published(publisher, b"one", b"odd", b"two")
        await until(lambda: kept.bodies == [b"one", b"two"])
        assert feed.failures == 1
        rejected = await anext(publisher.receiver("dead", window=1))
        assert bytes(rejected.message.body) == b"odd"
        assert await feed.mark() == 3
        kept.fatal = True
        await published(publisher, b"three")
        await until(lambda: connection.is_gone)
        assert feed.failures == 2 and not feed.attached
        await _attached(broker, feed)  # as the conversation with the broker does on its next connection
        await until(lambda: kept.bodies == [b"one", b"two", b"three"])
    finally:
        broker.kill()


async def _attached(broker: BrokerProcess, feed: RetainedFeed) -> ControlConnection:
    connection = await connect("127.0.0.1", broker.port, container="subserv")
    management = BrokerManagement("b1", "suite", connection)
    await management.opened()
    await management.configure()
    await feed.attach(connection, "$sub/b1/retained.feed@suite")
    return connection
