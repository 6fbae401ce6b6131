"""How many processes of a kind their load needs. No clock, no processes.

A process more comes once they have been busy for a while, and one goes once the others would have little to do for
longer. Both are so far apart that a constant load never has one come and go again, and each time that a load has them
come and go nevertheless they stay for longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from enmasse.process.process_bounds import ProcessBounds

BUSY, IDLE = 0.7, 0.4
"""Part of the time for which the event loop of a process is on a processor, above which it is busy; and below which the
others must stay with the work of the one that goes."""
CROWDED, ROOMY = 5_000, 3_000
"""Connections of a process, above which and below which this is so as well."""
UP_AFTER, ALONE_AFTER, DOWN_AFTER = 10.0, 40.0, 60.0
"""Seconds for which that must be so: all are busy on average, one alone is busy (clients spread within 20 s to one that
came), the others have little to do."""
EARLY, LONGEST = 600.0, 3840.0
"""Seconds within which one that comes shows that the last one went too early, which doubles DOWN_AFTER; and the most
that it becomes."""


class NewNumber(NamedTuple):
    """Number of processes from now on, and why, for people."""

    number: int
    reason: str


class Autoscale:
    """Decides for the processes of a kind, one at a time."""

    def __init__(self, bounds: ProcessBounds) -> None:
        self._bounds = bounds
        self._more_since: float | None = None
        self._alone_since: float | None = None
        self._less_since: float | None = None
        self._down_after = DOWN_AFTER
        self._changed, self._went = 0.0, False
        """When the last one came or went, and whether it went, not too long ago."""
        self._helped = True
        """Whether none was busy at a moment since one came because of one alone: if not, another one would not help."""
        self._work: dict[int, float] = {}
        """Number of processes → work of all when the last of them came, if because of one alone."""

    def forget(self) -> None:
        """Start over: processes come and go, and their load is not yet what it will be."""
        self._more_since = self._alone_since = self._less_since = None

    def take(self, now: float, busy: Sequence[float], connections: int) -> NewNumber | None:
        """Take the load of the processes, which are ready: the part of its time for which each is on a processor, in
        their order, and their connections together. Return the decision; None: they stay."""
        count = len(busy)
        if (nearest := self._bounds.nearest(count)) != count:
            return self._decided(nearest, f"the bounds are {self._bounds}")
        work, busiest = sum(busy), max(busy)
        if now - self._changed > max(EARLY, 2 * self._down_after):
            self._went, self._down_after = False, DOWN_AFTER
        self._helped = self._helped or busiest <= BUSY
        crowded = connections / count > CROWDED
        growing = count < self._bounds.most
        self._more_since = _since(self._more_since, now, growing and (work / count > BUSY or crowded))
        self._alone_since = _since(self._alone_since, now, growing and busiest > BUSY and self._helped)
        self._less_since = _since(self._less_since, now, self._may_go(busy, work, connections))
        if _lasts(self._more_since, now, UP_AFTER):
            if crowded:
                return self._came(now, count, f"they have {connections // count} connections on average")
            return self._came(now, count, f"they are busy for {work / count:.0%} of the time on average")
        if _lasts(self._alone_since, now, ALONE_AFTER):
            self._helped = False
            return self._came(now, count, f"one of them is busy for {busiest:.0%} of the time", work)
        if _lasts(self._less_since, now, self._down_after):
            self._changed, self._went = now, True
            return self._decided(count - 1, f"they have {work:.0%} of the work of one, and {connections} connections")
        return None

    def _may_go(self, busy: Sequence[float], work: float, connections: int) -> bool:
        """Return whether the others have little to do without the last one, also if one of them gets all its work."""
        rest = len(busy) - 1
        return (
            rest >= self._bounds.least
            and work / rest < IDLE
            and max(busy[:-1]) + busy[-1] < BUSY
            and work < self._work.get(len(busy), inf) * IDLE / BUSY
            and connections / rest < ROOMY
        )

    def _came(self, now: float, count: int, reason: str, work: float = inf) -> NewNumber:
        if self._went:  # too early, as it turns out
            self._down_after = min(2 * self._down_after, LONGEST)
        self._changed, self._went = now, False
        self._work[count + 1] = work
        return self._decided(count + 1, reason)

    def _decided(self, count: int, reason: str) -> NewNumber:
        self.forget()
        return NewNumber(count, reason)


def _since(before: float | None, now: float, holds: bool) -> float | None:
    if not holds:
        return None
    return now if before is None else before


def _lasts(since: float | None, now: float, seconds: float) -> bool:
    return since is not None and now - since >= seconds
