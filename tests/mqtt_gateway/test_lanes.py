"""A lane whose credit comes and goes, with a clock of the test."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.model.addresses import AddressType
from services.mqtt_gateway.amqp.lanes import Counters, Lane

LONG = 1000.0


class Link:
    """A link that has so much credit and notes what is sent."""

    def __init__(self) -> None:
        self.credit = 0
        self.sent: list[bytes] = []
        self.unsettled = 0

    @property
    def granted(self) -> int:
        return self.credit

    def pass_on(self, payload: bytes, token: Any) -> bool:
        return False

    def send(self, payload: bytes, token: Any = None, settled: bool = False) -> None:
        self.credit -= 1
        self.sent.append(payload)


class Client:
    def __init__(self) -> None:
        self.waiting = self.waiting_bytes = 0
        self.held = False
        self.outcomes: list[tuple[int, int]] = []

    def sent(self, packet_id: int, qos: int, reason: int, text: str) -> None:
        self.outcomes.append((packet_id, reason))

    def hold(self) -> None: ...

    def proceed(self) -> None: ...


@pytest.mark.parametrize("type", ["anycast", "multicast", "queue"])
@pytest.mark.parametrize("qos", [0, 1])
def test_credit_that_is_used_up_long_after_it_came_loses_nothing(type: AddressType, qos: int) -> None:
    now = 0.0
    counters = Counters()
    lane = Lane("a", type, counters, lambda: now)
    lane.link = link = Link()  # type: ignore[assignment]
    link.credit = 2
    lane.on_flow(link)  # type: ignore[arg-type]
    client = Client()
    now = LONG
    for number in range(5):
        lane.send(client, number * qos, qos, b"%d" % number)
        lane.tick()
    assert (link.sent, counters.dropped, client.outcomes) == ([b"0", b"1"], 0, [])
    link.credit = 10
    lane.on_flow(link)  # type: ignore[arg-type]
    assert link.sent == [b"0", b"1", b"2", b"3", b"4"]
    assert (counters.dropped, client.outcomes, client.waiting) == (0, [], 0)


def test_nobody_at_a_multicast_address_is_known_after_a_while() -> None:
    now = 0.0
    lane = Lane("a", "multicast", Counters(), lambda: now)
    lane.link = Link()  # type: ignore[assignment]
    client = Client()
    lane.send(client, 1, 1, b"x")
    lane.tick()
    assert client.outcomes == []
    now = 0.6
    lane.tick()
    assert client.outcomes == [(1, 0x10)]
