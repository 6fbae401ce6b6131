"""When clients of a process are to connect again so that they spread: after another one on its ports has come. No
clock.

Each gateway, or router, knows how many there are on its ports, and how many clients these have together, as each has
last reported. A new one gets only new clients: the others close their surplus. A process that learns the numbers for
the first time may have had its clients before the others came, and closes its surplus too.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from enmasse.network.trickle import LEAVING

MORE: Final = 1.1
"""Clients that a process may have beside the mean, as a factor: SO_REUSEPORT spreads by chance."""
LEAST: Final = 5
"""Clients of a surplus, below which it stays."""


class Spreading:
    """`take` gets each report of the sums, which may miss what the last surplus has changed elsewhere: for `rest`
    seconds after a surplus was closed, none is."""

    def __init__(self, rest: float) -> None:
        self._rest = rest
        self._processes = 1
        self._ends = self._waits = 0.0
        self.came = False
        """Whether another process has come since the report before."""

    def take(self, processes: int, clients: int, own: int, now: float) -> int:
        """Return how many of the `own` clients are a surplus that is to be closed now. `processes` share the ports, and
        have `clients` together; 0: that is not known yet."""
        self.came = self._processes < processes
        if not processes:
            return 0
        self._processes = processes
        if self.came:
            self._ends, self._waits = now + LEAVING, now
        if processes < 2 or not self._waits <= now < self._ends:
            return 0
        surplus = own - ceil(max(clients, own) / processes * MORE)
        return surplus if surplus >= LEAST else 0

    def closed(self, now: float) -> None:
        """Note that the surplus was closed."""
        self._waits = now + self._rest
