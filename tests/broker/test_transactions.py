"""Transactions at the broker: what is sent and acknowledged in one is done together, or not at all (part 4)."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Delivery, Message
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached

from tests.broker.harness import BrokerProcess, Management, Terminus, attach, bodies, flush, nothing, take
from tests.kit.transactions import Refused, Transacted


@pytest.fixture
def t(c: BlockingConnection) -> Transacted:
    return Transacted(c)


@pytest.fixture
def q(m: Management, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    m.queue(name)
    return name


def fill(c: BlockingConnection, q: str, count: int, **facts: Any) -> None:
    sender = c.create_sender(q)
    for n in range(count):
        sender.send(Message(body=n, durable=True, **facts))
    sender.close()


def taken(
    c: BlockingConnection, t: Transacted, q: str, count: int, *, settled: bool = True
) -> tuple[BlockingReceiver, list[Delivery]]:
    """Take this many messages in a transaction; return their receiver, and their deliveries."""
    fill(c, q, count)
    receiver = attach(c, q, count)
    t.begin()
    deliveries = []
    for _ in range(count):
        take(receiver)
        deliveries.append(t.settle(receiver, settled=settled))
    flush(receiver)
    return receiver, deliveries


@pytest.mark.parametrize("durable", [True, False])
def test_what_is_sent_comes_with_the_commit(
    c: BlockingConnection, t: Transacted, q: str, m: Management, durable: bool
) -> None:
    sender, receiver = c.create_sender(q), attach(c, q, 10)
    t.begin()
    assert [t.send(sender, Message(body=n, durable=durable)) for n in range(3)] == ["accepted"] * 3
    assert m.count(q) == 0
    nothing(receiver)
    t.commit()
    assert bodies(receiver, 3) == [0, 1, 2]


def test_what_is_rolled_back_never_was(c: BlockingConnection, t: Transacted, q: str, m: Management) -> None:
    sender = c.create_sender(q)
    t.begin()
    t.send(sender, Message(body="never"))
    t.roll_back()
    with pytest.raises(Refused) as refused:
        t.commit()
    assert refused.value.condition == "amqp:transaction:unknown-id"
    assert m.count(q) == 0
    t.begin()
    t.send(sender, Message(body="then"))
    t.commit()
    assert bodies(attach(c, q, 1), 1) == ["then"]


def test_transactions_of_one_coordinator_are_apart(c: BlockingConnection, t: Transacted, q: str) -> None:
    sender = c.create_sender(q)
    first = t.begin()
    t.send(sender, Message(body="first"))
    second = t.begin()
    t.send(sender, Message(body="second"))
    t.roll_back(first)
    t.commit(second)
    receiver = attach(c, q, 2)
    assert bodies(receiver, 1) == ["second"]
    nothing(receiver)


@pytest.mark.parametrize("settled", [True, False])
def test_what_is_accepted_goes_with_the_commit(
    c: BlockingConnection, t: Transacted, q: str, m: Management, settled: bool
) -> None:
    _, deliveries = taken(c, t, q, 3, settled=settled)
    assert m.count(q) == 3
    t.commit()
    if not settled:
        c.wait(lambda: all(delivery.settled for delivery in deliveries))
    assert m.count(q) == 0


def test_what_was_settled_comes_again_after_a_rollback(
    broker: BrokerProcess, c: BlockingConnection, t: Transacted, q: str
) -> None:
    taken(c, t, q, 2)
    with broker.connect() as other:
        rival = attach(other, q, 5)
        nothing(rival)
        t.roll_back()
        rival.link.flow(2)
        again = [take(rival) for _ in range(2)]
        assert [(message.body, message.delivery_count) for message in again] == [(0, 1), (1, 1)]


def test_what_was_not_settled_stays_the_consumers_after_a_rollback(
    broker: BrokerProcess, c: BlockingConnection, t: Transacted, q: str, m: Management
) -> None:
    """4.4.2: no one else gets it, and its consumer states another outcome."""
    receiver, (delivery,) = taken(c, t, q, 1, settled=False)
    t.roll_back()
    with broker.connect() as other:
        rival = attach(other, q, 1)
        nothing(rival)
        delivery.update(Delivery.RELEASED)
        delivery.settle()
        flush(receiver)
        rival.link.flow(1)
        assert take(rival).delivery_count == 0


@pytest.mark.parametrize(
    ("outcome", "fields", "count", "dead"),
    [
        (Delivery.RELEASED, (), 0, 0),
        (Delivery.MODIFIED, (True, False), 1, 0),
        (Delivery.MODIFIED, (False, False), 0, 0),
        (Delivery.REJECTED, (), 0, 1),
    ],
)
def test_other_outcomes_take_effect_with_the_commit(
    broker: BrokerProcess,
    c: BlockingConnection,
    t: Transacted,
    m: Management,
    q: str,
    outcome: int,
    fields: tuple[bool, ...],
    count: int,
    dead: int,
) -> None:
    m.queue(f"dead-{q}")
    m.settings(q, DLA=f"dead-{q}")
    fill(c, q, 1)
    receiver = attach(c, q, 1)
    t.begin()
    take(receiver)
    t.settle(receiver, outcome, fields)
    flush(receiver)
    assert (m.count(q), m.count(f"dead-{q}")) == (1, 0)
    with broker.connect() as other:
        rival = attach(other, q, 1)
        nothing(rival)
        t.commit()
        assert (m.count(q), m.count(f"dead-{q}")) == (1 - dead, dead)
        if not dead:
            rival.link.flow(1)
            assert take(rival).delivery_count == count


def test_from_one_queue_to_another(c: BlockingConnection, t: Transacted, q: str, m: Management) -> None:
    m.queue(f"{q}-out")
    fill(c, q, 10)
    receiver, sender = attach(c, q, 10), c.create_sender(f"{q}-out")
    for n in range(10):
        t.begin()
        t.send(sender, Message(body=take(receiver).body))
        t.settle(receiver)
        if n % 2:
            t.commit()
        else:
            t.roll_back()
    assert m.count(q) == 5
    assert bodies(attach(c, f"{q}-out", 5), 5) == [1, 3, 5, 7, 9]


@pytest.mark.parametrize("how", ["link", "session", "connection"])
def test_the_end_of_the_coordinators_link_rolls_back(
    broker: BrokerProcess, c: BlockingConnection, m: Management, q: str, how: str
) -> None:
    m.queue(f"{q}-in")
    fill(c, f"{q}-in", 1)
    with broker.connect() as other:
        work = Transacted(other)
        work.begin()
        work.send(other.create_sender(q), Message(body="never"))
        receiver = attach(other, f"{q}-in", 1)
        take(receiver)
        work.settle(receiver)
        flush(receiver)
        if how == "link":
            work.link.close()
            flush(receiver)
        elif how == "session":
            work.link.session.close()
        else:
            other.close()
    again = attach(c, f"{q}-in", 1)
    assert take(again).delivery_count == 1
    assert m.count(q) == 0


def test_ids_of_others_and_invented_ones_are_unknown(
    broker: BrokerProcess, c: BlockingConnection, t: Transacted, q: str, m: Management
) -> None:
    t.begin()
    fill(c, q, 1)
    with broker.connect() as other:
        thief = Transacted(other)
        thief.id = t.id
        with pytest.raises(Refused) as refused:
            thief.commit()
        assert refused.value.condition == "amqp:transaction:unknown-id"
        assert thief.send(other.create_sender(q), Message(body="x")) == "rejected"
        receiver = attach(other, q, 1)
        take(receiver)
        thief.settle(receiver)
        with pytest.raises(LinkDetached, match="no open transaction"):
            flush(receiver)
            other.wait(lambda: False)
    t.commit()
    assert take(attach(c, q, 1)).delivery_count == 1


def test_a_refused_message_lets_the_transaction_end_by_a_rollback_only(
    c: BlockingConnection, t: Transacted, q: str, m: Management
) -> None:
    relay, sender = c.create_sender(None), c.create_sender(q)
    t.begin()
    t.send(sender, Message(body="with it"))
    assert t.send(relay, Message(body="x", address="no such address")) == "rejected"
    with pytest.raises(Refused, match="no such address does not exist") as refused:
        t.commit()
    assert refused.value.condition == "amqp:transaction:rollback"
    assert m.count(q) == 0
    t.begin()
    assert t.send(relay, Message(body="y", address=q)) == "accepted"
    t.commit()
    assert m.count(q) == 1


@pytest.mark.parametrize("policy", ["FAIL", "BLOCK"])
def test_a_full_address_refuses_what_goes_beyond_it(
    c: BlockingConnection, t: Transacted, q: str, m: Management, policy: str
) -> None:
    m.settings(q, maxSizeBytes=10_000, addressFullMessagePolicy=policy)
    sender = c.create_sender(q)
    t.begin()
    for _ in range(5):
        assert t.send(sender, Message(body=b"x" * 3000)) == "accepted"
    with pytest.raises(Refused, match="full"):
        t.commit()
    assert m.count(q) == 0
    t.begin()
    for _ in range(3):
        t.send(sender, Message(body=b"x" * 3000))
    t.commit()
    assert m.count(q) == 3


def test_a_queue_that_is_gone_by_then_refuses_all(c: BlockingConnection, t: Transacted, q: str, m: Management) -> None:
    m.queue(f"{q}-gone")
    relay = c.create_sender(None)
    t.begin()
    t.send(relay, Message(body="x", address=q))
    t.send(relay, Message(body="y", address=f"{q}-gone"))
    m("destroyQueue", f"{q}-gone", True, True)
    with pytest.raises(Refused, match=f"{q}-gone"):
        t.commit()
    assert m.count(q) == 0


def test_duplicates_within_and_over_transactions(c: BlockingConnection, t: Transacted, q: str, m: Management) -> None:
    sender = c.create_sender(q)
    t.begin()
    t.send(sender, Message(body="rolled back", durable=True, properties={"_AMQ_DUPL_ID": "1"}))
    t.roll_back()
    for body in ("taken", "a copy"):
        t.begin()
        for _ in range(2):
            t.send(sender, Message(body=body, durable=True, properties={"_AMQ_DUPL_ID": "1"}))
        t.commit()
    receiver = attach(c, q, 3)
    assert bodies(receiver, 1) == ["taken"]
    nothing(receiver)


def test_every_subscription_gets_it_with_the_commit(
    c: BlockingConnection, t: Transacted, m: Management, q: str
) -> None:
    m("createAddress", f"{q}-topic", "MULTICAST")
    early = [attach(c, f"{q}-topic", 5, options=Terminus("topic"), name=f"{q}-{n}") for n in range(2)]
    sender = c.create_sender(f"{q}-topic")
    t.begin()
    t.send(sender, Message(body="both", durable=True))
    for receiver in early:
        nothing(receiver)
    late = attach(c, f"{q}-topic", 5, options=Terminus("topic"))
    t.commit()
    for receiver in (*early, late):
        assert bodies(receiver, 1) == ["both"]


def test_limits_are_stated(c: BlockingConnection, t: Transacted, q: str) -> None:
    ids = [t.begin() for _ in range(100)]
    with pytest.raises(Refused, match="at most 100 open"):
        t.begin()
    for id in ids:
        t.roll_back(id)
    t.begin()
    sender = c.create_sender(q)
    outcomes = [t.send(sender, Message(body=b"x" * (4 << 20))) for _ in range(5)]
    assert outcomes == ["accepted"] * 3 + ["rejected"] * 2
    with pytest.raises(Refused, match="at most 16777216 bytes"):
        t.commit()


def test_what_was_committed_is_there_after_a_restart(broker: BrokerProcess, m: Management, q: str) -> None:
    with broker.connect() as c:
        t = Transacted(c)
        fill(c, q, 2)
        receiver, sender = attach(c, q, 2), c.create_sender(q)
        t.begin()
        take(receiver)
        t.settle(receiver)
        t.send(sender, Message(body="durable", durable=True))
        t.send(sender, Message(body="not"))
        t.commit()
        t.begin()
        take(receiver)
        t.settle(receiver)
        t.send(sender, Message(body="not committed", durable=True))
    broker.restart()
    with broker.connect() as c:
        receiver = attach(c, q, 5)
        assert bodies(receiver, 2) == [1, "durable"]
        nothing(receiver)
