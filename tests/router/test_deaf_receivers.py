"""Receivers of a topic whose connection does not read: what their end costs the others. A router in memory."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, Source, Target
from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from enmasse.amqp.link import Link, Sender
from services.router.routing.configuration import MULTICAST, AddressConfig
from services.router.routing.connection import RouterConnection
from services.router.routing.handler import RouterHandler
from services.router.routing.links.out_link import OutLink
from services.router.routing.router import Router
from tests.router.world import Clock

LARGE = b"\x00\x53\x75\xb0" + (400_000).to_bytes(4, "big") + b"x" * 400_000
MESSAGES = 24


class Client(Handler):
    """A client in memory: `near` is its end of the connection, `far` the router's."""

    def __init__(self, router: Router, container: str) -> None:
        self.outcomes: list[Any] = []
        self.detached: dict[str, str] = {}
        self.got: list[int] = []
        self.record = RouterConnection(
            router, name=None, role="normal", direction="in", host="127.0.0.1:1", capacity=250
        )
        self.far = Connection(RouterHandler(router), container_id="r", is_client=False)
        self.far.context = self.record
        self.record.amqp = self.far
        self.failures: list[Exception] = []
        self.far.handler.on_failure = self.failures.append
        self.near = Connection(self, container_id=container, is_client=True)
        self.near.open()

    def on_delivery(
        self, link: Any, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        self.got.append(len(payload))
        link.session.settle(delivery_id)

    def on_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
        self.outcomes += [state] * len(tokens)

    def on_detach(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        self.detached[link.name] = "" if error is None else str(error.condition)

    def pump(self) -> None:
        self.far.receive(self.near.take_output())
        self.near.receive(self.far.take_output())


class Topic:
    """A router with a topic, a publisher and a receiver of it; `deaf` has three receivers, and reads no more."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.router = Router("r", self.clock)
        self.router.add_address_config(AddressConfig(1, "t", pattern="t", treatment=MULTICAST))
        self.publisher, self.healthy, self.deaf = (Client(self.router, name) for name in ("pub", "sub", "deaf"))
        self.run(self.publisher, self.healthy, self.deaf)
        session = self.deaf.near.begin()
        for i in range(3):
            session.attach_receiver(f"deaf{i}", Source(address="t"), Target()).credit_window = 100
        self.healthy.near.begin().attach_receiver("sub", Source(address="t"), Target()).credit_window = 100
        self.run(self.publisher, self.healthy, self.deaf)
        self.sender = self.publisher.near.begin().attach_sender("pub", Source(), Target(address="t"))
        self.run(self.publisher)

    def run(self, *clients: Client) -> None:
        for _ in range(60):
            for client in clients:
                client.pump()
            self.clock.run()

    def publish(self, count: int) -> None:
        for _ in range(count):
            self.sender.send(LARGE, "token")
        self.run(self.publisher, self.healthy)


def test_closing_a_connection_whose_peer_does_not_read_leaves_the_topic_to_the_others() -> None:
    topic = Topic()
    topic.publish(MESSAGES)
    assert topic.deaf.far.blocked
    assert len(topic.healthy.got) < MESSAGES  # the topic waits for the deaf
    topic.deaf.far.close(AmqpError("amqp:resource-limit-exceeded", "it does not read"))
    topic.deaf.far.transport_closed()
    topic.run(topic.publisher, topic.healthy)
    topic.publish(1)
    assert topic.healthy.got == [len(LARGE)] * (MESSAGES + 1)
    assert topic.publisher.outcomes == [ACCEPTED] * (MESSAGES + 1)
    assert topic.deaf.failures == []


def test_receivers_that_are_detached_while_their_peer_does_not_read_leave_the_topic_to_the_others() -> None:
    topic = Topic()
    topic.publish(MESSAGES)
    for record in list(topic.deaf.record.links.values()):
        record.detach(AmqpError("amqp:resource-deleted", "by an administrator"))
        topic.run(topic.publisher, topic.healthy)
    topic.publish(1)
    assert topic.healthy.got == [len(LARGE)] * (MESSAGES + 1)
    assert topic.publisher.outcomes == [ACCEPTED] * (MESSAGES + 1)
    assert topic.deaf.failures == []


def test_an_exception_on_one_receiver_ends_its_link_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic()
    original = OutLink.flow

    def broken(self: OutLink) -> None:
        if self.name == "deaf1":
            raise RuntimeError("a bug")
        original(self)

    monkeypatch.setattr(OutLink, "flow", broken)
    topic.publish(MESSAGES)
    for _ in range(3):
        topic.run(topic.publisher, topic.healthy, topic.deaf)
    assert topic.deaf.detached == {"deaf1": "amqp:internal-error"}
    assert {str(failure) for failure in topic.deaf.failures} == {"a bug"}
    topic.publish(1)
    topic.run(topic.publisher, topic.healthy, topic.deaf)
    assert topic.healthy.got == [len(LARGE)] * (MESSAGES + 1)
    assert topic.publisher.near.state == topic.deaf.near.state == "open"
    assert len(topic.publisher.outcomes) == MESSAGES + 1
