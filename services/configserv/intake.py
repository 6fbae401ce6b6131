"""What comes from ConfigMaps is judged in a thread and saved before it is published."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from enmasse import process
from enmasse.model.configuration import Applied
from services.configserv.drivers import Contents
from services.configserv.state_map import StateMap


class Intake:
    """Contents in, what applies out: one after the other, of several that wait the newest.

    `compute` and `take` are those of the service.
    """

    def __init__(
        self, store: StateMap, compute: Callable[[Contents], Applied], take: Callable[[Applied], None]
    ) -> None:
        self._store = store
        self._compute = compute
        self._take = take
        self._newest: Contents | None = None
        self._task: asyncio.Task[None] | None = None

    def configure(self, contents: Contents) -> None:
        """The configuration as it is now."""
        self._newest = contents
        if self._task is None:
            self._task = process.spawn(self._work(), "intake")

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _work(self) -> None:
        try:
            while (contents := self._newest) is not None:
                self._newest = None
                applied = await asyncio.to_thread(self._compute, contents)
                if applied.state.complete:
                    await self._store.save(applied.state)
                self._take(applied)
        finally:
            self._task = None
