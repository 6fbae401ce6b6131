"""Topics: who gets a copy, and which subscriptions outlive what."""

from __future__ import annotations

import uuid
from functools import partial

import pytest
from proton import Described, Message, symbol
from proton import Terminus as PTerminus
from proton.reactor import ReceiverOption
from proton.utils import BlockingConnection, LinkDetached, SendException

from tests.broker.harness import (
    Management,
    ManagementFailure,
    Terminus,
    attach,
    bodies,
    flush,
    nothing,
    selector,
    take,
    until,
)
from tests.contract.conftest import Expected
from tests.contract.engines import Broker

DURABLE = Terminus("topic", durable=True)


def publish(c: BlockingConnection, address: str, *texts: str, **fields: object) -> None:
    sender = c.create_sender(address, name=str(uuid.uuid4()))
    for text in texts:
        sender.send(Message(body=text, **fields))
    sender.close()


def gone(m: Management, queue: str) -> bool:
    return queue not in m.rows()


def test_every_subscriber_gets_a_copy_from_when_it_subscribed(c: BlockingConnection, m: Management, t: str) -> None:
    publish(c, t, "nobody hears")
    receivers = [attach(c, t, 10, name=str(n)) for n in range(3)]
    publish(c, t, "a", "b", durable=True)
    for receiver in receivers:
        assert bodies(receiver, 2) == ["a", "b"]
        nothing(receiver)
    for receiver in receivers:
        receiver.close()
    until(lambda: not [row for row in m.rows().values() if row["address"] == t], "the subscriptions to go")


@pytest.mark.parametrize(
    ("pattern", "heard"),
    [
        ("{}/#", ["", "/a", "/a/b", "/a/b/c", "/x/b"]),
        ("{}/+/b", ["/a/b", "/x/b"]),
        ("{}/a/#", ["/a", "/a/b", "/a/b/c"]),
        ("{}/#/b", ["/a/b", "/x/b"]),
        ("{}", [""]),
        ("{}/a", ["/a"]),
    ],
)
def test_wildcards_over_the_levels_below_a_topic(c: BlockingConnection, t: str, pattern: str, heard: list[str]) -> None:
    receiver = attach(c, pattern.format(t), 10)
    for below in ("", "/a", "/a/b", "/a/b/c", "/x/b"):
        publish(c, t + below, below)
    assert bodies(receiver, len(heard)) == heard
    nothing(receiver)


def test_levels_below_a_queue_do_not_exist(c: BlockingConnection, m: Management) -> None:
    m.queue("plain")
    for create in (c.create_sender, c.create_receiver):
        with pytest.raises(LinkDetached, match="not-found"):
            create("plain/below")
    m("destroyQueue", "plain", True, True)


def test_sending_to_a_pattern_is_refused(c: BlockingConnection, t: str, expected: Expected) -> None:
    """By the one when the sender attaches, by the other with each message."""
    with pytest.raises(expected(embedded=LinkDetached, artemis=SendException)):
        c.create_sender(f"{t}/#").send(Message(body="x"))


def test_a_durable_subscription_waits_for_its_subscriber(broker: Broker, m: Management, t: str) -> None:
    with broker.connect("client") as c:
        receiver = attach(c, t, 0, name="sub", options=DURABLE)
        assert receiver.link.remote_source.expiry_policy == PTerminus.EXPIRE_NEVER
        receiver.detach()
        publish(c, t, "while detached", durable=True)
    with broker.connect() as other:
        publish(other, t, "while away", durable=True)
    row = m.rows()["client.sub"]
    assert (row["address"], row["durable"], row["messageCount"]) == (t, "true", "2")
    with broker.connect("client") as c:
        receiver = attach(c, t, 5, name="sub", options=DURABLE)
        assert bodies(receiver, 2) == ["while detached", "while away"]
        receiver.close()
        until(lambda: "client.sub" not in m.rows(), "the closed subscription to go")


def test_a_subscription_is_recovered_with_a_null_source(
    broker: Broker, m: Management, t: str, expected: Expected
) -> None:
    with broker.connect("lookup") as c:
        attach(c, t, 0, name="sub", options=Terminus("topic", durable=True, filters=selector("a = 1"))).detach()
    with broker.connect("lookup") as c:
        found = c.create_receiver(None, credit=0, name="sub", options=NullSource())
        source = found.link.remote_source
        assert (source.address, source.durability) == (
            expected(embedded=t, artemis="lookup.sub"),
            PTerminus.DELIVERIES,
        )
        found.close()
        until(lambda: "lookup.sub" not in m.rows(), "unsubscribing")
        with pytest.raises(LinkDetached, match="not-found"):
            c.create_receiver(None, credit=0, name="unknown", options=NullSource())


def test_another_filter_makes_the_subscription_anew(broker: Broker, m: Management, t: str) -> None:
    with broker.connect("changer") as c:
        attach(c, t, 0, name="sub", options=DURABLE).detach()
        publish(c, t, "old", durable=True)
    with broker.connect("changer") as c:
        receiver = attach(c, t, 5, name="sub", options=Terminus("topic", durable=True, filters=selector("a = 1")))
        publish(c, t, "new", durable=True, properties={"a": 1})
        assert bodies(receiver, 1) == ["new"]
        receiver.close()


def test_a_durable_subscriber_comes_while_its_link_is_still_there(
    broker: Broker, m: Management, t: str, expected: Expected
) -> None:
    """As after a connection that was lost without the broker having noticed."""
    with broker.connect("mover") as old, broker.connect("mover") as new:
        first = attach(old, t, 5, name="sub", options=DURABLE)

        def again() -> str:
            try:
                attach(new, t, 5, name="sub", options=DURABLE).close()
            except LinkDetached as error:
                return "refused" if "AMQ229200" in str(error) else str(error)
            with pytest.raises(LinkDetached, match="stolen"):
                nothing(first)
            return "taken over"

        assert again() == expected(embedded="taken over", artemis="refused")


def test_a_durable_subscription_behind_another_router(
    broker: Broker, m: Management, t: str, expected: Expected
) -> None:
    """Routers name the client in the link's name. One engine reads it; the other knows the router only."""
    product = {symbol("product"): "qpid-dispatch-router"}
    with broker.connect("router-1", properties=product) as c:
        attach(c, t, 0, name="sub@device", options=DURABLE).detach()
        publish(c, t, "x", durable=True)
    with broker.connect("router-1", properties=product) as c:
        receiver = attach(c, t, 1, name="sub@device", options=DURABLE)
        assert take(receiver).body == "x"
        receiver.detach()
    queue = expected(embedded="device.sub", artemis="router-1.sub@device")
    assert queue in m.rows()
    with broker.connect("router-2", properties=product) as c:
        receiver = attach(c, t, 1, name="sub@device", options=DURABLE)
        assert int(m.rows()[queue]["consumerCount"]) == expected(embedded=1, artemis=0)
        receiver.close()


def test_names_of_shared_and_global_subscriptions(broker: Broker, m: Management, t: str) -> None:
    cases = {
        "s1": (("topic", "shared"), True, "sharer.s1"),
        "s2": (("topic", "shared"), False, "sharer.s2:shared-volatile"),
        "s3": (("topic", "shared", "global"), True, "s3:global"),
        "s4": (("topic", "shared", "global"), False, "s4:shared-volatile:global"),
    }
    for name, (wanted, durable, queue) in cases.items():
        with broker.connect("sharer") as one, broker.connect("sharer" if "global" not in wanted else "two") as two:
            options = Terminus(*wanted, durable=durable)
            first = attach(one, t, 5, name=f"{name}|1", options=options)
            second = attach(two, t, 5, name=f"{name}|2", options=options)
            assert m.rows()[queue]["consumerCount"] == "2"
            publish(one, t, "a", "b")
            assert sorted(bodies(first, 1) + bodies(second, 1)) == ["a", "b"]
            second.close()
            first.close()
            until(partial(gone, m, queue), "the subscription to go")


def test_a_shared_volatile_subscription_goes_with_its_last_link(broker: Broker, m: Management, t: str) -> None:
    with broker.connect("volatile") as c:
        attach(c, t, 0, name="v", options=Terminus("topic", "shared"))
        assert "volatile.v:shared-volatile" in m.rows()
    until(lambda: "volatile.v:shared-volatile" not in m.rows(), "the subscription to go")


def test_no_local(broker: Broker, t: str) -> None:
    with broker.connect("me") as me, broker.connect("you") as you:
        filters = {"no-local": Described(symbol("apache.org:no-local-filter:list"), [])}
        receiver = attach(me, t, 5, options=Terminus(filters=filters))
        publish(me, t, "mine")
        publish(you, t, "yours")
        assert bodies(receiver, 1) == ["yours"]


def test_capabilities_must_fit_the_address(c: BlockingConnection, m: Management, t: str) -> None:
    with pytest.raises(LinkDetached, match=f"Address {t} is not configured for queue support"):
        c.create_receiver(t, options=Terminus("queue"))
    m.queue("only-queue")
    with pytest.raises(LinkDetached, match="Address only-queue is not configured for topic support"):
        c.create_receiver("only-queue", options=Terminus("topic"))
    m("destroyQueue", "only-queue", True, True)


def test_an_address_with_both_routing_types(c: BlockingConnection, m: Management) -> None:
    m("createAddress", "both", "ANYCAST,MULTICAST")
    m("createQueue", "both", "ANYCAST", "both", None, True, -1, False, False)
    subscriber = attach(c, "both", 5, name="t", options=Terminus("topic"))
    publish(c, "both", "x")
    assert bodies(subscriber, 1) == ["x"]
    assert m.count("both") == 1
    m("deleteAddress", "both", True)


def test_a_deleted_topic(broker: Broker, m: Management, expected: Expected) -> None:
    broker.topic(m, "short")
    with broker.connect() as c:
        sender = c.create_sender("short")
        subscriber = attach(c, "short", 1)
        with pytest.raises(ManagementFailure, match="AMQ229205"):
            m("deleteAddress", "short")
        m("deleteAddress", "short", True)
        with pytest.raises(LinkDetached, match="resource-deleted"):
            nothing(subscriber)

        def publisher() -> str:
            try:
                flush(sender)
                sender.send(Message(body="x"))
            except LinkDetached:
                return "is detached"
            except SendException:
                return "is refused each message"
            return "goes on"

        assert publisher() == expected(embedded="is detached", artemis="is refused each message")
    with broker.connect() as c, pytest.raises(LinkDetached, match="not-found"):
        c.create_sender("short")


def test_a_slow_durable_subscriber_keeps_nothing_of_what_others_accepted(broker: Broker, m: Management, t: str) -> None:
    """One stored copy serves all subscriptions; each has its own count."""
    with broker.connect("pair") as c:
        attach(c, t, 0, name="slow", options=DURABLE).detach()
        fast = attach(c, t, 20, name="fast", options=DURABLE)
        publish(c, t, *(str(n) for n in range(10)), durable=True)
        assert bodies(fast, 10) == [str(n) for n in range(10)]
        until(lambda: m.rows()["pair.fast"]["messageCount"] == "0", "the acknowledgements")
        assert m.rows()["pair.slow"]["messageCount"] == "10"

        def size() -> int:
            return int(m.rows("listAddresses")[t]["addressSize"])

        assert size() > 0
        m("removeMessages", None, resource="queue.pair.slow")
        until(lambda: size() == 0, "the room to be given back")
        fast.close()


class NullSource(ReceiverOption):
    def apply(self, receiver: object) -> None:
        receiver.source.type = PTerminus.UNSPECIFIED  # type: ignore[attr-defined]  # proton's terminus is untyped
