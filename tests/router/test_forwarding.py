from __future__ import annotations

from collections import Counter
from typing import Any

import psutil
import pytest
from proton import Delivery, Link, Message
from proton.reactor import AtMostOnce, LinkOption
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached, SyncRequestResponse

from tests.router.harness import ADDRESS, PREFIX, Management, RouterProcess, body_of, post, pump, wait_for


class Settled(LinkOption):
    """A receiver that asks for settled deliveries."""

    def apply(self, link: Link) -> None:
        link.snd_settle_mode = Link.SND_SETTLED


class Counter64:
    """Addresses that no other test uses."""

    used = 0

    @classmethod
    def next(cls, prefix: str = "test") -> str:
        cls.used += 1
        return f"{prefix}/{cls.used}"


@pytest.fixture
def address() -> str:
    return Counter64.next()


@pytest.fixture
def multicast() -> str:
    return Counter64.next("testall")


def outcome_of(connection: BlockingConnection, delivery: Any) -> Any:
    connection.wait(lambda: delivery.settled, msg="the outcome")
    return delivery.remote_state


def idle(connection: BlockingConnection) -> None:
    """A round trip: whatever the router had to say before has been read."""
    client = SyncRequestResponse(connection, "$management")
    client.call(Message(properties={"operation": "GET-MGMT-NODES"}, body={}))
    client.sender.close()
    client.receiver.close()


def fetch(receiver: BlockingReceiver, count: int) -> list[Message]:
    return [receiver.receive() for _ in range(count)]


def test_an_undefined_address_is_refused(router: RouterProcess) -> None:
    connection = router.connect()
    with pytest.raises(LinkDetached) as refused:
        connection.create_receiver("nowhere")
    assert refused.value.condition == "amqp:not-found"
    assert "Node not found" in str(refused.value)
    with pytest.raises(LinkDetached) as refused:
        connection.create_sender("nowhere")
    assert refused.value.condition == "amqp:not-found"
    assert refused.value.link.remote_target.address is None
    assert connection.create_receiver("any").link.remote_source.address == "any"
    connection.close()


def test_a_sender_has_credit_only_while_there_is_a_receiver(router: RouterProcess, address: str) -> None:
    producer, consumer = router.connect(), router.connect()
    sender = producer.create_sender(address)
    idle(producer)
    assert sender.link.credit == 0
    receiver = consumer.create_receiver(address, credit=1)
    producer.wait(lambda: sender.link.credit == 250, msg="250 credits")
    receiver.close()
    producer.wait(lambda: sender.link.drain_mode, msg="the drain")
    assert sender.link.drained() == 250
    pump(producer)
    consumer.create_receiver(address, credit=1)
    producer.wait(lambda: sender.link.credit == 250, msg="250 credits again")
    producer.close()
    consumer.close()


def test_a_sender_that_ignores_the_drain_can_go_on(router: RouterProcess, address: str) -> None:
    producer, consumer = router.connect(), router.connect()
    sender = producer.create_sender(address)
    consumer.create_receiver(address, credit=1).close()
    producer.wait(lambda: sender.link.drain_mode, msg="the drain")
    lost = post(sender, Message(body="nobody is there"))
    assert outcome_of(producer, lost) == Delivery.RELEASED
    receiver = consumer.create_receiver(address, credit=600)
    for i in range(600):
        post(sender, Message(body=i))
        pump(consumer)
        while receiver.fetcher.incoming:
            receiver.receive()
            receiver.accept()
    producer.close()
    consumer.close()


def test_at_most_as_many_unsettled_as_the_capacity(router: RouterProcess, address: str) -> None:
    producer, consumer = router.connect(), router.connect()
    receiver = consumer.create_receiver(address, credit=1000)
    sender = producer.create_sender(address)
    deliveries = [post(sender, Message(body=i)) for i in range(250)]
    idle(producer)
    assert sender.link.credit == 0
    consumer.wait(lambda: len(receiver.fetcher.incoming) == 250)
    for _ in range(250):
        receiver.receive()
        receiver.accept()
    pump(consumer)
    producer.wait(lambda: all(d.settled for d in deliveries) and sender.link.credit > 120)
    producer.close()
    consumer.close()


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


def test_a_receiver_that_settles_without_a_word(router: RouterProcess, address: str) -> None:
    connection = router.connect()
    receiver = connection.create_receiver(address, credit=1)
    sender = connection.create_sender(address)
    delivery = post(sender, Message(body="x"))
    receiver.receive()
    receiver.fetcher.unsettled.popleft().settle()
    assert not outcome_of(connection, delivery)
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
        connection.wait(lambda: delivery.remote_state == Delivery.ACCEPTED)  # noqa: B023
        assert not delivery.settled
        if sender_first:
            delivery.settle()
            connection.wait(lambda: got.settled, msg="the sender's settlement")  # noqa: B023
        else:
            got.settle()
            connection.wait(lambda: delivery.settled, msg="the receiver's settlement")  # noqa: B023
    connection.close()


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


def test_multicast_to_three(router: RouterProcess, multicast: str) -> None:
    producer = router.connect()
    consumers = [router.connect() for _ in range(3)]
    receivers = [c.create_receiver(multicast, credit=10) for c in consumers]
    sender = producer.create_sender(multicast)
    deliveries = [post(sender, Message(body=i)) for i in range(5)]
    for receiver in receivers:
        assert [receiver.receive().body for _ in range(5)] == list(range(5))
    for receiver in receivers[:2]:
        for _ in range(5):
            receiver.accept()
        idle(receiver.connection)
    idle(producer)
    assert not any(d.settled for d in deliveries)
    for _ in range(5):
        receivers[2].accept()
    pump(consumers[2])
    idle(consumers[2])
    assert [outcome_of(producer, d) for d in deliveries] == [Delivery.ACCEPTED] * 5
    for connection in (producer, *consumers):
        connection.close()


@pytest.mark.parametrize(
    ("states", "merged"),
    [
        ((Delivery.ACCEPTED, Delivery.REJECTED), Delivery.REJECTED),
        ((Delivery.RELEASED, Delivery.ACCEPTED), Delivery.ACCEPTED),
        ((Delivery.RELEASED, Delivery.MODIFIED), Delivery.MODIFIED),
        ((Delivery.RELEASED, Delivery.RELEASED), Delivery.RELEASED),
    ],
)
def test_merged_outcome_of_multicast(
    router: RouterProcess, multicast: str, states: tuple[Any, Any], merged: Any
) -> None:
    connection = router.connect()
    receivers = [connection.create_receiver(multicast, credit=1, name=f"r{i}") for i in range(2)]
    sender = connection.create_sender(multicast)
    delivery = post(sender, Message(body="x"))
    for receiver, state in zip(receivers, states, strict=True):
        receiver.receive()
        receiver.settle(state)
    assert outcome_of(connection, delivery) == merged
    connection.close()


def test_multicast_with_a_receiver_lost(router: RouterProcess, multicast: str) -> None:
    connection = router.connect()
    receivers = [connection.create_receiver(multicast, credit=1, name=f"r{i}") for i in range(2)]
    sender = connection.create_sender(multicast)
    delivery = post(sender, Message(body="x"))
    for receiver in receivers:
        receiver.receive()
    receivers[0].accept()
    receivers[1].close()
    assert outcome_of(connection, delivery) == Delivery.ACCEPTED
    connection.close()


def test_balanced_spreads_evenly(router: RouterProcess, address: str) -> None:
    connection = router.connect()
    receivers = [connection.create_receiver(address, credit=100, name=f"r{i}") for i in range(4)]
    sender = connection.create_sender(address)
    for i in range(100):
        post(sender, Message(body=i))
    connection.wait(lambda: sum(len(r.fetcher.incoming) for r in receivers) == 100)
    shares = [len(r.fetcher.incoming) for r in receivers]
    assert max(shares) - min(shares) <= 10, shares
    connection.close()


def test_ties_rotate(router: RouterProcess, address: str) -> None:
    connection = router.connect()
    receivers = [connection.create_receiver(address, credit=100, name=f"r{i}") for i in range(3)]
    sender = connection.create_sender(address)
    shares: Counter[int] = Counter()
    for i in range(12):
        delivery = post(sender, Message(body=i))
        connection.wait(lambda: any(r.fetcher.incoming for r in receivers))
        for n, receiver in enumerate(receivers):
            if receiver.fetcher.incoming:
                receiver.receive()
                receiver.accept()
                shares[n] += 1
        outcome_of(connection, delivery)
    assert shares == {0: 4, 1: 4, 2: 4}
    connection.close()


def test_a_slow_consumer_slows_only_its_own_share(router: RouterProcess, address: str) -> None:
    slow, fast, producer = router.connect(), router.connect(), router.connect()
    slow_receiver = slow.create_receiver(address, credit=1000)
    fast_receiver = fast.create_receiver(address, credit=1000)
    sender = producer.create_sender(address)
    done = 0
    for i in range(400):
        post(sender, Message(body=i))
        pump(fast)
        while fast_receiver.fetcher.incoming:
            fast_receiver.receive()
            fast_receiver.accept()
            done += 1
            pump(fast)
    slow.wait(lambda: bool(slow_receiver.fetcher.incoming))
    idle(slow)
    assert len(slow_receiver.fetcher.incoming) + done <= 400
    assert done > 300, done
    for connection in (slow, fast, producer):
        connection.close()


def test_a_consumer_that_never_settles_holds_only_what_it_has(router: RouterProcess, address: str) -> None:
    stuck, busy, producer = router.connect(), router.connect(), router.connect()
    held = stuck.create_receiver(address, credit=0, name="stuck")
    held.link.flow(10)
    pump(stuck)
    sender = producer.create_sender(address)
    for i in range(250):  # all that the router lets in
        post(sender, Message(body=i))
    stuck.wait(lambda: len(held.fetcher.incoming) == 10)
    receiver = busy.create_receiver(address, credit=50, name="busy")
    got = []
    for _ in range(240):
        got.append(receiver.receive(timeout=10).body)
        receiver.accept()
    assert got == list(range(10, 250))  # what waited for the one that is stuck, in order
    for connection in (stuck, busy, producer):
        connection.close()


def test_closest_takes_turns(router: RouterProcess) -> None:
    connection = router.connect()
    receivers = [connection.create_receiver("near", credit=100, name=f"r{i}") for i in range(2)]
    sender = connection.create_sender("near")
    for i in range(20):
        post(sender, Message(body=i))
    connection.wait(lambda: sum(len(r.fetcher.incoming) for r in receivers) == 20)
    assert [len(r.fetcher.incoming) for r in receivers] == [10, 10]
    connection.close()


def test_anonymous_relay(router: RouterProcess, address: str) -> None:
    connection = router.connect()
    sender = connection.create_sender(None)
    connection.wait(lambda: sender.link.credit == 250)
    receiver = connection.create_receiver(address, credit=5)
    delivery = post(sender, Message(address=address, body="to you"))
    assert receiver.receive().body == "to you"
    receiver.accept()
    assert outcome_of(connection, delivery) == Delivery.ACCEPTED
    nobody = post(sender, Message(address="any", body="x"))
    assert outcome_of(connection, nobody) == Delivery.RELEASED
    unknown = post(sender, Message(address="nowhere", body="x"))
    assert outcome_of(connection, unknown) == Delivery.REJECTED
    assert unknown.remote.condition.name == "amqp:not-found"
    without = post(sender, Message(body="x"))
    assert outcome_of(connection, without) == Delivery.REJECTED
    assert without.remote.condition.name == "amqp:precondition-failed"
    assert without.remote.condition.description == "Routing failure: no address present"
    connection.close()


def test_anonymous_relay_follows_the_configuration(router: RouterProcess, management: Management) -> None:
    connection = router.connect()
    sender = connection.create_sender(None)
    for _ in range(2):
        assert outcome_of(connection, post(sender, Message(address="comes.and.goes"))) == Delivery.REJECTED
        management.create(ADDRESS, "comes", pattern="comes/and/goes")
        receiver = connection.create_receiver("comes.and.goes", credit=1)
        delivery = post(sender, Message(address="comes.and.goes"))
        receiver.receive()
        receiver.accept()
        assert outcome_of(connection, delivery) == Delivery.ACCEPTED
        receiver.close()
        management.delete(ADDRESS, "comes")
    connection.close()


def test_anonymous_multicast(router: RouterProcess, multicast: str) -> None:
    connection = router.connect()
    receivers = [connection.create_receiver(multicast, credit=1, name=f"r{i}") for i in range(3)]
    sender = connection.create_sender(None)
    delivery = post(sender, Message(address=multicast, body="all"))
    for receiver in receivers:
        receiver.receive()
        receiver.accept()
    assert outcome_of(connection, delivery) == Delivery.ACCEPTED
    connection.close()


def test_a_message_that_is_none_is_rejected(router: RouterProcess) -> None:
    connection = router.connect()
    sender = connection.create_sender(None)
    for garbage in (b"\xff\xff\xff", b"\x00\x53\x73\xc0\xff", b"\x00"):
        delivery = sender.link.delivery(sender.link.delivery_tag())
        sender.link.stream(garbage)
        sender.link.advance()
        assert outcome_of(connection, delivery) == Delivery.REJECTED
        assert delivery.remote.condition.name == "amqp:decode-error"
    connection.close()


def test_request_and_reply_over_two_connections(router: RouterProcess, address: str) -> None:
    asker, server = router.connect(), router.connect()
    inbox = asker.create_receiver(None, dynamic=True, credit=1)
    reply_to = inbox.link.remote_source.address
    assert reply_to.startswith("amqp:/_topo/0/r1/temp.")
    requests = server.create_receiver(address, credit=1)
    to_server = asker.create_sender(address)
    post(to_server, Message(reply_to=reply_to, correlation_id="7", body="hello"))
    request = requests.receive()
    requests.accept()
    replies = server.create_sender(None)
    post(replies, Message(address=request.reply_to, correlation_id=request.correlation_id, body="HELLO"))
    assert inbox.receive().body == "HELLO"
    direct = server.create_sender(reply_to)
    inbox.flow(1)
    post(direct, Message(body="again"))
    assert inbox.receive().body == "again"
    asker.close()
    server.close()


def test_two_dynamic_addresses_differ(router: RouterProcess) -> None:
    connection = router.connect()
    one = connection.create_receiver(None, dynamic=True, name="one")
    two = connection.create_receiver(None, dynamic=True, name="two")
    assert one.link.remote_source.address != two.link.remote_source.address
    connection.close()


def test_drain_is_answered(router: RouterProcess, address: str) -> None:
    connection = router.connect()
    receiver = connection.create_receiver(address, credit=0)
    sender = connection.create_sender(address)
    post(sender, Message(body="one"))
    idle(connection)
    receiver.link.drain(10)
    connection.wait(lambda: receiver.link.credit == 0, msg="the drain")
    assert receiver.receive().body == "one"
    receiver.accept()
    receiver.link.drain(5)
    connection.wait(lambda: receiver.link.credit == 0, msg="an empty drain")
    connection.close()


@pytest.mark.parametrize("size", [20_000, 1_048_576, 5_000_000])
def test_messages_of_many_frames(router: RouterProcess, address: str, size: int) -> None:
    producer, consumer = router.connect(), router.connect()
    receiver = consumer.create_receiver(address, credit=3)
    sender = producer.create_sender(address)
    body = bytes(i % 251 for i in range(1000)) * (size // 1000)
    deliveries = [post(sender, Message(body=body)) for _ in range(3)]
    for _ in range(3):
        while not receiver.fetcher.incoming:
            pump(producer, consumer)
        assert body_of(receiver.receive()) == body
        receiver.accept()
    pump(consumer)
    assert [outcome_of(producer, d) for d in deliveries] == [Delivery.ACCEPTED] * 3
    producer.close()
    consumer.close()


def test_many_frames_to_many_receivers_and_by_the_relay(router: RouterProcess, multicast: str) -> None:
    connection = router.connect()
    receivers = [connection.create_receiver(multicast, credit=1, name=f"r{i}") for i in range(3)]
    sender = connection.create_sender(None)
    body = b"0123456789" * 30_000
    delivery = post(sender, Message(address=multicast, body=body, annotations={"x-pad": "y" * 30_000}))
    for receiver in receivers:
        assert body_of(receiver.receive()) == body
        receiver.accept()
    assert outcome_of(connection, delivery) == Delivery.ACCEPTED
    connection.close()


def test_small_ones_do_not_overtake_a_large_one(router: RouterProcess, address: str) -> None:
    connection = router.connect()
    receiver = connection.create_receiver(address, credit=10)
    sender = connection.create_sender(address)
    for i in range(4):
        post(sender, Message(id=str(i), body=b"x" * (300_000 if i % 2 == 0 else 10)))
    assert [receiver.receive().id for _ in range(4)] == ["0", "1", "2", "3"]
    connection.close()


def test_an_aborted_delivery_is_aborted_for_the_receiver(router: RouterProcess, address: str) -> None:
    connection = router.connect()
    receiver = connection.create_receiver(address, credit=10)
    sender = connection.create_sender(address)
    connection.wait(lambda: sender.link.credit > 0)
    delivery = sender.link.delivery("half")
    sender.link.stream(Message(body=b"x" * 100_000).encode()[:50_000])
    idle(connection)
    connection.wait(lambda: receiver.link.current is not None, msg="the first half")
    delivery.abort()
    whole = post(sender, Message(body="whole"))
    assert receiver.receive().body == "whole"
    receiver.accept()
    assert outcome_of(connection, whole) == Delivery.ACCEPTED
    connection.close()


def test_streams_are_cut_through(router: RouterProcess, address: str) -> None:
    """The receiver sees the beginning of a message whose end has not been sent."""
    connection = router.connect()
    receiver = connection.create_receiver(address, credit=10)
    sender = connection.create_sender(address)
    connection.wait(lambda: sender.link.credit > 0)
    encoded = Message(body=b"x" * 200_000).encode()
    sender.link.delivery("stream")
    sender.link.stream(encoded[:100_000])

    def begun() -> bool:
        current = receiver.link.current
        return current is not None and current.partial and current.pending > 50_000

    connection.wait(begun, msg="the beginning")
    sender.link.stream(encoded[100_000:])
    sender.link.advance()
    assert len(body_of(receiver.receive())) == 200_000
    connection.close()


def test_a_sender_lost_in_the_middle_of_a_message(router: RouterProcess, address: str) -> None:
    producer, consumer = router.connect(), router.connect()
    receiver = consumer.create_receiver(address, credit=10)
    sender = producer.create_sender(address)
    producer.wait(lambda: sender.link.credit > 0)
    sender.link.delivery("half")
    sender.link.stream(Message(body=b"x" * 100_000).encode()[:50_000])
    idle(producer)
    consumer.wait(lambda: receiver.link.current is not None)
    producer.close()
    other = router.connect()
    post(other.create_sender(address), Message(body="next"))
    assert receiver.receive().body == "next"
    other.close()
    consumer.close()


def test_a_receiver_lost_in_the_middle_of_a_message(router: RouterProcess, address: str) -> None:
    producer, consumer = router.connect(), router.connect()
    receiver = consumer.create_receiver(address, credit=10)
    sender = producer.create_sender(address)
    producer.wait(lambda: sender.link.credit > 0)
    encoded = Message(body=b"x" * 1_000_000).encode()
    delivery = sender.link.delivery("half")
    sender.link.stream(encoded[:500_000])
    pump(producer)
    consumer.wait(lambda: receiver.link.current is not None)
    consumer.close()
    sender.link.stream(encoded[500_000:])
    sender.link.advance()
    assert outcome_of(producer, delivery) == Delivery.MODIFIED
    again = router.connect()
    second = again.create_receiver(address, credit=1)
    after = post(sender, Message(body="after"))
    while not second.fetcher.incoming:  # a good deal of the lost message is still to be written
        pump(producer, again)
    assert second.receive().body == "after"
    second.accept()
    pump(again)
    assert outcome_of(producer, after) == Delivery.ACCEPTED
    producer.close()
    again.close()


def test_a_stream_that_nobody_takes_does_not_fill_the_router(router: RouterProcess, address: str) -> None:
    """40 MB for a receiver without credit: the router keeps little of it until the receiver takes it."""
    producer, consumer = router.connect(), router.connect()
    receiver = consumer.create_receiver(address, credit=0)
    sender = producer.create_sender(address)
    producer.wait(lambda: sender.link.credit > 0)
    process = psutil.Process(router.process.pid)
    before = process.memory_info().rss
    delivery = sender.link.delivery("big")
    sender.link.stream(b"\x00\x53\x75\xb0" + (40_000_000).to_bytes(4, "big"))
    for _ in range(40):
        sender.link.stream(b"x" * 1_000_000)
    sender.link.advance()
    for _ in range(50):
        pump(producer)
    assert process.memory_info().rss - before < 16_000_000
    receiver.link.flow(1)
    while not receiver.fetcher.incoming:
        pump(consumer, producer)
    assert len(body_of(receiver.receive())) == 40_000_000
    receiver.accept()
    pump(consumer)
    assert outcome_of(producer, delivery) == Delivery.ACCEPTED
    assert process.memory_info().rss - before < 32_000_000
    producer.close()
    consumer.close()


def test_a_filter_that_has_no_effect_is_not_granted(router: RouterProcess, address: str) -> None:
    from proton.reactor import Selector

    connection = router.connect()
    receiver = connection.create_receiver(address, credit=1, options=Selector("x = 1"))
    receiver.link.remote_source.filter.rewind()
    assert receiver.link.remote_source.filter.next() is None
    connection.close()


def test_order_is_kept_from_one_sender_to_one_receiver(router: RouterProcess, address: str) -> None:
    connection = router.connect()
    receiver = connection.create_receiver(address, credit=7)
    sender = connection.create_sender(address)
    got = []
    for i in range(100):
        post(sender, Message(body=i))
        while receiver.fetcher.incoming:
            got.append(receiver.receive().body)
            receiver.accept()
            receiver.flow(1)
    while len(got) < 100:
        got.append(receiver.receive().body)
        receiver.accept()
        receiver.flow(1)
    assert got == list(range(100))
    connection.close()


def test_an_address_configured_anew_is_treated_anew(router: RouterProcess, management: Management) -> None:
    connection = router.connect()
    management.create(ADDRESS, "changing", pattern="changing")
    receivers = [connection.create_receiver("changing", credit=10, name=f"r{i}") for i in range(2)]
    sender = connection.create_sender("changing")
    post(sender, Message(body="to one"))
    connection.wait(lambda: sum(len(r.fetcher.incoming) for r in receivers) == 1)
    management.delete(ADDRESS, "changing")
    management.create(ADDRESS, "changing", pattern="changing", distribution="multicast")
    post(sender, Message(body="to both"))
    connection.wait(lambda: sum(len(r.fetcher.incoming) for r in receivers) == 3)
    management.delete(ADDRESS, "changing")
    management.create(ADDRESS, "changing", pattern="changing", waypoint=True)
    with pytest.raises(LinkDetached) as detached:
        connection.wait(lambda: False, timeout=10)
    assert detached.value.condition == "amqp:resource-deleted"
    management.delete(ADDRESS, "changing")
    connection.close()


def test_a_removed_address_refuses_new_links_and_leaves_the_old_ones(
    router: RouterProcess, management: Management
) -> None:
    connection = router.connect()
    management.create(ADDRESS, "removed", pattern="removed")
    receiver = connection.create_receiver("removed", credit=10)
    sender = connection.create_sender("removed")
    management.delete(ADDRESS, "removed")
    with pytest.raises(LinkDetached):
        connection.create_receiver("removed", name="late")
    post(sender, Message(body="still"))
    assert receiver.receive().body == "still"
    connection.close()
