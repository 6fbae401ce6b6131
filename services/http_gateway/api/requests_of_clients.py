"""HttpRequests: from the path to what answers it; origins of web pages; errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

from enmasse.logs import log as logs
from services.http_gateway.api.event_requests import Streaming
from services.http_gateway.api.header_mapping import IDEMPOTENCY, PROPERTIES, TABLE
from services.http_gateway.api.http_clients import HttpClients, Visitors
from services.http_gateway.api.http_openapi import document
from services.http_gateway.api.http_problems import Answered
from services.http_gateway.api.posting import Posting
from services.http_gateway.api.receiving import Receiving
from services.http_gateway.api.request_paths import Resource, parsed
from services.http_gateway.api.requesting import Requesting
from services.http_gateway.wire.http_exchange import ClientGone, Headers, HttpExchange, UnsafeHeader

log = logs.get(part="http")

METHODS: Final = {
    "messages": ("POST",),
    "messages/next": ("POST",),
    "deliveries": ("DELETE", "POST", "PUT"),
    "events": ("GET", "DELETE"),
    "requests": ("POST",),
    "openapi": ("GET", "HEAD"),
}
"""Resource → methods."""
_OWN: Final = (PROPERTIES, *(each.header for each in TABLE))
_SENT: Final = ", ".join(("authorization", "prefer", "last-event-id", IDEMPOTENCY, *_OWN))
_SHOWN: Final = ", ".join(("location", "retry-after", "enmasse-lock", *_OWN))
_AGE: Final = "600"


class HttpRequests:
    """Answers requests of clients."""

    def __init__(self, clients: HttpClients, posting: Posting, receiving: Receiving, streaming: Streaming) -> None:
        self.clients = clients
        self.posting = posting
        self.receiving = receiving
        self.streaming = streaming
        self.requesting = Requesting(posting)
        self.stopping = False
        self.statuses: dict[int, int] = {}
        """Status → answers."""
        self._document = b""

    async def serve(self, exchange: HttpExchange) -> None:
        """Answer a request; does not raise."""
        seen = _Seen(exchange)
        try:
            try:
                await self._serve(seen)
            except Answered as problem:
                await seen.answer(problem.status, problem.headers, problem.body)
        except ClientGone:
            pass
        except Exception as error:
            log.error("http-gateway.request.failed", peer=exchange.peer.name, exc_info=error)
            with contextlib.suppress(ClientGone):
                if not seen.status:
                    failed = Answered(500, "an unexpected error of the gateway, which is in its log")
                    await seen.answer(failed.status, failed.headers, failed.body)
        self.statuses[seen.status] = self.statuses.get(seen.status, 0) + 1

    async def _serve(self, exchange: _Seen) -> None:
        head = exchange.head
        resource = parsed(head.target)
        origin = self.clients.check_origin(exchange)
        if origin is not None:
            exchange.more = [
                ("access-control-allow-origin", origin),
                ("access-control-expose-headers", _SHOWN),
                ("vary", "origin"),
            ]
        if head.method == "OPTIONS":
            await self._options(exchange, resource)
            return
        if head.method not in METHODS[resource.kind]:
            allowed = ", ".join(METHODS[resource.kind])
            raise Answered(405, f"{head.method} is not possible here: {allowed} is", headers=(("allow", allowed),))
        if resource.kind == "openapi":
            self._document = self._document or document()
            body = b"" if head.method == "HEAD" else self._document
            await exchange.answer(200, [("content-type", "application/json")], body)
            return
        visitors: Visitors = exchange.state
        client = await visitors.of(exchange)
        if resource.kind == "messages/next":
            await self.receiving.next(exchange, client, resource)
        elif resource.kind == "events":
            answer = self.streaming.unsubscribe if head.method == "DELETE" else self.streaming.events
            await answer(exchange, client, resource)
        elif resource.kind == "requests":
            await self.requesting.request(exchange, client, resource)
        elif resource.kind == "deliveries":
            await self.receiving.outcome(exchange, client, resource)
        else:
            await self.posting.post(exchange, client, resource)

    async def _options(self, exchange: _Seen, resource: Resource) -> None:
        methods = ", ".join((*METHODS.get(resource.kind, ()), "OPTIONS"))
        headers = [("allow", methods)]
        if exchange.more:
            headers += [
                ("access-control-allow-methods", methods),
                ("access-control-allow-headers", _SENT),
                ("access-control-max-age", _AGE),
            ]
        await exchange.answer(204, headers)


class _Seen:
    """An exchange whose status is noted, and whose answers get `more` headers."""

    def __init__(self, inner: HttpExchange) -> None:
        self._inner = inner
        self.status = 0
        self.more: list[tuple[str, str]] = []
        self.head = inner.head
        self.peer = inner.peer
        self.state = inner.state
        self.trust = inner.trust
        self.body = inner.body
        self.write = inner.write
        self.end = inner.end

    @property
    def gone(self) -> bool:
        return self._inner.gone

    @property
    def leaving(self) -> bool:
        return self._inner.leaving

    @property
    def position(self) -> int:
        return self._inner.position

    @property
    def confirmed(self) -> int:
        return self._inner.confirmed

    async def answer(self, status: int, headers: Headers, body: bytes = b"") -> None:
        with self._noted(status):
            await self._inner.answer(status, self._with(headers), body)

    async def start(self, status: int, headers: Headers) -> None:
        with self._noted(status):
            await self._inner.start(status, self._with(headers))

    @contextlib.contextmanager
    def _noted(self, status: int) -> Iterator[None]:
        self.status = status
        try:
            yield
        except UnsafeHeader:  # nothing was sent: there is another answer
            self.status = 0
            raise

    def _with(self, headers: Headers) -> Sequence[tuple[str, str]]:
        return [*headers, *self.more, ("x-content-type-options", "nosniff"), ("cache-control", "no-store")]
