"""Client of HTTP that blocks. Commands import no asyncio for it."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from enmasse.http.http11 import NONE, REPEATED, Answer, HttpMessages, Reading

if TYPE_CHECKING:
    import ssl

READ_BYTES = 64 << 10

T = TypeVar("T")


def _run(reading: Reading[T], sock: socket.socket) -> T:
    try:
        next(reading)
        while True:
            reading.send(sock.recv(READ_BYTES))
    except StopIteration as done:
        found: T = done.value
        return found


class Client:
    """Requests to one server, one after another, over a connection that is opened when needed, and kept if the server
    keeps it. `timeout`: seconds of silence. Requests raise OSError and AnswerError."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None = None, timeout: float = 30.0) -> None:
        self._host, self._port, self._tls, self._timeout = host, port, tls, timeout
        self._open: tuple[socket.socket, HttpMessages] | None = None

    def request(
        self, method: str, target: str, headers: Mapping[str, str] = NONE, body: bytes | None = None, *, most: int
    ) -> Answer:
        """Return an answer, with a body of at most `most` bytes."""
        was_open = self._open is not None
        try:
            return self._whole(method, target, headers, body, most)
        except ConnectionError:
            if not was_open or method not in REPEATED:
                raise
        return self._whole(method, target, headers, body, most)

    def stream(self, target: str, headers: Mapping[str, str] = NONE) -> tuple[Answer, Iterator[bytes]]:
        """GET: return status and headers, and the parts of the body as they come."""
        self.close()
        try:
            sock, messages = self._connected()
            sock.sendall(messages.request("GET", target, headers, None))
            return _run(messages.head(), sock), self._parts(sock, messages)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._open is not None:
            self._open[0].close()
            self._open = None

    def _whole(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, most: int) -> Answer:
        kept = False
        try:
            sock, messages = self._open or self._connected()
            sock.sendall(messages.request(method, target, headers, body))
            answer = _run(messages.whole(most), sock)
            kept = messages.kept()
        finally:
            if not kept:
                self.close()
        return answer

    def _parts(self, sock: socket.socket, messages: HttpMessages) -> Iterator[bytes]:
        try:
            while part := _run(messages.part(), sock):
                yield part
        finally:
            self.close()

    def _connected(self) -> tuple[socket.socket, HttpMessages]:
        sock = socket.create_connection((self._host, self._port), self._timeout)
        self._open = sock, HttpMessages(self._host, self._port)
        if self._tls is not None:
            self._open = self._tls.wrap_socket(sock, server_hostname=self._host), self._open[1]
        return self._open


def lines(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines of a body, without their ends."""
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        yield from whole
    if rest:
        yield rest
