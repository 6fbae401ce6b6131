"""HTTP of the suite, on loopback: health, status, metrics, and the two orders `scale` and `force`.

A web page in a browser on this machine must be able neither to read nor to order anything here. So the Host header
must name loopback (a page that has its own name resolve to 127.0.0.1 fails), an Origin must be loopback too, and
orders must be declared as JSON, which a foreign page cannot do without asking first (CORS), and nobody answers that
question.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any, TypeGuard, cast
from urllib.parse import urlsplit

import msgspec
from aiohttp import web
from aiohttp.http import HttpProcessingError

import enmasse
from enmasse.supervisor import metrics
from enmasse.supervisor.suite import Suite

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
MAX_BODY = 1 << 20
MAX_NAMES = 10_000
MAX_HEAD = 16 << 10
"""Bytes of a request up to its empty line."""
MAX_CONNECTIONS = 64
REQUEST_SECONDS = 10.0
"""For a request to arrive: its head, and then its body."""
ANSWER_SECONDS = 60.0
"""From the head of a request to the last byte of its answer."""


def server(listening: socket.socket) -> Callable[[Suite], Awaitable[Callable[[], Awaitable[None]]]]:
    """What `Suite.run` starts: HTTP on a socket that already listens."""

    async def serve(suite: Suite) -> Callable[[], Awaitable[None]]:
        runner = web.AppRunner(make_app(suite), access_log=None, logger=_logger(), shutdown_timeout=0.5)
        await runner.setup()
        gates: set[_Gate] = set()
        make = cast(Callable[[], asyncio.Protocol], runner.server)
        server = await asyncio.get_running_loop().create_server(lambda: _Gate(make, gates), sock=listening)

        async def close() -> None:
            server.close()
            await runner.cleanup()
            for gate in list(gates):
                gate.abort()

        return close

    return serve


class _Gate(asyncio.Protocol):
    """One connection, for one request. It waits for the head before the web framework hears of it: that one would wait
    without end. At most MAX_CONNECTIONS are open: one more ends the oldest that has not said what it wants.
    """

    def __init__(self, make: Callable[[], asyncio.Protocol], gates: set[_Gate]) -> None:
        self._make = make
        self._gates = gates
        self._head = b""
        self._inner: asyncio.Protocol | None = None
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        loop = asyncio.get_running_loop()
        self._since = loop.time()
        if len(self._gates) >= MAX_CONNECTIONS:
            waiting = [gate for gate in self._gates if gate._inner is None]
            (min(waiting, key=lambda gate: gate._since) if waiting else self).abort()
            if not waiting:
                return
        self._gates.add(self)
        self._timer = loop.call_later(REQUEST_SECONDS, self.abort)

    def data_received(self, data: bytes) -> None:
        if self._inner is not None:
            self._inner.data_received(data)
            return
        self._head += data
        if b"\r\n\r\n" in self._head or b"\n\n" in self._head or len(self._head) > MAX_HEAD:  # or it says what is wrong
            assert self._timer is not None
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(ANSWER_SECONDS, self.abort)
            self._inner = self._make()
            self._inner.connection_made(self._transport)
            self._inner.data_received(self._head)
            self._head = b""

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._inner is not None else None

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gates.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def abort(self) -> None:
        """End it, whatever it is at."""
        self._gates.discard(self)
        self._transport.abort()


async def _close_after(_: web.Request, response: web.StreamResponse) -> None:
    response.force_close()
    response.headers["Connection"] = "close"


def make_app(suite: Suite) -> web.Application:
    """The routes; see docs/contracts.md."""
    app = web.Application(middlewares=[_only_local], client_max_size=MAX_BODY)
    app.on_response_prepare.append(_close_after)

    async def health(_: web.Request) -> web.Response:
        ready = suite.status()["ready"]
        detail = "" if ready else "not all components and addresses are ready: see /api/status"
        return web.json_response({"ready": ready, "detail": detail}, status=200 if ready else 503)

    async def status(_: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(suite.status()), content_type="application/json")

    async def brief(_: web.Request) -> web.Response:
        found = suite.status()  # what somebody who waits asks ten times a second, also with 10,000 addresses
        return web.json_response({key: found[key] for key in ("schema", "ready", "config")})

    async def about(_: web.Request) -> web.Response:
        options = suite.options
        return web.json_response(
            {
                "schema": 1,
                "version": enmasse.__version__,
                "pid": os.getpid(),
                "config_dir": str(options.config),
                "data_dir": str(options.data),
                "ports": {**options.public_ports(), "http": options.http_port},
            }
        )

    async def show_metrics(_: web.Request) -> web.Response:
        return web.Response(text=metrics.render(suite.status()), content_type="text/plain", charset="utf-8")

    async def scale(request: web.Request) -> web.Response:
        body = await _json(request)
        service, count = body.get("service"), body.get("count")
        if not isinstance(service, str) or not isinstance(count, int) or isinstance(count, bool) or count < 0:
            return _refused('expected {"service": NAME, "count": N}, N a whole number from 0', 400)
        accepted, sentence = suite.scale(service, count)
        return web.json_response({"accepted": True, "message": sentence}) if accepted else _refused(sentence, 409)

    async def force(request: web.Request) -> web.Response:
        names = (await _json(request)).get("addresses")
        if not _are_names(names):
            return _refused('expected {"addresses": [NAME, …]}', 400)
        if reason := await suite.force(names):
            return _refused(reason, 503)
        return web.json_response({"accepted": True, "message": ""})

    app.router.add_get("/healthz", health)
    app.router.add_get("/api/status", status)
    app.router.add_get("/api/ready", brief)
    app.router.add_get("/api/suite", about)
    app.router.add_get("/metrics", show_metrics)
    app.router.add_post("/api/scale", scale)
    app.router.add_post("/api/force", force)
    return app


def _logger() -> logging.Logger:
    """Tells on stderr what went wrong here, and not what clients send or that they leave."""

    def is_ours(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, HttpProcessingError | ConnectionError)

    logger = logging.getLogger("enmasse.http")
    logger.addFilter(is_ours)
    return logger


@web.middleware
async def _only_local(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    if not _is_loopback(f"//{request.headers.get('Host', '')}"):
        return _refused("the Host header must name loopback: localhost, 127.0.0.1 or [::1]", 403)
    if "Origin" in request.headers and not _is_loopback(request.headers["Origin"]):
        return _refused("requests from other web sites are not answered", 403)
    if request.method == "POST" and request.content_type != "application/json":
        return _refused("the Content-Type must be application/json", 415)
    return await handler(request)


def _is_loopback(url: str) -> bool:
    try:
        return urlsplit(url).hostname in LOOPBACK_NAMES
    except ValueError:
        return False


async def _json(request: web.Request) -> dict[str, Any]:
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            content = await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout from None
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        body = None
    return body if isinstance(body, dict) else {}


def _are_names(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and 0 < len(value) <= MAX_NAMES and all(map(_is_name, value))


def _is_name(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(value.encode())
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def _refused(reason: str, code: int) -> web.Response:
    return web.json_response({"accepted": False, "message": reason}, status=code)
