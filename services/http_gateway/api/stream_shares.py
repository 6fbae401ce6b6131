"""StreamShare: what the streams of events of one user may keep in memory together, and how they take turns."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

KEPT: Final = 16 << 20
"""Bytes of messages that wait for the streams of a user."""
WRITING: Final = 8 << 20
"""Bytes of messages that are being written to clients of a user which have not read them; a larger one goes alone."""


class StreamShare:
    """`streams`: how many there are; `bytes`: of messages that wait for them."""

    def __init__(self) -> None:
        self.streams = 0
        self.bytes = 0
        self._writing = 0
        self._turn = asyncio.Lock()
        self._less = asyncio.Event()

    @property
    def full(self) -> bool:
        """Return whether as much waits as may wait."""
        return self.bytes > KEPT

    def window(self, most: int) -> int:
        """Return how many bytes may be on their way to one of the streams, and wait for it: `most`, or less."""
        return min(most, KEPT // max(1, self.streams))

    @contextlib.asynccontextmanager
    async def turn(self, size: int) -> AsyncIterator[None]:
        """Write messages of this size in the block. One stream of a user begins in each turn of the loop: 1,000 of
        them delay others no more than a few do. They wait for each other while clients do not read."""
        async with self._turn:
            if self.streams > 1:
                await asyncio.sleep(0)
            while self._writing and self._writing + size > WRITING:
                self._less.clear()
                await self._less.wait()
            self._writing += size
        try:
            yield
        finally:
            self._writing -= size
            self._less.set()
