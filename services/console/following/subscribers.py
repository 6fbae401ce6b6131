"""Client of the subscription service: its node `$mqtt/control` (docs/contracts.md), through the router."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
import proton

from enmasse.control import ControlConnection, ControlError, Delivery, Outcome
from enmasse.control.errors import NOT_FOUND
from enmasse.control.jsonmessage import body as body_of
from enmasse.model.sessions import CONTROL
from services.console.errors import RequestError, unknown

SECONDS = 20.0
"""For an answer: the service may ask brokers for it."""
AWAY = "the subscription service does not answer; try again"
T = TypeVar("T")


class Subscribers:
    """Requests over the connection that `router()` returns; it raises RequestError without one."""

    def __init__(self, router: Callable[[], Awaitable[ControlConnection]]) -> None:
        self._router = router

    async def ask(self, subject: str, body: Any, reply: type[T], what: str = "") -> T:
        """Return the reply to a request. `what`: names what it is about, for the error if that does not exist. Raises
        RequestError."""
        connection = await self._router()
        try:
            async with asyncio.timeout(SECONDS):
                outcome, content = await _exchange(connection, subject, body)
        except (ControlError, TimeoutError):
            raise RequestError("console.service.unavailable", AWAY) from None
        if content is not None:
            return msgspec.json.decode(content, type=reply)
        if outcome.condition == NOT_FOUND:
            raise unknown(what)
        if not outcome.condition:
            raise RequestError("console.service.unavailable", AWAY)
        raise RequestError("console.service.failed", f"the subscription service refuses: {outcome.description}")


async def _exchange(connection: ControlConnection, subject: str, body: Any) -> tuple[Outcome, bytes | None]:
    """Return the outcome of a request, and the reply if it was accepted."""
    loop = asyncio.get_running_loop()
    settled: asyncio.Future[Outcome] = loop.create_future()
    replied: asyncio.Future[bytes] = loop.create_future()

    def received(delivery: Delivery) -> None:
        delivery.accept()
        if not replied.done():
            replied.set_result(bytes(body_of(delivery)))

    def done(outcome: Outcome) -> None:
        if not settled.done():
            settled.set_result(outcome)

    replies = connection.receiver(None, dynamic=True, window=1)
    replies.on_message = received
    requests = connection.sender(CONTROL)
    try:
        await replies.opened()
        await requests.opened()
        await requests.has_credit()
        content = None if body is None else msgspec.json.encode(body).decode()
        message = proton.Message(body=content)
        message.subject, message.reply_to, message.correlation_id = subject, replies.remote_source, subject
        requests.send(message, done)
        outcome = await settled
        return outcome, await replied if outcome.accepted else None
    finally:
        requests.close()
        replies.close()
