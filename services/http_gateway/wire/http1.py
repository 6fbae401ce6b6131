"""HTTP/1.1 of one connection: one request at a time, those behind it wait unread.

h11 parses. What servers and proxies before them have read differently in the past is refused before it: line ends
without CR, folded headers, Content-Length beside Transfer-Encoding (RFC 9112, 11.2).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from http.client import responses
from typing import Any, Final

import h11

from services.http_gateway.wire.http_exchange import (
    HEAD,
    KEPT,
    ClientGone,
    Headers,
    RequestHead,
    Serve,
    Wire,
    WireExchange,
    safe,
)

MOST_HEADERS: Final = 100
_END: Final = b"\r\n\r\n"
_AUTHORITY_END: Final = re.compile(r"[/?#]")
PIPELINED: Final = 16 << 10
"""Bytes behind a request that are kept until it is answered."""


class BadRequest(Exception):
    """The head of a request is not understood. `status`: of the answer."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.text = text
        self.status = status


class Http1:
    """`wire`: the connection; `serve` answers a request."""

    def __init__(self, wire: Wire, serve: Serve) -> None:
        self._wire = wire
        self._serve = serve
        self._buffer = bytearray()
        self._exchange: Exchange1 | None = None
        self._ended = False

    def data(self, data: bytes) -> None:
        """Take bytes of the client."""
        if self._ended:
            return
        self._buffer += data
        if self._exchange is None:
            self._begin()
        else:
            self._exchange.more()
        self._hold()

    def _hold(self) -> None:
        """Read no further than the API asks."""
        exchange = self._exchange
        if exchange is None or self._ended:
            return
        self._wire.reading(exchange.wants or len(self._buffer) < (PIPELINED if exchange.whole else KEPT))

    def eof(self) -> None:
        """The client sends nothing more; it may still read."""
        if self._exchange is None:
            self._wire.close()
        elif not self._exchange.whole:
            self.lost()
            self._wire.close()
        else:
            self._exchange.leaving = True
            self._exchange.keep = False

    def lost(self) -> None:
        """The connection has ended."""
        self._ended = True
        self._buffer.clear()
        exchange, self._exchange = self._exchange, None  # it refers back
        if exchange is not None:
            exchange.leave()

    def close(self) -> None:
        """End the connection, after the answer that is under way."""
        if self._exchange is None:
            self._wire.close()
        else:
            self._exchange.keep = False

    @property
    def idle(self) -> bool:
        """No request is under way, nor the beginning of one."""
        return self._exchange is None and not self._buffer

    @property
    def in_head(self) -> bool:
        """The head of a request has begun and is not whole."""
        return self._exchange is None and bool(self._buffer)

    def _begin(self) -> None:
        """Begin with the next request, if its head is whole."""
        buffer = self._buffer
        while buffer[:2] == b"\r\n":  # RFC 9112, 2.2
            del buffer[:2]
        at = buffer.find(_END)
        if at < 0:
            if len(buffer) > HEAD:
                self.refuse(BadRequest(f"the head of the request has more than {HEAD} bytes", 431))
            return
        head = bytes(buffer[: at + 4])
        del buffer[: at + 4]
        parser = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD)
        try:
            if len(head) > HEAD:
                raise BadRequest(f"the head of the request has more than {HEAD} bytes", 431)
            request = _parsed(parser, head)
            found = _head_of(request)
        except BadRequest as bad:
            self.refuse(bad)
            return
        self._exchange = Exchange1(self, parser, found)
        self._wire.busy()
        self._wire.run(self._served(self._exchange))

    async def _served(self, exchange: Exchange1) -> None:
        await self._serve(exchange)
        if self._exchange is exchange and not self._ended:
            self._next(exchange)

    def _next(self, exchange: Exchange1) -> None:
        exchange.absorb()
        if not exchange.answered or not exchange.reusable:
            self._ended = True
            self._wire.close()
            return
        self._exchange = None
        rest = exchange.rest()
        self._buffer[:0] = rest
        self._wire.idle()
        self._wire.reading(True)
        if self._buffer:
            self._begin()
            self._hold()

    def refuse(self, bad: BadRequest) -> None:
        """Answer what is no request, and end the connection."""
        self._ended = True
        body = bad.text.encode()
        self._wire.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
            % (bad.status, _phrase(bad.status), len(body), body)
        )
        self._wire.close()

    def take(self) -> bytes:
        """Return what has come for the request that is under way."""
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    @property
    def pending(self) -> bool:
        return bool(self._buffer)

    @property
    def wire(self) -> Wire:
        """The connection."""
        return self._wire


class Exchange1(WireExchange):
    """As http_exchange.HttpExchange."""

    def __init__(self, owner: Http1, parser: h11.Connection, head: RequestHead) -> None:
        super().__init__(owner.wire, head)
        self.keep = True
        self.answered = False
        self._owner = owner
        self._parser = parser
        self._continue = head.headers.get("expect", "").lower() == "100-continue"
        self._broken = False
        """The chunks of the body are malformed."""
        if head.length == 0:
            self._events()
            self._body.end(whole=True)

    @property
    def wants(self) -> bool:
        """The API waits for the body."""
        return self._body.wants

    @property
    def whole(self) -> bool:
        """All of the request has come."""
        return self._body.whole

    @property
    def reusable(self) -> bool:
        """The connection may be used for another request."""
        return self.keep and self.whole and not self._broken and self._parser.our_state is h11.DONE

    def leave(self) -> None:
        """The client has left."""
        self.leaving = True
        self._body.end(whole=False)

    def more(self) -> None:
        """Bytes have come."""
        if self.wants:
            self._feed()
            self._refuse_broken()

    def _feed(self) -> None:
        data = self._owner.take()
        try:
            if data:
                self._parser.receive_data(data)
            self._events()
        except h11.RemoteProtocolError:
            self._broken = True

    def _events(self) -> None:
        while not self.whole or self._parser.their_state is h11.SEND_BODY:
            event = self._parser.next_event()
            if isinstance(event, h11.Data):
                self._body.add(bytes(event.data))
                continue
            if isinstance(event, h11.EndOfMessage):
                self._body.end(whole=True)
            break

    def _refuse_broken(self) -> None:
        """Answer malformed chunks, and end the connection: it is unknown where the next request begins."""
        if self._broken and not self.gone:
            self._owner.refuse(
                BadRequest(
                    "the body has a malformed chunk: it is a length in hexadecimal digits, CR LF, as many bytes, CR LF"
                )
            )
            self.leave()

    def absorb(self) -> None:
        """Take the rest of a body that has come already and was not asked for, so that the connection can be kept."""
        if not self.whole and not self._continue and not self.gone and self._owner.pending:
            self._feed()
            self._body.drop()

    def rest(self) -> bytes:
        """Return the bytes behind the request."""
        return bytes(self._parser.trailing_data[0])

    async def body(self, most: int) -> bytes:
        """As HttpExchange."""
        return await self._body.read(most, self._read_on)

    def _read_on(self) -> None:
        wire = self._owner.wire
        if self._continue:
            self._continue = False
            wire.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.more()
        wire.reading(True)

    # the answer

    def _send(self, event: Any) -> None:
        if self.gone:
            raise ClientGone
        try:
            data = self._parser.send(event)
        except h11.LocalProtocolError:
            raise ClientGone from None
        if data:
            self._owner.wire.write(data)

    def _head(self, status: int, headers: Headers) -> h11.Response:
        given = [(name.encode(), value.encode()) for name, value in safe(headers)]
        self.answered = True
        self.absorb()
        if not self.whole or not self.keep or self._broken:
            given.append((b"connection", b"close"))
        return h11.Response(status_code=status, headers=given, reason=_phrase(status))

    async def answer(self, status: int, headers: Headers, body: bytes = b"") -> None:
        """As HttpExchange."""
        if status not in (204, 304):
            headers = [*headers, ("content-length", str(len(body)))]
        self._send(self._head(status, headers))
        if body:
            self._send(h11.Data(data=body))
        self._send(h11.EndOfMessage())
        await self._owner.wire.drained()

    async def start(self, status: int, headers: Headers) -> None:
        """As HttpExchange."""
        self._send(self._head(status, headers))
        await self._owner.wire.drained()

    async def write(self, data: bytes) -> None:
        """As HttpExchange."""
        self._send(h11.Data(data=data))
        await self._owner.wire.drained()
        if self.gone:
            raise ClientGone

    async def end(self) -> None:
        """As HttpExchange."""
        with contextlib.suppress(ClientGone):
            self._send(h11.EndOfMessage())


def _parsed(parser: h11.Connection, head: bytes) -> h11.Request:
    """Return the request of these bytes. Raises BadRequest."""
    if head.count(b"\n") != head.count(b"\r\n") or head.count(b"\r") != head.count(b"\r\n"):
        raise BadRequest("lines of a head end with CR LF")
    if b"\r\n " in head or b"\r\n\t" in head:
        raise BadRequest("a header must not be folded over several lines")
    if b"\0" in head:
        raise BadRequest("a head has no zero bytes")
    try:
        parser.receive_data(head)
        event = parser.next_event()
    except h11.RemoteProtocolError as error:
        raise BadRequest(str(error), error.error_status_hint) from None
    if not isinstance(event, h11.Request):
        raise BadRequest("no request")
    return event


def _head_of(request: h11.Request) -> RequestHead:
    """Return the head of a request. Raises BadRequest."""
    found = joined((bytes(name).decode("latin-1"), bytes(value).decode("latin-1")) for name, value in request.headers)
    version = request.http_version.decode()
    if version not in ("1.1", "1.0"):
        raise BadRequest("HTTP/1.1 is spoken here", 505)
    if "transfer-encoding" in found and ("content-length" in found or version == "1.0"):
        raise BadRequest("a request has Content-Length or Transfer-Encoding, not both")
    if len(request.headers) > MOST_HEADERS:
        raise BadRequest(f"the request has more than {MOST_HEADERS} headers", 431)
    target = request.target.decode("latin-1")
    authority = found.get("host", "")
    scheme, separator, rest = target.partition("://")
    if separator and scheme.lower() in ("http", "https"):  # absolute form (RFC 9112, 3.2.2)
        stated = _AUTHORITY_END.split(rest, maxsplit=1)[0]
        if "host" in found and stated.lower() != authority.lower():
            raise BadRequest("the target of the request has another host than the header Host")
        authority, target = stated, rest[len(stated) :] or "/"
    if not target.startswith("/") and not (target == "*" and request.method == b"OPTIONS"):
        raise BadRequest("the target of a request is a path")
    length = found.get("content-length")
    if length is not None and len(length) > 18:
        raise BadRequest("Content-Length has too many digits", 413)
    size = int(length) if length is not None else None if "transfer-encoding" in found else 0
    return RequestHead(
        method=request.method.decode("latin-1"),
        target=target,
        authority=authority,
        headers=found,
        version=version,
        length=size,
    )


def joined(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return headers by name; the values of repeated ones are joined by a comma, of cookies by a semicolon."""
    found: dict[str, str] = {}
    for name, value in pairs:
        before = found.get(name)
        found[name] = value if before is None else f"{before}{'; ' if name == 'cookie' else ', '}{value}"
    return found


def _phrase(status: int) -> bytes:
    """Return the words behind a status. They mean nothing, but h2load finds no status without any."""
    return responses.get(status, "Refused").encode()
