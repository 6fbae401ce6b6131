"""State of a segment's file in the journal, and the records gathered for it until they are written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from services.broker.storage.journal.file_operations import File
from services.broker.storage.journal.segment import FIRST, HEAD, HEAD_SIZE, OFFSET_BITS


class Segment:
    """One segment. `end`: end of the committed bytes; `size`: allocated bytes; `file`: open while it is being written;
    `kept`: its records other than messages, for its summary (None: to be read from the file); `summarised`: True once
    the summary is on disk."""

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
        """Return the bytes to be written."""
        return b"".join(self.parts)

    def records(self) -> Iterator[tuple[int, memoryview, int]]:
        """Yield (kind, payload, location) of each record, from memory."""
        data = memoryview(self.data())
        at = 0
        while at < len(data):
            _, kind, length, _ = HEAD.unpack_from(data, at)
            start = at + HEAD_SIZE
            yield kind, data[start : start + length], self.segment.number << OFFSET_BITS | (self.start + at)
            at = start + length
