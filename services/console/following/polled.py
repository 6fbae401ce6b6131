"""Rows of a resource whose owner is asked for all of them: when they are wanted, and again while they are watched."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from enmasse.process import runner
from services.console.errors import RequestError
from services.console.following.rows import Rows, Watcher

R = TypeVar("R", bound=msgspec.Struct)

FRESH = 1.0
"""Seconds for which an answer is used again."""
EVERY = 3.0
"""Seconds between two questions while there are watchers."""


class Polled(Rows[R]):
    """Rows by key, of which `ask` returns all, or raises RequestError."""

    def __init__(self, ask: Callable[[], Awaitable[Mapping[str, R]]]) -> None:
        super().__init__(lambda: self._known, lambda key: self._known.get(key))
        self._known: Mapping[str, R] = {}
        self._ask = ask
        self._at = float("-inf")
        self._asking: asyncio.Task[None] | None = None
        self._watched = 0
        self._polling: asyncio.Task[None] | None = None

    async def fresh(self) -> None:
        """Ask the owner, unless it was asked just now. Requests at the same time share the answer. Raises
        RequestError."""
        if time.monotonic() - self._at < FRESH:
            return
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._refresh())
            self._asking.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(self._asking)

    async def renew(self) -> None:
        """Ask the owner in any case, because something was changed. Raises RequestError."""
        await self._refresh()

    async def _refresh(self) -> None:
        found = await self._ask()
        before, self._known = self._known, found
        self._at = time.monotonic()
        changed = {key for key in before.keys() | found.keys() if before.get(key) != found.get(key)}
        if changed:
            self.changed(changed, other_keys=before.keys() != found.keys())

    @contextmanager
    def watched(self, watcher: Watcher | None = None) -> Iterator[Watcher]:
        """Yield a watcher, by default a new one; the owner is asked again and again until the end of the last one's
        block."""
        self._watched += 1
        if self._polling is None:
            self._polling = runner.spawn(self._poll(), "poll")
        try:
            with super().watched(watcher) as found:
                yield found
        finally:
            self._watched -= 1
            if not self._watched:
                self._polling.cancel()
                self._polling = None

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            with contextlib.suppress(RequestError):
                await self.fresh()
