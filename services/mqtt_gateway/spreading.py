"""When clients of this gateway are to connect again so that they spread: after another gateway has come. No clock.

Each gateway knows from the reply to its reports how many there are on its ports, and how many clients these have
together, by the last report of each. A new gateway gets only new clients: the others close their surplus once.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from enmasse.network.trickle import LEAVING

MORE: Final = 1.1
"""Clients that a gateway may have beside the mean, as a factor: SO_REUSEPORT spreads by chance."""
LEAST: Final = 5
"""Clients of a surplus, below which it stays."""


class Spreading:
    """`take` gets each reply. A reply may miss what the last surplus has changed elsewhere: for `rest` seconds after a
    surplus was closed, none is."""

    def __init__(self, rest: float) -> None:
        self._rest = rest
        self._gateways = 0
        self._ends = self._waits = 0.0
        self.came = False
        """Whether another gateway has come since the reply before."""

    def take(self, gateways: int, clients: int, own: int, now: float) -> int:
        """Return how many of the `own` clients are a surplus that is to be closed now. `gateways` share the ports, and
        have `clients` together."""
        self.came = 0 < self._gateways < gateways
        self._gateways = gateways
        if self.came:
            self._ends, self._waits = now + LEAVING, now
        if gateways < 2 or not self._waits <= now < self._ends:
            return 0
        surplus = own - ceil(max(clients, own) / gateways * MORE)
        return surplus if surplus >= LEAST else 0

    def closed(self, now: float) -> None:
        """Note that the surplus was closed."""
        self._waits = now + self._rest
