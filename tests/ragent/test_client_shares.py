"""What the agent tells routers of each other's clients."""

from __future__ import annotations

from typing import Any, cast

from enmasse.control import RequestFailed
from services.ragent.client_shares import ClientShares
from services.ragent.router import ManagedRouter
from tests.kit.running import asyncio_test


class Told:
    """A router with so many clients, and the sums that it was told."""

    serving = extended = True

    def __init__(self, name: str, clients: int) -> None:
        self.id, self.clients, self.leaves = name, clients, False
        self.told: list[tuple[int, int]] = []

    async def share_clients(self, routers: int, clients: int) -> tuple[int, bool]:
        self.told.append((routers, clients))
        return self.clients, self.leaves


class Older(Told):
    async def share_clients(self, routers: int, clients: int) -> tuple[int, bool]:
        raise RequestFailed(501, "not implemented")


@asyncio_test
async def test_each_router_is_told_the_sums_of_those_that_stay() -> None:
    first, second, older = Told("a", 30), Told("b", 4), Older("c", 7)
    routers: list[Any] = [first, older]
    shares = ClientShares(lambda: cast("list[ManagedRouter]", routers), lambda _: None)
    assert not await shares.round()
    assert await shares.round()
    routers.append(second)
    assert not await shares.round()
    assert await shares.round()
    second.leaves = True
    assert not await shares.round()
    assert await shares.round()
    assert first.told == [(0, 0), (1, 30), (1, 30), (2, 34), (2, 34), (1, 30)]
    assert second.told == [(1, 30), (2, 34), (2, 34), (1, 30)]


@asyncio_test
async def test_routers_of_a_space_share_their_clients_among_themselves() -> None:
    spaces = {"a": None, "b": None, "one-0": "one", "one-1": "one", "two-0": "two"}
    routers = {name: Told(name, clients) for clients, name in enumerate(spaces, 1)}
    shares = ClientShares(lambda: cast("list[ManagedRouter]", list(routers.values())), spaces.__getitem__)
    for _ in range(2):
        await shares.round()
    assert {name: each.told[1] for name, each in routers.items()} == {
        "a": (2, 3), "b": (2, 3), "one-0": (2, 7), "one-1": (2, 7), "two-0": (1, 5),
    }  # fmt: skip
