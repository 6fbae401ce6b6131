"""Bounds for the peers of the web server: connections, and the time that a request may take to arrive."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

from aiohttp import web

from enmasse.metrics import gauge, single
from enmasse.network.acceptor import oldest_of_most
from enmasse.network.tls_transport import read_much
from enmasse.process import runner
from services.console.door.access import Caller
from services.console.door.under_way import Shares

if TYPE_CHECKING:
    from prometheus_client.core import Metric

CONNECTIONS, REQUESTS_OF_CALLER = 1024, 128
"""Open connections, and requests of one caller under way, streams included. Each of these holds a connection."""
EARLY_BYTES = 32 << 10
"""Bytes of a body of a caller that is not known."""
BODY_BYTES = 4 << 20
LONG_BODIES = 64, 8
"""Bodies longer than EARLY_BYTES that are being read, of all callers and of one."""
REQUEST_SECONDS = 15.0
"""From the connect, or the answer before, to the end of a request's head; and again to the end of its body."""
IDLE_SECONDS = 65.0
"""Until a connection that has been answered is closed."""
SWEEP = 2.0


def _is_long(request: web.Request) -> bool:
    """Return whether a request has a body that is, or may be, longer than EARLY_BYTES."""
    return request.can_read_body and (request.content_length or EARLY_BYTES + 1) > EARLY_BYTES


class _Guarded(asyncio.Protocol):
    """Protocol of a connection: aiohttp's, and the time at which the next request must have arrived. `host`: of the
    peer. A connection gives way to others while it has a deadline."""

    def __init__(self, inner: asyncio.Protocol, connections: Connections) -> None:
        self.inner = inner
        self.connections = connections
        self.transport: asyncio.Transport | None = None
        self.deadline: float | None = time.monotonic() + REQUEST_SECONDS
        self.begun = False
        self.host = ""
        self.end: Callable[[], None] | None = None
        """Ends the count of the request to its caller."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.host = str((transport.get_extra_info("peername") or ("",))[0])
        if not self.connections.admit(self):
            transport.abort()
        self.inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self.deadline is not None and not self.begun:
            self.begun = True
            self.deadline = min(self.deadline, time.monotonic() + REQUEST_SECONDS)
        self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self.inner.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self.connections.leave(self)
        self.inner.connection_lost(error)

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()


class Connections:
    """The open connections."""

    def __init__(self) -> None:
        self._open: dict[asyncio.BaseTransport, _Guarded] = {}
        self._sweeping: asyncio.Task[None] | None = None
        self._requests = Shares("requests under way", CONNECTIONS, REQUESTS_OF_CALLER)
        self._bodies = Shares(f"bodies of more than {EARLY_BYTES} bytes under way", *LONG_BODIES)

    def start(self) -> None:
        """Begin to close those that are too slow."""
        self._sweeping = runner.spawn(self._sweep(), "slow connections")

    def close(self) -> None:
        """Stop watching them."""
        if self._sweeping is not None:
            self._sweeping.cancel()

    def guarded(self, inner: asyncio.Protocol) -> asyncio.Protocol:
        """Return a protocol of a connection that passes everything to `inner`."""
        return _Guarded(inner, self)

    def admit(self, connection: _Guarded) -> bool:
        """Return whether there is room for it; one that has not sent a request yet, or whose caller is not known yet,
        makes room, of the host that has most of these."""
        assert connection.transport is not None
        if len(self._open) >= CONNECTIONS:
            waiting = oldest_of_most([other for other in self._open.values() if other.deadline is not None])
            if waiting is None or waiting.transport is None:
                return False
            waiting.transport.abort()
            self.leave(waiting)
        self._open[connection.transport] = connection
        return True

    def leave(self, connection: _Guarded) -> None:
        """Forget it."""
        if connection.transport is not None:
            self._open.pop(connection.transport, None)

    @web.middleware
    async def middleware(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Let the answer take its own time; `read_body` bounds that of the body."""
        transport = request.transport
        found = None if transport is None else self._open.get(transport)
        if found is None:
            return await handler(request)
        found.deadline = None
        try:
            return await handler(request)
        finally:
            found.begun = False
            found.deadline = time.monotonic() + IDLE_SECONDS
            if found.end is not None:
                found.end()
                found.end = None

    def claim(self, request: web.Request, caller: Caller) -> None:
        """Count a request to its caller, until it is answered. Raises RequestError."""
        found = None if request.transport is None else self._open.get(request.transport)
        if found is not None and found.end is None:
            found.end = self._requests.begin(caller)

    async def read_body(self, request: web.Request, caller: Caller | None) -> bytes:
        """Return the body, which has to come in bounded time. `caller` None: it is not known; the body may be
        EARLY_BYTES long, and the connection gives way to others meanwhile. Raises web.HTTPException, RequestError."""
        with self._bodies.held(caller) if caller is not None and _is_long(request) else nullcontext():
            return await self._read(request, known=caller is not None)

    async def _read(self, request: web.Request, *, known: bool) -> bytes:
        most = BODY_BYTES if known else EARLY_BYTES
        if (request.content_length or 0) > most:
            raise web.HTTPRequestEntityTooLarge(max_size=most, actual_size=request.content_length or 0)
        found = None if request.transport is None else self._open.get(request.transport)
        if known and request.transport is not None:
            read_much(request.transport)
        if found is not None and not known:
            found.deadline = time.monotonic() + REQUEST_SECONDS + SWEEP
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                return await request.clone(client_max_size=most).read()
        except TimeoutError:
            raise web.HTTPRequestTimeout from None
        finally:
            if found is not None:
                found.deadline = None

    def metrics(self) -> Iterable[Metric]:
        """Return the metrics."""
        yield gauge("enmasse_console_connections", "Open HTTP connections.", single(len(self._open)))

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP)
            now = time.monotonic()
            for each in list(self._open.values()):
                if each.deadline is not None and each.deadline < now and each.transport is not None:
                    each.transport.abort()


CONNECTIONS_KEY: Final = web.AppKey("connections", Connections)
