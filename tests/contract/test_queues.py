"""Queues: order, competing consumers, credit, outcomes, expiry, delays, selectors."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import pytest
from proton import Delivery, Link, Message, symbol
from proton import Described as PDescribed
from proton.utils import BlockingConnection, BlockingSender, ConnectionClosed, LinkDetached, SendException

from enmasse.aio.client import connect
from enmasse.amqp.codec.performatives import ACCEPTED, RELEASED, Modified, Received, Source
from enmasse.amqp.link import FIRST, SECOND
from enmasse.amqp.messages.message import Message as Encoded
from tests.broker.harness import (
    DEADLINE,
    Management,
    ManagementFailure,
    Terminus,
    attach,
    bodies,
    flush,
    modify,
    nothing,
    selector,
    take,
    until,
)
from tests.contract.conftest import Expected
from tests.contract.engines import NAME, Broker
from tests.kit.leaving import LOST, WAYS, vanish
from tests.kit.transactions import Transacted


def send(sender: BlockingSender, *texts: str, **fields: object) -> None:
    for text in texts:
        sender.send(Message(body=text, **fields))


def test_messages_come_in_order_and_are_gone_once_accepted(c: BlockingConnection, m: Management, q: str) -> None:
    send(c.create_sender(q), *(f"m{i}" for i in range(50)), durable=True)
    assert m.count(q) == 50
    receiver = c.create_receiver(q, credit=7)
    assert bodies(receiver, 50) == [f"m{i}" for i in range(50)]
    until(lambda: m.count(q) == 0, "the acknowledgements")
    row = m.rows()[q]
    assert (row["messagesAdded"], row["messagesAcked"]) == ("50", "50")


def test_a_broker_says_who_it_is(c: BlockingConnection, expected: Expected) -> None:
    assert (c.conn.remote_container == NAME) is expected(embedded=True, artemis=False)
    offered = {str(capability) for capability in c.conn.remote_offered_capabilities}
    assert offered >= {"ANONYMOUS-RELAY", "SHARED-SUBS", "DELAYED_DELIVERY", "sole-connection-for-container"}
    assert dict(c.conn.remote_properties)[symbol("product")] == "apache-activemq-artemis"


def test_two_consumers_compete(c: BlockingConnection, q: str) -> None:
    first = c.create_receiver(q, credit=10, name="1")
    second = c.create_receiver(q, credit=10, name="2")
    send(c.create_sender(q), *(f"m{i}" for i in range(10)))
    got = bodies(first, 5) + bodies(second, 5)
    assert sorted(got) == sorted(f"m{i}" for i in range(10))


def test_a_consumer_of_higher_priority_is_served_first(c: BlockingConnection, q: str) -> None:
    low = attach(c, q, 10, name="low", options=Terminus(properties={"priority": 1}))
    high = attach(c, q, 3, name="high", options=Terminus(properties={"priority": 5}))
    send(c.create_sender(q), *(f"m{i}" for i in range(5)))
    assert [take(high).body for _ in range(3)] == ["m0", "m1", "m2"]
    assert [take(low).body for _ in range(2)] == ["m3", "m4"]


def test_messages_of_higher_priority_come_first(c: BlockingConnection, q: str) -> None:
    sender = c.create_sender(q)
    for body, priority in (("a4", 4), ("b9", 9), ("c0", 0), ("d9", 9), ("e4", 4)):
        sender.send(Message(body=body, priority=priority))
    assert bodies(c.create_receiver(q, credit=1), 5) == ["b9", "d9", "a4", "e4", "c0"]


def test_an_unknown_address_is_not_found(c: BlockingConnection) -> None:
    for create in (c.create_receiver, c.create_sender):
        with pytest.raises(LinkDetached) as caught:
            create("nowhere")
        assert "amqp:not-found" in str(caught.value)


def test_released_comes_back_first_and_uncounted(c: BlockingConnection, q: str) -> None:
    send(c.create_sender(q), "a", "b")
    receiver = attach(c, q, 1)
    assert take(receiver).body == "a"
    receiver.release(delivered=False)
    flush(receiver)
    receiver.link.flow(1)
    again = take(receiver)
    assert (again.body, again.delivery_count) == ("a", 0)


def test_annotations_of_modified(c: BlockingConnection, q: str, expected: Expected) -> None:
    send(c.create_sender(q), "x", durable=True, annotations={symbol("a"): 1})
    receiver = attach(c, q, 1)
    take(receiver)
    modify(receiver, failed=True, a=2, seen=True)
    receiver.link.flow(1)
    found = take(receiver).annotations
    assert found == expected(embedded={symbol("a"): 2, symbol("seen"): True}, artemis={symbol("a"): 1})
    receiver.accept()
    flush(receiver)


def test_modified_counts_and_undeliverable_here_goes_elsewhere(c: BlockingConnection, q: str) -> None:
    send(c.create_sender(q), "a")
    receiver = c.create_receiver(q, credit=1, name="1")
    receiver.receive(DEADLINE)
    modify(receiver, failed=True)
    again = receiver.receive(DEADLINE)
    assert (again.body, again.delivery_count, again.first_acquirer) == ("a", 1, False)
    modify(receiver, failed=True, elsewhere=True)
    nothing(receiver)
    other = c.create_receiver(q, credit=1, name="2")
    assert other.receive(DEADLINE).delivery_count == 2


@pytest.mark.parametrize("filters", [{}, selector("n = 0")])
def test_a_drain_right_after_the_attach_finds_what_waits(
    c: BlockingConnection, q: str, filters: dict[str, object]
) -> None:
    """As `receiveNoWait` of JMS without prefetch does it."""
    sender = c.create_sender(q)
    if filters:  # more than is looked at in one turn
        for _ in range(1200):
            sender.link.send(Message(body="other", properties={"n": 1}))
        flush(sender)
    for n in range(20):
        sender.send(Message(body=n, durable=n % 2 == 0, properties={"n": 0}))
        receiver = c.create_receiver(q, credit=0, name=f"r{n}", options=Terminus(filters=dict(filters)))
        receiver.link.drain(1)
        c.wait(lambda receiver=receiver: not receiver.link.draining() or receiver.fetcher.has_message)
        assert receiver.fetcher.has_message, f"in round {n}"
        assert take(receiver).body == n
        receiver.accept()
        receiver.close()


@pytest.mark.parametrize("way", WAYS)
def test_what_a_consumer_leaves_comes_back(
    broker: Broker, c: BlockingConnection, q: str, way: str, expected: Expected
) -> None:
    """In its place. If the consumer was lost, the oldest message counts as a failed delivery: it may be the reason."""
    send(c.create_sender(q), *"abcd")
    for turn in range(1, 4):
        with broker.connect() as other:
            receiver = other.create_receiver(q, credit=4)
            for _ in "abc":
                take(receiver)
            WAYS[way](receiver)
        receiver = c.create_receiver(q, credit=4)
        found = [take(receiver) for _ in "abcd"]
        assert [message.body for message in found] == list("abcd")
        oldest = expected(embedded=turn if way in LOST else 0, artemis=-1 if way == "vanish" else 0)
        if oldest >= 0:
            assert [message.delivery_count for message in found] == [oldest, 0, 0, 0]
        receiver.close()


def test_a_message_that_kills_its_consumers_becomes_a_dead_letter_and_those_behind_it_do_not(
    broker: Broker, c: BlockingConnection, m: Management, q: str, expected: Expected
) -> None:
    m.queue(f"{q}-dead")
    m.settings(q, deadLetterAddress=f"{q}-dead", maxDeliveryAttempts=3)
    send(c.create_sender(q), *"abcd")
    for _ in range(3):
        with broker.connect() as other:
            receiver = other.create_receiver(q, credit=4)
            assert take(receiver).body == "a"
            vanish(receiver)
    if expected(embedded=True, artemis=False):
        receiver = c.create_receiver(q, credit=4)
        assert [take(receiver).body for _ in "bcd"] == list("bcd")
        assert m.count(f"{q}-dead") == 1
        receiver.close()
    else:  # all of them or none, by what the broker notices first
        until(lambda: m.count(q) + m.count(f"{q}-dead") == 4, "every message in one of the two")
    m("destroyQueue", f"{q}-dead", True, True)


def test_a_consumer_whose_default_outcome_is_released_is_never_to_blame(
    broker: Broker, c: BlockingConnection, q: str, expected: Expected
) -> None:
    send(c.create_sender(q), *"ab")

    async def take_and_vanish() -> None:
        async with connect(broker.url) as other:
            receiver = await other.receiver(q, source=Source(address=q, default_outcome=RELEASED), credit=2)
            await receiver.receive(timeout=DEADLINE)
            (wire,) = other.connection_hub.wires
            assert wire.transport is not None
            wire.transport.abort()

    asyncio.run(take_and_vanish())
    receiver = c.create_receiver(q, credit=2)
    found = [take(receiver) for _ in "ab"]
    assert [message.body for message in found] == ["a", "b"]
    assert not expected(embedded=any(message.delivery_count for message in found), artemis=False)


@pytest.mark.parametrize("mode", [FIRST, SECOND])
def test_a_message_that_is_settled_without_an_outcome(broker: Broker, q: str, mode: int, expected: Expected) -> None:
    """The default-outcome of the source counts, else it is released."""

    async def counts(default: Any, state: Any) -> list[int]:
        async with connect(broker.url) as client:
            await (await client.sender(q)).send(Encoded("x"))
            source = Source(address=q, default_outcome=default)
            receiver = await client.receiver(q, source=source, credit=0, rcv_settle_mode=mode)
            receiver.grant(1)
            delivery = await receiver.receive(timeout=DEADLINE)
            receiver.link.second = False  # this end settles
            delivery.settle(state)
            other = await client.receiver(q, credit=0)
            other.grant(2)
            await other.drain(DEADLINE)
            found = []
            while (again := other.receive_nowait()) is not None:
                found.append(again.message.delivery_count)
                await again.accept()
            await receiver.close()
            other.grant(2)
            await other.drain(DEADLINE)
            while (again := other.receive_nowait()) is not None:  # it was in limbo
                await again.accept()
            return found

    for state in (None, Received(section_number=0, section_offset=0)):
        for default, embedded in ((None, [0]), (ACCEPTED, []), (RELEASED, [0]), (Modified(delivery_failed=True), [1])):
            assert asyncio.run(counts(default, state)) == expected(embedded=embedded, artemis=[])


def test_what_comes_back_from_one_link_of_a_lost_connection_does_not_go_to_the_next(
    broker: Broker, c: BlockingConnection, q: str
) -> None:
    with broker.connect() as other:
        first = attach(other, q, 5, name="1")
        attach(other, q, 5, name="2")
        send(c.create_sender(q), *"abcd")
        take(first)
    receiver = attach(c, q, 4)
    found = [take(receiver) for _ in range(4)]
    assert sorted(message.body for message in found) == list("abcd")


def test_rejected_goes_to_the_dead_letter_address_at_once(
    c: BlockingConnection, m: Management, q: str, expected: Expected
) -> None:
    m.queue(f"{q}.dead")
    m.settings(q, deadLetterAddress=f"{q}.dead")
    send(c.create_sender(q), "bad", durable=True, id="id-1")
    receiver = c.create_receiver(q, credit=1)
    receiver.receive(DEADLINE)
    receiver.reject()
    dead = c.create_receiver(f"{q}.dead", credit=1, name="dead").receive(DEADLINE)
    assert dead.body == "bad"
    assert dead.annotations[symbol("x-opt-ORIG-ADDRESS")] == q
    assert dead.annotations[symbol("x-opt-ORIG-QUEUE")] == q
    original = dead.annotations[symbol("x-opt-ORIG-MESSAGE-ID")]
    assert (original == "id-1") is expected(embedded=True, artemis=False), "its message-id, or a number of the broker's"
    has_reason = symbol("x-opt-death") in dead.annotations
    assert has_reason is expected(embedded=True, artemis=False), "the reason, and which consumer"
    assert m.rows()[q]["messagesKilled"] == "1"


def test_after_the_last_attempt_to_the_dead_letter_address(c: BlockingConnection, m: Management, q: str) -> None:
    m.queue(f"{q}.dead")
    m.settings(q, deadLetterAddress=f"{q}.dead", maxDeliveryAttempts=3)
    send(c.create_sender(q), "bad", durable=True)
    receiver = c.create_receiver(q, credit=1)
    for attempt in range(3):
        assert receiver.receive(DEADLINE).delivery_count == attempt
        modify(receiver, failed=True)
    nothing(receiver)
    assert c.create_receiver(f"{q}.dead", credit=1, name="dead").receive(DEADLINE).body == "bad"


def test_a_dead_letter_address_that_does_not_exist(
    c: BlockingConnection, m: Management, q: str, expected: Expected
) -> None:
    m.settings(q, deadLetterAddress=f"{q}.missing", expiryAddress=f"{q}.missing")
    send(c.create_sender(q), "bad", durable=True)
    receiver = c.create_receiver(q, credit=1)
    receiver.receive(DEADLINE)
    receiver.reject()
    flush(receiver)
    until(lambda: m.count(q) == 0, "the message to go")
    assert (f"{q}.missing" in m("getQueueNames")) is expected(embedded=True, artemis=False)


def test_redelivery_waits(c: BlockingConnection, m: Management, q: str) -> None:
    m.settings(q, redeliveryDelay=3_600_000)
    send(c.create_sender(q), "not in this test", "soon")
    receiver = c.create_receiver(q, credit=1)
    receiver.receive(DEADLINE)
    modify(receiver, failed=True)
    assert m.rows()[q]["scheduledCount"] == "1"
    assert receiver.receive(DEADLINE).body == "soon"
    m.settings(q, redeliveryDelay=300)
    started = time.monotonic()
    modify(receiver, failed=True)
    again = receiver.receive(DEADLINE)
    assert (again.body, again.delivery_count) == ("soon", 1)
    assert time.monotonic() - started >= 0.25
    assert m.rows()[q]["scheduledCount"] == "1"


def test_expired_goes_to_the_expiry_address(c: BlockingConnection, m: Management, q: str) -> None:
    m.queue(f"{q}.late")
    m.settings(q, expiryAddress=f"{q}.late")
    sender = c.create_sender(q)
    send(sender, "old", ttl=0.05, durable=True)
    send(sender, "kept", ttl=600)
    late = c.create_receiver(f"{q}.late", credit=1, name="late").receive(DEADLINE)
    assert late.body == "old"
    assert late.annotations[symbol("x-opt-ORIG-ADDRESS")] == q
    when = late.annotations[symbol("x-opt-ACTUAL-EXPIRY")]
    assert type(when) is int, "milliseconds, a long"
    assert abs(when / 1000 - time.time()) < 3600
    kept = c.create_receiver(q, credit=1).receive(DEADLINE)
    assert kept.body == "kept"
    assert 0 < kept.ttl <= 600
    assert m.rows()[q]["messagesExpired"] == "1"


def test_limits_of_expiry_hold_for_what_says_nothing_or_too_much(c: BlockingConnection, m: Management, q: str) -> None:
    m.queue(f"{q}.late")
    m.settings(q, minExpiryDelay=50, maxExpiryDelay=300, expiryAddress=f"{q}.late")
    sender = c.create_sender(q)
    for ttl in (0, 0.1, 10_000):
        sender.send(Message(body=ttl, ttl=ttl))
    assert sorted(bodies(attach(c, f"{q}.late", 3, name="late"), 3)) == [0, 0.1, 10_000]
    m.settings(q, minExpiryDelay=3_600_000)
    sender.send(Message(body="raised", ttl=0.001))
    receiver = c.create_receiver(q, credit=1)
    assert receiver.receive(DEADLINE).body == "raised"


def test_the_ttl_that_a_consumer_reads(c: BlockingConnection, m: Management, q: str, expected: Expected) -> None:
    """What a limit has made of it; and what is left of it."""
    sender = c.create_sender(q)
    sender.send(Message(body="as sent", ttl=600))
    m.settings(q, maxExpiryDelay=1_000_000)
    sender.send(Message(body="limited", ttl=10_000))
    receiver = c.create_receiver(q, credit=2)
    as_sent, limited = (receiver.receive(DEADLINE).ttl for _ in range(2))
    assert (0 < as_sent <= 600, 0 < limited <= 1000) == expected(embedded=(True, True), artemis=(True, False))


def test_scheduled_messages_wait_for_their_time(c: BlockingConnection, m: Management, q: str) -> None:
    sender = c.create_sender(q)
    far = int(time.time() * 1000) + 3_600_000
    for when in ({symbol("x-opt-delivery-time"): far}, {symbol("x-opt-delivery-delay"): 3_600_000}):
        sender.send(Message(body="not in this test", annotations=when))
    assert m.rows()[q]["scheduledCount"] == "2"
    receiver = attach(c, q, 3)
    nothing(receiver)
    receiver.link.flow(3)
    flush(receiver)
    # All three in one write: that they come apart by as much as their delays are is not to be had by load.
    started = time.time() * 1000
    due = int(started) + 1500
    for message in (
        Message(body="later", annotations={symbol("x-opt-delivery-time"): due}),
        Message(body="sooner", annotations={symbol("x-opt-delivery-delay"): 500}),
        Message(body="now"),
    ):
        sender.link.send(message)
    assert [take(receiver).body for _ in range(2)] == ["now", "sooner"]
    assert time.time() * 1000 >= started + 499  # both clocks count whole milliseconds
    assert take(receiver).body == "later"
    assert time.time() * 1000 >= due
    assert m.rows()[q]["scheduledCount"] == "2"


def test_a_selector_chooses_and_is_echoed_but_unknown_filters_are_not(c: BlockingConnection, q: str) -> None:
    filters = selector("colour = 'red' AND n >= 1") | {"my-filter": PDescribed(symbol("my:filter"), "x")}
    receiver = c.create_receiver(q, credit=10, name="red", options=Terminus(filters=filters))
    echo = receiver.link.remote_source.filter
    echo.rewind()
    assert echo.next() is not None
    echoed = echo.get_dict()
    assert set(echoed) == {"jms-selector"}
    sender = c.create_sender(q)
    for n, colour in enumerate(["red", "red", "blue", "red"]):
        sender.send(Message(body=n, properties={"colour": colour, "n": n}))
    assert bodies(receiver, 2) == [1, 3]
    nothing(receiver)
    assert bodies(c.create_receiver(q, credit=2, name="all"), 2) == [0, 2]


def test_a_selector_that_is_none_is_refused(c: BlockingConnection, q: str) -> None:
    with pytest.raises(LinkDetached) as caught:
        c.create_receiver(q, options=Terminus(filters=selector("colour = = 'red'")))
    assert "amqp:invalid-field" in str(caught.value)


def test_browsing_takes_nothing_and_a_drain_ends_it(c: BlockingConnection, m: Management, q: str) -> None:
    send(c.create_sender(q), "a", "b", "c")
    browser = c.create_receiver(q, credit=10, name="look", options=Terminus(copy=True))
    assert bodies(browser, 3) == ["a", "b", "c"]
    nothing(browser)
    assert m.count(q) == 3
    assert bodies(c.create_receiver(q, credit=3, name="take"), 3) == ["a", "b", "c"]


def test_drain_gives_what_there_is_and_the_rest_of_the_credit_back(c: BlockingConnection, q: str) -> None:
    send(c.create_sender(q), "a", "b")
    receiver = c.create_receiver(q, credit=0)
    receiver.link.drain(10)
    c.wait(lambda: not receiver.link.draining(), timeout=DEADLINE)
    assert [take(receiver).body for _ in range(2)] == ["a", "b"]
    assert receiver.link.credit == 0


def test_the_last_consumer_allowed(c: BlockingConnection, m: Management) -> None:
    m("createQueue", "one", "ANYCAST", "one", None, True, 1, False, True)
    c.create_receiver("one", name="1")
    with pytest.raises(LinkDetached) as caught:
        c.create_receiver("one", name="2")
    assert "AMQ229200: Maximum Consumer Limit Reached on Queue:(address=one,queue=one)" in str(caught.value)
    assert "amqp:internal-error" in str(caught.value)
    m("destroyQueue", "one", True, True)


def test_exclusive_serves_one_and_the_next_when_it_leaves(c: BlockingConnection, m: Management) -> None:
    m.queue("excl", exclusive=True)
    first = c.create_receiver("excl", credit=10, name="1")
    second = c.create_receiver("excl", credit=10, name="2")
    sender = c.create_sender("excl")
    send(sender, "a", "b", "c")
    assert bodies(first, 3) == ["a", "b", "c"]
    first.close()
    send(sender, "d")
    assert bodies(second, 1) == ["d"]
    m("destroyQueue", "excl", True, True)


def test_destroying_a_queue_tells_its_consumers(c: BlockingConnection, broker: Broker) -> None:
    with broker.manage() as m:
        m.queue("gone")
        receiver = c.create_receiver("gone")
        with pytest.raises(ManagementFailure, match=r"AMQ229025: .* queue gone .* it has consumers = "):
            m("destroyQueue", "gone")
        m("destroyQueue", "gone", True)
        with pytest.raises(LinkDetached) as caught:
            receiver.receive(DEADLINE)
        assert "amqp:resource-deleted" in str(caught.value)


def test_a_dynamic_address_lives_as_long_as_its_link(c: BlockingConnection, broker: Broker) -> None:
    with broker.manage() as m:
        receiver = c.create_receiver(None, dynamic=True, credit=1, name="dynamic")
        address = receiver.link.remote_source.address
        assert m.rows()[address]["temporary"] == "true"
        with broker.connect() as other:
            other.create_sender(address).send(Message(body="reply"))
        assert bodies(receiver, 1) == ["reply"]
        receiver.close()
        until(lambda: address not in m("getQueueNames"), "the temporary queue to go")
        assert address not in m("getAddressNames")


def test_the_anonymous_relay_sends_to_each_messages_address(c: BlockingConnection, m: Management, q: str) -> None:
    relay = c.create_sender(None, name="relay")
    relay.send(Message(body="x", address=q))
    assert m.count(q) == 1
    with pytest.raises(SendException) as caught:
        relay.send(Message(body="x", address="nowhere"))
    assert caught.value.state == Delivery.REJECTED
    with pytest.raises(SendException):
        relay.send(Message(body="x"))


def test_presettled_both_ways(c: BlockingConnection, m: Management, q: str) -> None:
    from proton.reactor import AtMostOnce

    sender = c.create_sender(q, options=AtMostOnce())
    sender.send(Message(body="x"))
    flush(sender)
    # Artemis stores a settled message in another thread than the one that answers the later attach.
    until(lambda: m.count(q) == 1, "the message to be stored")
    receiver = c.create_receiver(q, credit=1, options=AtMostOnce())
    assert receiver.receive(DEADLINE).body == "x"
    flush(receiver)
    until(lambda: m.count(q) == 0, "the message to go")


def test_a_large_message_passes_untouched(c: BlockingConnection, q: str) -> None:
    body = bytes(range(256)) * 8192
    c.create_sender(q).send(Message(body=body, durable=True, properties={"k": "v"}, user_id=b"me"))
    found = c.create_receiver(q, credit=1).receive(DEADLINE)
    assert bytes(found.body) == body
    assert found.properties == {"k": "v"}


def test_fully_qualified_names(c: BlockingConnection, m: Management) -> None:
    m("createAddress", "sport", "MULTICAST")
    m("createQueue", "sport", "MULTICAST", "mine", None, True, 1, False, False)
    c.create_sender("sport").send(Message(body="goal"))
    assert bodies(c.create_receiver("sport::mine", credit=1), 1) == ["goal"]
    for wrong in ("sport::other", "wrong::mine"):
        with pytest.raises(LinkDetached):
            c.create_receiver(wrong)
    c.create_sender("sport::mine").send(Message(body="direct"))
    assert m.count("mine") == 1
    m("deleteAddress", "sport", True)


def test_a_duplicate_is_taken_once(c: BlockingConnection, m: Management, q: str) -> None:
    sender = c.create_sender(q)
    for durable in (True, False):
        for _ in range(2):
            sender.send(Message(body="x", durable=durable, properties={"_AMQ_DUPL_ID": f"d{durable}"}))
    assert m.count(q) == 2
    for _ in range(2):
        sender.send(Message(body="y", id="same"))
    assert m.count(q) == 4, "message-ids do not count"


def test_duplicates_by_message_id(c: BlockingConnection, m: Management, q: str, expected: Expected) -> None:
    with contextlib.suppress(ManagementFailure):
        m.settings(q, duplicateDetectionByMessageId=True)
    sender = c.create_sender(q)
    for _ in range(2):
        sender.send(Message(body="z", id="same"))
    assert m.count(q) == expected(embedded=1, artemis=2)


def test_a_ring_keeps_the_newest(c: BlockingConnection, m: Management, q: str) -> None:
    m.queue(f"{q}.ring", ring_size=3)
    send(c.create_sender(f"{q}.ring"), *"abcdef", durable=True)
    assert bodies(attach(c, f"{q}.ring", 3), 3) == ["d", "e", "f"]
    m("destroyQueue", f"{q}.ring", True, True)


class Second(Terminus):
    """A receiver of rcv-settle-mode second: the broker settles after the outcome."""

    def apply(self, receiver: Any) -> None:
        super().apply(receiver)
        receiver.rcv_settle_mode = Link.RCV_SECOND


def test_settlement_by_the_receiver_second(c: BlockingConnection, q: str, expected: Expected) -> None:
    """Delivery-tags that name the message, and outcomes that are settled when they are on disk."""
    send(c.create_sender(q), "x", durable=True)
    receiver = attach(c, q, 1, options=Second())
    assert receiver.link.remote_rcv_settle_mode == expected(embedded=Link.RCV_SECOND, artemis=Link.RCV_FIRST)
    take(receiver)
    assert len(receiver.fetcher.unsettled[0].tag) == expected(embedded=8, artemis=1)


def test_a_transaction(c: BlockingConnection, m: Management, q: str) -> None:
    """From one queue to another, committed and rolled back."""
    m.queue(f"{q}-out")
    source, sender, work = c.create_sender(q), c.create_sender(f"{q}-out"), Transacted(c)
    for n in range(4):
        source.send(Message(body=n, durable=True))
    receiver = attach(c, q, 4)
    for n in range(4):
        work.begin()
        assert work.send(sender, Message(body=take(receiver).body, durable=True)) == "accepted"
        work.settle(receiver)
        if n % 2:
            work.commit()
        else:
            work.roll_back()
    assert m.count(f"{q}-out") == 2
    assert bodies(attach(c, f"{q}-out", 2), 2) == [1, 3]
    receiver.close()
    assert m.count(q) == 2
    again = attach(c, q, 2)
    assert [(message.body, message.delivery_count) for message in (take(again), take(again))] == [(0, 1), (2, 1)]


def test_a_message_that_is_none(c: BlockingConnection, m: Management, q: str, expected: Expected) -> None:
    sender = c.create_sender(q)
    delivery = sender.link.delivery(sender.link.delivery_tag())
    sender.link.stream(b"\x00\x53\x70\xc0\xff\x01")
    sender.link.advance()

    def answered() -> str:
        try:
            c.wait(lambda: delivery.remote_state != 0, timeout=DEADLINE)
        except ConnectionClosed:
            return "the connection is closed"
        return "rejected" if delivery.remote_state == Delivery.REJECTED else "other"

    assert answered() == expected(embedded="rejected", artemis="the connection is closed")
    assert m.count(q) == 0
