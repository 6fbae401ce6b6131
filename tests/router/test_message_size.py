"""maxMessageSize of the policy counts, however many frames a message has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proton import Delivery, Message
from proton.reactor import AtMostOnce
from proton.utils import BlockingConnection, BlockingSender, LinkDetached

from tests.router.harness import (
    LINK_ROUTE,
    PREFIX,
    Broker,
    RouterProcess,
    idle,
    outcome_of,
    post,
    wait_for,
)

LIMIT = 1000


@pytest.fixture(scope="module")
def sized() -> Iterator[RouterProcess]:
    multicast = ["address", {"prefix": "all", "distribution": "multicast"}]
    process = RouterProcess([["policy", {"maxMessageSize": LIMIT}], multicast], default="balanced")
    try:
        yield process
    finally:
        process.stop()


@pytest.fixture
def inside(sized: RouterProcess) -> Iterator[BlockingConnection]:
    """A client for the receivers."""
    connection = sized.connect()
    yield connection
    connection.close()


def of_size(size: int, address: str | None = None) -> Message:
    """A message of exactly so many bytes."""
    message = Message(address=address, body=b"x" * size)
    message.body = b"x" * (2 * size - len(message.encode()))
    assert len(message.encode()) == size
    return message


def closed(sender: BlockingSender) -> str:
    """The condition with which the router takes a sender away."""
    with pytest.raises(LinkDetached) as detached:
        sender.connection.wait(lambda: False, msg="the detach")
    return str(detached.value.condition)


@pytest.mark.parametrize("frames", ["one", "many"])
def test_up_to_the_limit_and_not_beyond(sized: RouterProcess, inside: BlockingConnection, frames: str) -> None:
    address = f"size/{frames}"
    connection = sized.connect()
    receiver = inside.create_receiver(address, credit=10)
    sender = connection.create_sender(address)
    assert sender.link.remote_max_message_size == LIMIT
    post(sender, of_size(LIMIT))
    assert len(receiver.receive().body) > 900
    receiver.accept()
    try:
        too_large = sender.link.send(of_size(LIMIT + 1 if frames == "one" else 200_000))
        assert closed(sender) == "amqp:link:message-size-exceeded"
        assert too_large.settled and too_large.remote_state == Delivery.REJECTED
        assert too_large.remote.condition.name == "amqp:link:message-size-exceeded"
        again = connection.create_sender(address, name="again")  # only the link is lost
        post(again, Message(body="small"))
        assert receiver.receive().body == "small"
        receiver.accept()
    finally:
        receiver.close()
        connection.close()


@pytest.mark.parametrize("kind", ["relay", "multicast", "settled", "management"])
@pytest.mark.parametrize("size", [1001, 100_000])
def test_by_whatever_link_it_comes(sized: RouterProcess, inside: BlockingConnection, kind: str, size: int) -> None:
    address = {"multicast": "all/x", "management": "$management"}.get(kind, f"by/{kind}")
    connection = sized.connect()
    receivers = [
        inside.create_receiver("all/x" if kind == "multicast" else f"by/{kind}", credit=10, name=f"r{i}")
        for i in range(2)
    ]
    if kind == "relay":
        sender = connection.create_sender(None)
    else:
        sender = connection.create_sender(address, options=AtMostOnce() if kind == "settled" else None)
    connection.wait(lambda: sender.link.credit > 0)
    delivery = sender.link.send(of_size(size, address))
    if kind == "settled":
        delivery.settle()
    assert closed(sender) == "amqp:link:message-size-exceeded"
    if kind != "settled":
        assert delivery.remote_state == Delivery.REJECTED
    idle(inside)
    assert not any(receiver.fetcher.incoming for receiver in receivers)
    for receiver in receivers:
        receiver.close()
    connection.close()


def test_on_a_routed_link(sized: RouterProcess, broker: Broker) -> None:
    management = sized.management()
    management.create(PREFIX + "connector", "b", host="127.0.0.1", port=str(broker.port), role="route-container")
    management.create(LINK_ROUTE, "routed", prefix="routed", direction="in", containerId="b0")
    wait_for(lambda: management.one(LINK_ROUTE, "routed")["operStatus"] == "active")
    connection = sized.connect()
    sender = connection.create_sender("routed")
    assert sender.link.remote_max_message_size == LIMIT
    assert outcome_of(connection, post(sender, of_size(LIMIT))) == Delivery.ACCEPTED
    too_large = sender.link.send(of_size(LIMIT + 1))  # `post` may already meet the detach
    assert closed(sender) == "amqp:link:message-size-exceeded"
    assert too_large.remote_state == Delivery.REJECTED
    assert len(broker.stored["routed"]) == 1
    connection.close()
    management.delete(LINK_ROUTE, "routed")
    management.delete(PREFIX + "connector", "b")
    management.close()


def test_what_was_refused_is_counted(sized: RouterProcess) -> None:
    management = sized.management()
    before = management.query(PREFIX + "policy")[0]["maxMessageSizeDenied"]
    connection = sized.connect()
    receiver = connection.create_receiver("counted", credit=1)
    sender = connection.create_sender("counted")
    sender.link.send(of_size(LIMIT + 1))
    assert closed(sender) == "amqp:link:message-size-exceeded"
    assert management.query(PREFIX + "policy")[0]["maxMessageSizeDenied"] == before + 1
    receiver.close()
    connection.close()
    management.close()
