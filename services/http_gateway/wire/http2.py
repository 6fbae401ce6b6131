"""HTTP/2 of one connection (RFC 9113): h2 parses, windows follow what the API reads.

A client that has not logged in may have few requests at once, with small windows; then more. Requests beyond these that
it sends before it knows of the limit (RFC 9113, 5.1.2) wait in its socket. What it does not let the gateway send waits
with its request only.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from enmasse.text import whole_number
from services.http_gateway.wire.frame_budget import Flood, FrameBudget
from services.http_gateway.wire.http1 import MOST_HEADERS, joined
from services.http_gateway.wire.http_exchange import (
    WRITE_SECONDS,
    ClientGone,
    Headers,
    RequestHead,
    Serve,
    Wire,
    WireExchange,
    safe,
)

STREAMS: Final = 4
"""Requests at once of a client that has not logged in. Their bodies share the window of the connection, which is 64 KiB
then (RFC 9113, 6.9.2)."""
HEADER_LIST: Final = 8 << 10
"""Bytes of the headers of a request."""
STREAMS_TRUSTED: Final = 100
WINDOW_TRUSTED: Final = 256 << 10
"""Bytes by which the window of the connection grows with the login."""
_Code = h2.settings.SettingCodes
_GOAWAY: Final = b"\0\0\x08\x07\0" + bytes(4)
"""Head of a GOAWAY (RFC 9113, 6.8), which the last stream and the error code follow."""


def _settings(streams: int) -> h2.settings.Settings:
    values = {_Code.MAX_CONCURRENT_STREAMS: streams, _Code.MAX_HEADER_LIST_SIZE: HEADER_LIST, _Code.ENABLE_PUSH: 0}
    return h2.settings.Settings(client=False, initial_values=values)


class Http2:
    """`wire`: the connection; `serve` answers a request."""

    def __init__(self, wire: Wire, serve: Serve) -> None:
        self._wire = wire
        self._serve = serve
        self._budget = FrameBudget()
        self._trusted = False
        self._ended = self._leaving = False
        self._informed = False  # the client has acknowledged the settings
        self._held = b""
        self._latest = 0
        self.exchanges: dict[int, Exchange2] = {}
        self.parser = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding="latin-1")
        )
        self.parser.local_settings = _settings(STREAMS)
        self.parser.decoder.max_header_list_size = HEADER_LIST
        self.parser.initiate_connection()
        # h2 would end the connection at once; `_held` and `_begin` hold the client to the limit that was sent
        self.parser.local_settings = _settings(STREAMS_TRUSTED)
        self.flush()

    def data(self, data: bytes) -> None:
        """Take bytes of the client."""
        if self._held:
            self._held += data
            return
        while data and not self._ended:
            streams = None if self._trusted or self._informed else max(0, STREAMS - len(self.exchanges))
            try:
                size = self._budget.feed(data, self._wire.loop.time(), streams)
                events = self.parser.receive_data(data[:size])
            except Flood as flood:
                self._fail(h2.errors.ErrorCodes.ENHANCE_YOUR_CALM, str(flood))
                return
            except h2.exceptions.ProtocolError:
                self.flush()  # h2 has made the GOAWAY
                self._end()
                return
            for event in events:
                self._take(event)
            self.flush()
            data = data[size:]
            if data and not size:
                self._held = data
                self._wire.reading(False)
                return

    def _go_on(self) -> None:
        """Take requests that have waited."""
        if self._held:
            data, self._held = self._held, b""
            self._wire.reading(True)
            self.data(data)

    def eof(self) -> None:
        """The client sends nothing more."""
        self.lost()
        self._wire.close()

    def lost(self) -> None:
        """The connection has ended."""
        self._ended = True
        self._held = b""
        for exchange in list(self.exchanges.values()):
            exchange.leave()

    def close(self) -> None:
        """End the connection, after the answers that are under way."""
        if self._ended:
            return
        self._leaving = True
        self.flush()
        # by hand: after a GOAWAY of its own the parser sends no more answers
        self._wire.write(_GOAWAY + self._latest.to_bytes(4) + bytes(4))
        if not self.exchanges:
            self._end()

    @property
    def idle(self) -> bool:
        """No request is under way."""
        return not self.exchanges

    in_head = False

    def _fail(self, code: h2.errors.ErrorCodes, text: str) -> None:
        with contextlib.suppress(h2.exceptions.ProtocolError):
            self.parser.close_connection(code, text.encode()[:100])
        self.flush()
        self._end()

    def _end(self) -> None:
        self.lost()
        self._wire.close()

    def flush(self) -> None:
        """Write what the parser has made."""
        data = self.parser.data_to_send()
        if data:
            self._wire.write(data)

    def trust(self) -> None:
        """The client has logged in."""
        if self._trusted or self._ended:
            return
        self._trusted = True
        self.parser.update_settings({_Code.MAX_CONCURRENT_STREAMS: STREAMS_TRUSTED})
        self.parser.increment_flow_control_window(WINDOW_TRUSTED)
        self.flush()
        self._go_on()

    def _take(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            self._begin(event)
        elif isinstance(event, h2.events.DataReceived):
            exchange = self.exchanges.get(event.stream_id)
            if exchange is None:
                self.acknowledge(event.flow_controlled_length, event.stream_id)
            else:
                exchange.piece(event.data, event.flow_controlled_length)
        elif isinstance(event, h2.events.StreamEnded):
            if (exchange := self.exchanges.get(event.stream_id)) is not None:
                exchange.complete()
        elif isinstance(event, h2.events.StreamReset):
            if (exchange := self.exchanges.get(event.stream_id)) is not None:
                exchange.leave()
        elif isinstance(event, h2.events.WindowUpdated | h2.events.RemoteSettingsChanged):
            for exchange in list(self.exchanges.values()):
                exchange.room.set()
        elif isinstance(event, h2.events.SettingsAcknowledged):
            self._informed = True
        elif isinstance(event, h2.events.ConnectionTerminated):
            self._end()

    def _begin(self, event: h2.events.RequestReceived) -> None:
        pairs = [(str(name), str(value)) for name, value in event.headers or ()]
        pseudo = {name: value for name, value in pairs if name.startswith(":")}
        found = joined((name, value) for name, value in pairs if not name.startswith(":"))
        stream = event.stream_id
        # The client may not know yet that the gateway leaves; else it has as many as it may have before it logs in.
        # It sends the request again.
        if self._leaving or (not self._trusted and len(self.exchanges) >= STREAMS):
            with contextlib.suppress(h2.exceptions.ProtocolError):
                self.parser.reset_stream(stream, h2.errors.ErrorCodes.REFUSED_STREAM)
            return
        self._latest = stream
        target, method = pseudo.get(":path", ""), pseudo.get(":method", "")
        if not target.startswith("/") or method == "CONNECT" or len(pairs) > MOST_HEADERS:
            with contextlib.suppress(h2.exceptions.ProtocolError):
                self.parser.reset_stream(stream, h2.errors.ErrorCodes.PROTOCOL_ERROR)
            return
        length = found.get("content-length", "")
        head = RequestHead(
            method=method,
            target=target,
            authority=pseudo.get(":authority") or found.get("host", ""),
            headers=found,
            version="2",
            length=whole_number(length),
        )
        exchange = self.exchanges[stream] = Exchange2(self, stream, head)
        self._wire.busy()
        self._wire.run(self._served(exchange))

    async def _served(self, exchange: Exchange2) -> None:
        try:
            await self._serve(exchange)
        finally:
            self.exchanges.pop(exchange.stream, None)
            if not self._ended:
                exchange.finish()
                self.flush()
                if self._leaving and not self.exchanges:
                    self._end()
                elif not self.exchanges:
                    self._wire.idle()
                self._go_on()

    def acknowledge(self, size: int, stream: int) -> None:
        """Let the client send as many bytes more."""
        if size and not self._ended:
            with contextlib.suppress(h2.exceptions.ProtocolError):
                self.parser.acknowledge_received_data(size, stream)

    @property
    def wire(self) -> Wire:
        """The connection."""
        return self._wire

    @property
    def ended(self) -> bool:
        """Return whether the connection takes no further frames."""
        return self._ended


class Exchange2(WireExchange):
    """As http_exchange.HttpExchange."""

    def __init__(self, owner: Http2, stream: int, head: RequestHead) -> None:
        super().__init__(owner.wire, head)
        self.stream = stream
        self.room = asyncio.Event()
        self._owner = owner
        self._unread = 0
        self._over = False

    def piece(self, data: bytes, size: int) -> None:
        """Bytes of the body have come. The window opens again when the API asks for them."""
        self._unread += size
        self._body.add(data)
        if self._body.wants:
            self._acknowledge()

    def _acknowledge(self) -> None:
        size, self._unread = self._unread, 0
        self._owner.acknowledge(size, self.stream)

    def complete(self) -> None:
        """All of the request has come."""
        self._body.end(whole=True)

    def leave(self) -> None:
        """The client has left, or wants no answer."""
        self.leaving = True
        self._body.end(whole=False)
        self.room.set()

    def finish(self) -> None:
        """The answer has ended, or there will be none."""
        self._acknowledge()
        if self.gone:
            return
        code = h2.errors.ErrorCodes.NO_ERROR if self._over else h2.errors.ErrorCodes.INTERNAL_ERROR
        if not self._body.whole or not self._over:
            with contextlib.suppress(h2.exceptions.ProtocolError):
                self._owner.parser.reset_stream(self.stream, code)

    async def body(self, most: int) -> bytes:
        """As HttpExchange."""
        return await self._body.read(most, self._read_on)

    def _read_on(self) -> None:
        self._acknowledge()
        self._owner.flush()

    # the answer

    def _check(self) -> None:
        if self.gone or self._owner.ended:
            raise ClientGone

    def _head(self, status: int, headers: Headers, *, end: bool) -> None:
        self._check()
        given = [(":status", str(status)), *safe(headers)]
        try:
            self._owner.parser.send_headers(self.stream, given, end_stream=end)
        except h2.exceptions.ProtocolError:
            raise ClientGone from None
        self._over = end
        self._owner.flush()

    async def answer(self, status: int, headers: Headers, body: bytes = b"") -> None:
        """As HttpExchange."""
        if status not in (204, 304):
            headers = [*headers, ("content-length", str(len(body)))]
        without = not body or self.head.method == "HEAD"
        self._head(status, headers, end=without)
        if not without:
            await self._send(body, end=True)

    async def start(self, status: int, headers: Headers) -> None:
        """As HttpExchange."""
        self._head(status, headers, end=False)

    async def write(self, data: bytes) -> None:
        """As HttpExchange."""
        await self._send(data, end=False)

    async def end(self) -> None:
        """As HttpExchange."""
        with contextlib.suppress(ClientGone):
            await self._send(b"", end=True)

    async def _send(self, data: bytes, *, end: bool) -> None:
        parser, wire = self._owner.parser, self._owner.wire
        at = 0
        while True:
            self._check()
            try:
                window = parser.local_flow_control_window(self.stream)
                size = min(window, parser.max_outbound_frame_size, len(data) - at)
                last = at + size >= len(data)
                if size > 0 or (last and end):
                    parser.send_data(self.stream, data[at : at + size], end_stream=last and end)
                    self._owner.flush()
                    at += size
            except h2.exceptions.ProtocolError:
                raise ClientGone from None
            if last:
                self._over = end
                await wire.drained()
                return
            if window <= 0:
                self.room.clear()
                try:
                    async with asyncio.timeout(WRITE_SECONDS):
                        await self.room.wait()
                except TimeoutError:
                    self.finish()
                    self.leave()
                    raise ClientGone from None
            else:
                await wire.drained()
