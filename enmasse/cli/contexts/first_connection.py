"""First connection of a command: it waits while the suite on this machine restarts a router or gateway."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from enmasse.cli.contexts.http import NotRunning, suite_info
from enmasse.network.backoff import LOOK, Backoff

T = TypeVar("T")

RESTART_SECONDS = 5.0
"""Longest time that a command waits for a port of a running suite; a router that died is back within half a second."""


class NotListening(ConnectionRefusedError):
    """The suite runs, but nothing listened on the port for RESTART_SECONDS."""


async def opened(open: Callable[[], Awaitable[T]], port: int, offset: int | None) -> T:
    """Return the result of `open`. If it is refused at a port of the running suite, call it again for RESTART_SECONDS.

    `offset` selects the suite; None is a server that the user named, to which there is one attempt. Raises NotListening
    if the port stays closed while the suite runs, and otherwise what `open` raises.
    """
    deadline, backoff = time.monotonic() + RESTART_SECONDS, Backoff(LOOK)
    while True:
        try:
            return await open()
        except ConnectionRefusedError as error:
            if offset is None or not await asyncio.to_thread(_has_port, port, offset):
                raise
            delay = backoff.wait()
            if time.monotonic() + delay > deadline:
                raise NotListening(error.errno, error.strerror) from None
        await asyncio.sleep(delay)


def _has_port(port: int, offset: int) -> bool:
    """Return True if the suite runs and `port` is one of its public ports."""
    try:
        return port in suite_info(offset).get("ports", {}).values()
    except NotRunning:
        return False
