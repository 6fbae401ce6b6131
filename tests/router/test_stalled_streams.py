"""A large message that nobody takes: who goes on all the same."""

from __future__ import annotations

from typing import Any

import psutil
import pytest
from proton import Delivery, Message
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender

from tests.router.harness import (
    ADDRESS,
    AUTO_LINK,
    CONNECTOR,
    Broker,
    Management,
    RouterProcess,
    body_of,
    comes,
    outcome_of,
    post,
    pump,
    pump_until,
    wait_for,
)

MEGABYTE = 1_000_000
LARGE = 10
"""Megabytes: more than a session's window holds."""


def in_session_of_its_own(connection: BlockingConnection, address: str) -> BlockingSender:
    session = connection.conn.session()
    session.open()
    link = session.sender(f"own-{address}")
    link.target.address = address
    link.open()
    return BlockingSender(connection, link)


def stall(sender: BlockingSender, megabytes: int, pumped: int = 30) -> Any:
    """Send a message of so many MB, as much of it as the router takes."""
    connection = sender.connection
    connection.wait(lambda: sender.link.credit > 0)
    delivery = sender.link.delivery(f"big{megabytes}")
    sender.link.stream(b"\x00\x53\x75\xb0" + (megabytes * MEGABYTE).to_bytes(4, "big"))
    for _ in range(megabytes):
        sender.link.stream(b"x" * MEGABYTE)
    sender.link.advance()
    for _ in range(pumped):
        pump(connection)
    return delivery


def takes(receiver: BlockingReceiver, *producers: BlockingConnection) -> int:
    """Receive and accept one message, while the producers go on sending; its size."""

    comes(receiver, "the large message", *producers)
    size = len(body_of(receiver.receive()))
    receiver.accept()
    pump(receiver.connection)
    return size


def goes_through(consumer: BlockingConnection, sender: BlockingSender, address: str, name: str) -> None:
    """A small message passes from end to end."""
    receiver = consumer.create_receiver(address, credit=1, name=name)
    delivery = post(sender, Message(body="small"))
    assert takes(receiver, sender.connection) == len("small")
    assert outcome_of(sender.connection, delivery) == Delivery.ACCEPTED
    receiver.close()


@pytest.mark.parametrize("stalled", [1, 2])
def test_other_sessions_and_connections_go_on(router: RouterProcess, address: str, stalled: int) -> None:
    producer, consumer, other = router.connect(), router.connect(), router.connect()
    process = psutil.Process(router.process.pid)
    before = process.memory_info().rss
    idle = [consumer.create_receiver(f"{address}/{i}", credit=0, name=f"idle{i}") for i in range(stalled)]
    big = []
    for i in range(stalled):
        sender = producer.create_sender(f"{address}/0") if i == 0 else in_session_of_its_own(producer, f"{address}/{i}")
        big.append(stall(sender, LARGE))
    second = in_session_of_its_own(producer, f"{address}/second")
    for i in range(3):
        goes_through(consumer, second, f"{address}/second", f"second{i}")
    elsewhere = other.create_sender(f"{address}/third")
    goes_through(consumer, elsewhere, f"{address}/third", "third")
    assert process.memory_info().rss - before < 40 * MEGABYTE
    for receiver, delivery in zip(idle, big, strict=True):
        receiver.link.flow(1)
        assert takes(receiver, producer) == LARGE * MEGABYTE
        assert outcome_of(producer, delivery) == Delivery.ACCEPTED
    for connection in (producer, consumer, other):
        connection.close()


def test_links_of_the_same_session_go_on_beside_some_megabytes(router: RouterProcess, address: str) -> None:
    producer, consumer = router.connect(), router.connect()
    idle = consumer.create_receiver(address, credit=0)
    sender = producer.create_sender(address)
    neighbour = producer.create_sender(f"{address}/neighbour")
    delivery = stall(sender, 5)
    for i in range(3):
        goes_through(consumer, neighbour, f"{address}/neighbour", f"n{i}")
    idle.link.flow(1)
    assert takes(idle, producer) == 5 * MEGABYTE
    assert outcome_of(producer, delivery) == Delivery.ACCEPTED
    producer.close()
    consumer.close()


def test_a_stream_goes_to_whoever_has_credit_first(router: RouterProcess, address: str) -> None:
    """It waits for one consumer, and another one comes that can take it."""
    producer, first, second = router.connect(), router.connect(), router.connect()
    first.create_receiver(address, credit=0)
    sender = producer.create_sender(address)
    delivery = stall(sender, 2)
    receiver = second.create_receiver(address, credit=1)
    assert takes(receiver, producer) == 2 * MEGABYTE
    assert outcome_of(producer, delivery) == Delivery.ACCEPTED
    for connection in (producer, first, second):
        connection.close()


def test_a_large_message_of_one_queue_does_not_hold_up_the_other_queues(
    router: RouterProcess, management: Management, broker: Broker
) -> None:
    """The links of a broker share sessions: what no consumer begins to take goes back, and comes with credit for it."""
    queues = [f"shared{i}" for i in range(12)]
    management.create(CONNECTOR, "shared", host="127.0.0.1", port=str(broker.port), role="route-container")
    for queue in queues:
        management.create(ADDRESS, queue, pattern=queue, waypoint=True)
        management.create(AUTO_LINK, f"{queue}-in", address=queue, direction="in", containerId="b0")
    consumer = router.connect()
    receivers = {queue: consumer.create_receiver(queue, credit=0, name=queue) for queue in queues}
    for queue in queues:
        wait_for(lambda: broker.credit(queue) > 0, queue)  # noqa: B023
    big = queues[0]
    large = Message(body=b"x" * (LARGE * MEGABYTE))
    broker.put(big, large)
    wait_for(lambda: (big, int(Delivery.RELEASED)) in broker.outcomes, "the large message is given back")
    wait_for(lambda: broker.credit(big) == 0, "no credit while no consumer has some")
    for queue in queues[1:]:
        receivers[queue].link.flow(1)
        broker.put(queue, Message(body=queue))
        assert receivers[queue].receive().body == queue
        receivers[queue].accept()
    broker.put(big, large)
    receivers[big].link.flow(1)
    assert takes(receivers[big]) == LARGE * MEGABYTE
    wait_for(lambda: (big, int(Delivery.ACCEPTED)) in broker.outcomes, "the large message is accepted")
    consumer.close()
    for queue in queues:
        management.delete(AUTO_LINK, f"{queue}-in")
        management.delete(ADDRESS, queue)
    management.delete(CONNECTOR, "shared")


def begin(sender: BlockingSender, size: int) -> Any:
    """The first half of a message of so many bytes."""
    connection = sender.connection
    connection.wait(lambda: sender.link.credit > 0)
    delivery = sender.link.delivery("half")
    sender.link.stream(b"\x00\x53\x75\xb0" + size.to_bytes(4, "big") + b"x" * (size // 2))
    pump(connection)
    return delivery


@pytest.mark.parametrize("size", [100_000, 6 * MEGABYTE])
def test_a_sender_that_stops_in_the_middle_does_not_hold_up_the_others(
    router: RouterProcess, address: str, size: int
) -> None:
    """There is one consumer, whose link carries one delivery at a time."""
    consumer, stopping, other = router.connect(), router.connect(), router.connect()
    receiver = consumer.create_receiver(address, credit=10)
    stops = stopping.create_sender(address)
    half = begin(stops, size)

    def begun() -> bool:
        current = receiver.link.current
        return current is not None and bool(current.pending)

    pump_until(begun, "the beginning of the message", consumer, stopping)
    small = post(other.create_sender(address), Message(body="small"))
    assert takes(receiver, stopping, other) == len("small")
    assert outcome_of(other, small) == Delivery.ACCEPTED
    assert outcome_of(stopping, half) == Delivery.RELEASED
    sender = stops.link
    sender.stream(b"x" * (size // 2))  # the rest is of no interest any more
    sender.advance()
    whole = post(stops, Message(body="whole"))
    assert takes(receiver, stopping) == len("whole")
    assert outcome_of(stopping, whole) == Delivery.ACCEPTED
    for connection in (consumer, stopping, other):
        connection.close()


def test_what_is_larger_than_the_broker_takes_is_rejected_and_its_link_stays(
    router: RouterProcess, management: Management, broker: Broker
) -> None:
    broker.largest = 200_000
    management.create(CONNECTOR, "small", host="127.0.0.1", port=str(broker.port), role="route-container")
    management.create(ADDRESS, "boxes", pattern="boxes", waypoint=True)
    management.create(AUTO_LINK, "boxes-out", address="boxes", direction="out", containerId="b0")
    producer = router.connect()
    sender = producer.create_sender("boxes")
    fits = post(sender, Message(body=b"x" * 199_000))
    assert outcome_of(producer, fits) == Delivery.ACCEPTED
    for size in (201_000, 5 * MEGABYTE):
        large = post(sender, Message(body=b"x" * size))
        assert outcome_of(producer, large) == Delivery.REJECTED
        assert large.remote.condition.name == "amqp:link:message-size-exceeded"
        assert "200000 bytes" in large.remote.condition.description
    fits = post(sender, Message(body=b"y" * 199_000))
    assert outcome_of(producer, fits) == Delivery.ACCEPTED
    assert [body[:1] for body in broker.stored["boxes"]] == [b"x", b"y"]
    assert not broker.detached
    producer.close()
    management.delete(AUTO_LINK, "boxes-out")
    management.delete(ADDRESS, "boxes")
    management.delete(CONNECTOR, "small")
