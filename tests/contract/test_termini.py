"""What attaches ask for: temporary destinations, capabilities, subscriptions in use."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from proton import UNDESCRIBED, Array, Data, Message, symbol
from proton import Terminus as PTerminus
from proton.reactor import ReceiverOption, SenderOption
from proton.utils import BlockingConnection, BlockingSender, LinkDetached, SendException

from tests.broker.harness import Management, Terminus, attach, bodies, flush, nothing, take, until
from tests.contract.conftest import Expected
from tests.contract.engines import Broker


def test_a_temporary_queue_outlives_its_consumers(broker: Broker, c: BlockingConnection, m: Management) -> None:
    creator, name = temporary(c, "queue")
    with broker.connect() as other:
        sender = other.create_sender(name)
        sender.send(Message(body="before"))
        for body in ("before", "between"):
            receiver = attach(c, name, 1, name=body, options=Terminus("temporary-queue"))
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
            other.create_sender(name, name="late")


def test_a_temporary_topic_stores_nothing_by_itself(broker: Broker, c: BlockingConnection, m: Management) -> None:
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
            other.create_sender(name, name="late")


def test_a_temporary_queue_goes_with_its_connection(broker: Broker, m: Management) -> None:
    with broker.connect() as owner:
        _, name = temporary(owner, "queue")
        assert name in m.rows()
    until(lambda: name not in m.rows(), "the queue to go")


@pytest.mark.parametrize("wanted", [Terminus(durable=True), Terminus("shared"), Terminus("queue", "shared")])
def test_a_subscription_to_a_queue(c: BlockingConnection, q: str, wanted: ReceiverOption, expected: Expected) -> None:
    def attached() -> str:
        try:
            c.create_receiver(q, options=wanted)
        except LinkDetached as error:
            return str(error)
        return ""

    refusal = attached()
    assert bool(refusal) is expected(embedded=True, artemis=False)
    assert not refusal or "queue and has no" in refusal


def test_the_bare_name_of_a_subscription_leads_nowhere(broker: Broker, m: Management, t: str) -> None:
    with broker.connect("bare") as c:
        attach(c, t, 0, name="sub", options=Terminus(durable=True)).link.detach()
        flush(c.create_sender(t))
        c.create_sender(t, name="s").send(Message(body="kept", durable=True))
    with broker.connect("other") as c, contextlib.suppress(LinkDetached):
        nothing(attach(c, "bare.sub", 1))
    with broker.connect("bare") as c:
        assert bodies(attach(c, t, 1, name="sub", options=Terminus(durable=True)), 1) == ["kept"]
    m("destroyQueue", "bare.sub", True)


class NullSource(ReceiverOption):
    def apply(self, receiver: Any) -> None:
        receiver.source.type = PTerminus.UNSPECIFIED


def test_a_subscription_in_use_is_not_taken_by_its_name(broker: Broker, m: Management, t: str) -> None:
    """Unsubscribing by another connection of the same client tells why it does not go."""
    with broker.connect("used") as one:
        receiver = attach(one, t, 1, name="subscription", options=Terminus(durable=True))
        with broker.connect("used") as two, pytest.raises(LinkDetached, match=r"in use|AMQ229200"):
            two.create_receiver(None, name="subscription", options=NullSource())
        one.create_sender(t).send(Message(body="goes on"))
        assert bodies(receiver, 1) == ["goes on"]
        receiver.link.detach()
    with broker.connect("used") as two:
        two.create_receiver(None, name="subscription", options=NullSource()).close()
    until(lambda: "used.subscription" not in m.rows(), "the subscription to go")


class Dynamic(SenderOption):
    """A target that the broker makes, with a capability."""

    def __init__(self, capability: str) -> None:
        self.capability = capability

    def apply(self, sender: Any) -> None:
        sender.target.dynamic = True
        sender.target.capabilities.put_object(Array(UNDESCRIBED, Data.SYMBOL, symbol(self.capability)))


def temporary(connection: BlockingConnection, kind: str) -> tuple[BlockingSender, str]:
    creator = connection.create_sender(None, name=f"creator-{kind}", options=Dynamic(f"temporary-{kind}"))
    return creator, creator.link.remote_target.address


class AutoLink(ReceiverOption, SenderOption):
    """As a router attaches for a waypoint: its own terminus has no address."""

    def apply(self, link: Any) -> None:
        (link.target if link.is_receiver else link.source).type = PTerminus.UNSPECIFIED


def test_links_of_a_router(broker: Broker, m: Management, q: str) -> None:
    """The broker gives back the address; without that the router takes the link for one that failed."""
    with broker.connect("router-0", properties={symbol("product"): "qpid-dispatch-router"}) as router:
        out = router.create_sender(q, name="qdlink.out", options=AutoLink())
        assert out.link.remote_target.address == q
        inward = attach(router, q, 0, name="qdlink.in", options=AutoLink())
        assert inward.link.remote_source.address == q
        out.send(Message(body="x", durable=True))
        inward.link.flow(2)
        assert bodies(inward, 1) == ["x"]
        nothing(inward)
        with pytest.raises(LinkDetached, match="amqp:not-found"):
            router.create_sender(f"{q}-missing", name="qdlink.2", options=AutoLink())
        out.close()
        again = router.create_sender(q, name="qdlink.out", options=AutoLink())
        again.send(Message(body="y", durable=True))
    assert m.count(q) == 1


def test_the_same_names_from_two_routers(broker: Broker, q: str) -> None:
    """A link's name is its connection's; so are names of senders in the relay."""
    with broker.connect("router-1") as one, broker.connect("router-2") as two:
        for router in (one, two):
            router.create_sender(q, name="qdlink.same").send(Message(body="x"))
            router.create_sender(None, name="relay.same@client").send(Message(body="y", address=q))
        receiver = attach(one, q, 4, name="same")
        assert sorted(bodies(receiver, 4)) == ["x", "x", "y", "y"]
