"""Outcomes of messages that another gateway has locked: asked of that one at its node `$http/NAME`, and served here.

A gateway states the user whose login and permission it has checked; that the lock is this user's is checked where the
lock is. Routers let HTTP gateways alone send and receive there (enmasse/identity/processes/roles.py).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

import msgspec

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, RELEASED, Source, Target
from enmasse.amqp.connection import Connection
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.messages.message import Message
from enmasse.amqp.session import Session
from enmasse.bridge.uplink import LinkUser
from enmasse.model.names import DEFAULT_SPACE, HTTP_GATEWAYS
from services.http_gateway.api.http_clients import HttpClients
from services.http_gateway.api.http_problems import LATER, SOON, Answered
from services.http_gateway.api.lock_outcomes import ROUND_TRIP, OutcomeRequest, gone, settle
from services.http_gateway.api.locked_deliveries import Locks
from services.http_gateway.api.reply_box import ReplyLost

OF_USER: Final = 100
"""Requests of a user that wait for other gateways."""
WINDOW: Final = 256
"""Requests of other gateways that are served at a time; further ones wait in their routers."""
PATIENCE: Final = ROUND_TRIP + 5.0
"""Seconds for another gateway to answer."""
TRIES: Final = 4
AGAIN: Final = 0.5
"""Seconds between two tries: a gateway that is not there may be connecting again."""


class OutcomeAnswer(msgspec.Struct, frozen=True):
    """Answer of the gateway that has the lock. `seconds`: of a renewed lock; `detail`, `outcome`: of a problem."""

    status: int
    seconds: float = 0.0
    detail: str = ""
    outcome: str = ""


class LocksElsewhere(LinkUser):
    """`locks`: those of this gateway."""

    def __init__(self, clients: HttpClients, locks: Locks) -> None:
        self.answered: Counter[int] = Counter()
        """Status → requests that other gateways were asked for."""
        self._clients = clients
        self._locks = locks
        self._of_user: Counter[str] = Counter()
        self._session: Session | None = None
        self._sender: Sender | None = None
        self._inbox: Receiver | None = None
        self._room = asyncio.Event()

    # links

    def up(self, connection: Connection) -> None:
        """There is a new connection to the router."""
        self._session = connection.begin()
        self._sender = self._session.attach_sender(None, Source(), Target())
        self._sender.context = self
        self._inbox = None
        self._attach()

    def _attach(self) -> None:
        session = self._session
        if session is None or session.ended or self._inbox is not None:
            return
        node = f"{HTTP_GATEWAYS}/{self._locks.name}"
        self._inbox = link = session.attach_receiver(None, Source(address=node), Target())
        link.context = self
        link.on_delivery = self._on_delivery
        link.credit_window = WINDOW

    def on_flow(self, link: Sender) -> None:
        """As LinkUser."""
        self._room.set()

    def on_detach(self, link: Link, error: AmqpError | None) -> None:
        """As LinkUser. The node may not be configured yet."""
        if link is self._sender:
            self._sender = None
            self._room.set()
        elif link is self._inbox:
            self._inbox = None
            asyncio.get_running_loop().call_later(AGAIN, self._attach)

    def on_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
        """As LinkUser."""
        for taken in tokens:
            if not taken.done():
                taken.set_result(state)
        if not settled:
            link.settle(tokens)

    async def _send(self, payload: bytes, taken: asyncio.Future[Any] | None) -> None:
        """Send a message; `taken` is done with its outcome. Raises Answered."""
        while True:
            link = self._sender
            if link is None:
                raise Answered(503, "the router is not reached", retry=LATER)
            if link.credit > 0:
                link.send(payload, taken, settled=taken is None)
                return
            self._room.clear()
            await self._room.wait()

    # requests to others

    async def ask(self, asked: OutcomeRequest) -> float:
        """Ask the gateway that a token names; return the seconds of a renewed lock. Raises Answered."""
        gateway, user = asked.token.rpartition(".")[0], asked.user
        if self._of_user[user] >= OF_USER:
            text = f"{OF_USER} requests of {user} wait for other gateways, which have the locks"
            raise Answered(429, text, retry=SOON)
        self._of_user[user] += 1
        status = 204
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._ask(gateway, asked)
        except (TimeoutError, ReplyLost):
            status = 504
            text = "the gateway that has the lock did not answer in time, or the connection to it was lost"
            raise Answered(504, text, outcome="unknown") from None
        except Answered as problem:
            status = problem.status
            raise
        finally:
            self.answered[status] += 1
            self._of_user[user] -= 1
            if not self._of_user[user]:
                del self._of_user[user]

    async def _ask(self, gateway: str, asked: OutcomeRequest) -> float:
        lanes = self._clients.bridge.spaces[DEFAULT_SPACE]
        address = await lanes.reply_address()
        correlation, reply = lanes.replies.expect()
        body = msgspec.json.encode(asked)
        to = f"{HTTP_GATEWAYS}/{gateway}"
        request = Message(body, to=to, reply_to=address, correlation_id=correlation).encode()
        try:
            for _ in range(TRIES):
                if await self._is_taken(request, reply):
                    break
                await asyncio.wait((reply,), timeout=AGAIN)
            else:
                raise gone()
            answer = msgspec.json.decode(bytes(Message.decode(await reply).body), type=OutcomeAnswer)
        finally:
            lanes.replies.waiting.pop(correlation, None)
            reply.cancel()
        if answer.status != 204:
            raise Answered(answer.status, answer.detail, outcome=answer.outcome)
        return answer.seconds

    async def _is_taken(self, request: bytes, reply: asyncio.Future[bytes]) -> bool:
        """Send a request; return whether the gateway has it, or has answered it."""
        taken = asyncio.get_running_loop().create_future()
        await self._send(request, taken)
        await asyncio.wait((taken, reply), return_when=asyncio.FIRST_COMPLETED)
        return reply.done() or taken.result() is ACCEPTED

    # requests of others

    def _on_delivery(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        self._clients.bridge.spawn(self._serve(link, delivery_id, settled, payload))

    async def _serve(self, link: Receiver, delivery_id: int, settled: bool, payload: bytes) -> None:
        """Answer a request. It is settled afterwards, so the window bounds how many there are."""
        state: Any = ACCEPTED
        try:
            message = Message.decode(payload)
            asked = msgspec.json.decode(message.body, type=OutcomeRequest)
            answer = await self._answer(asked)
            reply = Message(msgspec.json.encode(answer), to=message.reply_to, correlation_id=message.correlation_id)
            async with asyncio.timeout(PATIENCE):
                await self._send(reply.encode(), None)
        except (AmqpError, msgspec.DecodeError, TypeError):
            state = RELEASED
        except (Answered, TimeoutError):
            pass  # the gateway that asks learns it from the loss of its connection, or answers after PATIENCE
        if not settled and not link.session.ended:
            link.session.settle(delivery_id, state)

    async def _answer(self, asked: OutcomeRequest) -> OutcomeAnswer:
        try:
            return OutcomeAnswer(204, await settle(self._locks, asked))
        except Answered as problem:
            return OutcomeAnswer(problem.status, detail=problem.detail, outcome=problem.outcome)
