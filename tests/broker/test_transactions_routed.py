"""Transactions through a router: bound to the broker that they work with first, be it the embedded one or Artemis."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from functools import partial

import pytest
from proton import Delivery, Message
from proton.utils import BlockingConnection, LinkDetached

from tests.broker.harness import Management, Terminus, attach, bodies, flush, nothing, take, until
from tests.contract.engines import BROKERS, Broker
from tests.kit.transactions import Refused, Transacted
from tests.kit.waiting import DEADLINE
from tests.router.harness import RouterProcess, rush

LARGEST = 600_000
"""Bytes of a message that the router takes."""
PLACES = {"in": "a", "out": "a", "elsewhere": "b"}


@pytest.fixture(scope="module", params=["embedded", pytest.param("artemis", marks=pytest.mark.slow)])
def brokers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Broker]]:
    made = {name: BROKERS[request.param](tmp_path_factory.mktemp(name)) for name in ("a", "b")}
    try:
        for broker in made.values():
            broker.start()
        for queue, name in PLACES.items():
            with made[name].manage() as m:
                m.queue(queue)
        with made["a"].manage() as m:
            made["a"].topic(m, "topic")
        yield made
    finally:
        for broker in made.values():
            broker.end()


def has_consumer(m: Management, queue: str) -> bool:
    return m.rows()[queue]["consumerCount"] == "1"


@pytest.fixture(scope="module")
def router(brokers: dict[str, Broker]) -> Iterator[RouterProcess]:
    entities = [
        ["connector", {"name": name, "host": "127.0.0.1", "port": broker.server.port, "role": "route-container"}]
        for name, broker in brokers.items()
    ]
    for queue, name in PLACES.items():
        entities.append(["address", {"name": queue, "prefix": queue, "waypoint": True}])
        for direction in ("in", "out"):
            link = {"name": f"{queue}-{direction}", "address": queue, "direction": direction, "connection": name}
            entities.append(["autoLink", link])
    for direction in ("in", "out"):
        route = {"name": f"topic-{direction}", "prefix": "topic", "direction": direction, "connection": "a"}
        entities.append(["linkRoute", route])
    entities.append(["policy", {"maxMessageSize": LARGEST}])
    process = RouterProcess(entities)
    for queue, name in PLACES.items():
        with brokers[name].manage() as m:
            until(partial(has_consumer, m, queue), "the auto-links")
    yield process
    process.stop()


@pytest.fixture
def c(router: RouterProcess) -> Iterator[BlockingConnection]:
    connection = router.connect()
    yield connection
    connection.close()


@pytest.fixture
def counts(brokers: dict[str, Broker]) -> Iterator[Counts]:
    with brokers["a"].manage() as a, brokers["b"].manage() as b:
        counted = Counts({"a": a, "b": b})
        yield counted
        for queue, name in PLACES.items():
            counted.by_broker[name]("removeMessages", "", resource=f"queue.{queue}")


class Counts:
    def __init__(self, by_broker: dict[str, Management]) -> None:
        self.by_broker = by_broker

    def __call__(self, queue: str) -> int:
        return self.by_broker[PLACES[queue]].count(queue)


def fill(router: RouterProcess, queue: str, count: int) -> None:
    other = router.connect()
    sender = other.create_sender(queue)
    for n in range(count):
        sender.send(Message(body=n, durable=True))
    other.close()


def test_from_one_queue_to_another(router: RouterProcess, c: BlockingConnection, counts: Counts) -> None:
    fill(router, "in", 10)
    t = Transacted(c)
    receiver, sender = attach(c, "in", 10), c.create_sender("out")
    for n in range(10):
        t.begin()
        assert t.send(sender, Message(body=take(receiver).body, durable=True)) == "accepted"
        t.settle(receiver)
        if n % 2:
            t.commit()
        else:
            t.roll_back()
    assert (counts("in"), counts("out")) == (5, 5)
    assert bodies(attach(c, "out", 5), 5) == [1, 3, 5, 7, 9]


def test_a_topic_and_large_messages(c: BlockingConnection, router: RouterProcess) -> None:
    other = router.connect()
    receiver = attach(other, "topic", 5, options=Terminus("topic"))
    t = Transacted(c)
    sender = c.create_sender("topic")
    for keep in (False, True):
        t.begin()
        assert t.send(sender, Message(body=b"x" * 500_000 + b"%d" % keep)) == "accepted"
        nothing(receiver)
        if keep:
            t.commit()
        else:
            t.roll_back()
        receiver.link.flow(1)
    assert bytes(take(receiver).body).endswith(b"x1")
    receiver.accept()
    other.close()


@pytest.mark.parametrize("first", ["out", "elsewhere"])
def test_work_at_a_second_broker_is_refused_with_the_reason(c: BlockingConnection, counts: Counts, first: str) -> None:
    second = "elsewhere" if first == "out" else "out"
    t = Transacted(c)
    senders = {queue: c.create_sender(queue) for queue in (first, second)}
    t.begin()
    assert t.send(senders[first], Message(body="x")) == "accepted"
    assert t.send(senders[second], Message(body="y")) == "rejected"
    with pytest.raises(Refused, match="addresses of two brokers") as refused:
        t.commit()
    assert refused.value.condition == "amqp:transaction:rollback"
    assert (counts("out"), counts("elsewhere")) == (0, 0)
    for queue in (first, second):
        t.begin()
        assert t.send(senders[queue], Message(body="x")) == "accepted"
        t.commit()
    assert (counts("out"), counts("elsewhere")) == (1, 1)


@pytest.mark.parametrize("settled", [True, False])
def test_what_is_received_at_a_second_broker_stays(
    router: RouterProcess, c: BlockingConnection, counts: Counts, settled: bool
) -> None:
    fill(router, "elsewhere", 1)
    t = Transacted(c)
    sender, receiver = c.create_sender("out"), attach(c, "elsewhere", 1)
    take(receiver)
    t.begin()
    t.send(sender, Message(body="x"))
    t.settle(receiver, settled=settled)
    with pytest.raises(Refused, match="addresses of two brokers"):
        t.commit()
    assert (counts("out"), counts("elsewhere")) == (0, 1)


@pytest.mark.parametrize("refused", ["too large", "before the coordinator", "no queue"])
def test_a_message_that_the_router_refuses_rolls_back_the_rest(
    c: BlockingConnection, counts: Counts, refused: str
) -> None:
    early = c.create_sender("out", name="early")
    t = Transacted(c)
    sender, other = c.create_sender("out", name="half"), c.create_sender("out", name="other")
    t.begin()
    assert t.send(sender, Message(body="half")) == "accepted"
    if refused == "too large":
        t.send_later(other, Message(body=b"x" * (LARGEST + 1)))
    elif refused == "before the coordinator":
        t.send_later(early, Message(body="x"))
    else:
        address = c.create_receiver(None, dynamic=True).link.remote_source.address
        t.send_later(c.create_sender(address), Message(body="x"))
    error = _refused_commit(t)
    assert error.condition == "amqp:transaction:rollback"
    assert counts("out") == 0
    t.begin()
    assert t.send(sender, Message(body="again")) == "accepted"
    t.commit()
    assert counts("out") == 1


def _refused_commit(t: Transacted) -> Refused:
    """Commit, on a connection of which the router detaches links."""
    delivery = t.discharge_later()
    while True:
        with contextlib.suppress(LinkDetached):
            t.connection.wait(lambda: delivery.remote_state, timeout=DEADLINE)
            break
    assert delivery.remote_state == Delivery.REJECTED
    return Refused(delivery.remote.condition)


def test_an_outcome_on_a_link_without_transactions_rolls_back_the_rest(
    router: RouterProcess, c: BlockingConnection, counts: Counts
) -> None:
    fill(router, "in", 1)
    early = attach(c, "in", 1)
    t = Transacted(c)
    sender = c.create_sender("out")
    take(early)
    t.begin()
    assert t.send(sender, Message(body="half")) == "accepted"
    t.settle(early)
    assert _refused_commit(t).condition == "amqp:transaction:rollback"
    again = attach(c, "in", 1)
    take(again)
    again.accept()
    flush(again)
    until(lambda: (counts("in"), counts("out")) == (0, 0), "the broker to have the outcome")


@pytest.mark.parametrize("how", ["link", "connection"])
def test_the_end_of_the_client_rolls_back(
    router: RouterProcess, c: BlockingConnection, counts: Counts, how: str
) -> None:
    fill(router, "in", 1)
    other = router.connect()
    t = Transacted(other)
    receiver, sender = attach(other, "in", 1), other.create_sender("out")
    t.begin()
    take(receiver)
    t.send(sender, Message(body="never"))
    t.settle(receiver)
    flush(receiver)
    if how == "link":
        t.link.close()
        flush(receiver)
    other.close()
    again = attach(c, "in", 1)
    assert take(again).delivery_count == 1
    again.accept()
    flush(again)
    until(lambda: counts("in") == 0, "the broker to have the outcome")
    assert counts("out") == 0


def test_transactions_of_others_and_links_without_one(
    router: RouterProcess, c: BlockingConnection, counts: Counts
) -> None:
    t = Transacted(c)
    id = t.begin()
    t.send(c.create_sender("out"), Message(body="mine"))
    other = router.connect()
    before = other.create_sender("out")
    thief = Transacted(other)
    thief.id = id
    with pytest.raises(Refused) as refused:
        thief.commit()
    assert refused.value.condition == "amqp:transaction:unknown-id"
    assert thief.send(other.create_sender("out", name="after"), Message(body="x")) == "rejected"
    thief.send_later(before, Message(body="x"))
    with pytest.raises(LinkDetached, match="behind the one to the coordinator"):
        other.wait(lambda: False)
    t.commit()
    assert counts("out") == 1


def test_several_at_once(router: RouterProcess, c: BlockingConnection, counts: Counts) -> None:
    """Declared before there is a link to a broker and after, some without work; of a client that works at two brokers.
    The one of another client in between."""
    t, other = Transacted(c), router.connect()
    ids = [t.begin() for _ in range(3)]
    senders = {queue: c.create_sender(queue) for queue in ("out", "elsewhere")}
    ids += [t.begin() for _ in range(3)]
    assert len(set(ids)) == 6
    stranger = Transacted(other)
    stranger.begin()
    assert stranger.send(other.create_sender("out"), Message(body="x")) == "accepted"
    for n, id in enumerate(ids):
        t.id = id
        if n != 4:
            for _ in range(n + 1):
                assert t.send(senders["out" if n % 2 else "elsewhere"], Message(body="x")) == "accepted"
    assert (counts("out"), counts("elsewhere")) == (0, 0)
    for n, id in enumerate(ids):
        (t.roll_back if n == 3 else t.commit)(id)
    other.close()
    assert (counts("out"), counts("elsewhere")) == (2 + 6, 1 + 3)


def test_the_size_of_a_transaction_is_limited(c: BlockingConnection, counts: Counts) -> None:
    t = Transacted(c)
    sender = c.create_sender("out")
    t.begin()
    large = Message(body=b"x" * 500_000)
    for _ in range((16 << 20) // 500_000):
        t.send_later(sender, large)
    for _ in range(2):
        t.send_later(sender, large)
    with pytest.raises(Refused, match="sends at most 16777216 bytes"):
        t.commit()
    assert counts("out") == 0
    t.begin()
    assert t.send(sender, Message(body="again")) == "accepted"
    t.commit()
    assert counts("out") == 1


def test_outcomes_other_than_accepted(
    router: RouterProcess, c: BlockingConnection, brokers: dict[str, Broker], counts: Counts
) -> None:
    """Artemis would ignore them, and keep the message for the consumer."""
    fill(router, "in", 1)
    t = Transacted(c)
    receiver, sender = attach(c, "in", 1), c.create_sender("out")
    take(receiver)
    t.begin()
    assert t.send(sender, Message(body="x")) == "accepted"
    t.settle(receiver, Delivery.RELEASED)
    if brokers["a"].engine.name == "embedded":
        t.commit()
    else:
        with pytest.raises(Refused, match="no outcome but accepted"):
            t.commit()
        assert counts("out") == 0
    receiver.link.flow(1)
    take(receiver)
    receiver.accept()
    flush(receiver)
    until(lambda: counts("in") == 0, "the broker to have the outcome")


@pytest.mark.parametrize("fail", [False, True])
def test_a_discharge_does_not_overtake_messages_that_wait_for_the_broker(
    c: BlockingConnection, brokers: dict[str, Broker], counts: Counts, fail: bool
) -> None:
    """The broker does not read: a part of what is posted waits in the router when the discharge comes."""
    t = Transacted(c)
    senders = [c.create_sender("out", name=f"stalled-{n}") for n in range(4)]
    t.begin()
    assert t.send(senders[0], Message(body="first")) == "accepted"
    process = brokers["a"].server.process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    try:
        large = Message(body=b"x" * 500_000, durable=True)
        posts = [t.send_later(sender, large) for _ in range(7) for sender in senders]
        delivery = t.discharge_later(fail=fail)
        while c.conn.transport.pending():
            rush(c)
    finally:
        process.send_signal(signal.SIGCONT)
    c.wait(lambda: delivery.remote_state, timeout=DEADLINE)
    assert delivery.remote_state == Delivery.ACCEPTED, delivery.remote.condition
    assert counts("out") == (0 if fail else 1 + len(posts))


def test_the_loss_of_the_broker_rolls_back(
    router: RouterProcess, c: BlockingConnection, brokers: dict[str, Broker]
) -> None:
    """Last of this file: the broker is killed."""
    t = Transacted(c)
    sender = c.create_sender("elsewhere")
    t.begin()
    t.send(sender, Message(body="x", durable=True))
    brokers["b"].kill()
    with pytest.raises(LinkDetached):
        c.wait(lambda: False)
    with pytest.raises(Refused, match="was lost") as refused:
        t.commit()
    assert refused.value.condition == "amqp:transaction:rollback"
    brokers["b"].start()
    with brokers["b"].manage() as m:
        assert m.count("elsewhere") == 0
