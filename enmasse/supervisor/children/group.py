"""Children that are started and ended while the suite runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from enmasse.supervisor.children.child import Child

STOP_WITHIN = 12.0
"""Seconds from the order to end to SIGKILL; one that hands its clients on first has those more that this may take."""
K = TypeVar("K", str, int)


class ChildGroup(Generic[K]):
    """Running children by name or number, and those that are being ended."""

    def __init__(self) -> None:
        self._children: dict[K, Child] = {}
        self._leaving: dict[K, tuple[Child, asyncio.Task[None]]] = {}

    @property
    def children(self) -> list[Child]:
        """Desired children, in order of their keys."""
        return [self._children[key] for key in sorted(self._children)]

    @property
    def leaving(self) -> list[Child]:
        """Children that are being ended."""
        return [child for child, _ in self._leaving.values()]

    async def all_left(self) -> None:
        """Wait for the children that are being ended, which hurry: the suite ends."""
        for child in self.leaving:
            if child.leaving:
                child.hurry()
        await asyncio.gather(*(task for _, task in self._leaving.values()), return_exceptions=True)

    def _leave(self, key: K, ended: Callable[[Child], None]) -> None:
        """End a child; `ended(child)` is called afterwards."""
        child = self._children.pop(key)
        child.leaving = child.spec.leave_within > 0

        async def leave() -> None:
            await (child.leave(STOP_WITHIN) if child.leaving else child.stop(STOP_WITHIN))
            del self._leaving[key]
            ended(child)

        self._leaving[key] = child, asyncio.create_task(leave(), name=f"leave {child.spec.name}")
