"""A connection that keeps itself connected: the one loop for it, whichever AMQP library the connection is of.

Links are opened in `session`, which is called with each new connection: so all that was there before is there again.
Routers' connectors, the control plane's conversations and Spark's receiver run in it. What a gateway will need besides
(several connections that share its links, feeds from configserv over enmasse.amqp) stands on top, as such a session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import NoReturn, TypeVar

from enmasse.backoff import ReconnectBackoff

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
    while True:
        opened_at: float | None = None
        try:
            async with connect() as connection:
                opened_at = now()
                await session(connection)
        except failures as error:
            await failed(error)
        if opened_at is not None:
            backoff.lost(now(), opened_at)
        await asyncio.sleep(backoff.wait_from(now()))
