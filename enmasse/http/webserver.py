"""HTTP for operators: small answers from a thread of its own, with a bound on everything a peer can do.

The standard library's parser (http.server), one thread a connection. An answer that needs the state of the program
fetches it from the event loop with `in_loop`; one that does not is given while the loop is blocked, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError
from email.message import Message
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qs, urlsplit

from enmasse.logs import log
from enmasse.network.acceptor import oldest_of_most

LINGER_BYTES, LINGER_SECONDS = 16 << 20, 2.0
"""How much is read, and for how long, of a request that was refused before its end."""

T = TypeVar("T")


class Bounds(NamedTuple):
    """Limits for peers. Beyond `connections` the oldest one without a request is closed, of the host that has most of
    these; if all have requests, the new one. A connection without a request is closed after `request_seconds`.
    """

    connections: int = 32
    request_seconds: float = 10.0
    """From the connect, or the answer before, to the end of the request."""
    answer_seconds: float = 10.0
    """From the request to the last byte of its answer."""
    head_bytes: int = 16 << 10
    body_bytes: int = 0
    """0: requests have no body, and only GET and HEAD are answered."""
    keeps_connections: bool = True
    """Whether a connection stays for further requests, if the client asks for it."""


class Request(NamedTuple):
    """A request: method, path without its query, the query's parameters, header fields, body."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Message
    body: bytes
    peer: str = ""
    """host:port of the client."""


class Response(NamedTuple):
    """An answer. `status` is an HTTP status code."""

    status: int
    content_type: str
    body: bytes


def plain(status: int, text: str) -> Response:
    """Return a line of text."""
    return Response(status, "text/plain; charset=utf-8", f"{text}\n".encode())


class LoopBlocked(Exception):
    """The event loop has not answered in time, or has ended."""


def in_loop(loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, T]], seconds: float) -> T:
    """Run `work` in the event loop, from another thread, and return its result.

    Raises LoopBlocked after `seconds`, and what `work` raises.
    """
    coroutine = work()
    try:
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    except RuntimeError:  # the loop is closed
        coroutine.close()
        raise LoopBlocked("the process is ending") from None
    try:
        return future.result(seconds)
    except (TimeoutError, CancelledError):
        future.cancel()
        raise LoopBlocked(f"the event loop has not answered within {seconds:g} s") from None


class WebServer:
    """Answers requests on a listening socket. `answer(request)` is called in the thread of the connection; before it,
    and before a body is read, `refusal(request)`, which returns an answer for requests that may not have one."""

    def __init__(
        self,
        listening: socket.socket,
        answer: Callable[[Request], Response],
        bounds: Bounds,
        refusal: Callable[[Request], Response | None] = lambda request: None,
    ) -> None:
        self.answer = answer
        self.refusal = refusal
        self.bounds = bounds
        self._listening = listening
        self._closed = False
        self._lock = threading.Lock()
        self._open: dict[_Connection, None] = {}

    @property
    def port(self) -> int:
        """The port that is listened on."""
        port: int = self._listening.getsockname()[1]
        return port

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._open)

    def start(self) -> None:
        """Begin to answer, without waiting for a request."""
        self._listening.setblocking(True)
        threading.Thread(target=self._accept, name="http", daemon=True).start()

    def close(self) -> None:
        """End the listener and every connection; does not wait for their threads."""
        self._closed = True
        _shut(self._listening)
        self._listening.close()
        with self._lock:
            for connection in self._open:
                _shut(connection.socket)

    def _accept(self) -> None:
        while not self._closed:
            try:
                accepted, address = self._listening.accept()
            except OSError:
                time.sleep(0.1)  # no descriptor is left, or it is closed
                continue
            connection = _Connection(self, accepted, str(address[0]))
            if not self._admit(connection):
                accepted.close()
                continue
            try:
                threading.Thread(target=self._converse, args=(connection,), name="http", daemon=True).start()
            except RuntimeError:  # there may be no more threads
                self._leave(connection)

    def _admit(self, connection: _Connection) -> bool:
        with self._lock:
            if len(self._open) >= self.bounds.connections:
                silent = oldest_of_most([other for other in self._open if not other.has_asked])
                if silent is None:
                    return False
                _shut(silent.socket)
                del self._open[silent]
            self._open[connection] = None
            return True

    def _converse(self, connection: _Connection) -> None:
        try:
            _Conversation(connection)
        except (OSError, ValueError):
            pass  # the peer left, was too slow, or is no longer wanted
        except Exception:
            log.get().exception("http.request.failed")
        finally:
            self._leave(connection)

    def _leave(self, connection: _Connection) -> None:
        with self._lock:
            self._open.pop(connection, None)
            _shut(connection.socket)
            connection.socket.close()


class _Connection:
    """An accepted socket. `has_asked`: the head of a request that is not refused has arrived."""

    def __init__(self, server: WebServer, accepted: socket.socket, host: str) -> None:
        self.server = server
        self.socket = accepted
        self.host = host
        self.has_asked = False


class _TooLarge(Exception):
    """A request's head is larger than it may be."""


class _Refused(Exception):
    """Raised for a request that is answered with `status` without reading the rest."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class _Incoming(io.RawIOBase):
    """Input of a connection, up to a number of bytes and a point in time."""

    def __init__(self, accepted: socket.socket) -> None:
        self._socket = accepted
        self._left = 0
        self._deadline = 0.0

    def allow(self, size: int, seconds: float) -> None:
        self._left = size
        self._deadline = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._left <= 0:
            raise _TooLarge
        seconds = self._deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        self._socket.settimeout(seconds)
        count = self._socket.recv_into(memoryview(buffer)[: self._left])
        self._left -= count
        return count


class _Conversation(BaseHTTPRequestHandler):
    """The requests of one connection, from the first to the last."""

    protocol_version = "HTTP/1.1"
    default_request_version = "HTTP/1.0"
    error_message_format = "%(code)d %(message)s\n"
    error_content_type = "text/plain; charset=utf-8"

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._bounds = connection.server.bounds
        peer = connection.socket.getpeername()
        super().__init__(connection.socket, peer, connection.server)  # type: ignore[arg-type] # any object will do

    def setup(self) -> None:
        super().setup()
        self._incoming = _Incoming(self._connection.socket)
        self.rfile = io.BufferedReader(self._incoming, 4096)

    def handle_one_request(self) -> None:
        self.requestline, self.command, self.request_version = "", "", "HTTP/1.1"  # for errors in the first line
        self._incoming.allow(self._bounds.head_bytes, self._bounds.request_seconds)
        try:
            super().handle_one_request()
        except _TooLarge:
            self._refuse(431)

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):  # http.server looks for a method of this name for each HTTP method
            return self._respond
        raise AttributeError(name)

    def _respond(self) -> None:
        asked = self.headers.get("Connection", "").lower() == "keep-alive"
        self.close_connection = not (asked and self._bounds.keeps_connections)
        target = urlsplit(self.path)
        peer = ":".join(map(str, self.client_address[:2]))
        request = Request(self.command, target.path, parse_qs(target.query), self.headers, b"", peer)
        try:
            size = self._size()
            refusal = self._connection.server.refusal(request)
            if refusal is None:
                self._connection.has_asked = True
                request = request._replace(body=self._body(size))
        except _Refused as refused:
            self._refuse(refused.status)
            return
        if refusal is not None:
            self.close_connection = self.close_connection or size > 0
            self._send(refusal)
            if size:
                self._linger()
        elif request.method in ("GET", "HEAD") or self._bounds.body_bytes:
            self._send(self._answered(request))
        else:
            self._send(plain(405, "only GET"))

    def _send(self, response: Response) -> None:
        status, content_type, content = response
        self._begin_answer()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Connection", "close" if self.close_connection else "keep-alive")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _answered(self, request: Request) -> Response:
        try:
            return self._connection.server.answer(request)
        except Exception:
            log.get().exception("http.request.failed", path=request.path[:100])
            return plain(500, "the request failed; the log has the reason")

    def _size(self) -> int:
        """Return the bytes of the request's body. Raises _Refused."""
        length = self.headers.get("Content-Length", "0")
        if not length.isascii() or not length.isdigit():
            raise _Refused(400)
        if "Transfer-Encoding" in self.headers:
            raise _Refused(411)
        if int(length) > self._bounds.body_bytes:
            raise _Refused(413)
        return int(length)

    def _body(self, size: int) -> bytes:
        """Return the request's body. Raises _Refused, ConnectionError if it is cut off."""
        if not size:
            return b""
        self._incoming.allow(size, self._bounds.request_seconds)
        try:
            body = self.rfile.read(size)
        except TimeoutError:
            raise _Refused(408) from None
        if len(body) < size:
            raise ConnectionError("the peer has left within the body")
        return body

    def _refuse(self, status: int) -> None:
        """Answer without having read everything: what is still on its way is read, or the answer would be lost."""
        self._connection.has_asked = False  # it gives way to others
        self._begin_answer()
        self.send_error(status)
        self._linger()

    def _linger(self) -> None:
        self.connection.shutdown(socket.SHUT_WR)
        self._incoming.allow(LINGER_BYTES, LINGER_SECONDS)
        with contextlib.suppress(TimeoutError, _TooLarge):
            while self.rfile.read1():
                pass

    def _begin_answer(self) -> None:
        self.connection.settimeout(self._bounds.answer_seconds)

    def version_string(self) -> str:
        return "EnMasse"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: requests are input of clients."""


def _shut(open_socket: socket.socket) -> None:
    """End a socket that another thread may be waiting for."""
    with contextlib.suppress(OSError):
        open_socket.shutdown(socket.SHUT_RDWR)
