"""Tells each router how many there are for the same clients, and how many of these they have together: clients spread
after one came."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, NoReturn

from enmasse.control import ControlError
from services.ragent.router import ManagedRouter

EVERY: Final = 10.0
AGAIN: Final = 1.0
"""Seconds between two rounds, and until the next one if routers have come or left."""


class ClientShares:
    """`routers` gives those that are connected; only embedded ones that serve clients are asked. `space_of` gives the
    address space whose clients alone come to a router, by its id: routers of a space share no clients with others."""

    def __init__(self, routers: Callable[[], Iterable[ManagedRouter]], space_of: Callable[[str], str | None]) -> None:
        self._routers = routers
        self._space_of = space_of
        self._clients: dict[str, int] = {}
        """Router that stays → its clients."""

    async def run(self) -> NoReturn:
        """Ask until cancelled."""
        while True:
            await asyncio.sleep(EVERY if await self.round() else AGAIN)

    async def round(self) -> bool:
        """Tell all routers the sums of the round before, and ask for their numbers. Return True if the routers are
        those of the round before."""
        before, self._clients = self._clients, {}
        asked = [router for router in self._routers() if router.serving and router.extended]
        shares: dict[str | None, list[int]] = {}
        for name, clients in before.items():
            shares.setdefault(self._space_of(name), []).append(clients)
        told = [shares.get(self._space_of(router.id), []) for router in asked]
        asking = [router.share_clients(len(each), sum(each)) for router, each in zip(asked, told, strict=True)]
        answers = await asyncio.gather(*asking, return_exceptions=True)
        for router, answer in zip(asked, answers, strict=True):
            if isinstance(answer, BaseException):
                if not isinstance(answer, ControlError):
                    raise answer
                continue  # of an earlier version, or it is lost
            clients, leaves = answer
            if not leaves:
                self._clients[router.id] = clients
        return before.keys() == self._clients.keys()
