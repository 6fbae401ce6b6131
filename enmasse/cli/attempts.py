"""What `receive` and `subscribe` share: they go on after a loss, until no message has come for as long as they wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from enmasse.cli.common import report

FIRST_DELAY, LAST_DELAY = 0.1, 5.0
"""Seconds before it connects again after a loss; twice as long each time it fails."""


class Unprinted(Exception):
    """Standard output cannot be written; the cause has the reason."""


class Attempts:
    """`peer`: what it connects to, for people. `timeout`: seconds without a message after which the command ends."""

    def __init__(self, peer: object, timeout: float | None) -> None:
        self._peer = peer
        self._timeout = timeout
        self._receiving = False
        self._deadline: float | None = None
        self.received_before = False
        """Messages could come before the last loss."""

    def receiving(self) -> None:
        """From now on messages can come. With the first call the timeout begins."""
        self._receiving = True
        if self._deadline is None:
            self.extend()

    def extend(self) -> None:
        """A message has come: the timeout begins anew."""
        if self._timeout is not None:
            self._deadline = time.monotonic() + self._timeout

    def left(self) -> float | None:
        """Seconds until the timeout ends; None: there is none."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    async def run(
        self, once: Callable[[], Awaitable[int]], failures: tuple[type[Exception], ...], is_final: Callable[[Any], bool]
    ) -> int:
        """What `once` returns. It is called again after each of `failures`. Such a one is raised if messages could
        never come, if to connect again would not help (`is_final`), or if the timeout ends before that."""
        delay = FIRST_DELAY
        while True:
            try:
                return await once()
            except failures as error:
                self.received_before = self.received_before or self._receiving
                if not self.received_before or is_final(error):
                    raise
                if self._receiving:
                    report(f"{self._peer}: {error}; connecting again")
                    delay = FIRST_DELAY
                self._receiving = False
                if self._deadline is not None and time.monotonic() + delay >= self._deadline:
                    raise
            await asyncio.sleep(delay)
            delay = min(2 * delay, LAST_DELAY)
