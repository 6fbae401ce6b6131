"""Reports of uses of limits of address spaces that one process enforces alone (target `usage`, docs/contracts.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final

from enmasse.control.connection import ControlConnection
from enmasse.control.reports import deliver
from enmasse.model.feeds import UsageReport
from enmasse.model.tenants.shares import Use

INTERVAL: Final = 1.0
"""Seconds between two looks."""


class UsageReporter:
    """Reporter of uses, without shares. `limited()`: the spaces that have limits; `look()`: limit → space → what it
    uses."""

    def __init__(
        self, limited: Callable[[], Collection[str]], look: Callable[[], Mapping[str, Mapping[str, int]]]
    ) -> None:
        self._limited = limited
        self._look = look

    async def run(self, connection: ControlConnection) -> None:
        """Report over this connection until it is lost; nothing is asked of the service, which may be older, while no
        space has limits. Raises LinkClosed, ConnectionLost."""
        while not self._limited():
            await asyncio.sleep(INTERVAL)
        sender = connection.sender("usage")
        await sender.opened()
        last, number = dict[str, int](), 0
        while True:
            spaces = self._limited()
            now = {
                f"{name}/{space}": used
                for name, uses in self._look().items()
                for space, used in uses.items()
                if space in spaces and used
            }
            uses = {key: Use(used) for key, used in now.items() if last.get(key) != used}
            removed = [key for key in last if key not in now]
            if uses or removed:
                number += 1
                await deliver(sender, "change", UsageReport(number=number, seen=0, uses=uses, removed=removed))
            last = now
            await asyncio.sleep(INTERVAL)
