"""What the sender gets: the receiver's outcome, or what stands for it when one of the two is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from proton import Delivery, Link, Message
from proton.reactor import AtMostOnce, LinkOption

from enmasse.aio.client import connect
from enmasse.amqp.link import SECOND
from enmasse.amqp.messages.message import Message as Sent
from tests.router.harness import DEADLINE, PREFIX, Management, RouterProcess, idle, outcome_of, post, wait_for


class Settled(LinkOption):
    """A receiver that asks for settled deliveries."""

    def apply(self, link: Link) -> None:
        link.snd_settle_mode = Link.SND_SETTLED


class Second(LinkOption):
    """A receiver that settles when the sender has settled."""

    def apply(self, link: Link) -> None:
        link.rcv_settle_mode = Link.RCV_SECOND


@pytest.mark.parametrize(
    ("state", "failed", "undeliverable"),
    [
        (Delivery.ACCEPTED, False, False),
        (Delivery.REJECTED, False, False),
        (Delivery.RELEASED, False, False),
        (Delivery.MODIFIED, True, False),
        (Delivery.MODIFIED, True, True),
    ],
)
def test_the_receivers_outcome_is_the_senders(
    router: RouterProcess, address: str, state: Any, failed: bool, undeliverable: bool
) -> None:
    connection = router.connect()
    receiver = connection.create_receiver(address, credit=1)
    sender = connection.create_sender(address)
    delivery = post(sender, Message(body="x"))
    receiver.receive()
    got, _ = receiver.fetcher.unsettled.popleft(), None
    if state == Delivery.MODIFIED:
        got.local.failed = failed
        got.local.undeliverable = undeliverable
        got.local.annotations = {"why": "because"}
    got.update(state)
    got.settle()
    assert outcome_of(connection, delivery) == state
    if state == Delivery.MODIFIED:
        assert delivery.remote.failed is failed
        assert delivery.remote.undeliverable is undeliverable
        assert delivery.remote.annotations == {"why": "because"}
    connection.close()


def test_a_reason_for_rejection_reaches_the_sender(router: RouterProcess, address: str) -> None:
    from proton import Condition

    connection = router.connect()
    receiver = connection.create_receiver(address, credit=1)
    sender = connection.create_sender(address)
    delivery = post(sender, Message(body="x"))
    receiver.receive()
    got = receiver.fetcher.unsettled.popleft()
    got.local.condition = Condition("my:reason", "not today")
    got.update(Delivery.REJECTED)
    got.settle()
    assert outcome_of(connection, delivery) == Delivery.REJECTED
    assert (delivery.remote.condition.name, delivery.remote.condition.description) == ("my:reason", "not today")
    connection.close()


def test_a_receiver_that_settles_without_an_outcome(router: RouterProcess, address: str) -> None:
    connection = router.connect()
    receiver = connection.create_receiver(address, credit=1)
    sender = connection.create_sender(address)
    delivery = post(sender, Message(body="x"))
    receiver.receive()
    receiver.fetcher.unsettled.popleft().settle()
    assert outcome_of(connection, delivery) == Delivery.RELEASED
    connection.close()


def test_a_state_before_settlement_is_relayed(router: RouterProcess, address: str) -> None:
    connection = router.connect()
    receiver = connection.create_receiver(address, credit=2)
    sender = connection.create_sender(address)
    for sender_first in (True, False):
        delivery = post(sender, Message(body="x"))
        receiver.receive()
        got = receiver.fetcher.unsettled.popleft()
        got.update(Delivery.ACCEPTED)
        connection.wait(lambda: delivery.remote_state == Delivery.ACCEPTED)
        assert not delivery.settled
        if sender_first:
            delivery.settle()
            connection.wait(lambda: got.settled, msg="the sender's settlement")
        else:
            got.settle()
            connection.wait(lambda: delivery.settled, msg="the receiver's settlement")
    connection.close()


def test_a_sender_that_settles_first_lets_the_receivers_state_be_settled_at_once(
    router: RouterProcess, address: str
) -> None:
    connection = router.connect()
    receiver = connection.create_receiver(address, credit=1, options=[Second()])
    delivery = post(connection.create_sender(address), Message(body="x"))
    receiver.receive()
    got = receiver.fetcher.unsettled.popleft()
    delivery.settle()
    idle(connection)
    got.update(Delivery.ACCEPTED)
    connection.wait(lambda: got.settled, msg="the settlement")
    connection.close()


def test_a_receiver_gets_the_settle_mode_that_it_asks_for(router: RouterProcess, address: str) -> None:
    """Of what comes settled there is nothing to settle."""
    connection = router.connect()
    asked = {"second": [Second()], "first": [], "settled": [Settled(), Second()]}
    got = {
        name: connection.create_receiver(address, name=name, options=options).link.remote_rcv_settle_mode
        for name, options in asked.items()
    }
    assert got == {"second": Link.RCV_SECOND, "first": Link.RCV_FIRST, "settled": Link.RCV_FIRST}
    connection.close()


@pytest.mark.parametrize("kind", ["balanced", "multicast"])
def test_settlement_reaches_a_receiver_of_mode_second(
    router: RouterProcess, address: str, multicast: str, kind: str
) -> None:
    """The client of ours believes the mode that the router answers."""
    node = address if kind == "balanced" else multicast

    async def both() -> tuple[list[int], list[int]]:
        settled: asyncio.Queue[Sequence[int]] = asyncio.Queue()
        async with connect(f"amqp://{router.url}") as consumer, connect(f"amqp://{router.url}") as producer:
            receiver = await consumer.receiver(node, rcv_settle_mode=SECOND)
            receiver.on_settled = settled.put_nowait
            sender = await producer.sender(node)
            accepted: list[int] = []
            told: list[int] = []
            for n in range(3):
                sent = asyncio.create_task(sender.send(Sent(n)))
                delivery = await receiver.receive(timeout=DEADLINE)
                await delivery.accept()
                await sent
                accepted.append(delivery.id)
                told += await asyncio.wait_for(settled.get(), DEADLINE)
        return accepted, told

    accepted, told = asyncio.run(both())
    assert told == accepted


def test_receiver_lost_released_what_waits_modified_what_was_sent(router: RouterProcess, address: str) -> None:
    producer, consumer = router.connect(), router.connect()
    receiver = consumer.create_receiver(address, credit=0)
    receiver.link.flow(1)
    sender = producer.create_sender(address)
    deliveries = [post(sender, Message(body=i)) for i in range(3)]
    consumer.wait(lambda: bool(receiver.fetcher.incoming))
    idle(producer)
    receiver.close()
    states = [outcome_of(producer, delivery) for delivery in deliveries]
    assert states == [Delivery.MODIFIED, Delivery.RELEASED, Delivery.RELEASED]
    assert deliveries[0].remote.failed is True
    producer.close()
    consumer.close()


def test_receivers_connection_lost(router: RouterProcess, management: Management, address: str) -> None:
    producer, consumer = router.connect(), router.connect()
    receiver = consumer.create_receiver(address, credit=0)
    receiver.link.flow(1)
    sender = producer.create_sender(address)
    deliveries = [post(sender, Message(body=i)) for i in range(2)]
    consumer.wait(lambda: bool(receiver.fetcher.incoming))
    idle(producer)
    kind = PREFIX + "connection"
    row = next(r for r in management.query(kind) if r["container"] == consumer.container.container_id)
    management.call("UPDATE", {"adminStatus": "deleted"}, type=kind, identity=row["identity"])
    assert [outcome_of(producer, d) for d in deliveries] == [Delivery.MODIFIED, Delivery.RELEASED]
    producer.wait(lambda: sender.link.drain_mode)
    producer.close()


def test_sender_lost_what_it_sent_is_still_delivered(router: RouterProcess, address: str) -> None:
    producer, consumer = router.connect(), router.connect()
    receiver = consumer.create_receiver(address, credit=1)
    sender = producer.create_sender(address)
    for i in range(3):
        post(sender, Message(body=i))
    idle(producer)
    producer.close()
    received = []
    for _ in range(3):
        received.append(receiver.receive().body)
        receiver.accept()
    assert received == [0, 1, 2]
    consumer.close()


def test_presettled_deliveries(router: RouterProcess, address: str) -> None:
    connection = router.connect()
    receiver = connection.create_receiver(address, credit=600)
    sender = connection.create_sender(address, options=AtMostOnce())
    for i in range(600):  # more than the capacity: credit comes back at once
        post(sender, Message(body=i))
    connection.wait(lambda: len(receiver.fetcher.incoming) == 600)
    assert all(delivery.settled for _, delivery in receiver.fetcher.incoming)
    connection.close()


def test_presettled_deliveries_do_not_pile_up(router: RouterProcess, management: Management, address: str) -> None:
    connection = router.connect()
    connection.create_receiver(address, credit=0, name="no-credit" + address)
    sender = connection.create_sender(address, options=AtMostOnce())
    for i in range(1000):
        post(sender, Message(body=i))
    idle(connection)

    def dropped() -> bool:
        row = management.one(PREFIX + "router.link", "no-credit" + address)
        return bool(row["droppedPresettledCount"] == 750 and row["undeliveredCount"] == 250)

    wait_for(dropped)
    connection.close()


def test_a_receiver_that_wants_settled_deliveries(router: RouterProcess, address: str) -> None:
    connection = router.connect()
    receiver = connection.create_receiver(address, credit=5, options=Settled())
    sender = connection.create_sender(address)
    delivery = post(sender, Message(body="x"))
    assert outcome_of(connection, delivery) == Delivery.ACCEPTED
    receiver.receive()
    assert receiver.fetcher.incoming or not receiver.fetcher.unsettled
    connection.close()
