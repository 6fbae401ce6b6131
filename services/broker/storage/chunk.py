"""What the journal keeps of a segment's file, and the records gathered for it until they are written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from services.broker.storage.files import File
from services.broker.storage.segment import FIRST, HEAD, HEAD_SIZE, OFFSET_BITS


class Segment:
    """One file. `end`: what is committed ends here; `size`: what is allocated; `file`: while it is written to; `kept`:
    its records that are not messages, for its summary (None: to be read again); `summarised`: that is on disk."""

    __slots__ = ("end", "file", "kept", "number", "path", "previous", "previous_end", "size", "summarised")

    def __init__(self, number: int, path: Path, size: int) -> None:
        self.number = number
        self.path = path
        self.size = size
        self.end = FIRST
        self.previous = self.previous_end = 0
        self.file: File | None = None
        self.kept: list[tuple[int, bytes]] | None = None
        self.summarised = False


class Chunk:
    """Records gathered for one segment, to be written at `start`."""

    __slots__ = ("parts", "segment", "start", "stop")

    def __init__(self, segment: Segment, start: int) -> None:
        self.segment = segment
        self.start = start
        self.stop = start
        self.parts: list[bytes | bytearray | memoryview] = []

    def data(self) -> bytes:
        return b"".join(self.parts)

    def records(self) -> Iterator[tuple[int, memoryview, int]]:
        """(kind, payload, location) of each, from memory."""
        data = memoryview(self.data())
        at = 0
        while at < len(data):
            _, kind, length, _ = HEAD.unpack_from(data, at)
            start = at + HEAD_SIZE
            yield kind, data[start : start + length], self.segment.number << OFFSET_BITS | (self.start + at)
            at = start + length
