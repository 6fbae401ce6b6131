"""A WebSocket as a stream of bytes in both directions: aiohttp reads and writes the frames."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from aiohttp import WSCloseCode, WSMsgType, web
from aiohttp.web_protocol import _ErrInfo

from enmasse.logs import log as logs
from enmasse.network.tls_transport import read_much
from enmasse.websocket.masking import MaskCheck

log = logs.get(part="mqtt")

SERVER: Final = "EnMasse"
HIGH_WATER: Final = 64 << 10
LOW_WATER: Final = HIGH_WATER // 4
"""Bytes that wait for the client at which nothing further is given to it, and at which more is."""
UNSUPPORTED_DATA: Final = 1003
"""RFC 6455, 7.4.1."""
_PROTOCOL_ERROR: Final = b"\x88\x02" + (1002).to_bytes(2)
"""A frame that closes a WebSocket."""
EARLY_BYTES: Final = 44 * 1024
"""Bytes that a peer may send before it has logged in: then its socket is not read."""

EARLY_SLICE: Final = 8 * 1024
"""Bytes of it that aiohttp gets at once: it keeps those of an error until the peer has gone, and gets none after it."""


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


class HttpProtocol(web.RequestHandler):
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
            self.transport.write(_PROTOCOL_ERROR)
            self.transport.close()

    def handle_error(self, *what: Any, **more: Any) -> web.StreamResponse:
        """As aiohttp, which names itself."""
        found = super().handle_error(*what, **more)
        found.headers["Server"] = SERVER
        return found


class WebSocketStream:
    """The bytes of binary frames, whose boundaries mean nothing. `done` is called once the client is known, or gone.
    Beside aiohttp's task for the request there is one only while something is written."""

    text_refused = b"bytes are in binary frames"
    takes_text = False
    """Frames of text have bytes too, and a client that has sent one gets text where that is possible."""
    sends_text = False

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        socket: web.WebSocketResponse,
        protocol: HttpProtocol,
        done: Callable[[], None],
    ) -> None:
        self.code = WSCloseCode.OK
        """Code of the close frame at the end."""
        self._loop = loop
        self._socket = socket
        self._protocol = protocol
        self._transport = protocol.transport
        self._done: Callable[[], None] | None = done
        self._readable = asyncio.Event()
        self._readable.set()
        self._unsent: list[bytes] = []
        self._unsent_size = 0
        self._blocked = False
        self._ending = False
        self._lost = False
        self._writing: asyncio.Task[None] | None = None

    def take(self, data: bytes) -> None:
        """Process bytes of the client."""
        raise NotImplementedError

    def set_blocked(self, blocked: bool) -> None:
        """Stop giving bytes to be sent, as the client leaves much unread; or continue."""
        raise NotImplementedError

    async def read(self) -> None:
        """Read messages until the client or the connection ends the WebSocket."""
        socket = self._socket
        while True:
            message = await socket.receive()
            if message.type is WSMsgType.BINARY:
                self.take(bytes(message.data))
            elif message.type is WSMsgType.TEXT and self.takes_text:
                self.sends_text = True
                self.take(message.data.encode("utf-8", "surrogatepass"))
            elif message.type is WSMsgType.TEXT:
                await socket.close(code=UNSUPPORTED_DATA, message=self.text_refused)
                return
            else:
                return
            if not self._readable.is_set():
                await self._readable.wait()
            if self._lost:
                return

    def lost(self) -> None:
        """Handle the end of the request: the client is gone."""
        self._lost = True
        self._unsent.clear()
        self._readable.set()
        self.recognised()

    def recognised(self) -> None:
        """The client is known."""
        done, self._done = self._done, None
        if done is not None:
            done()

    def opened(self) -> None:
        """Read in large pieces: the client has logged in."""
        if self._transport is not None:
            read_much(self._transport)
        self._protocol.opened()

    def pause(self) -> None:
        """Read nothing further of the client."""
        self._readable.clear()

    def resume(self) -> None:
        """Continue reading."""
        self._readable.set()

    def unsent(self) -> int:
        """Return the bytes that wait to be sent."""
        return self._unsent_size

    def abort(self) -> None:
        """Close the socket at once."""
        self._lost = True
        self._readable.set()
        if self._transport is not None:
            self._transport.abort()

    def put(self, data: bytes, *, last: bool = False) -> None:
        """Send bytes; after the last ones the WebSocket is closed."""
        self._ending = self._ending or last
        if self._lost:
            return
        if data:
            self._unsent.append(data)
            self._unsent_size += len(data)
            if self._unsent_size > HIGH_WATER and not self._blocked:
                self._blocked = True
                self.set_blocked(True)
        if self._writing is None and (data or self._ending):
            self._writing = self._loop.create_task(self._write())

    async def _send(self, data: bytes) -> None:
        if self.sends_text:
            try:
                text = data.decode()
            except UnicodeDecodeError:
                pass
            else:
                await self._socket.send_str(text)
                return
        await self._socket.send_bytes(data)

    async def _write(self) -> None:
        try:
            while self._unsent and not self._lost:
                data = b"".join(self._unsent)
                self._unsent.clear()
                await self._send(data)
                self._unsent_size -= len(data)
                if self._blocked and self._unsent_size < LOW_WATER:
                    self._blocked = False
                    self.set_blocked(False)
        except (ConnectionError, RuntimeError) as error:  # the socket is closing
            log.debug("mqtt.websocket.write-failed", error=str(error))
            self._lost = True
        finally:
            self._writing = None
        if self._ending and not self._lost:
            await self._socket.close(code=self.code)
