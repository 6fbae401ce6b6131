"""Requests and answers over two links with one address, JSON with an `id`: `logins` and `configure`."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import msgspec

from enmasse.control import ControlConnection
from enmasse.control.errors import ConnectionLost, LinkClosed
from enmasse.control.jsonmessage import body, encode
from enmasse.control.link import Delivery


class _Id(msgspec.Struct):
    id: int


class Requester:
    """The links to `address` of a connection."""

    def __init__(self, connection: ControlConnection, address: str) -> None:
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._answers = connection.receiver(address, window=100)
        self._answers.on_message = self._answered
        self._answers.on_closed = self._lost
        self._requests = connection.sender(address)
        self._requests.on_closed = self._lost
        self.error: LinkClosed | ConnectionLost | None = None

    async def ask(self, request: dict[str, Any], seconds: float) -> bytes:
        """Send a request, which gets an id, and return the answer. Raises ControlError, TimeoutError."""
        number = next(self._numbers)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            async with asyncio.timeout(seconds):
                await self._answers.opened()
                await self._requests.opened()
                await self._requests.has_credit()
                if self.error is not None:
                    raise self.error
                self._requests.send(encode(None, msgspec.json.encode({"id": number, **request})), settled=True)
                return await answer
        finally:
            self._waiting.pop(number, None)

    def _answered(self, delivery: Delivery) -> None:
        delivery.accept()
        content = bytes(body(delivery))
        waiting = self._waiting.get(msgspec.json.decode(content, type=_Id).id)
        if waiting is not None and not waiting.done():
            waiting.set_result(content)

    def _lost(self, error: LinkClosed) -> None:
        self.error = error
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)
