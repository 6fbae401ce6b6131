"""Health and metrics over HTTP, without a web framework: two GETs, one at a time, everything bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import cast

import msgspec

from enmasse import settings
from enmasse.process import cannot_listen

MAX_REQUEST = 8192
"""Bytes of a request's head."""
MAX_CONNECTIONS = 32
TIMEOUT = 10.0
"""Seconds from connect, or from the answer before, to the end of the answer."""


class Health:
    """What a service tells of itself: `ready`, `detail`, `endpoints` are set by the service as they change.

    Where `check` is set, it is asked for ready and detail whenever somebody wants to know.

    `metrics` gives the Prometheus text; without it the default registry of prometheus_client is shown.
    """

    def __init__(self, address: str, metrics: Callable[[], str | bytes] | None = None) -> None:
        self.address = address
        self.ready = False
        self.detail = "starting"
        self.endpoints: dict[str, str] = {}
        self.metrics = metrics
        self.check: Callable[[], tuple[bool, str]] | None = None
        self._server: asyncio.Server | None = None
        self._open: dict[_Request, None] = {}

    async def start(self) -> None:
        """Listens. Raises process.Fatal when the port cannot be had."""
        host, port = settings.host_port(self.address)
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: _Request(self), host, port)
        except OSError as error:
            raise cannot_listen(self.address, error, "health") from None
        if port == 0:
            port = self._server.sockets[0].getsockname()[1]
            self.address = f"{host}:{port}"

    def admit(self, request: _Request) -> bool:
        """Whether there is a place for one more connection. It may be that of the oldest that has not asked anything
        yet: who connects and is silent keeps nobody out.
        """
        if len(self._open) >= MAX_CONNECTIONS:
            silent = next((other for other in self._open if not other.has_asked), None)
            if silent is None:
                return False
            silent.abort()
            self.leave(silent)
        self._open[request] = None
        return True

    def leave(self, request: _Request) -> None:
        """A connection is gone."""
        self._open.pop(request, None)

    def set(self, ready: bool, detail: str = "") -> None:
        self.ready = ready
        self.detail = detail

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for request in list(self._open):
            request.abort()

    def answer(self, method: str, path: str) -> bytes:
        """The whole HTTP response to one request."""
        if method not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed", "text/plain", b"only GET\n", head=False)
        if path == "/healthz":
            if self.check is not None:
                self.set(*self.check())
            body = {"ready": self.ready, "detail": self.detail, "endpoints": self.endpoints}
            status = "200 OK" if self.ready else "503 Service Unavailable"
            return _response(status, "application/json", msgspec.json.encode(body), head=method == "HEAD")
        if path == "/metrics":
            text = self.metrics() if self.metrics is not None else _default_metrics()
            data = text.encode() if isinstance(text, str) else text
            return _response("200 OK", "text/plain; version=0.0.4; charset=utf-8", data, head=method == "HEAD")
        return _response("404 Not Found", "text/plain", b"try /healthz or /metrics\n", head=method == "HEAD")


def metric(name: str, kind: str, text: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> str:
    """One metric family in Prometheus' text format; `kind` is counter or gauge, `text` its help."""
    lines = [f"# HELP {name} {_escape(text)}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        inner = ",".join(f'{key}="{_escape(label, quote=True)}"' for key, label in labels.items())
        lines.append(f"{name}{{{inner}}} {value}" if inner else f"{name} {value}")
    return "\n".join(lines) + "\n"


class _Request(asyncio.Protocol):
    """One connection: reads a head, answers, closes; or goes on, for as long as it is told to keep alive."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._data = b""
        self.has_asked = False
        self._answered = False
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's is one without inheriting from it
        if not self._health.admit(self):
            transport.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(TIMEOUT, self.abort)

    def data_received(self, data: bytes) -> None:
        if self._answered:
            return
        self._data += data
        if b"\r\n\r\n" in self._data or b"\n\n" in self._data:
            if b"\r\nConnection: keep-alive\r\n" in self._data:
                self._go_on(self._respond())
            else:
                self._finish(self._respond())
        elif len(self._data) > MAX_REQUEST:
            self._finish(_response("431 Request Header Fields Too Large", "text/plain", b"too large\n", head=False))

    def _respond(self) -> bytes:
        self.has_asked = True
        line = self._data.split(b"\n", 1)[0].decode("latin-1").split()
        if len(line) != 3 or not line[2].startswith("HTTP/"):
            return _response("400 Bad Request", "text/plain", b"not HTTP\n", head=False)
        return self._health.answer(line[0], line[1].split("?", 1)[0])

    def _go_on(self, response: bytes) -> None:
        assert self._transport is not None and self._timer is not None
        if self._transport.get_write_buffer_size():
            self.abort()  # asks on and does not read
            return
        self._transport.write(response.replace(b"Connection: close", b"Connection: keep-alive", 1))
        self._data = b""
        self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(TIMEOUT, self.abort)

    def _finish(self, response: bytes) -> None:
        self._answered = True
        assert self._transport is not None
        self._transport.write(response)
        self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._health.leave(self)
        if self._timer is not None:
            self._timer.cancel()


def _response(status: str, content_type: str, body: bytes, *, head: bool) -> bytes:
    lines = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return lines.encode() + (b"" if head else body)


def _default_metrics() -> bytes:
    import prometheus_client  # here: it costs every start 40 ms, and only scrapers need it

    return prometheus_client.generate_latest()


def _escape(text: str, *, quote: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quote else text
