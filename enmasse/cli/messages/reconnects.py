"""Reconnects of `receive`, `subscribe`, `send` and `publish`: they continue after a loss until --timeout has passed
without a message."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from enmasse.cli.common import report
from enmasse.network.backoff import AGAIN, Backoff


class Unprinted(Exception):
    """Standard output cannot be written; the cause has the reason."""


class Reconnects:
    """Repeated connections to `peer`. `timeout`: seconds without a message after which the command ends."""

    def __init__(self, peer: object, timeout: float | None) -> None:
        self._peer = peer
        self._timeout = timeout
        self._receiving = False
        self._deadline: float | None = None
        self.received_before = False
        """The command was receiving before the last loss."""

    def receiving(self) -> None:
        """Note that messages can arrive from now on. The first call starts the timeout."""
        self._receiving = True
        if self._deadline is None:
            self.extend()

    def extend(self) -> None:
        """Restart the timeout after a message."""
        if self._timeout is not None:
            self._deadline = time.monotonic() + self._timeout

    def left(self) -> float | None:
        """Return the seconds until the timeout, None without one."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    async def run(
        self, once: Callable[[], Awaitable[int]], failures: tuple[type[Exception], ...], is_final: Callable[[Any], bool]
    ) -> int:
        """Return the result of `once`, which is called again after each of `failures`.

        Raises the failure if no connection could receive yet, if `is_final` says that another attempt cannot help, or
        if the timeout ends before the next attempt.
        """
        backoff = Backoff(AGAIN)
        while True:
            try:
                return await once()
            except failures as error:
                self.received_before = self.received_before or self._receiving
                if not self.received_before or is_final(error):
                    raise
                if self._receiving:
                    report(f"{self._peer}: {error}; connecting again")
                    backoff.reset()
                self._receiving = False
                delay = backoff.wait()
                if self._deadline is not None and time.monotonic() + delay >= self._deadline:
                    raise
            await asyncio.sleep(delay)
