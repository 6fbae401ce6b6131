"""MQTT over WebSocket (v3.1.1 6, v5 6): aiohttp reads and writes the frames, a connection gets their bytes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any, Final

from aiohttp import WSMsgType, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import _ErrInfo

from enmasse.logs import log as logs
from enmasse.network.tls_transport import read_much
from enmasse.network.turns import Tenant
from enmasse.network.web_origins import is_allowed, may_be_any_site
from services.mqtt_gateway.interfaces import NOT_ASKED
from services.mqtt_gateway.network.masking import MaskCheck
from services.mqtt_gateway.network.wire import HIGH_WATER, LOW_WATER, Flusher, asked_of, certificate_of, peer_name
from services.mqtt_gateway.protocol.connection import LINGER, Connection
from services.mqtt_gateway.protocol.server_state import ServerState

log = logs.get(part="mqtt")

PATH: Final = "/mqtt"
SUBPROTOCOL: Final = "mqtt"
UNSUPPORTED_DATA: Final = 1003
"""RFC 6455, 7.4.1."""
MESSAGE_TOO_BIG_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a WebSocket message, which may hold many packets, or parts of them."""
EARLY_BYTES: Final = 44 * 1024
"""Bytes that a peer may send before it has logged in: then its socket is not read."""

EARLY_SLICE: Final = 8 * 1024
"""Bytes of it that aiohttp gets at once: it keeps those of an error until the peer has gone, and gets none after it."""


def _is_own(record: logging.LogRecord) -> bool:
    """Drop aiohttp's tracebacks for malformed HTTP requests."""
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


_HTTP_LOG: Final = logging.getLogger(__name__)
_HTTP_LOG.addFilter(_is_own)


class _Guest:
    """A peer that speaks HTTP until it asks for a WebSocket, which it has to do in time."""

    __slots__ = ("_front", "done", "due", "protocol", "space")

    def __init__(
        self, front: ServerState, protocol: asyncio.Protocol, done: Callable[[], None], space: str | None
    ) -> None:
        self._front = front
        self.space = space
        self.protocol = protocol
        self.done = done
        self.due = 0
        front.times.plan(self, front.times.now + front.limits.connect_seconds)

    def look(self, now: float) -> None:
        self.drop()

    def failed(self, error: Exception) -> None:
        log.error("mqtt.sweep.failed", exc_info=error)

    def drop(self) -> None:
        self._front.times.forget(self)
        self.done()
        transport = getattr(self.protocol, "transport", None)
        if transport is not None:
            transport.abort()


class _MaskedReader:
    """aiohttp's reader of frames, behind the check of their masks. `close` closes the connection."""

    def __init__(self, reader: Any, close: Callable[[], None]) -> None:
        self._reader = reader
        self._close = close
        self._check = MaskCheck()

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        if not self._check.masked(data):
            self._close()
            return True, b""
        found: tuple[bool, bytes] = self._reader.feed_data(data)
        return found

    def feed_eof(self) -> None:
        self._reader.feed_eof()


class _Protocol(web.RequestHandler):
    """aiohttp's protocol. Of a peer that is not known it reads EARLY_BYTES: a WebSocket message is kept until it is
    complete."""

    __slots__ = ("_early",)
    _early: int | None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._early = EARLY_BYTES
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._early is None:
            super().data_received(data)
            return
        self._early -= len(data)
        self._stop()
        for at in range(0, len(data), EARLY_SLICE):
            if self._messages and isinstance(self._messages[-1][0], _ErrInfo):
                return
            super().data_received(data[at : at + EARLY_SLICE])

    def resume_reading(self, resume_parser: bool = True) -> None:
        super().resume_reading(resume_parser)
        self._stop()

    def _stop(self) -> None:
        if self._early is not None and self._early <= 0 and self.transport is not None:
            self.transport.pause_reading()

    def opened(self) -> None:
        """Read what the peer sends from now on: it has logged in."""
        stopped = self._early is not None and self._early <= 0
        self._early = None
        if stopped and not self._reading_paused and self.transport is not None:
            self.transport.resume_reading()

    def set_parser(self, parser: Any, data_received_cb: Callable[[], None] | None = None) -> None:
        super().set_parser(_MaskedReader(parser, self._close_unmasked), data_received_cb)  # type: ignore[arg-type]  # a parser by its methods

    def _close_unmasked(self) -> None:
        log.info("mqtt.websocket.unmasked")
        if self.transport is not None:
            self.transport.close()


class WebSocketServer:
    """Makes the protocol of an accepted socket (`guest`). `allowed_origins`: see `is_allowed`."""

    def __init__(self, front: ServerState, flusher: Flusher, allowed_origins: Collection[str]) -> None:
        self._front = front
        self._flusher = flusher
        self._allowed_origins = allowed_origins
        self._server = web.Server(self._handle)
        self._guests: dict[object, _Guest] = {}

    def guest(self, done: Callable[[], None], space: str | None = None) -> tuple[asyncio.Protocol, Callable[[], None]]:
        """Return the protocol for a socket, and what drops it. `done` is called once the client is known, or gone.
        `space`: of the listener."""
        protocol = _Protocol(
            self._server,
            loop=self._flusher.loop,
            access_log=None,  # type: ignore[arg-type]  # None: aiohttp writes no access log
            logger=_HTTP_LOG,
            max_line_size=4096,
            max_field_size=4096,
            max_headers=64,
        )
        guest = _Guest(self._front, protocol, lambda: self._known(protocol, done), space)
        self._guests[protocol] = guest
        return protocol, guest.drop

    def _known(self, protocol: object, done: Callable[[], None]) -> None:
        if self._guests.pop(protocol, None) is not None:
            done()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path != PATH:
            return self._refusal(404, f"MQTT over WebSocket is at {PATH}\n")
        origin = request.headers.get("Origin")  # programs that are no browsers send none
        if origin is not None and not self._is_allowed(origin, request):
            log.info("mqtt.origin.refused", origin=origin[:200], host=request.host[:200])
            return self._refusal(403, "pages of this origin may not connect: see the option --allowed-origin\n")
        offered = [each.strip() for each in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
        if SUBPROTOCOL not in offered:  # v3.1.1 MQTT-6.0.0-3, v5 MQTT-6.0.0-3
            return self._refusal(400, f"the WebSocket subprotocol must be {SUBPROTOCOL}\n")
        socket = web.WebSocketResponse(
            protocols=(SUBPROTOCOL,), compress=False, timeout=LINGER, max_msg_size=MESSAGE_TOO_BIG_BYTES
        )
        await socket.prepare(request)
        guest = self._guests.get(request.protocol)
        done = guest.done if guest is not None else _nothing
        if guest is not None:
            self._front.times.forget(guest)
        protocol = request.protocol
        assert isinstance(protocol, _Protocol)

        any_site = (
            origin is not None and not request.secure and may_be_any_site(origin, request.host, self._allowed_origins)
        )
        space = guest.space if guest is not None else None
        wire = WebSocketWire(self._front, self._flusher, socket, protocol, done, any_site=any_site, space=space)
        try:
            await wire.read()
        finally:
            wire.lost()
        return socket

    def _is_allowed(self, origin: str, request: web.BaseRequest) -> bool:
        transport = request.transport
        if transport is None:  # the client has gone
            return False
        return is_allowed(origin, request.host, self._allowed_origins, transport.get_extra_info("sockname")[0])

    def _refusal(self, status: int, text: str) -> web.Response:
        response = web.Response(status=status, text=text)
        response.force_close()
        return response

    async def close(self) -> None:
        """Close the WebSockets, waiting at most LINGER seconds for the clients."""
        await self._server.shutdown(LINGER)


def _nothing() -> None:
    pass


class WebSocketWire:
    """Beside aiohttp's task for the request there is one only while something is written."""

    def __init__(
        self,
        front: ServerState,
        flusher: Flusher,
        socket: web.WebSocketResponse,
        protocol: _Protocol,
        done: Callable[[], None],
        *,
        any_site: bool,
        space: str | None,
    ) -> None:
        self._flusher = flusher
        self._turns = front.turns
        self._socket = socket
        self._protocol = protocol
        self._transport = transport = protocol.transport
        self._done: Callable[[], None] | None = done
        self._readable = asyncio.Event()
        self._readable.set()
        self._unsent: list[bytes] = []
        self._unsent_size = 0
        self._blocked = False
        self._ending = False
        self._lost = False
        self._writing: asyncio.Task[None] | None = None
        peer, certificate = ("?", None) if transport is None else (peer_name(transport), certificate_of(transport))
        asked = NOT_ASKED if transport is None else asked_of(transport, space)
        self._connection = Connection(front, self, peer, certificate, any_site=any_site, asked=asked)

    async def read(self) -> None:
        """Read messages until the client or the connection ends the WebSocket."""
        socket = self._socket
        while True:
            message = await socket.receive()
            if message.type is WSMsgType.BINARY:
                self._connection.intake.data(bytes(message.data))
            elif message.type is WSMsgType.TEXT:  # v3.1.1 MQTT-6.0.0-1, v5 MQTT-6.0.0-1
                await socket.close(code=UNSUPPORTED_DATA, message=b"MQTT packets are in binary frames")
                return
            else:
                return
            if not self._readable.is_set():
                await self._readable.wait()
            if self._lost:
                return

    def lost(self) -> None:
        """Handle the end of the request: tell the connection that its client is gone."""
        self._lost = True
        self._readable.set()
        self.recognised()
        self._connection.lost()

    # the connection's calls

    def recognised(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            done()

    def opened(self) -> None:
        if self._transport is not None:
            read_much(self._transport)
        self._protocol.opened()

    def has_output(self) -> None:
        self._flusher.mark(self)

    def pause(self) -> None:
        self._readable.clear()

    def resume(self) -> None:
        self._readable.set()

    def call_soon(self) -> None:
        self._turns.wait(self)

    def unsent(self) -> int:
        return self._unsent_size

    def end(self) -> None:
        self._ending = True
        self._readable.set()
        self._flusher.mark(self)

    def abort(self) -> None:
        self._lost = True
        self._readable.set()
        if self._transport is not None:
            self._transport.abort()

    def failed(self, error: Exception) -> None:
        self._connection.failed(error)

    @property
    def tenant(self) -> Tenant | None:
        """As turns.TurnTaker."""
        return self._connection.intake.tenant

    def proceed(self) -> None:
        """As turns.TurnTaker."""
        try:
            self._connection.intake.go_on()
        except Exception as error:
            self.failed(error)

    def flush(self) -> None:
        if self._lost:
            return
        data = self._connection.output.take()
        if data:
            self._unsent.append(data)
            self._unsent_size += len(data)
            if self._unsent_size > HIGH_WATER and not self._blocked:
                self._blocked = True
                self._connection.set_blocked(True)
        if self._writing is None and (data or self._ending):
            self._writing = self._flusher.loop.create_task(self._write())

    async def _write(self) -> None:
        try:
            while self._unsent and not self._lost:
                data = b"".join(self._unsent)
                self._unsent.clear()
                await self._socket.send_bytes(data)
                self._unsent_size -= len(data)
                if self._blocked and self._unsent_size < LOW_WATER:
                    self._blocked = False
                    self._connection.set_blocked(False)
        except (ConnectionError, RuntimeError) as error:  # the socket is closing
            log.debug("mqtt.websocket.write-failed", error=str(error))
            self._lost = True
        finally:
            self._writing = None
        if self._ending and not self._lost:
            await self._socket.close()
