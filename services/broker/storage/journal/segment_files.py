"""Files of the segments: the list of them, reading and deleting."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Sequence
from pathlib import Path

from services.broker.storage.journal import summary
from services.broker.storage.journal.chunk import Segment
from services.broker.storage.journal.file_operations import File, Files
from services.broker.storage.journal.segment import (
    BATCH,
    FOOTER,
    GROUP,
    HEAD_SIZE,
    OFFSET_BITS,
    Piece,
    check,
    members,
    salt,
    walk,
)

READ_AHEAD = 128 << 10
READERS = 16


class DamagedError(LookupError):
    """Raised for a record that is deleted, or whose bytes differ from those written: it can never be read."""


class SegmentFiles:
    """Segments of the journal on disk, and the files that are open for reading. Offsets and sizes are bytes. All
    methods but `unlink` belong to the thread of the event loop."""

    def __init__(self, directory: Path, files: Files) -> None:
        self.directory = directory
        self.files = files
        self.by_number: dict[int, Segment] = {}  # in ascending order
        self.leaving: set[int] = set()  # taken out: being deleted, or deleted after the next start
        self._readers: dict[int, File] = {}  # files open for reading, oldest first
        self._ahead: tuple[int, int, bytes] = (0, 0, b"")  # segment, offset, bytes read ahead
        self._last_read = 0

    def exists(self, number: int) -> bool:
        """Return True if the segment may be on disk."""
        return number in self.by_number or number in self.leaving

    @property
    def disk_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(s.size for s in self.by_number.values())

    # -- reading -------------------------------------------------------------------------------------------------------
    def record(self, segment: Segment, offset: int, size: int) -> tuple[int, memoryview]:
        """Return (kind, payload) of the record; `size`: of the record with its head. Raises DamagedError (lost for
        good) and OSError (it cannot be read now; the record may be intact)."""
        data, at = self._near(segment, offset, size)
        piece = whole(data, at, offset, size, segment.number)
        if piece is None:  # again, without the read-ahead buffer
            data, at = self.reader(segment).read(offset, size), 0
            if len(data) < size:
                raise self._too_short(segment)
            piece = whole(data, at, offset, size, segment.number)
            if piece is None:
                raise damaged(segment, offset)
        kind, start, stop = piece
        return kind, memoryview(data)[start:stop]

    def _near(self, segment: Segment, offset: int, size: int) -> tuple[bytes, int]:
        """Return the bytes at `offset`, within a larger buffer if records are read sequentially."""
        number, start, ahead = self._ahead
        if number == segment.number and start <= offset and offset + size <= start + len(ahead):
            self._last_read = offset
            return ahead, offset - start
        near = number == segment.number and 0 <= offset - self._last_read <= READ_AHEAD
        want = min(max(size, READ_AHEAD if near else size), max(segment.end - offset, size))
        data = self.reader(segment).read(offset, want)
        self._ahead = (segment.number, offset, data)
        self._last_read = offset
        return data, 0

    def records(self, segment: Segment) -> Iterator[tuple[int, memoryview, int, int]]:
        """Yield (kind, payload, location, size with head) of every record of a closed segment. Raises OSError if the
        segment cannot be read now, DamagedError at the first damaged record."""
        data = self.reader(segment).read(0, segment.end)
        if len(data) < segment.end:
            raise self._too_short(segment)
        view = memoryview(data)
        base = segment.number << OFFSET_BITS
        for kind, start, stop in good_records(segment, data):
            if BATCH < kind < FOOTER:
                yield kind, view[start:stop], base | (start - HEAD_SIZE), stop - start + HEAD_SIZE

    def reader(self, segment: Segment) -> File:
        """Return the segment's file for reading; a bounded number of files is kept open."""
        if segment.file is not None:
            return segment.file
        file = self._readers.get(segment.number)
        if file is None:
            file = self._readers[segment.number] = self.files.open(segment.path)
            if len(self._readers) > READERS:
                self._readers.pop(next(iter(self._readers))).close()
        return file

    def _too_short(self, segment: Segment) -> OSError:
        self._forget_reader(segment.number)  # the operator may restore the file as another inode
        return too_short(segment)

    def forget_ahead(self) -> None:
        """Drop the read-ahead buffer, which may be out of date."""
        self._ahead = (0, 0, b"")

    # -- closing, deleting ---------------------------------------------------------------------------------------------
    def close(self, segment: Segment) -> None:
        """Close the file of a segment, for reading too."""
        if segment.file:
            with contextlib.suppress(OSError):
                segment.file.close()
        segment.file = None
        self._forget_reader(segment.number)

    def _forget_reader(self, number: int) -> None:
        file = self._readers.pop(number, None)
        if file:
            with contextlib.suppress(OSError):
                file.close()

    def take_out(self, numbers: Sequence[int]) -> list[Segment]:
        """Take segments out before their deletion: they are no longer read."""
        self.leaving.update(numbers)
        gone = [self.by_number.pop(number) for number in numbers]
        for segment in gone:
            self.close(segment)
        return gone

    def unlink(self, gone: Sequence[Segment]) -> OSError | None:
        """Delete segments that were taken out, durably. After an error some of them may still exist."""
        try:
            for segment in gone:
                # the summary first: a summary without its segment would mean that the segment is missing
                with contextlib.suppress(FileNotFoundError):
                    self.files.unlink(summary.path_of(segment.path))
                self.files.unlink(segment.path)
            self.files.sync_dir(self.directory)
        except OSError as e:
            return e
        return None

    def left(self, gone: Sequence[int]) -> None:
        """Record that these segments are deleted."""
        self.leaving.difference_update(gone)


def whole(data: bytes, at: int, offset: int, size: int, number: int) -> Piece | None:
    """Return the record of exactly this size at `data[at]`, which is at `offset` of the segment."""
    if len(data) < at + size:
        return None
    piece = check(data, at, offset, at + size, salt(number))
    return piece if piece is not None and piece[2] == at + size else None


def good_records(segment: Segment, data: bytes) -> Iterator[Piece]:
    """Yield the records of a completely read segment, those of a group one by one. Raises DamagedError at the first
    invalid bytes."""
    for piece in walk(data, segment.number, len(data)):
        if piece[0] < 0:
            raise damaged(segment, piece[1])
        if piece[0] == GROUP:
            yield from members(data, piece[1], piece[2])
        else:
            yield piece


def too_short(segment: Segment) -> OSError:
    """Return the error for a file that ends before a record that was written to it."""
    return OSError(errno.EIO, "the file is shorter than what was written to it", str(segment.path))


def damaged(segment: Segment, offset: int) -> DamagedError:
    """Return the error for a record whose checksum is wrong."""
    return DamagedError(f"{segment.path}: offset {offset}: the record is damaged")
