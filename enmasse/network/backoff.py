"""Waiting times that grow from attempt to attempt: all that there are. Without clock and sleep: the caller has both.

A constant one is a number of seconds beside the code that waits (`AGAIN`, `RETRY`).
"""

from __future__ import annotations

import random
from typing import NamedTuple

SOON = 15.0
"""Seconds in which a peer is expected to start or return: waits stay short meanwhile, a refused connect is cheap."""
LIVED = 1.0
"""Seconds a connection must have been open to count as a new beginning: a peer that drops every connection at once is
not dialled several times a second indefinitely."""


class Waits(NamedTuple):
    """Waits in seconds: `first`, then `factor` times the one before, up to `most`.

    `jitter` (0 to 1) is the part of each wait that is random, so that many clients of a lost peer do not reconnect at
    the same moment. `short`: the longest wait while a peer is expected (ReconnectBackoff).
    """

    first: float
    most: float
    factor: float = 2.0
    jitter: float = 0.0
    short: float = 0.25


CONNECT = Waits(0.1, 5.0, jitter=0.2)
"""Between connections of the data plane to a peer, and from outside to the suite."""
CONTROL = Waits(0.05, 2.0, jitter=0.5)
"""Between connections of the control plane."""
AGAIN = Waits(0.1, 5.0, jitter=0.25)
"""Until what failed is tried again, by itself."""
SOON_AGAIN = Waits(0.1, 3.0, jitter=0.5)
"""Until what failed is tried again while clients wait: a store, the queue of a session."""
WEBHOOK = Waits(1.0, 300.0, jitter=0.25)
"""Until a message is posted again to the receiver of a webhook, a program of others."""
REFUSED = Waits(0.25, 30.0)
"""Until what a peer has refused is tried again: it will not change its mind soon."""
RESTART = Waits(0.1, 5.0, factor=5.0)
"""Until a process that died at its start is started again."""
LOOK = Waits(0.01, 1.0)
"""Between two looks at what will change soon and cannot be waited for in another way."""


class Backoff:
    """Waiting times, one after another."""

    __slots__ = ("_delay", "_waits")

    def __init__(self, waits: Waits) -> None:
        self._waits = waits
        self._delay = 0.0

    def wait(self) -> float:
        """Return the seconds to wait now."""
        return self._next(self._waits.most)

    def reset(self) -> None:
        """Note a success: the next wait is `first` again."""
        self._delay = 0.0

    def _next(self, most: float) -> float:
        self._delay = min(most, max(self._waits.first, self._delay * self._waits.factor))
        return self._delay * (1.0 - self._waits.jitter * random.random()) if self._waits.jitter else self._delay


class ReconnectBackoff(Backoff):
    """Waits between connections to one peer: up to `short` while the peer is expected, then up to `most`.

    Times are seconds of one monotonic clock.
    """

    __slots__ = ("_since",)

    def __init__(self, now: float, waits: Waits = CONNECT) -> None:
        super().__init__(waits)
        self._since = now

    def lost(self, now: float, opened_at: float) -> None:
        """Note that a connection, opened at `opened_at`, was lost."""
        if now - opened_at >= LIVED:
            self._since = now
            self.reset()

    def wait_from(self, now: float) -> float:
        """Return seconds from now to the next try."""
        return self._next(self._waits.short if now - self._since < SOON else self._waits.most)
