"""Bytes of stored messages of address spaces: what each holds here, and what it may hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from enmasse.model.names import DEFAULT_SPACE, space_of

UNLIMITED: Final = 2**62


def _nowhere(shares: object) -> None:
    """Store nothing."""


class StorageShare(NamedTuple):
    """Share of this broker in the storage of a space, in bytes. `limit`: of all brokers together.
    `refused`: size from which a message that does not fit into the share has no room at any broker either; 0: there may
    be some."""

    share: int
    limit: int
    refused: int


class SpaceTotals:
    """Storage of one space. `wanted`: bytes of the smallest message that did not fit into the share since the last
    look; 0: there was none."""

    __slots__ = ("given", "most", "present", "size", "wanted")

    def __init__(self) -> None:
        self.size = self.wanted = 0
        self.present = False
        """Whether there are, or were, addresses of the space."""
        self.most = UNLIMITED
        self.given: StorageShare | None = None

    def give(self, given: StorageShare | None) -> None:
        """Put another share in force; None: there is no limit."""
        self.given = given
        self.most = UNLIMITED if given is None else given.share

    def want(self, size: int) -> None:
        """Note a message that does not fit."""
        self.wanted = min(self.wanted, size) if self.wanted else size

    def has_room_again(self, *, blocks: bool) -> bool:
        """Return True if producers that waited may continue: a tenth is free, or they may learn that no broker has
        room. `blocks`: they are not to learn that, but wait."""
        return self.size <= self.most * 9 // 10 or (not blocks and self.given is not None and self.given.refused > 0)


class SpaceStorage:
    """Storage of all spaces that have, or had, addresses here, or have a share."""

    def __init__(self) -> None:
        self.by_space: dict[str, SpaceTotals] = {}
        self.keep: Callable[[dict[str, StorageShare]], None] = _nowhere
        """Stores shares, when they differ: they hold after a restart until the broker gets its shares."""

    def of(self, name: str) -> SpaceTotals | None:
        """Return the totals of the space of an address; None: it is the default one."""
        if (space := space_of(name)) == DEFAULT_SPACE:
            return None
        totals = self.by_space.setdefault(space, SpaceTotals())
        totals.present = True
        return totals

    def give(self, shares: dict[str, StorageShare]) -> set[str]:
        """Put these shares in force, and no others. Return the spaces that have a limit now and had none, or the other
        way round."""
        changed, before = set(), self._limits()
        for space in {*self.by_space, *shares}:
            totals = self.by_space.setdefault(space, SpaceTotals())
            given = shares.get(space)
            if (totals.given is None) is not (given is None):
                changed.add(space)
            totals.give(given)
        if self._limits() != before:
            self.keep(shares)
        return changed

    def _limits(self) -> dict[str, tuple[int, int]]:
        return {name: each.given[:2] for name, each in self.by_space.items() if each.given is not None}

    def looked(self) -> dict[str, tuple[int, int, int, bool]]:
        """Return what each space holds, wanted since the last look, and may hold, and whether it is present."""
        found = {}
        for space, totals in self.by_space.items():
            share = 0 if totals.given is None else totals.given.share
            found[space] = (totals.size, totals.wanted, share, totals.present)
            totals.wanted = 0
        return found
