"""The router's share of the clients of several routers on the same ports: after another one came, it closes a surplus.

The agent states how many routers there are, and how many clients these have together (operation SHARE-CLIENTS); the
answer is how many this one has.
"""

from __future__ import annotations

import asyncio
from typing import Final

from enmasse.logs import log
from enmasse.network import trickle
from enmasse.network.spreading import Spreading
from enmasse.process.runner import spawn
from services.router.handing_on import MovingConnections, is_spread
from services.router.routing.router import Router

REST: Final = 21.0
"""Seconds after a surplus was closed until another may be: two rounds of the agent, and one second."""


class ClientShare:
    """`leaving`: it hands on all, and counts no longer."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._spreading = Spreading(REST)
        self._here_before: MovingConnections | None = None
        """Clients that were here when another router came."""
        self._closing: asyncio.Task[None] | None = None
        self.leaving = False
        self.routers = 0
        """Number of routers for the clients of this one, itself included; 0: not known yet."""

    def take(self, routers: int, clients: int) -> dict[str, object]:
        """Take the sums of all routers; return what this one has."""
        own = sum(map(is_spread, self._router.connections.values()))
        self.routers = routers or self.routers
        if not self.leaving:
            surplus = self._spreading.take(routers, clients, own, self._router.now())
            if self._spreading.came:
                self._here_before = MovingConnections(self._router, also_later=False)
            if surplus and self._here_before is not None and (self._closing is None or self._closing.done()):
                log.get().info("router.clients.spread", clients=own, surplus=surplus, routers=routers)
                self._closing = spawn(self._close(self._here_before, surplus), "clients spread")
        return {"clients": own, "leaving": self.leaving}

    async def _close(self, moving: MovingConnections, surplus: int) -> None:
        await trickle.close_surplus(moving, surplus, self._router.now)
        self._spreading.closed(self._router.now())
