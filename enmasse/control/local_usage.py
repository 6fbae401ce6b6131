"""Reports of uses of limits of address spaces that one process enforces alone (target `usage`, docs/contracts.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final

from msgspec import UNSET

from enmasse.control.connection import ControlConnection
from enmasse.control.reports import deliver
from enmasse.identity.processes.roles import Role
from enmasse.model.feeds import UsageReport
from enmasse.model.tenants.shares import Use

INTERVAL: Final = 1.0
"""Seconds between two looks."""


class UsageReporter:
    """Reporter of uses, without shares. `limited()`: the spaces that have limits; `look()`: limit → space → what it
    uses."""

    def __init__(
        self,
        role: Role,
        limited: Callable[[], Collection[str]],
        look: Callable[[], Mapping[str, Mapping[str, int]]],
        ended: Callable[[], Mapping[str, str]],
    ) -> None:
        """`role`: of this process; `ended()`: removed space → id of the removal of which it has nothing left."""
        self._role = role
        self._limited = limited
        self._look = look
        self._ended = ended

    async def run(self, connection: ControlConnection) -> None:
        """Report over this connection until it is lost; nothing is asked of the service, which may be older, while no
        space has limits and none has ended. Raises LinkClosed, ConnectionLost."""
        while not self._limited() and not self._ended():
            await asyncio.sleep(INTERVAL)
        sender = connection.sender("usage")
        await sender.opened()
        last, stated, number = dict[str, int](), dict[str, str](), 0
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
            ended = dict(self._ended())
            if uses or removed or ended != stated:
                number += 1
                report = UsageReport(
                    number=number, seen=0, uses=uses, removed=removed, role=self._role, ended=ended or UNSET
                )
                await deliver(sender, "change", report)
                stated = ended
            last = now
            await asyncio.sleep(INTERVAL)
