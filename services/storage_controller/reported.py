"""What the configuration service, and with it the routers, has received of where addresses lie. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from enmasse.model.feeds import Placement
from enmasse.model.names import AddressName

Placed = Mapping[AddressName, tuple[Placement, ...]]


class ReportedPlacements:
    """Reports of placements: one is made, and later accepted or refused; meanwhile addresses move again."""

    def __init__(self) -> None:
        self._accepted: Placed | None = None
        """The placements as they were accepted last."""
        self._making: Placed = {}
        self._moved: set[AddressName] = set()
        """Addresses that have moved since the last report was made."""
        self._under_way: set[AddressName] = set()
        """Those that have moved by the report that is not answered yet."""

    def moved(self, names: Iterable[AddressName]) -> None:
        """These lie elsewhere, or their broker is another one."""
        self._moved.update(names)

    def made(self, entries: Placed) -> None:
        """A report with these is sent."""
        self._making = entries
        self._under_way |= self._moved
        self._moved.clear()

    def answer(self, accepted: bool) -> set[AddressName]:
        """The report was accepted; or refused: placements come from a brokers.json.

        Gives the addresses that are known to lie where they do by that.
        """
        if accepted:
            self._accepted = self._making
        names, self._under_way = self._under_way, set()
        return names - self._moved

    @property
    def unknown(self) -> set[AddressName]:
        """Addresses of which nobody else knows yet where they lie."""
        return self._moved | self._under_way

    def is_unknown(self, name: AddressName) -> bool:
        return name in self._moved or name in self._under_way

    def producers_led_away(self, name: AddressName, broker: str) -> bool:
        """Whether, by what was accepted, routers lead no producer to the address on this broker any more."""
        if self._accepted is None:
            return False
        return not any(entry.broker == broker and not entry.draining for entry in self._accepted.get(name, ()))
