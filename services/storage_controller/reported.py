"""What the configuration service, and with it the routers, has received of where addresses lie. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from enmasse.model.feeds import Placement
from enmasse.model.names import AddressName

Placed = Mapping[AddressName, tuple[Placement, ...]]


class ReportedPlacements:
    """Reports of placements: one is made, and later accepted or refused; meanwhile addresses move again.

    The first report is of all placements, as is one after a refusal or over another link; others are of changes.
    """

    def __init__(self) -> None:
        self._accepted: dict[AddressName, tuple[Placement, ...]] | None = None
        """The placements as they were accepted last."""
        self._changed: set[AddressName] = set()
        """Addresses whose placements have changed since the last report was made."""
        self._making: Placed = {}
        self._is_full = True
        """Whether the report that is being made is of all placements."""
        self._moved: set[AddressName] = set()
        """Addresses that have moved since the last report was made."""
        self._under_way: set[AddressName] = set()
        """Those that have moved by the report that is not answered yet."""

    def changed(self, name: AddressName) -> None:
        """The address has other placements."""
        self._changed.add(name)

    def moved(self, names: Iterable[AddressName]) -> None:
        """These lie elsewhere, or their broker is another one."""
        self._moved.update(names)

    def make(self, placed: Placed, *, full: bool) -> Placed:
        """Return the placements that the next report has, of all that there are; () for an address without any."""
        self._making = dict(placed) if full else {name: placed.get(name, ()) for name in self._changed}
        self._is_full = full
        self._changed.clear()
        self._under_way |= self._moved
        self._moved.clear()
        return self._making

    def answer(self, accepted: bool) -> set[AddressName]:
        """The report was accepted; or refused: placements come from a brokers.json.

        Gives the addresses that are known to lie where they do by that.
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
        """Whether the configuration service, and with it the routers, have yet to receive where the address lies."""
        return name in self._moved or name in self._under_way

    def producers_led_away(self, name: AddressName, broker: str) -> bool:
        """Whether, by what was accepted, routers lead no producer to the address on this broker any more."""
        if self._accepted is None:
            return False
        return not any(entry.broker == broker and not entry.draining for entry in self._accepted.get(name, ()))
