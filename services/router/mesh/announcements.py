"""Addresses with receivers: those of this router as announced, and those of another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from services.router.mesh.control_messages import AddressUpdate, Announced, Treatment

Addresses = Mapping[str, Treatment | None]
"""Class and name of an address (`M0orders`) → its treatment, None if that is not stated."""


class OwnAddresses:
    """Addresses with receivers at this router. Changes are collected, and announced together by an update with the next
    number, `seq`."""

    def __init__(self, first: int = 0) -> None:
        self.seq = first
        self._present: dict[str, Treatment] = {}
        self._announced: dict[str, Treatment] = {}
        self._changed: dict[str, None] = {}

    def add(self, key: str, treatment: Treatment) -> None:
        """Add an address that has a receiver now."""
        self._present[key] = treatment
        self._changed[key] = None

    def remove(self, key: str) -> None:
        """Remove an address whose last receiver is gone."""
        self._present.pop(key, None)
        self._changed[key] = None

    def changes(self, router: str) -> AddressUpdate | None:
        """Return the update for what has changed since the last call; None if nothing has."""
        added, deleted = [], []
        for key in self._changed:
            treatment = self._present.get(key)
            if treatment is None:
                if self._announced.pop(key, None) is not None:
                    deleted.append(key)
            elif self._announced.get(key) != treatment:
                self._announced[key] = treatment
                added.append(Announced(key, treatment))
        self._changed.clear()
        if not added and not deleted:
            return None
        self.seq += 1
        return AddressUpdate(router, self.seq, tuple(added), tuple(deleted))

    def everything(self, router: str) -> AddressUpdate:
        """Return the absolute update: all announced addresses."""
        announced = tuple(Announced(key, treatment) for key, treatment in self._announced.items())
        return AddressUpdate(router, self.seq, announced, absolute=True)


class AddressChange(NamedTuple):
    """Effect of an update. An address whose treatment has changed is among the added ones."""

    added: tuple[Announced, ...] = ()
    removed: tuple[str, ...] = ()


NO_CHANGE: Final = AddressChange()


class RemoteAddresses:
    """Addresses with receivers at another router, as of its update `seq`."""

    __slots__ = ("addresses", "seq")

    def __init__(self) -> None:
        self.seq = 0
        self.addresses: dict[str, Treatment | None] = {}

    def apply(self, update: AddressUpdate) -> AddressChange | None:
        """Apply an update and return its effect; None if updates before it are missing. Old ones have no effect."""
        if update.absolute:
            return self._replace(update) if update.mobile_seq >= self.seq else NO_CHANGE
        if update.mobile_seq <= self.seq:
            return NO_CHANGE
        if update.mobile_seq != self.seq + 1:
            return None
        self.seq = update.mobile_seq
        deleted = dict.fromkeys(update.deleted)
        added = tuple(each for each in update.added if each.key not in deleted and self._differs(each))
        removed = tuple(key for key in deleted if self.addresses.pop(key, self) is not self)
        self.addresses.update(added)
        return AddressChange(added, removed)

    def _replace(self, update: AddressUpdate) -> AddressChange:
        self.seq = update.mobile_seq
        present = dict(update.added)
        added = tuple(Announced(*each) for each in present.items() if self._differs(Announced(*each)))
        removed = tuple(key for key in self.addresses if key not in present)
        self.addresses = present
        return AddressChange(added, removed)

    def _differs(self, announced: Announced) -> bool:
        known = self.addresses.get(announced.key, self)
        return known is self or known is not announced.treatment
