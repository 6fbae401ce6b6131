"""Work for one name runs one after the other, for different names side by side."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class SerialWork:
    """`async with turns.of(name)`: in the order in which they were asked for."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    def busy(self, name: str) -> bool:
        """Return whether something is being done for it."""
        return name in self._locks

    @contextlib.asynccontextmanager
    async def of(self, name: str) -> AsyncIterator[None]:
        """Wait for the turn of this name; it ends with the block, also by an error."""
        lock, users = self._locks.get(name, (None, 0))
        lock = lock or asyncio.Lock()
        self._locks[name] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            users = self._locks[name][1] - 1
            if users:
                self._locks[name] = lock, users
            else:
                del self._locks[name]
