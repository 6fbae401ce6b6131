"""Masks of WebSocket frames: a client must mask every frame (RFC 6455, 5.1), which aiohttp does not check."""

from __future__ import annotations

from typing import Final

_MASKED: Final = 0x80
_FURTHER: Final = {126: 2, 127: 8}
"""Bytes of the extended payload length, by the value that announces it (5.2)."""


class MaskCheck:
    """Headers of the frames of one connection, in whatever pieces they come."""

    __slots__ = ("_head", "_payload")

    def __init__(self) -> None:
        self._head = b""  # of a frame whose header is not complete
        self._payload = 0  # bytes of the current frame that are still to come

    def masked(self, data: bytes) -> bool:
        """Return False if a frame that begins in `data` is not masked."""
        at = self._payload
        while at < len(data):
            head = self._head + data[at : at + 14 - len(self._head)]
            if len(head) < 2:
                self._head, self._payload = head, 0
                return True
            if not head[1] & _MASKED:
                return False
            size = head[1] & 0x7F
            further = _FURTHER.get(size, 0)
            length = 2 + further + 4
            if len(head) < length:
                self._head, self._payload = head, 0
                return True
            if further:
                size = int.from_bytes(head[2 : 2 + further], "big")
            at += length - len(self._head) + size
            self._head = b""
        self._payload = at - len(data)
        return True
