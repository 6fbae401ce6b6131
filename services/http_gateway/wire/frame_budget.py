"""How much an HTTP/2 peer may send of what costs it little and the server much: resets, pings, settings, empty frames,
header blocks over many frames (CVE-2023-44487, CVE-2024-27316 and those before them). Pure: counts frames by their
heads, before the parser has them."""

from __future__ import annotations

from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_BLOCK: Final = 32 << 10
"""Bytes of the frames of one header block."""
BUDGET: Final = 200
"""Costly frames that a peer may send at once."""
REFILL: Final = 20.0
"""Costly frames that may follow each second."""
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _CONTINUATION = 0, 1, 3, 4, 6, 9
_PRIORITY, _WINDOW = 2, 8
_COSTLY: Final = frozenset((_RESET, _SETTINGS, _PING, _PRIORITY))
WINDOWS: Final = 0.05
"""Cost of a WINDOW_UPDATE in the budget: one a frame of data is usual."""


class Flood(Exception):
    """The peer has sent too much of it; the text says of what."""


class FrameBudget:
    """Frames of one connection."""

    def __init__(self) -> None:
        self._left = float(BUDGET)
        self._since = 0.0
        self._skip = len(PREFACE)
        self._head = b""
        self._block = 0
        self._latest = 0

    def feed(self, data: bytes, now: float, streams: int | None = None) -> int:
        """Count the frames in these bytes, which follow those that were counted before. Return how many bytes that
        are: all, or those before the HEADERS of one stream more than `streams`. Raises Flood."""
        if self._since:
            self._left = min(BUDGET, self._left + (now - self._since) * REFILL)
        self._since = now
        at, size = 0, len(data)
        while at < size:
            if self._skip:
                step = min(self._skip, size - at)
                self._skip -= step
                at += step
                continue
            step = min(9 - len(self._head), size - at)
            self._head += data[at : at + step]
            at += step
            if len(self._head) < 9:
                break
            stream = int.from_bytes(self._head[5:]) & 0x7FFFFFFF
            if self._head[3] == _HEADERS and stream > self._latest:
                if streams is not None:
                    if not streams:
                        self._head = self._head[: 9 - step]
                        return at - step
                    streams -= 1
                self._latest = stream
            self._frame(self._head)
            self._skip = int.from_bytes(self._head[:3])
            self._head = b""
        return size

    def _frame(self, head: bytes) -> None:
        length, kind, flags = int.from_bytes(head[:3]), head[3], head[4]
        if kind in (_HEADERS, _CONTINUATION):
            self._block = length if kind == _HEADERS else self._block + length
            if self._block > HEADER_BLOCK:
                raise Flood(f"a header block of more than {HEADER_BLOCK} bytes")
            if kind == _CONTINUATION and length < 64:
                self._spend(1.0, "small CONTINUATION frames")
        elif kind in _COSTLY:
            self._spend(1.0, "RST_STREAM, PING, SETTINGS and PRIORITY frames")
        elif kind == _WINDOW:
            self._spend(WINDOWS, "WINDOW_UPDATE frames")
        elif kind == _DATA and not length and not flags & 1:
            self._spend(1.0, "empty DATA frames")

    def _spend(self, cost: float, what: str) -> None:
        self._left -= cost
        if self._left < 0:
            raise Flood(f"too many {what}")
