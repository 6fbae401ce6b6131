"""Placement of addresses on brokers, from brokers.json or as the storage controller reports it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from enmasse.model.brokers import place
from enmasse.model.configuration import Applied, differing
from enmasse.model.feeds import Placements, PlacementsReport
from enmasse.model.names import AddressName

NONE = Placements(brokers={}, addresses={})


class PlacementSource:
    """The placements in force (`now`); None until they are known."""

    def __init__(self) -> None:
        self.now: Placements | None = None
        self.by_hand = False
        """Whether they come from brokers.json; then reports are refused."""

    def configure(self, now: Applied, before: Applied) -> bool:
        """Take another configuration; return True if the placements follow from it and have changed."""
        state, was = now.state, before.state
        previous, self.by_hand = self.now, state.brokers is not None
        if state.brokers is None:
            if was.brokers is not None:
                self.now = None  # until they are reported
            return False
        if not state.complete:
            return False
        before_it = (was.brokers, was.addresses, before.failed_brokers)
        if was.complete and (state.brokers, state.addresses, now.failed_brokers) == before_it:
            return False
        self.now = place(state.brokers, state.addresses, now.failed_brokers)
        return self.now != previous

    def report(self, report: PlacementsReport, *, full: bool) -> Moves | None:
        """Take over a report of all placements, or of changes to those in force. Return None if it changes nothing."""
        before = self.now
        addresses, touched = report.addresses, None
        if not full and before is not None:
            touched = [*addresses, *report.removed]
            addresses = {**before.addresses, **addresses}
            for name in report.removed:
                addresses.pop(name, None)
        self.now = Placements(brokers=report.brokers, addresses=addresses, invalid=report.invalid)
        found = moves(before, self.now, touched)
        has_changed = before is None or found.changed or before.brokers != self.now.brokers
        return found if has_changed or (before is not None and before.invalid != self.now.invalid) else None


class Moves(NamedTuple):
    """Difference between two states of the placements."""

    changed: list[AddressName]
    """Addresses that are on other brokers than before, or on none."""
    elsewhere: list[AddressName]
    """Addresses one of whose brokers has another endpoint, or was restarted."""


def moves(before: Placements | None, now: Placements | None, names: Iterable[AddressName] | None = None) -> Moves:
    """Return the addresses that have moved; `names`: those that may have another entry (None: all)."""
    old, new = before or NONE, now or NONE
    if names is None:
        changed = differing(old.addresses, new.addresses)
    else:
        changed = [name for name in names if old.addresses.get(name) != new.addresses.get(name)]
    brokers = set(differing(old.brokers, new.brokers))
    elsewhere = [
        name for name, entries in new.addresses.items() if brokers and any(entry.broker in brokers for entry in entries)
    ]
    return Moves(changed, elsewhere)
