"""Records that are appended and not written yet, with their future segments and locations. Does not access files."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

from services.broker.storage.journal.chunk import Chunk, Segment
from services.broker.storage.journal.segment import (
    BATCH,
    FIRST,
    FOOTER,
    GROUP,
    HEAD,
    HEAD_SIZE,
    MAGIC,
    OFFSET_BITS,
    OFFSET_MASK,
    path_of,
    record,
    salt,
)

Part = bytes | bytearray | memoryview


class Gathering:
    """The open end of the journal. `segments`: by number; a new segment is entered when it begins."""

    def __init__(
        self, directory: Path, segments: dict[int, Segment], segment_size: int, repeat: frozenset[int]
    ) -> None:
        """`repeat`: kinds of records that are kept in memory for the summary of their segment."""
        self.segment_size = segment_size
        self.segment: Segment | None = None  # segment being appended to
        self.chunks: list[Chunk] = []  # the last one is being appended to
        self.next_number = 1
        self._directory = directory
        self._segments = segments
        self._repeat = repeat
        self._kept: list[tuple[int, bytes]] = []  # records for the summary of that segment
        self._parts: list[Part] = []  # parts of the last chunk
        self._at = 0  # offset of the next record
        self._limit = 0  # offset at which the segment is full
        self._base = self._salt = 0
        self._group = -1  # index of the part that becomes the head of the open group
        self._group_at = self._group_limit = 0

    def append(self, kind: int, *parts: Part) -> int:
        """Append one record in memory. Return its location. The parts must not change until the commit has finished."""
        size = 0
        for part in parts:
            size += len(part)
        at = self._at
        stop = at + HEAD_SIZE + size
        if stop > self._limit:
            self.roll(size)
            at = self._at
            stop = at + HEAD_SIZE + size
        crc = (self._salt ^ at ^ (size << 8) ^ (kind << 24)) & 0xFFFFFFFF
        for part in parts:
            crc = zlib.crc32(part, crc)
        head = HEAD.pack(MAGIC, kind, size, crc)
        self._parts.append(head)
        self._parts += parts
        if kind in self._repeat:
            self._kept.append((at, b"".join((head, *parts))))
        self._at = stop
        return self._base | at

    def append_pair(self, kind: int, head: bytes, payload: Part) -> int:
        """`append` for two parts, optimised because every message passes here."""
        size = len(head) + len(payload)
        at = self._at
        stop = at + HEAD_SIZE + size
        if stop > self._limit:
            return self.append(kind, head, payload)
        seed = (self._salt ^ at ^ (size << 8) ^ (kind << 24)) & 0xFFFFFFFF
        parts = self._parts
        parts.append(HEAD.pack(MAGIC, kind, size, zlib.crc32(payload, zlib.crc32(head, seed))) + head)
        parts.append(payload)
        self._at = stop
        return self._base | at

    def append_run(self, kind: int, heads: Sequence[bytes], payloads: Sequence[bytes]) -> list[int]:
        """`append_pair` for several records. Return their locations."""
        crc32, pack = zlib.crc32, HEAD.pack
        locations: list[int] = []
        at, parts, limit, base, seed = self._at, self._parts, self._limit, self._base, self._salt ^ (kind << 24)
        for head, payload in zip(heads, payloads, strict=True):
            size = len(head) + len(payload)
            stop = at + HEAD_SIZE + size
            if stop > limit:
                self._at = at
                self.roll(size)
                at, parts, limit, base, seed = self._at, self._parts, self._limit, self._base, self._salt ^ (kind << 24)
                stop = at + HEAD_SIZE + size
            crc = crc32(payload, crc32(head, (seed ^ at ^ (size << 8)) & 0xFFFFFFFF))
            parts += (pack(MAGIC, kind, size, crc), head, payload)
            locations.append(base | at)
            at = stop
        self._at = at
        return locations

    # -- groups --------------------------------------------------------------------------------------------------------
    def begin_group(self, size: int) -> None:
        """Records appended from now on are one: all are read again, or none. `size`: their bytes together, about; a
        segment without that room is left. The group stays in one segment, which grows if it must."""
        assert self._group < 0, "a group in a group"
        if self._at + HEAD_SIZE + size > self._limit:
            self.roll(HEAD_SIZE + size)
        self._group, self._group_at, self._group_limit = len(self._parts), self._at, self._limit
        self._parts.append(bytes(HEAD_SIZE))
        self._at += HEAD_SIZE
        self._limit = OFFSET_MASK

    def end_group(self) -> None:
        """End the group. One without records leaves no trace."""
        parts, index, at = self._parts, self._group, self._group_at
        self._group, self._limit = -1, self._group_limit
        size = self._at - at - HEAD_SIZE
        if not size:
            del parts[index]
            self._at = at
            return
        crc = (self._salt ^ at ^ (size << 8) ^ (GROUP << 24)) & 0xFFFFFFFF
        for part in parts[index + 1 :]:
            crc = zlib.crc32(part, crc)
        parts[index] = HEAD.pack(MAGIC, GROUP, size, crc)
        assert self.segment is not None
        if self.segment.file is None:  # it is made with that size
            self.segment.size = max(self.segment.size, self._at + 2 * HEAD_SIZE)

    def drop_group(self) -> None:
        """End the group without its records."""
        del self._parts[self._group :]
        self._at, self._limit, self._group = self._group_at, self._group_limit, -1
        while self._kept and self._kept[-1][0] >= self._at:
            self._kept.pop()

    # -- segments ------------------------------------------------------------------------------------------------------
    def roll(self, size: int) -> None:
        """Begin a new segment with room for a record of this payload size; its file is created by the write."""
        last = self.segment
        if last is None and self._segments:
            last = self._segments[max(self._segments)]
            end = last.end
        else:
            if last is not None:
                self._append_footer()
            end = self._at
        number = self.next_number
        self.next_number += 1
        allocated = max(self.segment_size, FIRST + 3 * HEAD_SIZE + size)
        segment = Segment(number, path_of(self._directory, number), allocated)
        if last:
            segment.previous, segment.previous_end = last.number, end
        self._close_chunk()
        self._segments[number] = self.segment = segment
        self._base = number << OFFSET_BITS
        self._salt = salt(number)
        self._at = FIRST
        self._limit = segment.size - 2 * HEAD_SIZE  # the BATCH record of the next batch, and the FOOTER, always fit
        segment.kept = self._kept = []
        self._begin_chunk()

    def end_segment(self) -> int:
        """Append a FOOTER. Return the offset at which the segment then ends."""
        self._append_footer()
        return self._at

    def _append_footer(self) -> None:
        assert self.segment is not None
        self._parts.append(record(FOOTER, self.segment.number, self._at))
        self._at += HEAD_SIZE

    def _begin_chunk(self) -> None:
        segment = self.segment
        assert segment is not None
        chunk = Chunk(segment, self._at)
        self.chunks.append(chunk)
        self._parts = chunk.parts
        self._parts.append(record(BATCH, segment.number, self._at))
        self._at += HEAD_SIZE

    def _close_chunk(self) -> None:
        if self.chunks:
            self.chunks[-1].stop = self._at

    @property
    def holds_records(self) -> bool:
        """Return True if there is more than the BATCH record of the next batch."""
        return len(self._parts) > 1 or len(self.chunks) > 1

    @property
    def current(self) -> int:
        """Number of the segment being appended to; 0 before the first one."""
        return self.segment.number if self.segment else 0

    @property
    def place(self) -> int:
        """Location of the next record, or a lower one."""
        return self._base | self._at if self.segment else self.next_number << OFFSET_BITS

    # -- handing over --------------------------------------------------------------------------------------------------
    def cut(self) -> list[Chunk]:
        """Return the gathered chunks for writing."""
        self._close_chunk()
        chunks, self.chunks = self.chunks, []
        self._begin_chunk()
        return chunks

    def drop(self) -> list[Chunk]:
        """Return the gathered chunks, which will not be written; the next record begins a new segment."""
        self._close_chunk()
        chunks, self.chunks = self.chunks, []
        self._parts = []
        self.segment = None
        self._limit = 0
        return chunks
