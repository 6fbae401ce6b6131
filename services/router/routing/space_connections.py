"""Connections of one connector to a broker, by address space: nothing of one space waits behind what another one has
under way to the broker or from it.

The connector's own connection carries the default space. A space that auto-links or link routes lead to at the broker
has a further one, MOST at most; spaces beyond that share them. A broker that states no capability for address spaces
has one connection for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from enmasse.clock import Clock
from enmasse.model.names import DEFAULT_SPACE

MOST = 64
"""Most further connections to one broker."""
LOOK = 1.0
"""Seconds between two looks at links on a connection that is no longer needed."""


class Further(Protocol):
    """A further connection, which is dialled again when it is lost."""

    @property
    def links(self) -> int:
        """Return the number of its links."""

    def stop(self) -> None:
        """Close it for good."""


class SpaceConnections:
    """Which space has which of the connections; each is known by the first space that it was opened for. `dial` opens a
    further one."""

    __slots__ = ("_clock", "_dial", "_ending", "_live", "_of", "apart")

    def __init__(self, dial: Callable[[str], Further], clock: Clock) -> None:
        self.apart = False
        """Whether the broker keeps spaces apart; set when the connector's own connection opens."""
        self._dial = dial
        self._clock = clock
        self._live: dict[str, tuple[Further, set[str]]] = {}  # with the spaces of each
        self._of: dict[str, str] = {}
        self._ending: set[str] = set()

    def of(self, space: str) -> str:
        """Return which connection carries a space."""
        return self._of.get(space, DEFAULT_SPACE)

    def open(self, apart: bool, wanted: Iterable[str]) -> None:
        """Begin: the connector's own connection has opened. `wanted`: the spaces that something leads to."""
        self.apart = apart
        if not apart:
            self.close()
        for space in wanted:
            self.carry(space)

    def carry(self, space: str) -> None:
        """Have a connection for this space."""
        if not self.apart or space == DEFAULT_SPACE or space in self._of:
            return
        if space in self._live:
            name = space
        elif len(self._live) < MOST:
            name = space
            self._live[name] = (self._dial(name), set())
        else:
            name = min(self._live, key=lambda each: len(self._live[each][1]))
        self._of[space] = name
        self._live[name][1].add(space)

    def leave(self, space: str) -> None:
        """Forget a space that nothing leads to. A connection without spaces ends when its last link has ended."""
        name = self._of.pop(space, None)
        if name is None:
            return
        spaces = self._live[name][1]
        spaces.discard(space)
        if not spaces and name not in self._ending:
            self._ending.add(name)
            self._clock.call_later(LOOK, partial(self._end_idle, name))

    def _end_idle(self, name: str) -> None:
        self._ending.discard(name)
        further, spaces = self._live.get(name, (None, None))
        if further is None or spaces:
            return
        if further.links:
            self._ending.add(name)
            self._clock.call_later(LOOK, partial(self._end_idle, name))
        else:
            del self._live[name]
            further.stop()

    def close(self) -> None:
        """End all further connections."""
        live, self._live = self._live, {}
        self._of.clear()
        for further, _ in live.values():
            further.stop()
