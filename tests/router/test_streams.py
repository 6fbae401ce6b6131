"""Messages of many frames: cut through, whole, aborted, and not kept by the router."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from proton import Delivery, Message

from tests.router.harness import RouterProcess, body_of, comes, idle, outcome_of, post, pump, pump_until, rush


@pytest.mark.parametrize("size", [20_000, 1_048_576, 5_000_000])
def test_messages_of_many_frames(router: RouterProcess, address: str, size: int) -> None:
    producer, consumer = router.connect(), router.connect()
    receiver = consumer.create_receiver(address, credit=3)
    sender = producer.create_sender(address)
    body = bytes(i % 251 for i in range(1000)) * (size // 1000)
    deliveries = [post(sender, Message(body=body)) for _ in range(3)]
    for _ in range(3):
        comes(receiver, "a large message", producer)
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
    sender.link.stream(Message(body=b"x" * 400_000).encode()[:200_000])
    idle(connection)
    connection.wait(lambda: receiver.link.current is not None, msg="the first half")
    delivery.abort()
    whole = post(sender, Message(body="whole"))
    assert receiver.receive().body == "whole"
    receiver.accept()
    assert outcome_of(connection, whole) == Delivery.ACCEPTED
    connection.close()


@pytest.mark.parametrize("times", [1, 3])
def test_what_is_aborted_early_costs_the_receiver_nothing(router: RouterProcess, address: str, times: int) -> None:
    """It had credit for one message, and gets one."""
    connection, consumer = router.connect(), router.connect()
    receiver = consumer.create_receiver(address, credit=1)
    sender = connection.create_sender(address)
    for i in range(times):
        connection.wait(lambda: sender.link.credit > 0)
        delivery = sender.link.delivery(f"half{i}")
        sender.link.stream(Message(body=b"x" * 100_000).encode()[:50_000])
        idle(connection)
        delivery.abort()
    whole = post(sender, Message(body="whole"))
    comes(receiver, "the whole one", connection)
    assert receiver.receive().body == "whole"
    receiver.accept()
    pump(consumer)
    assert outcome_of(connection, whole) == Delivery.ACCEPTED
    connection.close()
    consumer.close()


def test_streams_are_cut_through(router: RouterProcess, address: str) -> None:
    """The receiver sees the beginning of a message whose end has not been sent."""
    connection = router.connect()
    receiver = connection.create_receiver(address, credit=10)
    sender = connection.create_sender(address)
    connection.wait(lambda: sender.link.credit > 0)
    encoded = Message(body=b"x" * 400_000).encode()
    sender.link.delivery("stream")
    sender.link.stream(encoded[:200_000])

    def begun() -> bool:
        current = receiver.link.current
        return current is not None and current.partial and current.pending > 50_000

    connection.wait(begun, msg="the beginning")
    sender.link.stream(encoded[200_000:])
    sender.link.advance()
    assert len(body_of(receiver.receive())) == 400_000
    connection.close()


def test_a_sender_lost_in_the_middle_of_a_message(router: RouterProcess, address: str) -> None:
    producer, consumer = router.connect(), router.connect()
    receiver = consumer.create_receiver(address, credit=10)
    sender = producer.create_sender(address)
    producer.wait(lambda: sender.link.credit > 0)
    sender.link.delivery("half")
    sender.link.stream(Message(body=b"x" * 400_000).encode()[:200_000])
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
    pump_until(lambda: receiver.link.current is not None, "the first half", producer, consumer)
    consumer.close()
    sender.link.stream(encoded[500_000:])
    sender.link.advance()
    assert outcome_of(producer, delivery) == Delivery.MODIFIED
    again = router.connect()
    second = again.create_receiver(address, credit=1)
    after = post(sender, Message(body="after"))
    # a good deal of the lost message is still to be written
    comes(second, "the message after it", producer)
    assert second.receive().body == "after"
    second.accept()
    pump(again)
    assert outcome_of(producer, after) == Delivery.ACCEPTED
    producer.close()
    again.close()


def test_a_stream_that_nobody_takes_does_not_fill_the_router(router: RouterProcess, address: str) -> None:
    """24 MB for a receiver without credit: the router takes a window of 8 MB, and the rest as the receiver takes it."""
    producer, consumer = router.connect(), router.connect()
    receiver = consumer.create_receiver(address, credit=0)
    sender = producer.create_sender(address)
    producer.wait(lambda: sender.link.credit > 0)
    peak = Path(f"/proc/{router.process.pid}/status")

    def most() -> int:
        """Bytes of memory that the router has had at most."""
        return int(re.search(r"VmHWM:\s+(\d+) kB", peak.read_text())[1]) * 1024  # type: ignore[index]  # Linux has the line

    before = most()
    delivery = sender.link.delivery("big")
    sender.link.stream(b"\x00\x53\x75\xb0" + (24_000_000).to_bytes(4, "big"))
    for _ in range(24):
        sender.link.stream(b"x" * 1_000_000)
        rush(producer)
    sender.link.advance()
    pump_until(lambda: delivery.pending < 17_000_000, "the window has been used", producer)
    for _ in range(20):
        rush(producer)
        pump(producer)
    assert delivery.pending > 14_000_000
    receiver.link.flow(1)
    comes(receiver, "the large message", producer)
    assert len(body_of(receiver.receive())) == 24_000_000
    receiver.accept()
    pump(consumer)
    assert outcome_of(producer, delivery) == Delivery.ACCEPTED
    assert most() - before < 22_000_000  # the window, and once more for what is being joined
    producer.close()
    consumer.close()
