"""State of an address space, with the address to which replies to its requests are sent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.connection import Connection
from enmasse.bridge.lanes import Counters
from enmasse.bridge.space_lanes import SpaceLanes
from services.http_gateway.api.http_problems import LATER, Answered
from services.http_gateway.api.reply_box import ReplyBox

ADDRESS_SECONDS: Final = 10.0
"""Seconds for the router to give an address for replies."""


class HttpSpace(SpaceLanes):
    """As bridge.GatewaySpace. `also`: called with each new connection."""

    def __init__(self, space: str, counters: Counters, also: Callable[[Connection], None] | None = None) -> None:
        super().__init__(space, counters)
        self.replies = ReplyBox()
        self._also = also

    def up(self, connection: Connection) -> None:
        """As GatewaySpace."""
        super().up(connection)
        if self._also is not None:
            self._also(connection)

    async def reply_address(self) -> str:
        """Return the address for replies. Raises Answered."""
        session, box = self.receiving, self.replies
        if session is None or session.ended:
            raise Answered(503, "the router is not reached", retry=LATER)
        try:
            box.attach(session)
        except AmqpError as error:
            raise Answered(503, error.description, retry=LATER) from None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ADDRESS_SECONDS):
                await box.changed.wait()
        if not box.address:
            raise Answered(503, "the router gave no address for replies", retry=LATER)
        return box.address
