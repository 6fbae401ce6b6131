"""A copy for every receiver, and the one outcome that the sender gets."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Delivery, Message

from tests.router.harness import RouterProcess, idle, outcome_of, post, pump


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
