"""Passwords that the authentication service checks: all of this gateway's over one connection, which is opened for the
first of them, and again for the first one after it was lost (docs/contracts.md, "authserv": `logins`)."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

from enmasse.aio.transport import Hub, dial
from enmasse.amqp.codec.errors import CONNECTION_FORCED, DECODE_ERROR, AmqpError
from enmasse.amqp.codec.performatives import Source, Target
from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from enmasse.amqp.limits import Limits
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.sasl.layer import SaslClient
from enmasse.identity.processes.credentials import AnyCredential
from enmasse.identity.processes.scram import of_process
from enmasse.identity.proofs.login_requests import ADDRESS, MOST, LoginAnswer, LoginRequest, decoded_answer, encoded

IDLE: Final = 16.0
"""Seconds without a frame after which the service is taken for gone."""
OPENING: Final = 10.0
_LIMITS: Final = Limits(max_sessions=1, max_links=2)


class PasswordLink:
    """`container`: the name of this gateway, which proves itself by `credential`."""

    def __init__(self, hub: Hub, host: str, port: int, container: str, credential: AnyCredential) -> None:
        self._hub = hub
        self._host = host
        self._port = port
        self._container = container
        self._credential = credential
        self._service: _Service | None = None
        self._opening: asyncio.Task[_Service] | None = None

    async def ask(self, user: str, password: str, client: str, space: str | None = None) -> LoginAnswer:
        """Return the answer for a client at this address, which has chosen this address space. Raises AmqpError,
        OSError, TimeoutError."""
        service = self._service
        if service is None or service.error is not None:
            service = await self._opened()
        return await service.ask(user, password, client, space)

    async def _opened(self) -> _Service:
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open())
            self._opening.add_done_callback(self._has_opened)
        return await asyncio.shield(self._opening)

    def _has_opened(self, opening: asyncio.Task[_Service]) -> None:
        self._opening = None
        if not opening.cancelled() and opening.exception() is None:
            self._service = opening.result()

    async def _open(self) -> _Service:
        service, own = _Service(), self._credential
        connection = Connection(
            service,
            container_id=self._container,
            is_client=True,
            hostname=self._host,
            sasl=SaslClient([of_process(own)], self._host),
            idle_timeout_ms=int(IDLE * 1000),
            limits=_LIMITS,
        )
        try:
            async with asyncio.timeout(OPENING):
                await dial(self._hub, self._host, self._port, connection, own.tls())
                await service.ready
        except BaseException:
            connection.close()
            raise
        return service


class _Service(Handler):
    """One connection."""

    def __init__(self) -> None:
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.error: AmqpError | None = None
        """Why the connection has ended."""
        self._requests: Sender | None = None
        self._answers: Receiver | None = None
        self._number = 0
        self._asked: dict[int, asyncio.Future[LoginAnswer]] = {}
        self._waiting: deque[bytes] = deque()
        """Requests without credit."""

    async def ask(self, user: str, password: str, client: str, space: str | None) -> LoginAnswer:
        """Return the answer. Raises AmqpError if the connection ends before it has come."""
        if self.error is not None:
            raise self.error
        self._number = number = self._number + 1
        answer: asyncio.Future[LoginAnswer] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        self._waiting.append(encoded(LoginRequest(number, user, password, client, spaces=True, space=space)))
        self._pump()
        try:
            return await answer
        finally:
            self._asked.pop(number, None)

    def _pump(self) -> None:
        requests, waiting = self._requests, self._waiting
        while waiting and requests is not None and requests.credit > 0:
            requests.send(waiting.popleft(), settled=True)

    def on_open(self, c: Connection) -> None:
        session = c.begin()
        self._answers = session.attach_receiver(None, Source(address=ADDRESS), Target(address=ADDRESS))
        self._answers.credit_window = 2 * MOST
        self._requests = session.attach_sender(None, Source(address=ADDRESS), Target(address=ADDRESS))

    def on_attached(self, link: Link) -> None:
        both = (self._requests, self._answers)
        if all(each is not None and each.attached for each in both) and not self.ready.done():
            self.ready.set_result(None)

    def on_flow(self, link: Sender) -> None:
        if link.drain:
            link.drained()
        self._pump()

    def on_delivery(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        if not settled:
            link.session.settle(delivery_id)
        try:
            found = decoded_answer(payload)
        except ValueError as error:
            raise AmqpError(DECODE_ERROR, str(error)) from None
        answer = self._asked.get(found.id)
        if answer is not None and not answer.done():
            answer.set_result(found)

    def on_detach(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        self._lost(error)
        link.session.connection.close()

    def on_close(self, c: Connection, error: AmqpError | None) -> None:
        self._lost(error)

    def _lost(self, error: AmqpError | None) -> None:
        if self.error is not None:
            return
        self.error = error or AmqpError(CONNECTION_FORCED, "the connection is closed")
        self._waiting.clear()
        waiting: list[asyncio.Future[Any]] = [self.ready, *self._asked.values()]
        for each in waiting:
            if not each.done():
                each.set_exception(self.error)
                each.exception()  # marks it as retrieved: its caller may have gone
