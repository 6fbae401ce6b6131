"""Loading of configuration from files or ConfigMaps: checked in a thread, and saved before it is published."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from enmasse.model.configuration import Applied, AppliedState
from enmasse.process import runner
from services.configserv.drivers import Contents


class Loading:
    """Queue of contents, each of which becomes the configuration in force; of several that wait, only the newest.

    `compute`, `save` and `take` are those of the service. `compute` is called in a thread.
    """

    def __init__(
        self,
        compute: Callable[[Contents], Applied],
        save: Callable[[AppliedState], Awaitable[None]],
        take: Callable[[Applied], None],
    ) -> None:
        self._compute = compute
        self._save = save
        self._take = take
        self._newest: Contents | None = None
        self._task: asyncio.Task[None] | None = None

    def configure(self, contents: Contents) -> None:
        """Take the newest contents."""
        self._newest = contents
        if self._task is None:
            self._task = runner.spawn(self._work(), "loading")

    async def settled(self) -> None:
        """Wait until the configuration that was given last applies."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def close(self) -> None:
        """Stop; contents that wait are not taken."""
        if self._task is not None:
            self._task.cancel()

    async def _work(self) -> None:
        try:
            while (contents := self._newest) is not None:
                self._newest = None
                applied = await asyncio.to_thread(self._compute, contents)
                await self._save(applied.state)
                self._take(applied)
        finally:
            self._task = None
