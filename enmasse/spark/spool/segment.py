"""Segment files of the spool, read: as chunks of bytes with the places of the messages in them, or as records.

A record is `length u32 | crc32 u32 | arrival ms u64 | message`, the message being the AMQP bare bytes as received.
A segment's name is the number of its first record. `enmasse.spark.spool.segment_index` finds where a range begins.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from enmasse.spark.errors import QueryError
from enmasse.spark.spool.segment_index import IndexEntry, SegmentIndex

RECORD = struct.Struct(">IIQ")
MAX_RECORD = 1 << 30
CHUNK_BYTES = 4 << 20
"""Most bytes that are read at once, but for a record that is longer."""
NO_END = 1 << 63


class SpoolError(QueryError):
    """The spool cannot be used: the text names the file and what to do."""


class SpoolRecord(NamedTuple):
    """Message of the spool with its number and the time of its arrival (milliseconds since 1970)."""

    offset: int
    arrived_ms: int
    message: bytes


class SpoolChunk(NamedTuple):
    """Records that follow each other from number `first` on: message i is `data[begins[i]:ends[i]]`.

    position: where `data` begins in the segment. arrived_ms: milliseconds since 1970, of each.
    """

    first: int
    position: int
    data: bytes
    begins: list[int]
    ends: list[int]
    arrived_ms: list[int]

    def record(self, index: int) -> SpoolRecord:
        """Return the record that is number `index` of the chunk, from 0."""
        message = self.data[self.begins[index] : self.ends[index]]
        return SpoolRecord(self.first + index, self.arrived_ms[index], message)

    def records(self) -> Iterator[SpoolRecord]:
        """Yield the records one by one."""
        return map(self.record, range(len(self.begins)))


def segment_name(first: int) -> str:
    """Return the file name of the segment that begins with record `first`."""
    return f"{first:020d}.seg"


def partition_folder(folder: Path, partition: int) -> Path:
    """Return the folder of a partition of a spool: that of the spool for 0, one below it for each further one."""
    return folder / f"partition-{partition}" if partition else folder


def partitions_of(folder: Path) -> int:
    """Return how many partitions a spool has: as many as receivers have ever written to it; 1 at least."""
    return partitions_in(path.name for path in folder.glob("partition-*"))


def partitions_in(names: Iterable[str]) -> int:
    """Return how many partitions a spool has whose folder contains these names."""
    numbers = [name.removeprefix("partition-") for name in names if name.startswith("partition-")]
    return 1 + max((int(number) for number in numbers if number.isdecimal()), default=0)


def segments(folder: Path) -> list[tuple[int, Path]]:
    """Return (number of the first record, file) of every segment, oldest first."""
    return sorted((int(path.stem), path) for path in folder.glob("*.seg") if path.stem.isdecimal())


def segment_chunks(path: Path, first: int, start: int, end: int) -> Iterator[SpoolChunk]:
    """Yield the records `start` <= offset < `end` of one segment file; ends early at a torn or damaged record.

    first: the number of the segment's first record.
    """
    index = SegmentIndex(path)
    behind = index.at_or_after(end)
    stop = NO_END if behind is None else behind.position  # a hint: where the range ends
    with path.open("rb") as file:
        offset, at = _beginning(file, index.before(start), first)
        most = CHUNK_BYTES
        while offset < end:
            file.seek(at)
            wanted = min(most, stop - at) if stop > at else most
            data = file.read(wanted)
            chunk, passed, used = parsed(data, at, offset, start, end)
            if chunk.begins:
                yield chunk
            offset, at, most = offset + passed, at + used, CHUNK_BYTES
            if not passed:
                most = _needed(data)
                if most <= len(data) or (len(data) < wanted and stop == NO_END):
                    return  # damaged, or torn
                stop = NO_END


def _beginning(file: BinaryIO, entry: IndexEntry | None, first: int) -> tuple[int, int]:
    """Return the number and the position of a record at or before the wanted one: the entry's if it is right."""
    if entry is not None and entry.record >= first:
        file.seek(entry.position)
        head = file.read(RECORD.size)
        if len(head) == RECORD.size and RECORD.unpack(head)[1] == entry.crc:
            return entry.record, entry.position
    return first, 0


def parsed(data: bytes, position: int, offset: int, start: int, end: int) -> tuple[SpoolChunk, int, int]:
    """Return the whole and undamaged records at the beginning of `data`, from `start` on and before `end`; how many
    records were passed, the first being number `offset`; and their bytes. position: of `data` in the segment."""
    begins: list[int] = []
    ends: list[int] = []
    arrivals: list[int] = []
    view, size, head = memoryview(data), len(data), RECORD.size
    unpack, crc32 = RECORD.unpack_from, zlib.crc32
    at, passed, most, before = 0, 0, end - offset, max(0, start - offset)
    while passed < most and at + head <= size:
        length, crc, arrived = unpack(data, at)
        begin = at + head
        stop = begin + length
        if stop > size:
            break
        if passed >= before:
            if crc32(view[begin:stop]) != crc:
                break
            begins.append(begin)
            ends.append(stop)
            arrivals.append(arrived)
        at = stop
        passed += 1
    return SpoolChunk(max(offset, start), position, data, begins, ends, arrivals), passed, at


def _needed(data: bytes) -> int:
    """Return how many bytes the record has that `data` begins with; 0 if there is no such record."""
    if len(data) < RECORD.size:
        return RECORD.size
    length = int(RECORD.unpack_from(data)[0])
    return RECORD.size + length if length <= MAX_RECORD else 0


def read_segment(path: Path, first: int, start: int, end: int) -> Iterator[SpoolRecord]:
    """Yield the records `start` <= offset < `end` of one segment file; ends early at a torn or damaged record."""
    for chunk in segment_chunks(path, first, start, end):
        yield from chunk.records()


def spool_chunks(folder: Path, start: int, end: int) -> Iterator[SpoolChunk]:
    """Yield the records of a range.

    Raises SpoolError if one is missing, because a commit has deleted it or this executor does not see the folder: Spark
    may read a range again, and must not get fewer records.
    """
    expected = start
    known = segments(folder)
    for index, (first, path) in enumerate(known):
        last = known[index + 1][0] if index + 1 < len(known) else end
        if last <= start or first >= end:
            continue
        for chunk in segment_chunks(path, first, start, min(end, last)):
            if chunk.first != expected:
                break
            expected += len(chunk.begins)
            yield chunk
    if expected != end:
        raise SpoolError(
            f"{folder}: record {expected} of the range {start}..{end} is not in the spool, or damaged. The folder must "
            "be the same for driver and executors, and must not be emptied while its checkpoint is in use"
        )


def end_within(folder: Path, start: int, end: int, most: int) -> int:
    """Return the end of the longest range from record `start` on, before `end`, of at most `most` bytes.

    It has one record at least. Bytes are those of the segments: a record has 16 more than its message. A range
    that is not in the spool ends where the spool does.
    """
    left, last = most, end
    known = segments(folder)
    for index, (first, path) in enumerate(known):
        following = known[index + 1][0] if index + 1 < len(known) else end
        if following <= start or first >= end:
            continue
        begin = _position(path, first, start) if first < start else 0
        size = path.stat().st_size - begin
        last = min(end, following)
        if size > left:
            return max(_last_within(path, first, max(first, start), last, begin + left), start + 1)
        left -= size
    return last


def _position(path: Path, first: int, record: int) -> int:
    """Return where a record begins in its segment."""
    for chunk in segment_chunks(path, first, record, record + 1):
        return chunk.position + chunk.begins[0] - RECORD.size
    return 0


def _last_within(path: Path, first: int, start: int, end: int, position: int) -> int:
    """Return one past the last record before `end` that ends at or before a position; `start` if none does."""
    entry = SegmentIndex(path).before_position(position)
    found = min(end, max(start, entry.record)) if entry is not None else start
    for chunk in segment_chunks(path, first, found, end):
        for stop in chunk.ends:
            if chunk.position + stop > position:
                return found
            found += 1
    return found


def read_spool(folder: Path, start: int, end: int) -> Iterator[SpoolRecord]:
    """Yield the records of a range one by one. Raises SpoolError as `spool_chunks` does."""
    for chunk in spool_chunks(folder, start, end):
        yield from chunk.records()
