"""Consumers that take and never settle, that drain, take one at a time, come and go: the others get what is theirs."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

import pytest
from proton import Delivery, Message
from proton.reactor import AtMostOnce
from proton.utils import BlockingConnection, BlockingReceiver

from tests.kit.marks import first_soon
from tests.router.harness import (
    ADDRESS,
    AUTO_LINK,
    CONNECTOR,
    DEADLINE,
    LISTENER,
    PREFIX,
    SILENCE,
    Broker,
    Management,
    RouterProcess,
    free_port,
    idle,
    outcome_of,
    post,
    pump,
    wait_for,
)

QUEUE = "fair"
CONNECTION = PREFIX + "connection"
BEFORE_SILENCE = 60.0
"""Seconds: less than it takes until the router drops a client that sends nothing, which would help others too."""
assert BEFORE_SILENCE < SILENCE


class Requeuing(Broker):
    """A broker that keeps what was not accepted, as brokers do; `accepted` counts the bodies that were."""

    def __init__(self, container_id: str) -> None:
        self.accepted: Counter[Any] = Counter()
        self._sent: dict[str, Message] = {}
        super().__init__(container_id)

    def _send(self, link: Any) -> None:
        box = self.outbox.get(link.source.address)
        while box and link.credit > 0:
            message = box.popleft()
            self._sent[link.send(message).tag] = message
        if link.drain_mode:
            link.drained()

    def on_delivery(self, event: Any) -> None:
        delivery = event.delivery
        if not event.link.is_sender or not delivery.updated or not delivery.remote_state:
            return
        message = self._sent.pop(delivery.tag)
        if delivery.remote_state == Delivery.ACCEPTED:
            self.accepted[message.body] += 1
        else:
            self.outbox.setdefault(event.link.source.address, deque()).appendleft(message)
            self._send(event.link)

    def total(self) -> int:
        return int(self.do(lambda: sum(self.accepted.values())))

    def exhausted(self) -> bool:
        """The router has taken messages and gives no more credit."""

        def look() -> bool:
            link = self._find(QUEUE, True)
            return link is not None and link.credit == 0 and bool(self._sent)

        return bool(self.do(look))


@pytest.fixture
def stored(router: RouterProcess, management: Management, request: Any) -> Iterator[Requeuing]:
    """A broker with a queue behind the router; the parameter is the capacity of its links."""
    broker = Requeuing("fair-broker")
    management.create(
        CONNECTOR,
        "fair-broker",
        host="127.0.0.1",
        port=str(broker.port),
        role="route-container",
        linkCapacity=getattr(request, "param", 250),
    )
    management.create(ADDRESS, QUEUE, pattern=QUEUE, waypoint=True)
    for direction in ("in", "out"):
        management.create(AUTO_LINK, f"fair-{direction}", address=QUEUE, direction=direction, containerId="fair-broker")
    wait_for(lambda: management.one(AUTO_LINK, "fair-in")["operStatus"] == "active")
    yield broker
    for kind, name in ((AUTO_LINK, "fair-in"), (AUTO_LINK, "fair-out"), (ADDRESS, QUEUE), (CONNECTOR, "fair-broker")):
        management.delete(kind, name)
    broker.stop()


@pytest.fixture(params=[1, 250])
def narrow(management: Management, request: Any) -> Iterator[str]:
    """The port of a listener whose links have a capacity of 1, or the usual one."""
    port = free_port()
    management.create(
        LISTENER,
        "narrow",
        host="127.0.0.1",
        port=str(port),
        linkCapacity=request.param,
        idleTimeoutSeconds=SILENCE,
    )
    yield f"127.0.0.1:{port}"
    management.delete(LISTENER, "narrow")


def take(receivers: list[BlockingReceiver], *connections: BlockingConnection) -> list[Any]:
    """Accept what has come; the bodies. What came settled needs no accepting."""
    pump(*connections)
    bodies = []
    for receiver in receivers:
        while receiver.fetcher.incoming:
            settled = receiver.fetcher.incoming[0][1].settled
            bodies.append(receiver.receive().body)
            if not settled:
                receiver.accept()
    pump(*connections)
    return bodies


# One that takes a whole window and settles nothing


@pytest.mark.parametrize("stored", [1, pytest.param(250, marks=pytest.mark.slow)], indirect=True)
@pytest.mark.parametrize("first", ["stuck", "busy"])
def test_a_consumer_of_a_queue_that_never_settles_does_not_stop_the_others(
    router: RouterProcess, stored: Requeuing, first: str, request: Any
) -> None:
    count = 60 if request.node.callspec.params["stored"] == 1 else 1500
    stuck, busy = router.connect(), router.connect()
    receivers = {}
    for name, connection in (
        (("stuck", stuck), ("busy", busy)) if first == "stuck" else (("busy", busy), ("stuck", stuck))
    ):
        receivers[name] = connection.create_receiver(QUEUE, credit=2000, name=name)
        if name == "stuck" and first == "stuck":
            stored.put(QUEUE, *(Message(body=i) for i in range(300)))
            wait_for(stored.exhausted, "the one that is stuck has taken all it may")
    stored.put(QUEUE, *(Message(body=1000 + i) for i in range(count)))
    held = 250

    def enough() -> bool:
        take([receivers["busy"]], busy)
        return stored.total() >= count - held

    wait_for(enough, "the busy one gets the rest", seconds=BEFORE_SILENCE)
    stuck.close()

    def everything() -> bool:
        while take([receivers["busy"]], busy):
            pass  # a link with a capacity of 1 brings one at a time
        return stored.total() == count + (300 if first == "stuck" else 0)

    wait_for(everything, "what the stuck one held comes back")
    assert set(stored.accepted.values()) == {1}
    busy.close()


def test_twenty_that_are_stuck_and_one_that_comes_later(router: RouterProcess, stored: Requeuing) -> None:
    """More than the windows a broker gets at most: the one that comes last gets messages all the same."""
    stuck, busy = router.connect(), router.connect()
    for i in range(20):
        stuck.create_receiver(QUEUE, credit=1000, name=f"stuck{i}")
    stored.put(QUEUE, *(Message(body=i) for i in range(6000)))

    def full() -> bool:
        pump(stuck)
        return stored.exhausted()

    wait_for(full, "all windows are full")
    receiver = busy.create_receiver(QUEUE, credit=10)
    for _ in range(50):
        receiver.receive(timeout=DEADLINE)
        receiver.accept()
    stuck.close()
    busy.close()


def test_a_stuck_consumer_of_an_anycast_address_leaves_the_others_their_share(
    router: RouterProcess, narrow: str, address: str
) -> None:
    stuck, busy, producer, other = (BlockingConnection(narrow, timeout=DEADLINE) for _ in range(4))
    stuck.create_receiver(address, credit=2000, name="stuck")
    first = producer.create_sender(address)
    producer.wait(lambda: first.link.credit > 0)
    while first.link.credit > 0:  # all that one sender may have under way
        post(first, Message(body="held"))
        idle(producer)
    receiver = busy.create_receiver(address, credit=2000, name="busy")
    second = other.create_sender(address)
    for i in range(20):
        delivery = post(second, Message(body=i))
        wait_for(lambda: take([receiver], busy) or delivery.settled, "the busy one gets it")
        assert outcome_of(other, delivery) == Delivery.ACCEPTED
    for connection in (stuck, busy, producer, other):
        connection.close()


@pytest.mark.parametrize("first", [pytest.param("stuck", marks=pytest.mark.slow), "busy"])
def test_a_sender_goes_on_beside_a_stuck_consumer(router: RouterProcess, address: str, first: str) -> None:
    stuck, busy, producer = router.connect(), router.connect(), router.connect()
    receivers = {}
    for name, connection in sorted({"stuck": stuck, "busy": busy}.items(), reverse=first == "stuck"):
        receivers[name] = connection.create_receiver(address, credit=2000, name=name)
    sender = producer.create_sender(address)
    sent = got = 0

    def goes_on() -> bool:
        nonlocal sent, got
        while sender.link.credit > 0 and sent < 1000:
            sender.link.send(Message(body=sent))
            sent += 1
        pump(producer)
        got += len(take([receivers["busy"]], busy))
        return sent == 1000 and got >= 1000 - 250

    wait_for(goes_on, "the busy one gets the rest", seconds=BEFORE_SILENCE)
    for connection in (stuck, busy, producer):
        connection.close()


@pytest.mark.parametrize("credit", [10, 2000])
def test_a_stuck_receiver_of_a_multicast_holds_back_only_the_senders_window(
    router: RouterProcess, multicast: str, credit: int
) -> None:
    """As Dispatch does: the others get all that is sent, an unsettled sender may have its window under way, and who
    sends settled is not held back at all."""
    producer, stuck, fine = router.connect(), router.connect(), router.connect()
    held = stuck.create_receiver(multicast, credit=0, name="stuck")
    held.link.flow(credit)
    pump(stuck)
    receiver = fine.create_receiver(multicast, credit=2000, name="fine")
    sender = producer.create_sender(multicast)
    deliveries = [post(sender, Message(body=i)) for i in range(250)]
    idle(producer)
    assert sender.link.credit == 0
    got: list[Any] = []

    def received(count: int) -> bool:
        got.extend(take([receiver], fine))
        return len(got) == count

    wait_for(lambda: received(250))
    assert got == list(range(250)) and not any(delivery.settled for delivery in deliveries)
    settled = producer.create_sender(multicast, options=AtMostOnce(), name="settled")
    for i in range(600):
        post(settled, Message(body=i), settled=True)
    wait_for(lambda: received(850))
    stuck.close()
    producer.wait(lambda: all(delivery.settled for delivery in deliveries) and sender.link.credit == 250)
    assert {delivery.remote_state for delivery in deliveries} == {Delivery.ACCEPTED}
    for connection in (producer, fine):
        connection.close()


# Receivers that take little at a time


@pytest.mark.parametrize("stored", [1, 250], indirect=True)
def test_receivers_that_take_one_at_a_time_share_a_queue(router: RouterProcess, stored: Requeuing) -> None:
    connections = [router.connect() for _ in range(4)]
    receivers = [c.create_receiver(QUEUE, credit=1, name=f"one{i}") for i, c in enumerate(connections)]
    stored.put(QUEUE, *(Message(body=i) for i in range(100)))
    shares: Counter[int] = Counter()

    def all_taken() -> bool:
        pump(*connections)
        for number, receiver in enumerate(receivers):
            if receiver.fetcher.incoming:
                receiver.receive()
                receiver.accept()
                receiver.flow(1)
                shares[number] += 1
        return stored.total() == 100

    wait_for(all_taken, "every message is accepted")
    assert set(stored.accepted.values()) == {1}
    assert min(shares.values()) >= 15, shares
    for connection in connections:
        connection.close()


def test_a_receiver_that_drains_takes_what_there_is_and_no_more(router: RouterProcess, stored: Requeuing) -> None:
    draining, other = router.connect(), router.connect()
    receiver = draining.create_receiver(QUEUE, credit=0, name="draining")
    stored.put(QUEUE, *(Message(body=i) for i in range(25)))
    wait_for(lambda: stored.credit(QUEUE) == 225, "the messages have left the broker")
    got = []
    for _ in range(4):
        receiver.link.drain(10)
        draining.wait(lambda: receiver.link.credit == 0, msg="the drain is answered")
        while receiver.fetcher.incoming:
            got.append(receiver.receive().body)
            receiver.accept()
    assert got == list(range(25))
    neighbour = other.create_receiver(QUEUE, credit=5, name="neighbour")
    receiver.link.drain(10)
    draining.wait(lambda: receiver.link.credit == 0, msg="the drain is answered where there is nothing")
    stored.put(QUEUE, Message(body="for the one with credit"))
    assert neighbour.receive().body == "for the one with credit"
    neighbour.accept()
    pump(other, draining)
    wait_for(lambda: stored.total() == 26)
    for connection in (draining, other):
        connection.close()


# Coming and going


@pytest.mark.parametrize("seed", first_soon([1, 2, 3]))
def test_consumers_that_come_and_go_lose_and_double_nothing(
    router: RouterProcess, management: Management, stored: Requeuing, seed: int
) -> None:
    """Links are closed and connections dropped with deliveries unsettled, waiting, and half of them accepted."""
    dice = random.Random(seed)
    count = 400
    stored.put(QUEUE, *(Message(body=i) for i in range(count)))
    for turn in range(25):
        connection = router.connect()
        container = connection.container.container_id
        receivers = [
            connection.create_receiver(QUEUE, credit=dice.choice([1, 3, 40]), name=f"{turn}-{i}")
            for i in range(dice.randint(1, 3))
        ]
        pump(connection)
        for receiver in receivers:
            for _ in range(dice.randint(0, 12)):
                if receiver.fetcher.incoming:
                    receiver.receive()
                    dice.choice([receiver.accept, receiver.accept, receiver.accept, receiver.release])()
        how = dice.choice(["close", "links", "drop"])
        if how == "links":
            for receiver in receivers:
                receiver.close()
        if how == "drop":  # the socket is gone without a word
            rows = management.query(CONNECTION, "container", "identity")
            identity = next(row["identity"] for row in rows if row["container"] == container)
            management.call("UPDATE", {"adminStatus": "deleted"}, type=CONNECTION, identity=identity)
        else:
            connection.close()
    last = router.connect()
    receiver = last.create_receiver(QUEUE, credit=100)

    def everything() -> bool:
        take([receiver], last)
        return stored.total() == count

    wait_for(everything, "every message is accepted in the end")
    assert set(stored.accepted.values()) == {1}
    last.close()
