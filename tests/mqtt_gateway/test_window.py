"""How many messages may be on their way to a client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from enmasse.model.addresses import Address
from enmasse.model.names import AddressName
from enmasse.model.sessions import Subscription
from enmasse.model.topic_map import TopicMap
from enmasse.mqtt.packets import Publish
from services.mqtt_gateway.address_use import AddressUse
from services.mqtt_gateway.amqp.filters import SessionFilters
from services.mqtt_gateway.amqp.mapping import MessageReader, TopicRoute
from services.mqtt_gateway.amqp.sources import FULL, SMALL, WIDER, SessionSource
from services.mqtt_gateway.interfaces import Delivery

TOPICS = TopicMap({AddressName("t"): Address(type="topic")})


class Link:
    credit_window = 0
    on_run = None
    second = False


def _raise(error: Exception) -> None:
    raise error


class Rig:
    """A source, its session and the backend; the client settles everything at once."""

    rejected = expired = unmatched = delivered = 0

    def __init__(self, window: int, final: bool = False) -> None:
        self.reader = MessageReader(TOPICS)
        self.interest = SessionFilters("c", TOPICS, [Subscription(filter="#", qos=1)], AddressUse(TOPICS))
        self.source = SessionSource(
            cast(Any, self), cast(Any, self), self.interest, "q", window=window, v5=False, failed=_raise, final=final
        )
        self.link = Link()
        self.link.credit_window = window

    def wall(self) -> float:
        return 0.0

    def arrived(self, delivery: Delivery) -> None:
        """Nobody looks at it."""

    def take(self, sizes: Sequence[int]) -> int:
        """Messages of so many bytes come; the window then."""
        route = TopicRoute.find("t", TOPICS)
        assert route is not None
        for size in sizes:
            message = route.full(Publish("t", bytes(size)), TOPICS, 0.0)
            self.source.deliver(cast(Any, self.link), 1, True, message, b"", 0)
        return self.link.credit_window


def test_small_messages_widen_the_window_and_large_ones_take_that_back() -> None:
    rig = Rig(FULL)
    assert rig.take([100] * (FULL - 1)) == FULL
    assert rig.take([100]) == FULL * WIDER
    assert rig.take([100] * FULL) == FULL * WIDER
    assert rig.take([10 * SMALL] * FULL) == FULL
    assert rig.take([10 * SMALL] * FULL) == FULL
    assert rig.delivered == 4 * FULL


@pytest.mark.parametrize(("window", "final"), [(FULL - 1, False), (FULL, True)])
def test_not_beyond_what_the_client_has_asked_for_nor_with_qos_2(window: int, final: bool) -> None:
    assert Rig(window, final).take([1] * FULL) == window


def test_a_window_that_is_shut_stays_so() -> None:
    rig = Rig(FULL)
    rig.link.credit_window = 0
    assert rig.take([1] * FULL) == 0
