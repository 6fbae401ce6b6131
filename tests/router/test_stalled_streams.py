"""A large message that nobody takes: who goes on all the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from proton import Delivery, Message
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender

from tests.kit.marks import first_soon
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


@pytest.mark.parametrize("stalled", first_soon([1, 2]))
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
        wait_for(lambda: broker.credit(queue) > 0, queue)
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


@pytest.mark.parametrize("size", [300_000, 6 * MEGABYTE])
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


@pytest.mark.parametrize("multicast", [False, True])
def test_a_message_that_comes_slowly_keeps_nobody_waiting(router: RouterProcess, address: str, multicast: bool) -> None:
    """Nothing of it goes on before it is there, so it needs no patience."""
    address = f"testall/{address}" if multicast else address
    consumer, slow, other = router.connect(), router.connect(), router.connect()
    receiver = consumer.create_receiver(address, credit=10)
    slowly = slow.create_sender(address)
    half = begin(slowly, 100_000)
    for text in ("small", "another"):
        small = post(other.create_sender(address, name=text), Message(body=text))
        assert takes(receiver, slow, other) == len(text)
        assert outcome_of(other, small) == Delivery.ACCEPTED
    slowly.link.stream(b"x" * 50_000)
    slowly.link.advance()
    assert takes(receiver, slow) == 100_000
    assert outcome_of(slow, half) == Delivery.ACCEPTED
    for connection in (consumer, slow, other):
        connection.close()


@pytest.fixture
def waypoint(management: Management, broker: Broker) -> Iterator[str]:
    """A queue of the broker, in both directions."""
    management.create(CONNECTOR, "wide", host="127.0.0.1", port=str(broker.port), role="route-container")
    management.create(ADDRESS, "wide", pattern="wide", waypoint=True)
    for direction in ("in", "out"):
        management.create(AUTO_LINK, f"wide-{direction}", address="wide", direction=direction, containerId="b0")
    yield "wide"
    for direction in ("in", "out"):
        management.delete(AUTO_LINK, f"wide-{direction}")
    management.delete(ADDRESS, "wide")
    management.delete(CONNECTOR, "wide")


def links_of(management: Management, key: str) -> list[dict[str, Any]]:
    rows = management.query("router.link", "linkName", "owningAddr")
    return [row for row in rows if row["owningAddr"] == key and row["linkName"].startswith("qdlink.")]


@pytest.mark.parametrize("streams", [1, 8, pytest.param(10, marks=pytest.mark.slow)])
@pytest.mark.parametrize("relay", [False, True])
def test_large_messages_that_come_slowly_keep_no_sender_to_a_queue_waiting(
    router: RouterProcess, management: Management, broker: Broker, waypoint: str, streams: int, relay: bool
) -> None:
    """They go by links of their own, of which there are 8 at most; small messages pass them all the time."""
    slow = [router.connect() for _ in range(streams)]
    other = router.connect()
    size = 600_000
    halves = [begin(connection.create_sender(waypoint), size) for connection in slow]
    pump_until(lambda: len(links_of(management, "M0wide")) == 1 + min(streams, 8), "links of their own", *slow)
    small = other.create_sender(None if relay else waypoint)
    for i in range(20):
        delivery = post(small, Message(address=waypoint, body=i))
        assert outcome_of(other, delivery) == Delivery.ACCEPTED
    assert broker.stored[waypoint] == list(range(20))
    if streams > 8:  # two wait for one of the others, whose senders have stopped: it is broken off
        pump_until(lambda: any(half.settled for half in halves), "one is released", *slow)
    going_on = [pair for pair in zip(slow, halves, strict=True) if streams <= 8]
    for connection, half in going_on:
        half.link.stream(b"x" * (size // 2))
        half.link.advance()
        pump(connection)
        after = post(BlockingSender(connection, half.link), Message(body="after it"))
        assert outcome_of(connection, after) == Delivery.ACCEPTED
        assert half.remote_state == Delivery.ACCEPTED
    stored = [body if body == "after it" else len(body) for body in broker.stored[waypoint][20:]]
    assert stored == [size, "after it"] * len(going_on), "what a sender sends after it does not overtake it"
    for connection in (*slow, other):
        connection.close()
    wait_for(lambda: len(links_of(management, "M0wide")) == 1, "they are closed")


def test_a_consumer_that_takes_slowly_keeps_no_other_consumer_waiting(
    router: RouterProcess, management: Management, broker: Broker, waypoint: str
) -> None:
    stuck, quick = router.connect(), router.connect()
    receiver = stuck.create_receiver(waypoint, credit=1)
    wait_for(lambda: broker.credit(waypoint) > 0)
    broker.put(waypoint, Message(body=b"x" * (LARGE * MEGABYTE)))
    pump_until(lambda: receiver.link.current is not None, "the beginning of the large message", stuck)
    others = quick.create_receiver(waypoint, credit=100)
    for i in range(5):
        broker.put(waypoint, Message(body=i))
    for i in range(5):
        comes(others, f"message {i}", quick)
        assert others.receive().body == i
        others.accept()
    assert takes(receiver, quick) == LARGE * MEGABYTE
    wait_for(lambda: len(links_of(management, "M1wide")) == 1, "the second link is closed")
    broker.put(waypoint, Message(body="as before"))
    comes(others, "the next", stuck)
    assert others.receive().body == "as before"
    others.accept()
    stuck.close()
    quick.close()


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
