"""Traffic by address since the start of the router, as clients see it: links to brokers are left out.

Nothing is counted here for a message. What a link has counted is added to its address when the link is looked at, and
when it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import add, sub
from typing import Final

from services.router.routing.address_text import MOBILE
from services.router.routing.addresses.address import RoutedAddress
from services.router.routing.connection import LinkRecord

FROM_SENDERS: Final = ("in", "bytesIn", "accepted", "rejected", "released", "modified", "settled", "dropped")
TO_RECEIVERS: Final = (
    "out", "bytesOut", "outAccepted", "outRejected", "outReleased", "outModified", "outSettled", "outDropped",
)  # fmt: skip
FIELDS: Final = (*FROM_SENDERS, *TO_RECEIVERS)
MAX_NAMES: Final = 50_000
"""Addresses whose totals are kept; those used longest ago go."""
Counts = tuple[int, ...]
_NOTHING: Final = (0,) * 8


class Traffic:
    """`totals`: name of an address → counters in the order of FROM_SENDERS and TO_RECEIVERS. `changed`: names whose
    totals have changed; the reader clears them."""

    def __init__(self, covering: Callable[[str, str], str]) -> None:
        """`covering` returns the name of the configured address that direction (`in`, `out`) and name of a routed link
        belong to."""
        self.totals: dict[str, list[int]] = {}
        self.changed: set[str] = set()
        self._covering = covering
        self._links: dict[int, tuple[str | None, Counts]] = {}
        self._relayed: dict[int, int] = {}

    def name(self, record: LinkRecord) -> str | None:
        """Return the name of the link's address; None if it has none, or one that ends with a link."""
        known = self._links.get(record.identity)
        if known is not None:
            return known[0]
        owning = record.owning
        if not owning or owning[0] != MOBILE:
            return None
        name = owning[2:]
        if record.routed:
            name = self._covering(record.direction, name)
        return None if name.startswith(("$", "_$")) else name

    def look(self, record: LinkRecord) -> tuple[str | None, Counts]:
        """Add what a link has counted since it was looked at; return the name of its address, and its counters in the
        order of FROM_SENDERS."""
        link = record.link
        now = (
            link.deliveries, link.bytes, record.accepted, record.rejected, record.released, record.modified,
            record.presettled, record.dropped,
        )  # fmt: skip
        known = self._links.get(record.identity)
        if known is None:
            known = self._links[record.identity] = self.name(record), _NOTHING
        name, before = known
        if now != before:
            self._links[record.identity] = name, now
            if name is not None:
                self._add(name, 0 if record.direction == "in" else 8, list(map(sub, now, before)))
        return name, now

    def link_over(self, record: LinkRecord) -> None:
        """Add the rest of an ended link."""
        if record.faces_client:
            self.look(record)
            self._links.pop(record.identity, None)

    def look_at_relayed(self, address: RoutedAddress) -> None:
        """Add the messages of anonymous senders to this address."""
        more = address.relayed - self._relayed.get(address.identity, 0)
        if more and address.key[0] == MOBILE and not address.temporary:
            self._relayed[address.identity] = address.relayed
            self._add(address.key[2:], 0, [more])

    def address_over(self, address: RoutedAddress) -> None:
        """Add the rest of an address that is no longer in use."""
        self.look_at_relayed(address)
        self._relayed.pop(address.identity, None)

    def _add(self, name: str, at: int, more: list[int]) -> None:
        total = self.totals.pop(name, None) or [0] * 16
        self.totals[name] = total  # the last that was used is the last
        total[at : at + len(more)] = map(add, total[at:], more)
        self.changed.add(name)
        if len(self.totals) > MAX_NAMES:
            del self.totals[next(iter(self.totals))]
