"""Sparse index of a segment of the spool, in a file beside it, so that reading a range costs the bytes of the range.

`00000000000000000000.idx` has an entry for the first record of about each STRIDE bytes of the segment of that name:

    record u64 | position in the segment u64 | the record's own crc32 u32 | crc32 of these 20 bytes u32

The index is a hint. It is written after the segment's sync and never synced itself; a reader believes an entry only if
both sums agree, and without one reads the segment from its beginning, as those of earlier releases are. The writer of a
spool makes the index of the last segment again when it opens the spool.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ENTRY = struct.Struct(">QQII")
STRIDE = 64 << 10


class IndexEntry(NamedTuple):
    """Record number, where the record begins in its segment (bytes), and the crc32 that the record states."""

    record: int
    position: int
    crc: int


def index_of(segment: Path) -> Path:
    """Return the index file of a segment file."""
    return segment.with_suffix(".idx")


def packed(entry: IndexEntry) -> bytes:
    """Return the bytes of an entry, with their sum."""
    bare = ENTRY.pack(*entry, 0)[:-4]
    return bare + zlib.crc32(bare).to_bytes(4, "big")


class SegmentIndex:
    """Index of a segment as readers use it: its entries up to the first that is torn or damaged."""

    def __init__(self, segment: Path) -> None:
        """A segment without an index, or one that cannot be read, has one without entries."""
        self._entries: list[IndexEntry] = []
        try:
            data = index_of(segment).read_bytes()
        except OSError:
            return
        for at in range(0, len(data) - ENTRY.size + 1, ENTRY.size):
            *values, check = ENTRY.unpack_from(data, at)
            if zlib.crc32(data[at : at + ENTRY.size - 4]) != check:
                return
            self._entries.append(IndexEntry(*values))

    def before(self, record: int) -> IndexEntry | None:
        """Return the last entry at or before `record`."""
        at = bisect_right(self._entries, record, key=lambda entry: entry.record)
        return self._entries[at - 1] if at else None

    def at_or_after(self, record: int) -> IndexEntry | None:
        """Return the first entry at or after `record`."""
        at = bisect_left(self._entries, record, key=lambda entry: entry.record)
        return self._entries[at] if at < len(self._entries) else None

    def before_position(self, position: int) -> IndexEntry | None:
        """Return the last entry whose record begins at or before `position` (bytes)."""
        at = bisect_right(self._entries, position, key=lambda entry: entry.position)
        return self._entries[at - 1] if at else None


class IndexWriter:
    """Index of the segment that is written. An entry that cannot be written is left out."""

    def __init__(self, segment: Path, entries: Iterable[IndexEntry] = ()) -> None:
        """Make a new index with these entries. If the file cannot be made, the segment has no index."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        self._file = -1
        with contextlib.suppress(OSError):
            self._file = os.open(index_of(segment), flags, 0o600)
        self._size = 0
        self.wanted = 0
        """Position from which on `offer` takes an entry."""
        self._pending: list[IndexEntry] = []
        for entry in entries:
            self.offer(entry)
        self.flush()

    def offer(self, entry: IndexEntry) -> None:
        """Take a record's entry for the next `flush` if it is STRIDE bytes or more behind the last one."""
        if entry.position >= self.wanted:
            self.wanted = entry.position + STRIDE
            self._pending.append(entry)

    def discard(self) -> None:
        """Forget what was taken since the last `flush`: the records were not stored."""
        if self._pending:
            self.wanted = self._pending[0].position  # the one that is stored there instead will do as well
            self._pending.clear()

    def flush(self) -> None:
        """Write the entries: their records are stored."""
        data = b"".join(map(packed, self._pending))
        self._pending.clear()
        if not data or self._file < 0:
            return
        written = 0
        with contextlib.suppress(OSError):
            written = os.write(self._file, data)
        if written == len(data):
            self._size += written
        else:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)  # half an entry would hide those behind it

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
