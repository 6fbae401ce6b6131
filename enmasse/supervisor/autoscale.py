"""How many processes of a kind their load needs. No clock, no processes.

A process more comes once they have been busy for a while, and one goes once the others would have little to do for
longer. Both are so far apart that a constant load never has one come and go again.
"""

from __future__ import annotations

from typing import NamedTuple

from enmasse.process.process_bounds import ProcessBounds

BUSY, IDLE = 0.7, 0.4
"""Part of the time for which the event loops of processes are on a processor on average, above which another one comes;
and below which the others must stay with the work of the one that goes."""
CROWDED, ROOMY = 5_000, 3_000
"""Connections of a process, above which and below which this is so as well."""
UP_AFTER, DOWN_AFTER = 10.0, 60.0
"""Seconds for which that must be so."""


class NewNumber(NamedTuple):
    """Number of processes from now on, and why, for people."""

    number: int
    reason: str


class Autoscale:
    """Decides for the processes of a kind, one at a time."""

    def __init__(self, bounds: ProcessBounds) -> None:
        self._bounds = bounds
        self._more_since: float | None = None
        self._less_since: float | None = None

    def forget(self) -> None:
        """Start over: processes come and go, and their load is not yet what it will be."""
        self._more_since = self._less_since = None

    def take(self, now: float, count: int, busy: float, connections: int) -> NewNumber | None:
        """Take the load of `count` processes that are ready: `busy`, the sum of the parts of their time for which they
        are on a processor, and their connections together. Return the decision; None: they stay."""
        if (nearest := self._bounds.nearest(count)) != count:
            return self._decided(nearest, f"the bounds are {self._bounds}")
        crowded = connections / count > CROWDED
        more = count < self._bounds.most and (busy / count > BUSY or crowded)
        rest = count - 1
        less = rest >= self._bounds.least and busy / rest < IDLE and connections / rest < ROOMY
        self._more_since = _since(self._more_since, now) if more else None
        self._less_since = _since(self._less_since, now) if less else None
        if self._more_since is not None and now - self._more_since >= UP_AFTER:
            if crowded:
                return self._decided(count + 1, f"they have {connections // count} connections on average")
            return self._decided(count + 1, f"they are busy for {busy / count:.0%} of the time on average")
        if self._less_since is not None and now - self._less_since >= DOWN_AFTER:
            return self._decided(rest, f"they have {busy:.0%} of the work of one, and {connections} connections")
        return None

    def _decided(self, count: int, reason: str) -> NewNumber:
        self.forget()
        return NewNumber(count, reason)


def _since(before: float | None, now: float) -> float:
    return now if before is None else before
