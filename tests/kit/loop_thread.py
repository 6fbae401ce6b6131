"""A loop in a thread of the test's process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from tests.kit.waiting import DEADLINE

T = TypeVar("T")


class LoopThread:
    """Runs until `stop`, which cancels what is still under way."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.loop = loop or asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.loop.close()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run this in the loop; return its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(DEADLINE)

    @property
    def runs(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(DEADLINE)
