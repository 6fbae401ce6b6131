"""What it costs to look for subscriptions of removed users: a broker lists all its queues for it."""

from __future__ import annotations

from typing import Any, cast

from enmasse.model.feeds import PermissionChanges
from services.subserv.service import SubscriptionService
from tests.kit.running import asyncio_test


class Broker:
    """Counts how often it is asked for its queues."""

    by_hand = is_unasked = False

    def __init__(self, name: str, *, connected: bool = True) -> None:
        self.name = name
        self.connected = connected
        self.asked = 0
        self.conversation = self

    async def rows(self) -> list[Any]:
        self.asked += 1
        return []


@asyncio_test
async def test_brokers_are_looked_through_once_after_a_change_of_permissions() -> None:
    service = SubscriptionService(cast(Any, None))
    near, away = Broker("near"), Broker("away", connected=False)
    service.brokers = cast(Any, [near, away])
    for number in (1, 2):
        away.connected = False
        service._on_permissions(PermissionChanges(users={}))
        for _ in range(3):
            await service._end_of_removed_users()  # as after changes of addresses
        assert (near.asked, away.asked) == (number, number - 1)
        away.connected = True
        for _ in range(3):
            await service._end_of_removed_users()
        assert (near.asked, away.asked) == (number, number)
