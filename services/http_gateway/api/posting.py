"""Messages from clients: `POST …/messages`, one or, as lines of JSON, many; each answered by its outcome."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import msgspec

from enmasse.amqp.messages.jsonform import NoMessage, from_json, json_place
from enmasse.bridge.client_rates import too_large
from enmasse.bridge.lanes import Lane
from enmasse.bridge.message_fields import DUPLICATE_ID
from enmasse.bridge.message_outcomes import OUTCOME_WITHIN, OVERDUE, MessageOutcome
from enmasse.bridge.message_routes import Route, unknown_address
from enmasse.identity import senders
from enmasse.model.names import is_temporary
from enmasse.network.deadline import Deadline
from services.http_gateway.api.header_mapping import IDEMPOTENCY, decoded, to_amqp
from services.http_gateway.api.http_clients import HttpClient, HttpClients
from services.http_gateway.api.http_problems import ACCEPTED, LATER, SOON, Answered, of_outcome
from services.http_gateway.api.request_paths import Resource
from services.http_gateway.wire.http_exchange import BodyTooLarge, BodyTooSlow, HttpExchange

Result = tuple[MessageOutcome, str, str]
BATCH: Final = "application/x-ndjson"
MOST_OF_BATCH: Final = 1000
"""Messages of one request."""
KEY: Final = 255
"""Characters of an Idempotency-Key."""
_PRESETTLED: Final = "respond-async"
_GIVEN: Final = frozenset(
    (
        "body", "subject", "id", "correlation_id", "reply_to", "content_type", "content_encoding", "ttl", "priority",
        "durable", "group_id", "group_sequence", "reply_to_group_id", "absolute_expiry_time", "creation_time",
        "properties", "types",
    )
)  # fmt: skip
"""Fields of a message in a batch: those that a client may state."""
_JSON: Final = ("content-type", "application/json")


class Posting:
    """`most`: bytes of a body; `memory`: of all bodies that are read or wait for their outcome."""

    def __init__(self, clients: HttpClients, most: int, memory: int) -> None:
        self.kept = 0
        self.answered: dict[int, int] = {}
        """Status → messages."""
        self._clients = clients
        self._most = most
        self._memory = memory

    async def post(self, exchange: HttpExchange, client: HttpClient, resource: Resource) -> None:
        """Answer `POST …/messages`. Raises Answered."""
        address, headers = resource.address, exchange.head.headers
        route, lane = self.way(client, address)
        batch = "batch" in resource.query
        if not batch and (reply_to := headers.get("enmasse-reply-to")):
            self._check_reply(client, decoded(reply_to))
        key = self._key(client, headers.get(IDEMPOTENCY))
        async with self.taken(exchange, client) as body:
            if batch:
                await self._post_batch(exchange, client, route, lane, body)
                return
            payload = to_amqp(headers, body, route.to, key if route.traits.stored else "")
            self.admit(client, len(body))
            presettled = _PRESETTLED in headers.get("prefer", "")
            if presettled:
                lane.send(client, None, 0, payload)
                self._note(202)
                await exchange.answer(202, (_JSON, ("preference-applied", _PRESETTLED)), b'{"outcome":"settled"}')
                return
            outcome, condition, text = await self.outcome(client, lane, payload)
        if outcome not in ACCEPTED:
            problem = of_outcome(outcome, condition, client.lanes.topics.relative(text))
            self._note(problem.status)
            raise problem
        self._note(201)
        await exchange.answer(201, (_JSON,), _accepted(outcome))

    def way(self, client: HttpClient, address: str) -> tuple[Route, Lane]:
        """Return route and lane of an address. Raises Answered if the client may not send there, or it is not there."""
        if not is_temporary(address) and not client.allowed("send", address):
            raise self._clients.denied(client, "send", address)
        way = client.lanes.publishing.way(address)
        if way is None:
            text = unknown_address(address, client.lanes.topics, "send", client.rights)
            client.not_taken(address, MessageOutcome.REJECTED, "amqp:not-found", text)
            raise Answered(404, text, condition="amqp:not-found")
        return way.route, way.lane

    @asynccontextmanager
    async def taken(self, exchange: HttpExchange, client: HttpClient) -> AsyncIterator[bytes]:
        """Read the body of a request, and keep room for it until its outcome is known. Raises Answered, ClientGone."""
        most = self._most_of(client)
        async with _Memory(self, exchange.head.length, most):
            await client.room()
            yield await self._body(exchange, client, most)

    def outcome(self, client: HttpClient, lane: Lane, payload: bytes) -> asyncio.Future[Result]:
        """Send a message and return its outcome, OVERDUE if none comes in time."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[Result] = loop.create_future()
        timer = Deadline(loop, loop.time() + OUTCOME_WITHIN, partial(client.sent, found, 1, *OVERDUE))
        found.add_done_callback(lambda _: timer.cancel())
        lane.send(client, found, 1, payload)
        return found

    def _check_reply(self, client: HttpClient, reply_to: str) -> None:
        if not is_temporary(reply_to) and not client.allowed("recv", reply_to):
            raise self._clients.denied(client, "recv", reply_to)

    def _key(self, client: HttpClient, stated: str | None) -> str:
        """Return the duplicate id that stands for a key of a user: another user's key is another id. Raises
        Answered."""
        if stated is None:
            return ""
        if not stated or len(stated) > KEY:
            raise Answered(400, f"Idempotency-Key has 1 to {KEY} characters")
        return senders.id_for(client.login.principal, f"http.{stated}")

    def _most_of(self, client: HttpClient) -> int:
        allowed = self._clients.bridge.allowances.limits(client.space).max_message_size
        return self._most if allowed is None else min(self._most, allowed)

    async def _body(self, exchange: HttpExchange, client: HttpClient, most: int) -> bytes:
        try:
            return await exchange.body(most)
        except BodyTooLarge:
            allowances = self._clients.bridge.allowances
            plan = allowances.limits(client.space).max_message_size
            if plan is not None and plan <= self._most:
                raise Answered(413, too_large(exchange.head.length or plan + 1, allowances, client.space)) from None
            raise Answered(413, f"the body has more than {most} bytes: send less at once") from None
        except BodyTooSlow:
            raise Answered(408, "the body did not come in time") from None

    def admit(self, client: HttpClient, size: int) -> None:
        """Count a message of this size for the address space, whichever connection it comes by. Raises Answered, also
        if the login was lost while the body came."""
        if client.ended:
            raise Answered(401, client.ended)
        if not self._clients.bridge.rates.admits(client.space, size):
            raise Answered(
                429,
                "the address space sends more than its plan allows: send it again later",
                outcome="rejected",
                condition="amqp:resource-limit-exceeded",
                retry=SOON,
            )
        client.sends(size)

    def _note(self, status: int) -> None:
        self.answered[status] = self.answered.get(status, 0) + 1

    # many messages

    async def _post_batch(
        self, exchange: HttpExchange, client: HttpClient, route: Route, lane: Lane, body: bytes
    ) -> None:
        """One line for each message, with its status; all are sent before the first outcome is waited for."""
        lines = [line for line in body.split(b"\n") if line.strip()]
        if not lines:
            raise Answered(400, "a batch has a line of JSON for each message")
        if len(lines) > MOST_OF_BATCH:
            raise Answered(413, f"the batch has {len(lines)} messages: send {MOST_OF_BATCH} at once")
        waiting: list[Answered | asyncio.Future[Result]] = []
        for line in lines:
            try:
                payload = self._of_line(client, route, line)
                self.admit(client, len(payload))
            except Answered as wrong:
                waiting.append(wrong)
                continue
            found: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
            lane.send(client, found, 1, payload)
            waiting.append(found)
        answers: list[dict[str, Any]] = []
        for each in waiting:
            if isinstance(each, Answered):
                problem = each
            else:
                outcome, condition, text = await each
                if outcome in ACCEPTED:
                    self._note(201)
                    answers.append({"status": 201, **msgspec.json.decode(_accepted(outcome))})
                    continue
                problem = of_outcome(outcome, condition, client.lanes.topics.relative(text))
            self._note(problem.status)
            answers.append(problem.fields)
        made = b"".join(msgspec.json.encode(answer) + b"\n" for answer in answers)
        await exchange.answer(200, (("content-type", BATCH),), made)

    def _of_line(self, client: HttpClient, route: Route, line: bytes) -> bytes:
        """Return the message of a line. Raises Answered."""
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise Answered(400, f"a line is no JSON{json_place(error)}") from None
        if not isinstance(found, Mapping):
            raise Answered(400, "a line is a JSON object with the fields of a message")
        found = dict(found)
        key = found.pop("idempotency_key", None)
        if key is not None and not isinstance(key, str):
            raise Answered(400, "idempotency_key: expected a string")
        if unknown := next((str(name) for name in found if name not in _GIVEN), None):
            known = ", ".join(sorted(_GIVEN))
            raise Answered(400, f"{unknown[:60]}: no field that a client may state; known are {known}")
        properties = found.get("properties")
        if isinstance(properties, dict):
            found["properties"] = {name: value for name, value in properties.items() if name != DUPLICATE_ID}
        if isinstance(found.get("reply_to"), str):
            self._check_reply(client, found["reply_to"])
        replaced: dict[str, Any] = {"to": route.to}
        if key is not None and route.traits.stored:
            replaced["application_properties"] = {DUPLICATE_ID: self._key(client, key)}
        found.setdefault("durable", True)
        try:
            return from_json(found, replaced)
        except NoMessage as error:
            raise Answered(400, str(error)) from None


class _Memory:
    """Room for the body of a request, until its outcome is known. Raises Answered without it."""

    def __init__(self, posting: Posting, length: int | None, most: int) -> None:
        self._posting = posting
        self._size = min(most, most if length is None else length)

    async def __aenter__(self) -> None:
        posting = self._posting
        if posting.kept + self._size > posting._memory and posting.kept:
            raise Answered(503, "the gateway has too many messages at once", retry=LATER)
        posting.kept += self._size

    async def __aexit__(self, *error: object) -> None:
        self._posting.kept -= self._size


def _accepted(outcome: MessageOutcome) -> bytes:
    """Return the body of 201. A message to an address that broadcasts may have had no receivers."""
    return b'{"outcome":"accepted","receivers":0}' if outcome is MessageOutcome.UNHEARD else b'{"outcome":"accepted"}'
