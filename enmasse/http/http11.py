"""Requests and answers of HTTP/1.1 as bytes, without I/O: h11 with bounds. Redirects are not followed, there are no
cookies, and no body is decoded."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import h11

NONE: Mapping[str, str] = MappingProxyType({})
REPEATED = ("GET", "HEAD")
"""Methods that are sent again if a server has closed the kept connection meanwhile."""

MAX_ANSWER = 256 << 20
"""Bytes of an answer of a suite's console and HTTP endpoint."""

T = TypeVar("T")
Reading = Generator[None, bytes, T]
"""Yields for bytes of the peer, takes them (none: it has ended), and returns what they mean."""


class AnswerError(ValueError):
    """The peer's answer is not HTTP, is cut off, or is longer than it may be."""


class TooLongError(AnswerError):
    """The answer is longer than it may be."""


class Answer(NamedTuple):
    """An answer. Names of `headers` are in lower case; of one that is repeated, the first."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


class HttpMessages:
    """Messages of one connection. h11 bounds a head at 16 KiB."""

    def __init__(self, host: str, port: int) -> None:
        self._host = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._http = h11.Connection(h11.CLIENT)
        self._answered = False

    def request(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        """Return the bytes of a request. Raises AnswerError if HTTP has no such request."""
        self._answered = False
        stated = {"Host": self._host, **headers}
        if body is not None or method not in REPEATED:
            stated["Content-Length"] = str(len(body or b""))
        fields = [(name.encode(), value.encode("utf-8", "surrogateescape")) for name, value in stated.items()]
        try:
            data = self._http.send(h11.Request(method=method, target=target, headers=fields)) or b""
            if body:
                data += self._http.send(h11.Data(data=body)) or b""
            return data + (self._http.send(h11.EndOfMessage()) or b"")
        except (h11.LocalProtocolError, UnicodeError) as error:
            raise AnswerError(f"that cannot be asked: {error}") from None

    def head(self) -> Reading[Answer]:
        """Return status and headers."""
        while not isinstance(event := (yield from self._event()), h11.Response):
            pass
        found: dict[str, str] = {}
        for name, value in event.headers:
            found.setdefault(name.decode(), value.decode("latin-1"))
        return Answer(event.status_code, found)

    def part(self) -> Reading[bytes]:
        """Return the next bytes of the body; none after the last."""
        while not isinstance(event := (yield from self._event()), h11.Data):
            if isinstance(event, h11.EndOfMessage):
                return b""
        return bytes(event.data)

    def whole(self, most: int) -> Reading[Answer]:
        """Return an answer with its body, which has at most `most` bytes."""
        head = yield from self.head()
        body = bytearray()
        while part := (yield from self.part()):
            body += part
            if len(body) > most:
                raise TooLongError("answer too long")
        return head._replace(body=bytes(body))

    def kept(self) -> bool:
        """Return whether the connection can be used again, after a whole answer."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    def _event(self) -> Reading[object]:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                data = yield
                if not data and not self._answered:
                    raise ConnectionResetError("the connection was closed without an answer")
                self._answered = True
                self._http.receive_data(data)
        except h11.RemoteProtocolError as error:
            raise AnswerError(f"that is not HTTP: {error}") from None
        return event
