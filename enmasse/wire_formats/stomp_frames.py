"""Frames of STOMP 1.0, 1.1 and 1.2: bytes to frames, which are bounded, and back. Pure.

Headers of CONNECT and CONNECTED have no escapes in any version, so that versions can be agreed on; those of 1.0 never
have. Of a repeated header the first one counts. Ends of lines may have a carriage return, of 1.1 too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

V10, V11, V12 = "1.0", "1.1", "1.2"
VERSIONS: Final = (V10, V11, V12)
EARLY: Final = 16 << 10
"""Bytes of the frame of a client that has not logged in."""
HEAD: Final = 64 << 10
"""Bytes of a command and its headers."""
HEADERS: Final = 512
"""Headers of a frame."""
LONGEST_COMMAND: Final = 32
BEAT: Final = b"\n"
_ESCAPES: Final = {
    V11: {"n": "\n", "c": ":", "\\": "\\"},
    V12: {"n": "\n", "c": ":", "\\": "\\", "r": "\r"},
}
_TO_ESCAPE: Final = re.compile(r"[\\\r\n:]")
_WRITTEN: Final = {"\\": "\\\\", "\n": "\\n", ":": "\\c", "\r": "\\r"}
_BREAKS: Final = re.compile(r"[\r\n\0]+")
_PLAIN: Final = frozenset(("CONNECT", "STOMP", "CONNECTED"))
"""Commands whose headers have no escapes."""


class BadFrame(Exception):
    """Bytes of a client are no frame, or one that is too large. The text says what is wrong."""


class StompFrame(NamedTuple):
    """A frame of a client."""

    command: str
    headers: dict[str, str]
    body: bytes = b""


class StompParser:
    """Bytes in any pieces to frames. `most`: bytes of a body. `version`: agreed on; None: the client has not connected,
    and its frame has EARLY bytes at most."""

    def __init__(self, most: int) -> None:
        self.version: str | None = None
        self.most = most
        self._buffer = bytearray()
        self._at = 0  # where the next frame begins
        self._seen = 0  # up to where the end of the head, or of the body, was looked for
        self._head: tuple[str, dict[str, str], int, int] | None = None  # and where the body begins, its length or -1

    @property
    def kept(self) -> int:
        """Return the bytes that are kept."""
        return len(self._buffer) - self._at

    @property
    def under_way(self) -> bool:
        """Return whether a frame has begun and is not complete."""
        return self._head is not None or self.kept > 0

    def clear(self) -> None:
        """Forget what has come: nothing more is read."""
        self._buffer = bytearray()
        self._at = self._seen = 0
        self._head = None

    def feed(self, data: bytes) -> None:
        """Take bytes of the client."""
        self._buffer += data

    def next(self) -> StompFrame | None:
        """Return the next frame; None: it is not complete yet. Raises BadFrame."""
        if self._head is None and not self._read_head():
            return None
        assert self._head is not None
        command, headers, begin, length = self._head
        buffer = self._buffer
        if length < 0:
            end = buffer.find(0, self._seen)
            if end < 0:
                self._seen = len(buffer)
                if self._seen - begin > self._most_now():
                    raise BadFrame(f"the body has more than {self._most_now()} bytes")
                return None
            if end - begin > self._most_now():
                raise BadFrame(f"the body has more than {self._most_now()} bytes")
        else:
            end = begin + length
            if len(buffer) <= end:
                return None
            if buffer[end]:
                raise BadFrame(f"behind the {length} bytes that content-length states there is no NUL")
        body = bytes(memoryview(buffer)[begin:end]) if end > begin else b""
        self._head = None
        self._done(end + 1)
        return StompFrame(command, headers, body)

    def _done(self, at: int) -> None:
        self._at = self._seen = at
        if at == len(self._buffer):
            self._buffer = bytearray()
            self._at = self._seen = 0
        elif at > HEAD:
            del self._buffer[:at]
            self._at = self._seen = 0

    def _most_now(self) -> int:
        return EARLY if self.version is None else self.most

    def _read_head(self) -> bool:
        buffer, at, size = self._buffer, self._at, len(self._buffer)
        while at < size and buffer[at] in b"\r\n":  # heart-beats, and ends of lines behind a frame
            at += 1
        if at != self._at:
            self._done(at)
            buffer, at, size = self._buffer, self._at, len(self._buffer)
        if at == size:
            return False
        most = EARLY if self.version is None else HEAD
        begin = max(self._seen - 3, at)
        end, further = buffer.find(b"\n\n", begin), 2
        windows = buffer.find(b"\n\r\n", begin, end if end >= 0 else size)
        if windows >= 0:
            end, further = windows, 3
        if buffer.find(0, at, end if end >= 0 else size) >= 0:
            raise BadFrame("a NUL is in a command or header: a frame begins with a command, headers and an empty line")
        if end < 0:
            self._seen = size
            if buffer.find(10, at, at + LONGEST_COMMAND) < 0 and size - at >= LONGEST_COMMAND:
                raise BadFrame("a frame begins with a line that is no command of STOMP")
            if size - at > most:
                raise BadFrame(f"command and headers have more than {most} bytes")
            return False
        if end - at > most:
            raise BadFrame(f"command and headers have more than {most} bytes")
        command, headers = self._parsed(bytes(buffer[at:end]))
        begin = self._seen = end + further
        self._head = command, headers, begin, self._length(headers)
        return True

    def _parsed(self, head: bytes) -> tuple[str, dict[str, str]]:
        try:
            lines = head.decode().split("\n")
        except UnicodeDecodeError:
            raise BadFrame("headers are UTF-8") from None
        if len(lines) > HEADERS + 1:
            raise BadFrame(f"a frame has {HEADERS} headers at most")
        command = lines[0].removesuffix("\r")
        if not command.isascii() or not command.isalpha() or len(command) > LONGEST_COMMAND:
            raise BadFrame("a frame begins with a line that is no command of STOMP")
        escapes = None if command in _PLAIN else _ESCAPES.get(self.version or V10)
        headers: dict[str, str] = {}
        for at in range(1, len(lines)):
            name, colon, value = lines[at].removesuffix("\r").partition(":")
            if not colon or not name:
                raise BadFrame(f"the header {lines[at][:40]!r} is no NAME:VALUE")
            if escapes is not None:
                if "\\" in name:
                    name = _unescaped(name, escapes)
                if "\\" in value:
                    value = _unescaped(value, escapes)
            headers.setdefault(name, value)
        if self.version == V10 or (self.version is None and "accept-version" not in headers):
            headers = {name.strip(): value.strip() for name, value in headers.items()}  # as its examples are written
        return command, headers

    def _length(self, headers: dict[str, str]) -> int:
        text = headers.get("content-length")
        if text is None:
            return -1
        if not (text.isascii() and text.isdigit()) or len(text) > 12:
            raise BadFrame(f"content-length: expected a whole number, not {text[:40]!r}")
        length = int(text)
        if length > self._most_now():
            raise BadFrame(f"the body has {length} bytes, more than {self._most_now()}")
        return length


def _unescaped(text: str, escapes: dict[str, str]) -> str:
    pieces = text.split("\\")
    found = [pieces[0]]
    at = 1
    while at < len(pieces):
        piece = pieces[at]
        if not piece:  # \\, and what follows is plain
            if at + 1 == len(pieces):
                raise BadFrame("a header ends with a backslash, which begins an escape")
            found.append("\\" + pieces[at + 1])
            at += 2
            continue
        meant = escapes.get(piece[0])
        if meant is None:
            raise BadFrame(f"a header has the escape \\{piece[0]}, which is not defined")
        found.append(meant + piece[1:])
        at += 1
    return "".join(found)


def _escaped(text: str, version: str) -> str:
    if not _TO_ESCAPE.search(text):
        return text
    if version == V10:
        return _BREAKS.sub(" ", text)
    if version == V11:
        text = text.replace("\r", "")
    return _TO_ESCAPE.sub(lambda found: _WRITTEN[found[0]], text)


def encoded(command: str, headers: Iterable[tuple[str, str]], body: bytes = b"", version: str = V12) -> bytes:
    """Return the bytes of a frame. What a version cannot hold in a header is left out of it: breaks of lines of 1.0,
    carriage returns of 1.1."""
    lines = [command]
    if command in _PLAIN:
        lines += [f"{name}:{_BREAKS.sub(' ', value)}" for name, value in headers]
    else:
        for name, value in headers:
            name = _escaped(name, version) if version != V10 else _BREAKS.sub(" ", name).replace(":", "_")
            lines.append(f"{name}:{_escaped(value, version)}")
    if body:
        lines.append(f"content-length:{len(body)}")
    return ("\n".join(lines) + "\n\n").encode("utf-8", "replace") + body + b"\0"
