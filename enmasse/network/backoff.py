"""Waiting times between attempts. Without clock and sleep: the caller has both."""

from __future__ import annotations

import random

SOON = 15.0
"""Seconds in which a peer is expected to start or return: waits stay short meanwhile, a refused connect is cheap."""
LIVED = 1.0
"""Seconds a connection must have been open to count as a new beginning: a peer that drops every connection at once is
not dialled several times a second indefinitely."""


class Backoff:
    """Waits in seconds: `first`, then `factor` times the one before, up to `most`.

    `jitter` (0 to 1) is the part of each wait that is random, so that many clients of a lost peer do not reconnect at
    the same moment.
    """

    __slots__ = ("_delay", "_factor", "_first", "_jitter", "_most")

    def __init__(self, first: float, most: float, *, factor: float = 2.0, jitter: float = 0.0) -> None:
        self._first, self._most, self._factor, self._jitter = first, most, factor, jitter
        self._delay = 0.0

    def wait(self) -> float:
        """Return the seconds to wait now."""
        return self._next(self._most)

    def reset(self) -> None:
        """Note a success: the next wait is `first` again."""
        self._delay = 0.0

    def _next(self, most: float) -> float:
        self._delay = min(most, max(self._first, self._delay * self._factor))
        return self._delay * (1.0 - self._jitter * random.random()) if self._jitter else self._delay


class ReconnectBackoff(Backoff):
    """Waits between connections to one peer: `first` to `short` while the peer is expected, then up to `most`.

    Times are seconds of one monotonic clock.
    """

    __slots__ = ("_short", "_since")

    def __init__(
        self, now: float, *, first: float = 0.1, short: float = 0.25, most: float = 5.0, jitter: float = 0.0
    ) -> None:
        super().__init__(first, most, jitter=jitter)
        self._short = short
        self._since = now

    def lost(self, now: float, opened_at: float) -> None:
        """Note that a connection, opened at `opened_at`, was lost."""
        if now - opened_at >= LIVED:
            self._since = now
            self.reset()

    def wait_from(self, now: float) -> float:
        """Return seconds from now to the next try."""
        return self._next(self._short if now - self._since < SOON else self._most)
