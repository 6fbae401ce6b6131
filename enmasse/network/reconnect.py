"""Loop that keeps a connection open, for connections of any AMQP library.

`session` is called with each new connection and opens the links again. Routers' connectors, the control plane's
conversations, the gateways' feeds and Spark's receiver run in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import NoReturn, TypeVar

from enmasse.network.backoff import ReconnectBackoff

C = TypeVar("C")


async def keep_connected(
    connect: Callable[[], AbstractAsyncContextManager[C]],
    session: Callable[[C], Awaitable[None]],
    failed: Callable[[Exception], Awaitable[None]],
    *,
    failures: tuple[type[Exception], ...],
    backoff: ReconnectBackoff,
    now: Callable[[], float],
) -> NoReturn:
    """Connects, runs `session(connection)`, waits, and again, until cancelled.

    `connect()` is entered once the peer has opened, and left when the session has returned or raised. `failed` is
    called with what ended an attempt, or the session, if it is one of `failures`; anything else ends the loop, and so
    does what `failed` raises. `backoff` counts by the clock `now` (seconds).
    """
    own = asyncio.current_task()
    assert own is not None
    while True:
        opened_at: float | None = None
        try:
            async with connect() as connection:
                opened_at = now()
                await session(connection)
        except failures as error:
            if not own.cancelling():
                await failed(error)
        if own.cancelling():  # and what it unwound has ended with another error, or without any
            raise asyncio.CancelledError
        if opened_at is not None:
            backoff.lost(now(), opened_at)
        await asyncio.sleep(backoff.wait_from(now()))
