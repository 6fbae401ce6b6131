"""Messages to clients: `POST …/messages/next` with a lock on each, and what becomes of them at `…/deliveries/TOKEN`."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any, Final
from urllib.parse import quote

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import RELEASED, Error, Rejected, Source, Target
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.link import SECOND
from enmasse.amqp.messages.jsonform import to_json
from enmasse.amqp.messages.message import Message
from enmasse.amqp.messages.source_filters import SELECTOR
from enmasse.bridge.message_fields import DUPLICATE_ID
from enmasse.bridge.message_routes import unknown_address
from enmasse.text import whole_number
from services.http_gateway.api.header_mapping import to_http
from services.http_gateway.api.http_clients import HttpClient, HttpClients
from services.http_gateway.api.http_problems import LATER, SOON, Answered
from services.http_gateway.api.lock_outcomes import ROUND_TRIP, OutcomeRequest, check_form, settle, stated
from services.http_gateway.api.locked_deliveries import (
    LOCK,
    LONGEST_LOCK,
    MOST_OF_CLIENT,
    Fetch,
    LockedDelivery,
    Locks,
)
from services.http_gateway.api.locks_elsewhere import LocksElsewhere
from services.http_gateway.api.posting import BATCH
from services.http_gateway.api.request_paths import BASE, Resource
from services.http_gateway.wire.http_exchange import ClientGone, HttpExchange

LONGEST_WAIT: Final = 300
"""Seconds of `wait`."""
MOST: Final = 100
"""Messages of one request."""
HEADERS: Final = 16 << 10
"""Bytes of the headers of a message in an answer."""
EVERYTHING: Final = "1 = 1"
"""A selector: with one, the link goes to the broker of the queue, which settles outcomes."""


class Receiving:
    """Requests for messages, and outcomes of them."""

    def __init__(self, clients: HttpClients, locks: Locks, elsewhere: LocksElsewhere) -> None:
        self.locks = locks
        self.elsewhere = elsewhere
        self.waiting = 0
        self._clients = clients

    async def next(self, exchange: HttpExchange, client: HttpClient, resource: Resource) -> None:
        """Answer `POST …/messages/next`. Raises Answered."""
        address, query = resource.address, resource.query
        self._check(client, address)
        wait, lock = number_of(query, "wait", 0, LONGEST_WAIT), number_of(query, "lock", LOCK, LONGEST_LOCK)
        several = "count" in query
        count = number_of(query, "count", 1, MOST) if several else 1
        if not count or not lock:
            raise Answered(400, "count and lock are at least 1")
        owner = client.login.principal.full_name
        room = self.locks.reserve(owner, count)
        if room is None:
            text = f"{owner} may lock {MOST_OF_CLIENT} messages, those included that its requests wait for"
            raise Answered(429, f"{text}: settle some first", retry=SOON)
        with room:
            fetch = self._fetch(client, address, count)
            self.waiting += 1
            try:
                await self._come(exchange, client, address, fetch, wait)
                found = self._readable(fetch)
                if not found:
                    if fetch.error is not None and fetch.error.condition != "amqp:not-found":
                        raise Answered(503, fetch.error.description, condition=fetch.error.condition, retry=SOON)
                    await exchange.answer(204, ())
                    return
                room.close()
                for each, _ in found:
                    client.gets(len(each.payload))
                locations = [self._location(each, client, address, lock) for each, _ in found]
                if several:
                    await self._answer_many(exchange, found, locations, lock)
                else:
                    await self._answer_one(exchange, found[0][0], locations[0], lock)
            except BaseException:
                for each in list(fetch.got.values()):
                    self.locks.take(each)
                fetch.give_back(RELEASED)
                raise
            finally:
                self.waiting -= 1
                if not fetch.got:
                    fetch.give_back(RELEASED)

    def _check(self, client: HttpClient, address: str) -> None:
        if client.ended:
            raise Answered(401, client.ended)
        if not client.allowed("recv", address):
            raise self._clients.denied(client, "recv", address)
        owner = client.lanes.topics.owner_of_wire(address)
        if owner is None:
            text = unknown_address(address, client.lanes.topics, "recv", client.rights)
            raise Answered(404, text, condition="amqp:not-found")
        if owner.traits.fan_out:
            raise Answered(400, f"{address[:100]!r} keeps no messages for those that ask: it is a {owner.type} address")

    def _fetch(self, client: HttpClient, address: str, count: int) -> Fetch:
        """Attach a link for `count` messages. Raises Answered."""
        session, owner = client.lanes.receiving, client.lanes.topics.owner_of_wire(address)
        if session is None or session.ended or owner is None:
            raise Answered(503, "the router is not reached", retry=LATER)
        source, fields = Source(address=owner.wire), {}
        if owner.traits.stored:
            source.filter = SELECTOR.entry(EVERYTHING)
            fields = {"rcv_settle_mode": SECOND}
        fetch = Fetch(self.locks, count)
        try:
            fetch.attached_by(session.attach_receiver(None, source, Target(), **fields))
        except AmqpError as error:
            raise Answered(503, error.description, retry=LATER) from None
        return fetch

    async def _come(self, exchange: HttpExchange, client: HttpClient, address: str, fetch: Fetch, wait: float) -> None:
        """Wait for the first message; then have those that are there. Raises ClientGone, and Answered once the client
        may no longer receive."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait):
                while wait and not fetch.got and not fetch.over and not client.moves:
                    fetch.changed.clear()
                    await _either(fetch.changed, exchange)
                    self._check(client, address)
        fetch.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ROUND_TRIP):
                while not fetch.over:
                    fetch.changed.clear()
                    await fetch.changed.wait()
        fetch.over = True
        if exchange.leaving:
            raise ClientGone
        self._check(client, address)

    def _readable(self, fetch: Fetch) -> list[tuple[LockedDelivery, Message]]:
        """Return the deliveries with their messages; those that are no messages are rejected."""
        found = []
        for each in list(fetch.got.values()):
            try:
                found.append((each, Message.decode(each.payload)))
            except AmqpError as error:
                self.locks.ended["rejected"] += 1
                state = Rejected(error=Error(condition=Symbol(error.condition), description=error.description))
                fetch.settle(each, state)
        return found

    def _location(self, delivery: LockedDelivery, client: HttpClient, address: str, lock: float) -> str:
        if delivery.settled is not None:  # it came settled
            return ""
        token = self.locks.lock(delivery, client.login.principal.full_name, address, lock)
        return f"{BASE}{quote(address)}/deliveries/{token}"

    async def _answer_one(self, exchange: HttpExchange, delivery: LockedDelivery, location: str, lock: float) -> None:
        headers, body = to_http(delivery.payload)
        if sum(len(name) + len(value) for name, value in headers) > HEADERS:
            raise Answered(422, "the properties of the message are too large for headers: ask with `count=1`")
        if location:
            headers += [("location", location), ("enmasse-lock", f"{lock:g}")]
        headers.append(("content-security-policy", "sandbox"))
        delivery.payload = b""
        await exchange.answer(200, headers, body)

    async def _answer_many(
        self,
        exchange: HttpExchange,
        found: list[tuple[LockedDelivery, Message]],
        locations: list[str],
        lock: float,
    ) -> None:
        lines = []
        for (delivery, message), location in zip(found, locations, strict=True):
            message.application_properties.pop(DUPLICATE_ID, None)
            line: dict[str, Any] = to_json(message)
            if location:
                line |= {"location": location, "lock": lock}
            lines.append(json.dumps(line, separators=(",", ":")).encode() + b"\n")
            delivery.payload = b""
        await exchange.answer(200, (("content-type", BATCH),), b"".join(lines))

    # outcomes

    async def outcome(self, exchange: HttpExchange, client: HttpClient, resource: Resource) -> None:
        """Answer `DELETE`, `POST` and `PUT …/deliveries/TOKEN`. Raises Answered."""
        check_form(resource.token)
        what = await stated(exchange)
        withdrawn = not client.allowed("recv", resource.address)
        if withdrawn:
            what = {"action": "released"}
        user, token = client.login.principal.full_name, resource.token
        asked = OutcomeRequest(token=token, user=user, address=resource.address, **what)
        here = token.rpartition(".")[0] == self.locks.name
        seconds = await (settle(self.locks, asked) if here else self.elsewhere.ask(asked))
        if withdrawn:
            self._check(client, resource.address)
        await exchange.answer(204, (("enmasse-lock", f"{seconds:g}"),) if asked.action == "renewed" else ())


async def _either(changed: asyncio.Event, exchange: HttpExchange) -> None:
    """Wait for a message, and look whether the client is still there. Raises ClientGone."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            await changed.wait()
    if exchange.leaving:
        raise ClientGone


def number_of(query: dict[str, str], name: str, default: int, most: int) -> int:
    """Return a whole number of a query. Raises Answered."""
    text = query.get(name)
    if text is None:
        return default
    if (number := whole_number(text, 6)) is None or number > most:
        raise Answered(400, f"{name}: expected a whole number up to {most}, not {text[:40]!r}")
    return number
