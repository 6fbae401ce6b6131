"""Messages that come together: those of QoS 0 and 1 reach the client as one by one would, each settled once."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from enmasse.amqp.codec.performatives import ACCEPTED
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.termini import MESSAGE_IDENTITY
from enmasse.model.addresses import Address
from enmasse.model.names import AddressName
from enmasse.model.sessions import Subscription
from enmasse.model.topic_map import TopicMap
from enmasse.mqtt.packets import Properties, Publish
from services.mqtt_gateway.address_use import AddressUse
from services.mqtt_gateway.amqp.exchanges import Exchanges
from services.mqtt_gateway.amqp.filters import SessionFilters
from services.mqtt_gateway.amqp.mapping import MessageReader, TopicRoute
from services.mqtt_gateway.amqp.sources import SessionSource
from services.mqtt_gateway.interfaces import Delivery, Heading
from tests.amqp.engine_kit import Pair

TOPICS = TopicMap({AddressName("t"): Address(type="topic"), AddressName("other"): Address(type="topic")})
MESSAGES = (
    *(Publish("t", b"%d" % number, 0) for number in range(40)),
    Publish("t", b"kept", 1, packet_id=1),
    *(Publish("t/below", bytes(300 + number), 0) for number in range(3)),
    Publish("t", b"", 0),
    Publish("t", b"may expire", 0, properties=Properties(message_expiry=1000)),
    Publish("other", b"for nobody", 0),
    *(Publish("t", b"last %d" % number, 0) for number in range(20)),
)
"""What is sent, if most of it has QoS 0. The client has no subscription to `other`."""


class Rig:
    """A source of a session that a queue sends to, and the client, which `takes` messages together, or not now."""

    def __init__(self, takes: bool) -> None:
        self.takes = takes
        self.got: list[tuple[str, bytes, int]] = []
        self.identities: list[str | None] = []
        """Of those of QoS 1."""
        self.together = 0
        self.pair = Pair()
        self.pair.server.attach = lambda link: link.accept(offered_capabilities=(Symbol(MESSAGE_IDENTITY),))
        self.exchanges = Exchanges(cast(Any, None), ())
        self.exchanges.start(cast(Any, self))
        interest = SessionFilters("c", TOPICS, [Subscription(filter="t/#", qos=1)], AddressUse(TOPICS))
        self.shared = SimpleNamespace(
            receiving=self.pair.c.begin(), reader=MessageReader(TOPICS), wall=lambda: 0.0, delivered=0, unmatched=0
        )
        self.source = source = SessionSource(
            cast(Any, self.shared), self.exchanges, interest, "q", window=300, v5=False, failed=_raise, final=False
        )
        source.attach()
        self.pair.run()
        assert source.link is not None
        source.on_attached(source.link)
        (sender,) = self.pair.server.links.values()
        self.sender = cast(Any, sender)

    def deliver(self, delivery: Delivery) -> None:
        """One by one: the client acknowledges at once."""
        self._take(delivery)
        self.exchanges.settle(delivery)

    def _take(self, delivery: Delivery) -> None:
        self.got.append((delivery.topic, delivery.payload, delivery.qos))
        if delivery.qos:
            self.identities.append(delivery.identity)

    def send_together(self, messages: Sequence[tuple[Heading, bytes]]) -> bool:
        if not self.takes:
            return False
        self.together += len(messages)
        self.got += [(heading.topic, payload, 0) for heading, payload in messages]
        return True

    def deliver_together(self, deliveries: Sequence[Delivery]) -> bool:
        if not self.takes:
            return False
        self.together += len(deliveries)
        for each in deliveries:
            self._take(each)
        self.exchanges.settle_all(deliveries)
        return True


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("usual", [0, 1])
@pytest.mark.parametrize(("takes", "split"), [(False, 0), (True, 0), (True, 700)])
def test_messages_that_come_together_come_in_order_and_once(takes: bool, split: int, usual: int) -> None:
    rig = Rig(takes)
    rig.pair.split = split
    messages = [replace(each, qos=each.qos ^ usual) for each in MESSAGES]
    for number, publish in enumerate(messages):
        route = TopicRoute.find(publish.topic, TOPICS)
        assert route is not None
        rig.sender.send(route.full(publish, TOPICS, 0.0), number, tag=b"%8d" % number)
    rig.pair.run()
    expected = [(number, each) for number, each in enumerate(messages) if each.topic != "other"]
    assert rig.got == [(each.topic, each.payload, each.qos) for _, each in expected]
    assert rig.identities == [(b"%8d" % number).hex() for number, each in expected if each.qos]
    assert sorted(rig.pair.server.outcomes) == [(number, ACCEPTED, True) for number in range(len(messages))]
    assert (rig.shared.delivered, rig.shared.unmatched) == (len(expected), 1)
    assert (rig.together > len(expected) // 2) is takes


@pytest.mark.parametrize("run", [1, 2, 30])
def test_the_bytes_of_a_link_are_those_of_its_messages(run: int) -> None:
    """However many come together."""
    rig = Rig(True)
    route = TopicRoute.find("t", TOPICS)
    assert route is not None
    payload = route.full(MESSAGES[0], TOPICS, 0.0)
    for number in range(60):
        rig.sender.send(payload, number)
        if number % run == run - 1:
            rig.pair.run()
    link = rig.source.link
    assert link is not None
    assert link.bytes == rig.sender.bytes == 60 * len(payload)
