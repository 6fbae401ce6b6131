"""Which sources of what is desired have delivered. Pure."""

from __future__ import annotations

from collections.abc import Iterable


class Sources:
    """The feeds from which the desired state is computed. Nothing may be deleted before each has sent a snapshot."""

    def __init__(self, names: Iterable[str]) -> None:
        self._missing = set(names)

    def deliver(self, name: str) -> bool:
        """A complete snapshot of this source has arrived; True if it is the first one."""
        first = name in self._missing
        self._missing.discard(name)
        return first

    def has(self, name: str) -> bool:
        """Whether this source has delivered."""
        return name not in self._missing

    @property
    def complete(self) -> bool:
        """Every source has delivered: what is not desired by now is not desired at all."""
        return not self._missing
