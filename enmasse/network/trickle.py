"""Connections of a process are closed a few at a time, so that their clients do not connect elsewhere in a crowd.

A process that leaves closes all of them, one that has more than its share the surplus. The holder of the connections
asks some of them to end what they have begun (`begin`), and closes each once it has, or when its time has passed
(`look`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

SHARE: Final = 0.1
"""Part of the connections that is closed in a second."""
MOST: Final = 200.0
"""Connections closed in a second, however many there are: fewer than connect in that time where they come to, with
passwords to be verified, so that none waits there."""
TICK: Final = 0.1
SETTLING: Final = 0.5
"""Seconds for a connection to end what it has begun."""
LEAVING: Final = 120.0
"""Seconds that a process may take to leave, and to close a surplus."""


def pace(number: int, within: float = 0.0) -> float:
    """Return how many of `number` connections are closed in a second. `within`: seconds in which all must be; 0: there
    is no limit."""
    usual = max(1.0, min(number * SHARE, MOST))
    return max(usual, number / max(1.0, within)) if within else usual


class Trickle:
    """Counts how many connections may be closed. The first may at once; what a stalled process has missed is lost."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._last = now
        self._saved = 1.0

    def due(self, now: float) -> int:
        """Return the number that may be closed now, after those that were returned before."""
        self._saved = min(self._saved + max(0.0, now - self._last) * self._rate, max(1.0, self._rate))
        self._last = now
        found = int(self._saved)
        self._saved -= found
        return found

    def give_back(self, number: int) -> None:
        """Take back what was due and not closed."""
        self._saved += number


class ClosesSome(Protocol):
    """Holds the connections of a process."""

    @property
    def number(self) -> int:
        """Return the number of connections that are open."""

    def begin(self, most: int) -> int:
        """Ask at most this many further connections to end what they have begun. Return their number."""

    def look(self, now: float) -> bool:
        """Close those that were asked and have ended it, or whose time has passed. Return whether some are left."""


async def empty(holder: ClosesSome, within: float, hurry: asyncio.Event, now: Callable[[], float]) -> int:
    """Close all connections, in at most `within` seconds; return how many are left. Ends early once `hurry` is set."""
    began = now()
    trickle = Trickle(pace(holder.number, within), began)
    while holder.number and now() - began < within and not hurry.is_set():
        if due := trickle.due(now()):
            holder.begin(due)
        holder.look(now())
        await _tick(hurry)
    return holder.number


async def close_surplus(holder: ClosesSome, surplus: int, now: Callable[[], float]) -> None:
    """Close this many connections, those that there are."""
    trickle = Trickle(pace(holder.number), now())
    ends = now() + LEAVING
    while surplus > 0 and now() < ends:
        if due := min(trickle.due(now()), surplus):
            begun = holder.begin(due)
            if not begun:
                break
            surplus -= begun
        holder.look(now())
        await asyncio.sleep(TICK)
    while holder.look(now()):
        await asyncio.sleep(TICK)


async def _tick(hurry: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(TICK):
            await hurry.wait()
    except TimeoutError:
        pass
