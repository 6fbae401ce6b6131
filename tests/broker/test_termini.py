"""What attaches ask for: temporary destinations, capabilities, subscriptions in use, transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from proton import UNDESCRIBED, Array, Data, Message, symbol
from proton import Terminus as PTerminus
from proton.reactor import ReceiverOption, SenderOption
from proton.utils import BlockingConnection, BlockingSender, LinkDetached, SendException

from tests.broker.harness import BrokerProcess, Management, Terminus, attach, bodies, nothing, take, until


@pytest.fixture(scope="module")
def m(broker: BrokerProcess) -> Iterator[Management]:
    with broker.manage() as management:
        management("createAddress", "topic", "MULTICAST")
        management.queue("queue")
        yield management


@pytest.fixture
def c(broker: BrokerProcess, m: Management) -> Iterator[BlockingConnection]:
    with broker.connect() as connection:
        yield connection


class Dynamic(SenderOption):
    """A target that the broker makes, with a capability."""

    def __init__(self, capability: str) -> None:
        self.capability = capability

    def apply(self, sender: Any) -> None:
        sender.target.dynamic = True
        sender.target.capabilities.put_object(Array(UNDESCRIBED, Data.SYMBOL, symbol(self.capability)))


def temporary(connection: BlockingConnection, kind: str) -> tuple[BlockingSender, str]:
    creator = connection.create_sender(None, options=Dynamic(f"temporary-{kind}"))
    return creator, creator.link.remote_target.address


def test_a_temporary_queue_outlives_its_consumers(broker: BrokerProcess, c: BlockingConnection, m: Management) -> None:
    creator, name = temporary(c, "queue")
    with broker.connect() as other:
        sender = other.create_sender(name)
        sender.send(Message(body="before"))
        for body in ("before", "between"):
            receiver = attach(c, name, 1, options=Terminus("temporary-queue"))
            assert take(receiver).body == body
            receiver.accept()
            receiver.close()
            if body == "before":
                sender.send(Message(body="between"))
        assert m.rows()[name]["temporary"] == "true"
        creator.close()
        until(lambda: name not in m.rows(), "the queue to go")
        with pytest.raises((LinkDetached, SendException)):
            sender.send(Message(body="too late"))
        with pytest.raises(LinkDetached, match="not-found"):
            other.create_sender(name)


def test_a_temporary_topic_stores_nothing_by_itself(
    broker: BrokerProcess, c: BlockingConnection, m: Management
) -> None:
    creator, name = temporary(c, "topic")
    with broker.connect() as other:
        sender = other.create_sender(name)
        sender.send(Message(body="to nobody"))
        assert not [row for row in m.rows().values() if row["address"] == name]
        for body in ("one", "two"):  # a topic stays when its subscribers have gone
            subscribers = [
                attach(c, name, 1, name=f"{body}-{n}", options=Terminus("temporary-topic")) for n in range(2)
            ]
            sender.send(Message(body=body))
            for subscriber in subscribers:
                assert take(subscriber).body == body
                subscriber.accept()
                subscriber.close()
        creator.close()
        with pytest.raises((LinkDetached, SendException)):
            until(lambda: sender.send(Message(body="too late")) and False)
        with pytest.raises(LinkDetached, match="not-found"):
            other.create_sender(name)


def test_a_temporary_queue_goes_with_its_connection(broker: BrokerProcess, m: Management) -> None:
    with broker.connect() as owner:
        _, name = temporary(owner, "queue")
        assert name in m.rows()
    until(lambda: name not in m.rows(), "the queue to go")


@pytest.mark.parametrize("wanted", [Terminus(durable=True), Terminus("shared"), Terminus("queue", "shared")])
def test_a_queue_has_no_subscriptions(c: BlockingConnection, wanted: ReceiverOption) -> None:
    with pytest.raises(LinkDetached, match=r"queue is a queue and has no (durable|shared) subscriptions"):
        c.create_receiver("queue", options=wanted)


class NullSource(ReceiverOption):
    def apply(self, receiver: Any) -> None:
        receiver.source.type = PTerminus.UNSPECIFIED


def test_a_subscription_in_use_is_not_taken_by_its_name(broker: BrokerProcess, m: Management) -> None:
    """Unsubscribing by another connection of the same client tells why it does not go."""
    with broker.connect("used") as one:
        receiver = attach(one, "topic", 1, name="subscription", options=Terminus(durable=True))
        with broker.connect("used") as two, pytest.raises(LinkDetached, match="in use"):
            two.create_receiver(None, name="subscription", options=NullSource())
        one.create_sender("topic").send(Message(body="goes on"))
        assert bodies(receiver, 1) == ["goes on"]
        receiver.link.detach()
    with broker.connect("used") as two:
        two.create_receiver(None, name="subscription", options=NullSource()).close()
    until(lambda: "used.subscription" not in m.rows(), "the subscription to go")


def transactional(delivery: Any) -> None:
    delivery.local.data = [b"transaction"]
    delivery.update(0x34)


def test_work_of_a_transaction_is_refused(broker: BrokerProcess, c: BlockingConnection, m: Management) -> None:
    """Nobody's commit is coming: it must not be done at once, as if it had not been part of one."""
    sender = c.create_sender("queue")
    link = sender.link
    c.wait(lambda: link.credit)
    delivery = link.delivery("tag")
    transactional(delivery)
    link.send(Message(body="within a transaction").encode())
    link.advance()
    with pytest.raises(LinkDetached, match="not supported: send and acknowledge each message by itself"):
        c.wait(lambda: delivery.remote_state)
    assert m.count("queue") == 0
    with broker.connect() as other:
        other.create_sender("queue").send(Message(body="there"))
        receiver = attach(other, "queue", 1)
        take(receiver)
        transactional(receiver.fetcher.unsettled.popleft())
        with pytest.raises(LinkDetached, match="not supported: send and acknowledge each message by itself"):
            other.wait(lambda: False)
    with broker.connect() as other:
        receiver = attach(other, "queue", 1)
        assert bodies(receiver, 1) == ["there"]
        nothing(receiver)
