"""What one more link on an address costs: work for those it concerns, not for every link that is there."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

from services.router.routing.addresses.address import RoutedAddress


class End:
    """Stands for a producer, a broker's feed or a destination: counts what the address asks of it."""

    def __init__(self, asked: Counter[str], address: RoutedAddress) -> None:
        self.choice = address.everyone
        self.connection = self
        self.is_container = False
        self.received = self.sent = 0
        self._asked = asked

    def bind(self) -> None: ...

    def open_gate(self) -> None:
        self._asked["open"] += 1

    def close_gate(self) -> None:
        self._asked["close"] += 1

    def resize(self) -> None:
        self._asked["resize"] += 1


def test_the_first_and_the_last_receiver_cost_work_for_every_sender_others_do_not() -> None:
    asked: Counter[str] = Counter()
    address: Any = RoutedAddress(1, "M0a", "balanced", cast(Any, None))
    for n in range(100):
        (address.add_feed if n < 3 else address.add_in)(End(asked, address))
    receivers = [End(asked, address) for _ in range(50)]
    for receiver in receivers:
        address.add_out(receiver)
    assert asked == {"open": 100, "resize": 3 * 49}
    asked.clear()
    for receiver in receivers:
        address.remove_out(receiver)
    assert asked == {"close": 100, "resize": 3 * 49}
    for producer in list(address.ins):
        (address.remove_feed if producer in address.feeds else address.remove_in)(producer)
    assert not address.feeds and not address.ins
