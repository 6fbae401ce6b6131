"""Prepared placements, and which of them every binder has reported as bound. No sockets, no clock.

A binder is a role whose queues and diverts must be on a broker before messages of an address go there. Without binders
a prepared placement is bound at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from enmasse.model.feeds import BoundReport, Placement
from enmasse.model.names import AddressName

Epochs = dict[AddressName, dict[str, int]]
"""Address → broker → epoch of a preparation."""


class BoundPlacements:
    """The content of the feed `bound`, kept up to date. Methods return the addresses whose entry has changed."""

    def __init__(self, binders: Iterable[str]) -> None:
        self.binders = tuple(binders)
        self.bound: Epochs = {}
        self._prepared: Epochs = {}
        self._reports: dict[str, Epochs] = {}

    def placed(
        self, placements: Mapping[AddressName, list[Placement]], names: Iterable[AddressName]
    ) -> Collection[AddressName]:
        """Take the placements in force, of which those of `names` have changed."""
        names = list(names)
        for name in names:
            found = {
                each.broker: each.epoch
                for each in placements.get(name, ())
                if each.state == "prepared" and isinstance(each.epoch, int)
            }
            if found:
                self._prepared[name] = found
            else:
                self._prepared.pop(name, None)
        return self._review(names)

    def report(self, binder: str, report: BoundReport, *, full: bool) -> Collection[AddressName]:
        """Take a report of a binder. It stays valid when its link is lost: what is bound is on the brokers."""
        known = self._reports.setdefault(binder, {})
        touched = {*report.addresses, *report.removed}
        if full:
            touched.update(known)
            known.clear()
        for name in report.removed:
            known.pop(name, None)
        known.update(report.addresses)
        return self._review(touched)

    def _review(self, names: Iterable[AddressName]) -> Collection[AddressName]:
        changed = set()
        for name in names:
            found = {
                broker: epoch
                for broker, epoch in self._prepared.get(name, {}).items()
                if all(self._reports.get(each, {}).get(name, {}).get(broker) == epoch for each in self.binders)
            }
            if found != self.bound.get(name, {}):
                changed.add(name)
                if found:
                    self.bound[name] = found
                else:
                    del self.bound[name]
        return changed
