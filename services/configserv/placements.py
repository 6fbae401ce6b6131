"""Which broker carries which address: as brokers.json has it, or as the storage controller reports it."""

from __future__ import annotations

from enmasse.model.brokers import place
from enmasse.model.configuration import Applied
from enmasse.model.feeds import Placements
from enmasse.model.names import AddressName


class PlacementSource:
    """`now`: the placements in force; None while nobody has delivered them."""

    def __init__(self) -> None:
        self.now: Placements | None = None
        self.by_hand = False
        """Whether they come from brokers.json; then nobody may report them."""

    def configure(self, now: Applied, before: Applied) -> bool:
        """Another configuration; whether the placements follow from it and are others than before."""
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


def moved(before: Placements | None, now: Placements | None) -> list[AddressName]:
    """The addresses that are on other brokers, or whose broker listens elsewhere."""
    nothing = Placements(brokers={}, addresses={})
    old, new = before or nothing, now or nothing
    changed = {
        name for name in old.brokers.keys() | new.brokers.keys() if old.brokers.get(name) != new.brokers.get(name)
    }
    found = [
        name
        for name, entries in new.addresses.items()
        if old.addresses.get(name) != entries or (changed and any(entry.broker in changed for entry in entries))
    ]
    return found + [name for name in old.addresses if name not in new.addresses]
