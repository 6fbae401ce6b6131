"""How long a connector waits before it dials again."""

from __future__ import annotations

FIRST, SHORT, LONG = 0.1, 0.25, 5.0
SOON = 15.0
"""Seconds in which a peer is expected to come (back): so long waits stay short, a refused connect is cheap."""
LIVED = 1.0
"""Seconds a connection must have been open to count as a new beginning: a peer that drops every connection at once is
not dialled four times a second for ever."""


class Backoff:
    """Waits in seconds, for times of one monotonic clock: FIRST to SHORT while the peer is expected, then to LONG."""

    __slots__ = ("_delay", "_since")

    def __init__(self, now: float) -> None:
        self._since = now
        self._delay = 0.0

    def lost(self, now: float, opened_at: float) -> None:
        """A connection that was open is no more."""
        if now - opened_at >= LIVED:
            self._since = now
            self._delay = 0.0

    def wait(self, now: float) -> float:
        """Seconds from now to the next try."""
        most = SHORT if now - self._since < SOON else LONG
        self._delay = min(most, max(FIRST, self._delay * 2))
        return self._delay
