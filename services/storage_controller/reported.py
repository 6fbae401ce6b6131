"""Placements as far as the configuration service, and with it the routers, has received them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from enmasse.model.feeds import Placement
from enmasse.model.names import AddressName

Placed = Mapping[AddressName, tuple[Placement, ...]]


class ReportedPlacements:
    """Tracks reports of placements: a report is made and later accepted or refused, while addresses move again.

    The first report on a link, and the one after a refusal, contains all placements; others contain changes.
    """

    def __init__(self) -> None:
        self._accepted: dict[AddressName, tuple[Placement, ...]] | None = None
        """Placements of the last accepted report."""
        self._changed: set[AddressName] = set()
        """Addresses whose placements have changed since the last report."""
        self._making: Placed = {}
        self._is_full = True
        """True if the report under way contains all placements."""
        self._moved: set[AddressName] = set()
        """Addresses that have moved since the last report."""
        self._under_way: set[AddressName] = set()
        """Addresses that moved with the report that is not answered yet."""

    def changed(self, name: AddressName) -> None:
        """Record that the placements of the address have changed."""
        self._changed.add(name)

    def moved(self, names: Iterable[AddressName]) -> None:
        """Record that these addresses, or the processes of their brokers, have moved."""
        self._moved.update(names)

    def make(self, placed: Placed, *, full: bool) -> Placed:
        """Return the placements of the next report, taken from `placed`; () for an address without placements."""
        self._making = dict(placed) if full else {name: placed.get(name, ()) for name in self._changed}
        self._is_full = full
        self._changed.clear()
        self._under_way |= self._moved
        self._moved.clear()
        return self._making

    def answer(self, accepted: bool) -> set[AddressName]:
        """Record that the report was accepted, or refused because placements come from a brokers.json.

        Return the addresses whose current placement is known to routers by that.
        """
        if accepted:
            if self._is_full or self._accepted is None:
                self._accepted = {}
            for name, entries in self._making.items():
                if entries:
                    self._accepted[name] = entries
                else:
                    self._accepted.pop(name, None)
        self._making = {}
        names, self._under_way = self._under_way, set()
        return names - self._moved

    def is_unknown(self, name: AddressName) -> bool:
        """Return True if the configuration service, and with it the routers, lack the address's current placement."""
        return name in self._moved or name in self._under_way

    def producers_led_away(self, name: AddressName, broker: str) -> bool:
        """Return True if, by the accepted placements, routers no longer route producers of the address to this
        broker."""
        if self._accepted is None:
            return False
        return not any(entry.broker == broker and entry.active for entry in self._accepted.get(name, ()))
