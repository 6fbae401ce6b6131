"""Messages of queues and subscriptions that a receiver behind the router leaves unsettled, or settles without outcome.

The same holds at the broker itself: `test_what_a_consumer_leaves_comes_back` and
`test_a_message_that_is_settled_without_an_outcome` of tests/contract.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from proton import Endpoint, Message
from proton.reactor import DurableSubscription
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached

from enmasse.aio.client import connect
from enmasse.aio.client_links import ClientReceiver, Delivery
from enmasse.amqp.codec.performatives import ACCEPTED, RELEASED, Accepted, Modified, Received, Released, Source
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.link import FIRST, SECOND
from enmasse.amqp.messages.message import Message as Sent
from enmasse.testing import Suite
from tests.broker.harness import named
from tests.kit.leaving import LOST, WAYS
from tests.kit.waiting import DEADLINE, wait_for
from tests.system.seeing import carrier, kill, wait_again

FAILED = Modified(delivery_failed=True)


def taken(receiver: BlockingReceiver, count: int) -> list[tuple[str, int]]:
    """Bodies and delivery-counts of so many messages."""
    found = [receiver.receive() for _ in range(count)]
    return [(message.body, message.delivery_count) for message in found]


@pytest.mark.parametrize(
    ("address", "way"), [*(("orders", way) for way in WAYS), *(("news", way) for way in WAYS if way != "complain")]
)
def test_what_a_client_leaves_comes_back(suite: Suite, address: str, way: str) -> None:
    """From a queue and from a durable subscription. If the client was lost, the oldest one counts as failed."""
    options = [DurableSubscription()] if address == "news" else []
    container = f"left-{uuid.uuid4()}"

    def client() -> BlockingReceiver:
        connection = BlockingConnection(suite.url, timeout=DEADLINE, container=named(container))
        return connection.create_receiver(address, name="left", credit=4, options=options)

    first = client()
    sender = BlockingConnection(suite.url, timeout=DEADLINE).create_sender(address)
    for body in "abcd":
        sender.send(Message(body=body, durable=True))
    assert taken(first, 3) == [("a", 0), ("b", 0), ("c", 0)]
    WAYS[way](first)
    second = client()
    assert taken(second, 4) == [("a", int(way in LOST)), ("b", 0), ("c", 0), ("d", 0)]
    for _ in "abcd":
        second.accept()
    second.close()
    second.connection.close()
    sender.connection.close()


def test_a_durable_subscription_outlives_its_broker(suite: Suite) -> None:
    """The client learns it by a detach that is not closing, attaches again by its name, and gets all that was accepted:
    what it had not settled, what waited, and what was published while it was away."""
    container = f"outlives-{uuid.uuid4()}"

    def client() -> BlockingReceiver:
        connection = BlockingConnection(suite.url, timeout=DEADLINE, container=named(container))
        return connection.create_receiver("news", name="outlives", credit=2, options=[DurableSubscription()])

    def publish(*bodies: str) -> bool:
        """Return False while the router has no way to the broker, which has just come back."""
        connection = BlockingConnection(suite.url, timeout=DEADLINE)
        try:
            sender = connection.create_sender("news")
            for body in bodies:
                sender.send(Message(body=body, durable=True))
        except LinkDetached:
            return False
        finally:
            connection.close()
        return True

    first = client()
    assert publish(*"abcd")
    assert [body for body, _ in taken(first, 2)] == ["a", "b"]
    name = carrier(suite, "news")["name"]
    pid = kill(suite, name)
    link = first.link
    first.connection.wait(lambda: link.remote_condition is not None)  # raises LinkDetached for one that is closing
    assert link.remote_condition.name == "qd:routed-link-lost"
    assert not link.state & Endpoint.REMOTE_CLOSED
    wait_again(suite, name, pid)
    wait_for(lambda: publish("e"), "a way to the broker")
    second = client()
    bodies = []
    for _ in "abcde":
        bodies += [body for body, _ in taken(second, 1)]
        second.accept()
    assert bodies == list("abcde")
    second.close()  # the end of the subscription
    second.connection.close()
    first.connection.close()


def settle(receiver: ClientReceiver, delivery: Delivery, *states: Any) -> None:
    """State these without settling, but for the last one, which may be none at all."""
    receiver.link.second = False  # this end settles
    for state in states[:-1]:
        receiver.link.session.update(delivery.id, state)
    delivery.settle(states[-1])


DEFAULTS = [None, ACCEPTED, RELEASED, FAILED]
STATED: list[tuple[Any, ...]] = [
    (None,),
    (Received(section_number=0, section_offset=0),),
    (ACCEPTED, None),
    (RELEASED, None),
]
CASES = [(default, states) for default in DEFAULTS for states in STATED]


def expected(default: Any, states: tuple[Any, ...]) -> Any:
    """What counts: what was stated, else the default outcome of the source, else released."""
    return states[0] if len(states) > 1 else default or RELEASED


@pytest.mark.parametrize("mode", [FIRST, SECOND])
@pytest.mark.parametrize("address", ["orders", "news"])
def test_a_message_that_is_settled_without_an_outcome_is_not_in_limbo(suite: Suite, address: str, mode: int) -> None:
    async def run() -> list[tuple[Any, list[int]]]:
        found = []
        container = f"limbo-{uuid.uuid4()}"
        async with connect(suite.url, container_id=container) as client:
            sender = await client.sender(address)
            for default, states in CASES:
                source = Source(address=address, default_outcome=default)
                if address == "news":
                    source.durable, source.expiry_policy = 2, Symbol("never")
                fields: dict[str, Any] = {"source": source, "name": "limbo", "credit": 0}
                receiver = await client.receiver(address, rcv_settle_mode=mode, **fields)
                await sender.send(Sent(1, durable=True))
                receiver.grant(1)
                settle(receiver, await receiver.receive(timeout=DEADLINE), *states)
                await receiver.detach()
                receiver = await client.receiver(address, **fields)
                receiver.grant(2)
                counts = []
                await receiver.drain()
                while (delivery := receiver.receive_nowait()) is not None:
                    counts.append(delivery.message.delivery_count)
                    await delivery.accept()
                await receiver.close()
                found.append((expected(default, states), counts))
        return found

    for outcome, counts in asyncio.run(run()):
        assert counts == {Accepted: [], Released: [0], Modified: [1]}[type(outcome)]


@pytest.mark.parametrize("mode", [FIRST, SECOND])
@pytest.mark.parametrize("address", ["direct", "all"])
def test_a_sender_learns_an_outcome_that_its_receiver_has_not_stated(suite: Suite, address: str, mode: int) -> None:
    async def run() -> list[tuple[Any, Any]]:
        found = []
        async with connect(suite.url) as client:
            sender = await client.sender(address)
            for default, states in CASES:
                source = Source(address=address, default_outcome=default)
                receiver = await client.receiver(address, source=source, rcv_settle_mode=mode)
                sent = asyncio.create_task(sender.send(Sent(1)))
                settle(receiver, await receiver.receive(timeout=DEADLINE), *states)
                found.append((expected(default, states), await asyncio.wait_for(sent, DEADLINE)))
                await receiver.close()
        return found

    for outcome, learned in asyncio.run(run()):
        assert learned == outcome


def test_a_browser_that_settles_without_an_outcome_changes_nothing(suite: Suite) -> None:
    async def run() -> None:
        async with connect(suite.url) as client:
            sender = await client.sender("orders")
            await sender.send(Sent("seen", durable=True))
            for mode in (FIRST, SECOND):
                browser = await client.receiver("orders", browse=True, rcv_settle_mode=mode)
                settle(browser, await browser.receive(timeout=DEADLINE), None)
                await browser.close()
            receiver = await client.receiver("orders")
            delivery = await receiver.receive(timeout=DEADLINE)
            assert (delivery.message.body, delivery.message.delivery_count) == ("seen", 0)
            await delivery.accept()

    asyncio.run(run())
