"""Order of messages by their priorities over a hop: those that wait because the neighbour does not read."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.amqp.codec.performatives import Source, Target
from enmasse.amqp.link import Receiver
from services.router.routing.configuration import AddressConfig
from tests.router.mesh.in_memory import Line

BODY = b"\x00\x53\x75\xa0\x02"
SENT = [3, 0, 9, 4, 3, 0, 9, 4]
"""Priorities in the order of sending."""


def header(priority: int) -> bytes:
    return b"\x00\x53\x70\xc0\x04\x02\x42\x50" + bytes((priority,))


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_higher_priorities_come_first_over_a_hop(names: str) -> None:
    """From the router that dials, and to it; those of one priority stay in order."""
    line = Line(names, [AddressConfig(1, "high", prefix="high", priority=7)])
    between = line.pairs[0][names.index("a")]
    got: list[tuple[int, int]] = []

    def take(link: Receiver, id: int, settled: bool, payload: bytes, *_: Any) -> None:
        got.append((payload[-2], payload[-1]))

    consumer, producer = line.client("b").begin(), line.client("a").begin()
    links = []
    for address in ("any", "high"):
        link = consumer.attach_receiver(address, Source(address=address), Target())
        link.on_delivery = take
        link.grant(100)
        links.append(link)
    line.pump()
    usual, high = (producer.attach_sender(each, Source(), Target(address=each)) for each in ("any", "high"))
    line.pump()
    between.set_blocked(True)
    for number, priority in enumerate(SENT):
        usual.send(header(priority) + BODY + bytes((priority, number)), number, settled=False)
        line.pump()
    high.send(header(0) + BODY + bytes((7, 0)), 99, settled=False)
    line.pump()
    assert not got
    between.set_blocked(False)
    line.pump()
    expected = [(priority, number) for number, priority in enumerate(SENT)] + [(7, 0)]
    assert got == sorted(expected, key=lambda each: -each[0])
