"""A request of a client and its answer, whatever the version of HTTP."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol

from msgspec import Struct

from enmasse.identity.login import Certified

HEAD: Final = 16 << 10
"""Bytes of the head of a request."""
KEPT: Final = 16 << 10
"""Bytes of a body that are kept before the API asks for it: nothing is read beyond them."""
BODY_SECONDS: Final = 30.0
"""Seconds for the body of a request, and one more for each `SLOWEST` bytes that have come."""
SLOWEST: Final = 16 << 10
WRITE_SECONDS: Final = 60.0
"""Seconds that a client may leave an answer unread."""

Headers = Sequence[tuple[str, str]]


class ClientGone(Exception):
    """The client has left, or has broken the protocol: no answer can be sent."""


class BodyTooLarge(Exception):
    """The body has more bytes than were asked for."""


class BodyTooSlow(Exception):
    """The body did not come in time."""


class UnsafeHeader(ValueError):
    """An answer has a header whose name or value would end the header, or begin another one."""


class PeerFacts(Struct, frozen=True, kw_only=True):
    """Facts of the connection of a client. `name`: host:port; `number`: different for each connection of the process;
    `local`: address at which it arrived; `host`: named by TLS, empty: none; `space`: of its listener; `tls`: as rows of
    live state have it, None: without."""

    name: str
    number: int
    local: str = ""
    host: str = ""
    space: str | None = None
    certificate: Certified | None = None
    tls: Mapping[str, str] | None = None


class RequestHead(Struct, frozen=True, kw_only=True):
    """Head of a request. `target`: path and query, as sent; `headers`: by name in small letters, repeated ones joined
    by a comma; `length`: of the body, None: it does not say."""

    method: str
    target: str
    authority: str
    headers: Mapping[str, str]
    version: str
    length: int | None = None


class ConnectionState(Protocol):
    """State that the API keeps for a connection."""

    def leave(self) -> None:
        """The connection is to end: answers that have no end of their own get one."""

    def closed(self) -> None:
        """The connection has ended."""


class Wire(Protocol):
    """The connection, as a version of HTTP uses it."""

    loop: asyncio.AbstractEventLoop
    facts: PeerFacts
    state: ConnectionState

    def write(self, data: bytes) -> None:
        """Write bytes."""

    async def drained(self) -> None:
        """Wait until the client has read enough. Raises ClientGone."""

    def reading(self, wanted: bool) -> None:
        """Read from the client, or do not."""

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the answer to a request."""

    def busy(self) -> None:
        """A request is under way: its owner has deadlines."""

    def idle(self) -> None:
        """No request is under way."""

    def trust(self) -> None:
        """The client has logged in."""

    def close(self) -> None:
        """Close; what was written is sent."""

    @property
    def written(self) -> int:
        """Bytes that were written."""

    @property
    def confirmed(self) -> int:
        """Bytes of them that the client's host has acknowledged, at least."""


class HttpExchange(Protocol):
    """One request. Every coroutine raises ClientGone."""

    @property
    def head(self) -> RequestHead: ...
    @property
    def peer(self) -> PeerFacts: ...
    @property
    def state(self) -> Any:
        """The state that the API keeps for the connection."""

    @property
    def gone(self) -> bool:
        """True once the client has left."""

    @property
    def leaving(self) -> bool:
        """True once the client sends nothing more: it has probably left, but may still read."""

    @property
    def position(self) -> int:
        """Bytes that were written on the connection."""

    @property
    def confirmed(self) -> int:
        """Bytes of them that the client's host has acknowledged, at least. That is TCP: the client, or a proxy before
        it, may not have read them."""

    def trust(self) -> None:
        """The client has logged in: it may cost more from now on."""

    async def body(self, most: int) -> bytes:
        """Read the whole body. Raises BodyTooLarge, BodyTooSlow."""

    async def answer(self, status: int, headers: Headers, body: bytes = b"") -> None:
        """Send a whole answer."""

    async def start(self, status: int, headers: Headers) -> None:
        """Send the head of an answer whose body follows in pieces."""

    async def write(self, data: bytes) -> None:
        """Send a piece of the body, once the client has read enough of those before."""

    async def end(self) -> None:
        """End the body."""


Serve = Callable[[HttpExchange], Coroutine[Any, Any, None]]
"""Answers a request; does not raise."""


_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_VALUE: Final = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?")


def safe(headers: Headers) -> list[tuple[str, str]]:
    """Return headers with their names in small letters. Raises UnsafeHeader: h2 would write any bytes."""
    found = [(name.lower(), value) for name, value in headers]
    for name, value in found:
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise UnsafeHeader(f"{name[:60]!r}: no header can have the value {value[:60]!r}")
    return found


class IncomingBody:
    """The body of a request, kept until the API has read it. `length`: that was stated."""

    def __init__(self, length: int | None, loop: asyncio.AbstractEventLoop) -> None:
        self.wants = False
        """The API waits for it."""
        self.whole = False
        """All of it has come."""
        self.gone = False
        """No more of it comes."""
        self._length = length
        self._loop = loop
        self._pieces: list[bytes] = []
        self._size = 0
        self._come = asyncio.Event()

    def add(self, data: bytes) -> None:
        """Bytes have come."""
        self._pieces.append(data)
        self._size += len(data)
        self._come.set()

    def end(self, *, whole: bool) -> None:
        """Take no further bytes: the body is whole, or the client has left."""
        self.whole = self.whole or whole
        self.gone = self.gone or not whole
        if self.gone:
            self.drop()
        self._come.set()

    def drop(self) -> None:
        """Forget what has come."""
        self._pieces.clear()

    async def read(self, most: int, read_on: Callable[[], None]) -> bytes:
        """Return the whole body; `read_on` lets more of it come. Raises BodyTooLarge, BodyTooSlow, ClientGone."""
        if self._length is not None and self._length > most:
            raise BodyTooLarge
        began = self._loop.time()
        self.wants = True
        try:
            while True:
                if self.gone:
                    raise ClientGone
                if self._size > most:
                    raise BodyTooLarge
                if self.whole:
                    break
                self._come.clear()
                read_on()
                if self._come.is_set():
                    continue
                try:
                    async with asyncio.timeout_at(began + patience(self._size)):
                        await self._come.wait()
                except TimeoutError:
                    raise BodyTooSlow from None
            return b"".join(self._pieces)
        finally:
            self.wants = False
            self.drop()


def patience(size: int) -> float:
    """Return the seconds that a body may take of which `size` bytes have come."""
    return BODY_SECONDS + size / SLOWEST


class WireExchange:
    """Part of HttpExchange that is the same in both versions of HTTP."""

    def __init__(self, wire: Wire, head: RequestHead) -> None:
        self.head = head
        self.leaving = False
        self._wire = wire
        self._body = IncomingBody(head.length, wire.loop)

    @property
    def peer(self) -> PeerFacts:
        """As HttpExchange."""
        return self._wire.facts

    @property
    def state(self) -> Any:
        """As HttpExchange."""
        return self._wire.state

    @property
    def gone(self) -> bool:
        """As HttpExchange."""
        return self._body.gone

    @property
    def position(self) -> int:
        """As HttpExchange."""
        return self._wire.written

    @property
    def confirmed(self) -> int:
        """As HttpExchange."""
        return self._wire.confirmed

    def trust(self) -> None:
        """As HttpExchange."""
        self._wire.trust()
