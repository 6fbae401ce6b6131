"""Tracks which sources of the desired state have delivered. Pure."""

from __future__ import annotations

from collections.abc import Iterable


class Sources:
    """The feeds from which the desired state is computed. Nothing may be deleted before each has sent a snapshot."""

    def __init__(self, names: Iterable[str]) -> None:
        self._missing = set(names)

    def deliver(self, name: str) -> bool:
        """Record a complete snapshot of this source. Return True if it is the first one."""
        first = name in self._missing
        self._missing.discard(name)
        return first

    def has(self, name: str) -> bool:
        """Return True if this source has delivered."""
        return name not in self._missing

    @property
    def complete(self) -> bool:
        """True once every source has delivered: only then does a missing entry mean that it is not desired."""
        return not self._missing
