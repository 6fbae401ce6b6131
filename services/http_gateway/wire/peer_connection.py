"""The socket of a client: which version of HTTP it speaks, how long it may take, what waits to be written."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from fcntl import ioctl
from termios import TIOCOUTQ
from typing import Any, Final, cast

from enmasse import first_bytes
from enmasse.identity.proofs.certificates import certified
from enmasse.logs import log as logs
from enmasse.network.deadline import Deadline
from enmasse.network.peer_names import peer_name
from enmasse.network.small_reads import ClientSocket
from enmasse.network.tls import server_name, shown
from services.http_gateway.wire.frame_budget import PREFACE
from services.http_gateway.wire.http1 import BadRequest, Http1
from services.http_gateway.wire.http2 import Http2
from services.http_gateway.wire.http_exchange import WRITE_SECONDS, ClientGone, ConnectionState, PeerFacts, Serve

log = logs.get(part="http")

HEAD_SECONDS: Final = 10.0
"""Seconds for the head of a request; for the first one they begin with the connection."""
IDLE_SECONDS: Final = 75.0
"""Seconds without a request after which a connection is closed."""
HIGH: Final = 64 << 10
LOW: Final = 16 << 10
LINGER: Final = 2.0
"""Seconds for a client to read the last answer, and close its side."""


class PeerConnection(ClientSocket):
    """`serve` answers requests, `make` returns the state that the API keeps for the connection. `ended` is called with
    the connection when it has ended, `known` once its first request has come, or it has ended. `space`: of its
    listener. `another` gets name, space and a reason if the peer speaks another protocol."""

    def __init__(
        self,
        serve: Serve,
        make: Callable[[PeerFacts], ConnectionState],
        ended: Callable[[PeerConnection], None],
        known: Callable[[], None],
        number: int,
        space: str | None,
        another: Callable[[str, str | None, str], None] = lambda name, space, reason: None,
    ) -> None:
        self._another = another
        self.loop = asyncio.get_running_loop()
        self.facts = PeerFacts(name="?", number=number, space=space)
        self.state: ConnectionState
        self.written = 0
        self._serve = serve
        self._make = make
        self._ended = ended
        self._known: Callable[[], None] | None = known
        self._transport: asyncio.Transport | None = None
        self._http: Http1 | Http2 | None = None
        self._first = b""
        self._timer: Deadline | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._paused = False
        self._closing = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def host(self) -> str:
        """As acceptor.OfHost."""
        return self.facts.name.rpartition(":")[0]

    @property
    def number(self) -> int:
        """As client_door.DoorConnection."""
        return self.facts.number

    @property
    def quiet(self) -> bool:
        """As client_door.DoorConnection."""
        return self._http is None or self._http.idle

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As asyncio.Protocol."""
        self._transport = found = cast("asyncio.Transport", transport)  # uvloop's do not inherit from it
        found.set_write_buffer_limits(high=HIGH, low=LOW)
        ssl = found.get_extra_info("ssl_object")
        self.facts = PeerFacts(
            name=peer_name(found),
            number=self.facts.number,
            local=str((found.get_extra_info("sockname") or ("",))[0]),
            host=server_name(ssl),
            space=self.facts.space,
            certificate=certified(ssl),
            tls=shown(ssl),
        )
        self.state = self._make(self.facts)
        self._await(HEAD_SECONDS)
        if ssl is not None and ssl.selected_alpn_protocol() == "h2":
            self._http = Http2(self, self._serve)

    def data_received(self, data: bytes) -> None:
        """As asyncio.Protocol."""
        if self._closing:
            return
        try:
            if self._http is None:
                self._choose(data)
            else:
                self._head_begins()
                self._http.data(data)
        except Exception as error:
            log.error("http-gateway.connection.failed", peer=self.facts.name, exc_info=error)
            self.abort()

    def _choose(self, data: bytes) -> None:
        """By the first bytes: HTTP/2 by prior knowledge, or HTTP/1.1."""
        first = self._first = self._first + data
        if len(first) < len(PREFACE) and PREFACE.startswith(first):
            return
        self._first = b""
        reason = first_bytes.another(first, first_bytes.HTTP)
        if reason is not None:
            self._another(self.facts.name, self.facts.space, reason)
            Http1(self, self._serve).refuse(BadRequest(reason))
            return
        kind = Http2 if first.startswith(PREFACE) else Http1
        self._http = kind(self, self._serve)
        self._http.data(first)

    def _head_begins(self) -> None:
        if isinstance(self._http, Http1) and self._http.idle:
            self._await(HEAD_SECONDS)

    def eof_received(self) -> bool:
        """As asyncio.Protocol."""
        if self._http is not None and not self._closing:
            self._http.eof()
            return not self._closing and self.facts.tls is None
        return False

    def pause_writing(self) -> None:
        """As asyncio.Protocol."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """As asyncio.Protocol."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """As asyncio.Protocol."""
        self._transport, self._closing = None, True
        self._writable.set()
        if self._timer is not None:
            self._timer.cancel()
        self._is_known()
        http, self._http, self.pieces = self._http, None, None  # they refer back, and the garbage collector runs rarely
        if http is not None:
            http.lost()
        self.state.closed()
        self._ended(self)

    # for the versions

    def write(self, data: bytes) -> None:
        """Write bytes."""
        if self._transport is not None and not self._transport.is_closing():
            self.written += len(data)
            self._transport.write(data)

    @property
    def confirmed(self) -> int:
        """Bytes written that the client's host has acknowledged, at least: of TLS fewer are counted than there are."""
        transport = self._transport
        sock = None if transport is None else transport.get_extra_info("socket")
        if transport is None or sock is None or sock.fileno() < 0:
            return 0
        try:
            waiting = ioctl(sock.fileno(), TIOCOUTQ, bytes(4))
        except OSError:  # no Linux
            waiting = bytes(4)
        return self.written - transport.get_write_buffer_size() - int.from_bytes(waiting, sys.byteorder)

    async def drained(self) -> None:
        """Wait until the client has read enough. Raises ClientGone."""
        if not self._writable.is_set():
            try:
                async with asyncio.timeout(WRITE_SECONDS):
                    await self._writable.wait()
            except TimeoutError:
                self.abort()
        if self._transport is None:
            raise ClientGone

    def reading(self, wanted: bool) -> None:
        """Read from the client, or do not."""
        transport = self._transport
        if transport is None or self._closing or wanted is not self._paused:
            return
        self._paused = not wanted
        if wanted:
            transport.resume_reading()
        else:
            transport.pause_reading()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the answer to a request."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("http-gateway.connection.failed", peer=self.facts.name, exc_info=error)
            self.abort()

    def busy(self) -> None:
        """A request is under way: its owner has deadlines."""
        self._is_known()
        self._await(None)

    def idle(self) -> None:
        """No request is under way."""
        self._await(IDLE_SECONDS)

    def trust(self) -> None:
        """The client has logged in."""
        if isinstance(self._http, Http2):
            self._http.trust()
        self.read_much_of(self._transport)

    def close(self) -> None:
        """Close, our side first: if bytes of the client are unread when the socket is closed, TCP resets the
        connection, and the client may never read the answer."""
        transport = self._transport
        if transport is None or self._closing:
            return
        self._closing = True
        if transport.can_write_eof():
            transport.write_eof()
            transport.resume_reading()  # what comes now is discarded
            self.loop.call_later(LINGER, transport.close)
        else:
            transport.close()

    def leave(self) -> None:
        """End in order: answers that are under way are sent."""
        if self._http is None:
            self.close()
        else:
            self._http.close()
            self.state.leave()

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def _is_known(self) -> None:
        known, self._known = self._known, None
        if known is not None:
            known()

    def _await(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else Deadline(self.loop, self.loop.time() + seconds, self._late)

    def _late(self) -> None:
        self._timer = None
        http = self._http
        if http is None or http.in_head:
            self.write(b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self.close()
        elif http.idle:
            http.close()
            self.close()
