"""What one more link on an address costs: work for those it concerns, not for every link that is there."""

from __future__ import annotations

from collections import Counter
from typing import Any

from services.router.routing.address import Address


class Producer:
    """Stands for an InLink: counts what it is told."""

    def __init__(self, told: Counter[str], auto: Any) -> None:
        self.auto = auto
        self.ahead: Any = None
        self.link = self
        self.on_delivery: Any = None
        self.max_message_size = 0
        self.connection = self
        self.is_container = False
        self.received = self.sent = 0
        self._told = told

    def forward(self, *_: Any) -> None: ...

    def open_gate(self) -> None:
        self._told["open"] += 1

    def close_gate(self) -> None:
        self._told["close"] += 1

    def resize(self) -> None:
        self._told["resize"] += 1


def test_senders_are_told_of_the_first_and_the_last_receiver_only() -> None:
    told: Counter[str] = Counter()
    address: Any = Address(1, "M0a", "balanced")
    for n in range(100):
        address.add_in(Producer(told, "a broker's" if n < 3 else None))
    receivers = [Producer(told, None) for _ in range(50)]
    for receiver in receivers:
        address.add_out(receiver)
    assert told == {"open": 100, "resize": 3 * 49}
    told.clear()
    for receiver in receivers:
        address.remove_out(receiver)
    assert told == {"close": 100, "resize": 3 * 49}
    for producer in list(address.ins):
        address.remove_in(producer)
    assert not address.feeds and not address.ins
