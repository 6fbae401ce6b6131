"""The files of the segments: which there are, reading from them, deleting them."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Sequence
from pathlib import Path

from services.broker.storage import summary
from services.broker.storage.chunk import Segment
from services.broker.storage.files import File, Files
from services.broker.storage.segment import BATCH, FOOTER, HEAD_SIZE, OFFSET_BITS, Piece, check, salt, walk

READ_AHEAD = 128 << 10
READERS = 16


class DamagedError(LookupError):
    """A record is not there any more, or was read and is not what was written: it will never be read."""


class SegmentFiles:
    """Offsets and sizes are bytes. All methods but `unlink` belong to the thread of the loop."""

    def __init__(self, directory: Path, files: Files) -> None:
        self.directory = directory
        self.files = files
        self.by_number: dict[int, Segment] = {}  # in order
        self.leaving: set[int] = set()  # taken out: being deleted, or to be deleted after the next start
        self._readers: dict[int, File] = {}  # files open for reading, the oldest first
        self._ahead: tuple[int, int, bytes] = (0, 0, b"")  # segment, offset, bytes read ahead
        self._last_read = 0

    def exists(self, number: int) -> bool:
        """Whether the segment may be on disk."""
        return number in self.by_number or number in self.leaving

    @property
    def disk_bytes(self) -> int:
        return sum(s.size for s in self.by_number.values())

    # -- reading -------------------------------------------------------------------------------------------------------
    def record(self, segment: Segment, offset: int, size: int) -> tuple[int, memoryview]:
        """(kind, payload) of the record; `size`: of the record with its head. Raises DamagedError (gone for good) and
        OSError (it cannot be read now, which states nothing about the record)."""
        data, at = self._near(segment, offset, size)
        piece = whole(data, at, offset, size, segment.number)
        if piece is None:  # once more, and not from what was read ahead
            data, at = self.reader(segment).read(offset, size), 0
            if len(data) < size:
                raise self._too_short(segment)
            piece = whole(data, at, offset, size, segment.number)
            if piece is None:
                raise damaged(segment, offset)
        kind, start, stop = piece
        return kind, memoryview(data)[start:stop]

    def _near(self, segment: Segment, offset: int, size: int) -> tuple[bytes, int]:
        """The bytes at `offset`, within a larger buffer if records are read one after the other."""
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
        """(kind, payload, location, size with head) of every record of a segment that is not written to any more.
        Raises OSError if it cannot be read as a whole now, DamagedError at the first record that is damaged."""
        data = self.reader(segment).read(0, segment.end)
        if len(data) < segment.end:
            raise self._too_short(segment)
        view = memoryview(data)
        base = segment.number << OFFSET_BITS
        for kind, start, stop in good_records(segment, data):
            if BATCH < kind < FOOTER:
                yield kind, view[start:stop], base | (start - HEAD_SIZE), stop - start + HEAD_SIZE

    def reader(self, segment: Segment) -> File:
        """A file to read from; a few are kept open, however many segments there are."""
        if segment.file is not None:
            return segment.file
        file = self._readers.get(segment.number)
        if file is None:
            file = self._readers[segment.number] = self.files.open(segment.path)
            if len(self._readers) > READERS:
                self._readers.pop(next(iter(self._readers))).close()
        return file

    def _too_short(self, segment: Segment) -> OSError:
        self._forget_reader(segment.number)  # the file may be put back as another one
        return too_short(segment)

    def forget_ahead(self) -> None:
        """What was read ahead may not be what is there."""
        self._ahead = (0, 0, b"")

    # -- closing, deleting ---------------------------------------------------------------------------------------------
    def close(self, segment: Segment) -> None:
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
        """To be deleted: nobody reads them any more."""
        self.leaving.update(numbers)
        gone = [self.by_number.pop(number) for number in numbers]
        for segment in gone:
            self.close(segment)
        return gone

    def unlink(self, gone: Sequence[Segment]) -> OSError | None:
        """Deletes durably what was taken out. With an error some may still be there."""
        try:
            for segment in gone:
                with contextlib.suppress(FileNotFoundError):  # first: one without a segment means that it is missing
                    self.files.unlink(summary.path_of(segment.path))
                self.files.unlink(segment.path)
            self.files.sync_dir(self.directory)
        except OSError as e:
            return e
        return None

    def left(self, gone: Sequence[int]) -> None:
        """They are deleted."""
        self.leaving.difference_update(gone)


def whole(data: bytes, at: int, offset: int, size: int, number: int) -> Piece | None:
    """The record of just this size at `data[at]`, which is at `offset` of the segment."""
    if len(data) < at + size:
        return None
    piece = check(data, at, offset, at + size, salt(number))
    return piece if piece is not None and piece[2] == at + size else None


def good_records(segment: Segment, data: bytes) -> Iterator[Piece]:
    """Those of a segment read as a whole. Raises DamagedError at the first bytes that are none."""
    for piece in walk(data, segment.number, len(data)):
        if piece[0] < 0:
            raise damaged(segment, piece[1])
        yield piece


def too_short(segment: Segment) -> OSError:
    return OSError(errno.EIO, "the file is shorter than what was written to it", str(segment.path))


def damaged(segment: Segment, offset: int) -> DamagedError:
    return DamagedError(f"{segment.path}: offset {offset}: the record is damaged")
