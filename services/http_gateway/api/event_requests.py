"""Messages to clients as Server-Sent Events: `GET …/events`, and `DELETE …/events?name=…`, which ends one by name."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections import Counter
from typing import Any, Final

from enmasse.amqp.codec.errors import RESOURCE_LIMIT_EXCEEDED, STOLEN, AmqpError
from enmasse.amqp.codec.performatives import Error, Rejected, Source, Target
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.termini import FOR_OWNER, MESSAGE_IDENTITY, passed_on_name
from enmasse.bridge.message_routes import unknown_address
from enmasse.identity.owned import owned
from services.http_gateway.api.event_stream import STEPS, EventStream, StreamKind
from services.http_gateway.api.event_texts import EventTexts
from services.http_gateway.api.http_clients import HttpClient, HttpClients
from services.http_gateway.api.http_problems import LATER, SOON, Answered
from services.http_gateway.api.request_paths import Resource
from services.http_gateway.api.stream_shares import StreamShare
from services.http_gateway.wire.http_exchange import ClientGone, HttpExchange

EVENTS: Final = "text/event-stream"
OF_USER: Final = 1000
"""Streams of a user."""
MEMORY: Final = 64 << 20
"""Bytes of all messages that wait for clients; beyond it a stream of the user that has most of them ends."""
HEARTBEAT: Final = 15.0
"""Seconds without an event after which a comment is sent: proxies close what is silent."""
CONFIRMING: Final = 0.05
"""Seconds between two looks at what a client's host has acknowledged, while nothing more may be written before."""
RETRY: Final = 1000
"""Milliseconds until a browser connects again."""
MOST: Final = 64 << 10
"""Bytes that are written at once, but for an event that has more."""
ROUND_TRIP: Final = 10.0
CONTAINER: Final = "http"
"""Container-id to which subscriptions of a user belong, at whichever gateway."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_STATUSES: Final = {"amqp:not-found": 404, "amqp:unauthorized-access": 403, RESOURCE_LIMIT_EXCEEDED: 429}
REASONS: Final = {
    "login": "the login has expired or was ended: log in again, and request the stream again",
    "permissions": "the permission to receive was taken away",
    "taken": "another stream has taken this subscription",
    "slow": "the gateway has too many messages that wait for slow clients",
    "lost": "the link was lost: request the stream again",
    "stopping": "the gateway ends: request the stream again",
}
"""Reason of the event `end` → its text."""


class Streaming:
    """Streams of events of all clients."""

    def __init__(self, clients: HttpClients) -> None:
        self.kept = 0
        """Bytes of messages that wait for clients."""
        self.streams: set[EventStream] = set()
        self.counts: Counter[str] = Counter()
        """`sent`, `dropped`, `rejected` → events."""
        self.texts = EventTexts()
        self._shares: dict[str, StreamShare] = {}
        self._clients = clients

    async def events(self, exchange: HttpExchange, client: HttpClient, resource: Resource) -> None:
        """Answer `GET …/events`. Raises Answered, ClientGone."""
        user = client.login.principal.full_name
        share = self._shares.setdefault(user, StreamShare())
        if share.streams >= OF_USER:
            raise Answered(429, f"{user} has {OF_USER} streams of events: end some first", retry=SOON)
        last = exchange.head.headers.get("last-event-id", "")
        share.streams += 1
        stream = None
        try:
            stream = await self._attached(exchange, client, resource)
            if last and stream.kind is StreamKind.SUBSCRIPTION:
                await self._find(exchange, stream, last)
            client.watchers.add(stream.changed.set)
            await exchange.start(200, (("content-type", EVENTS), ("x-accel-buffering", "no")))
            await exchange.write(f"retry: {RETRY}\n\n".encode())
            reason = await self._run(exchange, client, resource.address, stream)
            end = json.dumps({"reason": reason, "detail": REASONS[reason]})
            await exchange.write(f"event: end\ndata: {end}\n\n".encode())
            await exchange.end()
        finally:
            if stream is not None:
                client.watchers.discard(stream.changed.set)
                self.streams.discard(stream)
                stream.close()
            share.streams -= 1
            if not share.streams:
                self._shares.pop(user, None)

    async def unsubscribe(self, exchange: HttpExchange, client: HttpClient, resource: Resource) -> None:
        """Answer `DELETE …/events?name=…`. Raises Answered."""
        if "name" not in resource.query:
            raise Answered(400, "name: which subscription is to end?")
        stream = await self._attached(exchange, client, resource)
        self.streams.discard(stream)
        stream.close(for_good=True)
        await exchange.answer(204, ())

    # the link

    async def _attached(self, exchange: HttpExchange, client: HttpClient, resource: Resource) -> EventStream:
        """Return a stream whose link is attached. Raises Answered, ClientGone."""
        address, name = resource.address, resource.query.get("name")
        self._check(client, address)
        owner, session = client.lanes.topics.owner_of_wire(address), client.lanes.receiving
        if owner is None:
            text = unknown_address(address, client.lanes.topics, "recv", client.rights)
            raise Answered(404, text, condition="amqp:not-found")
        if not owner.traits.fan_out:
            text = f"{address[:100]!r} is a {owner.type} address: take its messages by POST …/messages/next"
            raise Answered(400, text)
        if name is not None and (not owner.traits.stored or not _NAME.fullmatch(name)):
            raise Answered(400, "name: subscriptions of topics have one, of 1 to 100 letters, digits, `_`, `.` and `-`")
        if session is None or session.ended:
            raise Answered(503, "the router is not reached", retry=LATER)
        kind = StreamKind.MULTICAST if not owner.traits.stored else StreamKind.TOPIC
        source, link_name, fields = Source(address=owner.wire), None, {}
        if name is not None:
            kind = StreamKind.SUBSCRIPTION
            source.durable, source.expiry_policy = 2, Symbol("never")
            link_name = passed_on_name(f"{address}/{name}", owned(client.login.principal, CONTAINER))
            properties: dict[str, Any] = {Symbol(FOR_OWNER): True}
            fields = {"properties": properties, "desired_capabilities": (Symbol(MESSAGE_IDENTITY),)}
        share = self._shares.get(client.login.principal.full_name) or StreamShare()
        stream = EventStream(kind, share, self._count)
        stream.client, stream.stated = client.name, address
        stream.address, stream.names = owner.name, client.lanes.topics.full(address)
        try:
            self._end_own(session.links, link_name)
            stream.attached_by(session.attach_receiver(link_name, source, Target(), **fields))
        except AmqpError as error:
            raise Answered(503, error.description, retry=LATER) from None
        self.streams.add(stream)
        try:
            await _until(lambda: stream.attached or stream.ended is not None, stream, exchange)
            if stream.ended is not None:
                refused, status = stream.ended, _STATUSES.get(stream.ended.condition, 503)
                text, retry = client.lanes.topics.relative(refused.description), SOON if status > 404 else None
                raise Answered(status, text, condition=refused.condition, retry=retry)
        except BaseException:
            self.streams.discard(stream)
            stream.close()
            raise
        return stream

    def _end_own(self, links: list[Any], name: str | None) -> None:
        """End the stream of this gateway that has the subscription: a name is one link's of a session."""
        for link in links:
            if name is not None and link.name == name and isinstance(link.context, EventStream):
                ended: EventStream = link.context
                ended.ended = AmqpError(STOLEN, REASONS["taken"])
                ended.close()
                ended.changed.set()

    def _check(self, client: HttpClient, address: str) -> None:
        if not _allowed(client, address):
            raise self._clients.denied(client, "recv", address)

    def _count(self, size: int) -> None:
        self.kept += size
        if size > 0 and self.kept > MEMORY:
            most = max(self.streams, key=lambda each: (each.share.bytes, each.bytes))
            most.ended = AmqpError(RESOURCE_LIMIT_EXCEEDED)
            most.changed.set()

    async def _find(self, exchange: HttpExchange, stream: EventStream, last: str) -> None:
        """Begin behind the event that the client had last, if that is redelivered."""
        for _ in range(STEPS):
            stream.look()
            await _until(lambda: stream.drained or stream.ended is not None, stream, exchange)
            if stream.ended is not None or stream.seen(last):
                break
        self.counts["resumed"] += stream.found(last)

    # events

    async def _run(self, exchange: HttpExchange, client: HttpClient, address: str, stream: EventStream) -> str:
        """Write events until the stream ends; return the reason. Raises ClientGone."""
        now = asyncio.get_running_loop().time
        said = now()
        while True:
            if exchange.leaving or client.left:
                raise ClientGone
            if reason := self._reason(client, address, stream):
                return reason
            stream.settle(exchange.confirmed, now(), len(self.streams))
            stream.ask()
            if stream.dropped:
                dropped, stream.dropped = stream.dropped, 0
                self.counts["dropped"] += dropped
                await exchange.write(b'event: dropped\ndata: {"count":%d}\n\n' % dropped)
            if stream.waiting and not stream.unsure:
                size = max(len(stream.waiting[0].payload), min(stream.bytes, MOST))
                async with stream.share.turn(size):
                    if not self._reason(client, address, stream):  # it may have waited
                        await self._write(exchange, client, stream, now)
                said = now()
                continue
            if now() - said >= HEARTBEAT:
                await exchange.write(b":\n\n")
                said = now()
            stream.changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CONFIRMING if stream.unsure else said + HEARTBEAT - now()):
                    await stream.changed.wait()

    async def _write(self, exchange: HttpExchange, client: HttpClient, stream: EventStream, now: Any) -> None:
        pieces, messages, size = [], [], 0
        while stream.waiting and size < MOST:
            message = stream.take()
            try:
                piece = self.texts.of(message.payload)
            except AmqpError as error:
                self.counts["rejected"] += 1
                text = Error(condition=Symbol(error.condition), description=error.description)
                stream.refuse(message, Rejected(error=text))
                continue
            if stream.kind is StreamKind.SUBSCRIPTION:
                pieces.append(f"id: {stream.event_id(message.payload, message.tag)}\n".encode())
            pieces.append(piece)
            messages.append(message)
            size += len(piece)
        if pieces:
            try:
                await exchange.write(b"".join(pieces))
            except BaseException:
                stream.put_back(messages)
                raise
            for message in messages:
                client.gets(len(message.payload))
            stream.written(messages, exchange.position, now())
            self.counts["sent"] += len(messages)

    def _reason(self, client: HttpClient, address: str, stream: EventStream) -> str:
        if client.moves:
            return "stopping"
        if client.ended:
            return "login"
        if not _allowed(client, address):
            return "permissions"
        error = stream.ended
        if error is None:
            return ""
        return {STOLEN: "taken", RESOURCE_LIMIT_EXCEEDED: "slow"}.get(error.condition, "lost")


def _allowed(client: HttpClient, address: str) -> bool:
    if "+" in address or "#" in address:
        return client.rights is None or client.rights.covers("recv", address).allowed
    return client.allowed("recv", address)


async def _until(true: Any, stream: EventStream, exchange: HttpExchange) -> None:
    """Wait until something is true of a stream. Raises Answered, ClientGone."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ROUND_TRIP):
            while not true() and not exchange.gone:
                stream.changed.clear()
                await stream.changed.wait()
    if exchange.gone:
        raise ClientGone
    if not true():
        raise Answered(503, "the broker did not answer in time", retry=LATER)
