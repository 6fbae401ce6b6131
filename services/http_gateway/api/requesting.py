"""Requests with a reply: `POST …/requests?wait=10`, answered by the first message at its reply address."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

from enmasse.amqp.codec.errors import AmqpError
from enmasse.bridge.message_outcomes import MessageOutcome
from services.http_gateway.api.header_mapping import IDEMPOTENCY, to_amqp, to_http
from services.http_gateway.api.http_clients import HttpClient
from services.http_gateway.api.http_problems import SOON, Answered, of_outcome
from services.http_gateway.api.posting import Posting, Result
from services.http_gateway.api.receiving import HEADERS, number_of
from services.http_gateway.api.reply_box import ReplyLost
from services.http_gateway.api.request_paths import Resource
from services.http_gateway.wire.http_exchange import ClientGone, HttpExchange

WAIT: Final = 10
LONGEST: Final = 300
"""Seconds for a reply, unless the client asks for others, and at most."""
OF_USER: Final = 100
"""Requests of a user without a reply."""
LOOK: Final = 1.0
"""Seconds between two looks whether the client is still there."""
_OWN: Final = ("enmasse-message-id", "enmasse-correlation-id", "enmasse-reply-to")


class Requesting:
    """Requests of all clients that wait for a reply."""

    def __init__(self, posting: Posting) -> None:
        self.answered: Counter[str] = Counter()
        """`replied`, `late` (no reply in time), `lost`, `refused` → requests."""
        self.of_user: Counter[str] = Counter()
        self._posting = posting

    async def request(self, exchange: HttpExchange, client: HttpClient, resource: Resource) -> None:
        """Answer `POST …/requests`. Raises Answered, ClientGone."""
        wait = number_of(resource.query, "wait", WAIT, LONGEST)
        headers = dict(exchange.head.headers)
        if not wait:
            raise Answered(400, "wait is at least 1")
        if IDEMPOTENCY in headers:
            raise Answered(400, f"{IDEMPOTENCY}: a request that is not stored twice has no second reply: leave it out")
        route, lane = self._posting.way(client, resource.address)
        user = client.login.principal.full_name
        if self.of_user[user] >= OF_USER:
            raise Answered(429, f"{OF_USER} requests of {user} wait for their replies", retry=SOON)
        stated = {name: headers.pop(name) for name in _OWN if name in headers}
        if "enmasse-reply-to" in stated:
            raise Answered(400, "enmasse-reply-to: the reply is the answer here; else use …/messages")
        headers.setdefault("enmasse-ttl", str(1000 * wait))
        self.of_user[user] += 1
        try:
            async with self._posting.taken(exchange, client) as body:
                box = client.lanes.replies
                address = await client.lanes.reply_address()
                correlation, reply = box.expect()
                try:
                    self._posting.admit(client, len(body))
                    named = {"message_id": correlation, "correlation_id": correlation, "reply_to": address}
                    outcome = self._posting.outcome(client, lane, to_amqp(headers, body, route.to, "", named))
                    payload = await self._reply(exchange, client, outcome, reply, wait)
                finally:
                    box.waiting.pop(correlation, None)
            await self._answer(exchange, payload, stated.get("enmasse-correlation-id"))
        finally:
            self.of_user[user] -= 1
            if not self.of_user[user]:
                del self.of_user[user]

    async def _reply(
        self,
        exchange: HttpExchange,
        client: HttpClient,
        outcome: asyncio.Future[Result],
        reply: asyncio.Future[bytes],
        wait: float,
    ) -> bytes:
        """Return the reply. A request that is not accepted has none. Raises Answered, ClientGone."""
        now = asyncio.get_running_loop().time
        end = now() + wait
        waiting: set[asyncio.Future[Any]] = {outcome, reply}
        while not reply.done() and now() < end:
            await asyncio.wait(waiting, timeout=min(LOOK, end - now()), return_when=asyncio.FIRST_COMPLETED)
            if exchange.leaving:
                raise ClientGone
            if outcome in waiting and outcome.done() and not reply.done():
                waiting.discard(outcome)
                state, condition, text = outcome.result()
                if state is MessageOutcome.UNHEARD:
                    state, text = MessageOutcome.RELEASED, "no receiver is there"
                if state is not MessageOutcome.ACCEPTED:
                    self.answered["refused"] += 1
                    raise of_outcome(state, condition, client.lanes.topics.relative(text))
        if not reply.done():
            self.answered["late"] += 1
            raise Answered(504, f"no reply came within {wait:g} s", outcome="unknown")
        try:
            payload = reply.result()
        except ReplyLost:
            self.answered["lost"] += 1
            raise Answered(504, "the connection for replies was lost", outcome="unknown") from None
        self.answered["replied"] += 1
        return payload

    async def _answer(self, exchange: HttpExchange, payload: bytes, correlation: str | None) -> None:
        try:
            headers, body = to_http(payload)
        except AmqpError as error:
            raise Answered(422, f"the reply is no message: {error.description}", condition=error.condition) from None
        headers = [each for each in headers if each[0] not in ("enmasse-correlation-id", "enmasse-to")]
        if correlation is not None:
            headers.append(("enmasse-correlation-id", correlation))
        if sum(len(name) + len(value) for name, value in headers) > HEADERS:
            raise Answered(422, "the properties of the reply are too large for headers")
        headers.append(("content-security-policy", "sandbox"))
        await exchange.answer(200, headers, body)
