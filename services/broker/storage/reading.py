"""Reads many payloads that are stored one after the other, such as those of a long queue."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from services.broker.storage.index import Index
from services.broker.storage.journal.records import META1, payload_start
from services.broker.storage.journal.segment import HEAD, HEAD_SIZE, MAGIC, OFFSET_BITS, OFFSET_MASK, salt
from services.broker.storage.journal.segment_files import SegmentFiles

_PIECE = 1 << 20  # bytes read in one go
_USUAL = b"\0\1\0"  # in a record's META: no flags, one queue (the usual case)


def read_payloads(index: Index, files: SegmentFiles, messages: Sequence[int]) -> dict[int, bytes]:
    """Return payloads by message, without those that are not on disk yet or cannot be read (`Store.load` raises
    why)."""
    payloads: dict[int, bytes] = {}
    places = [(message, *found) for message in messages if (found := index.find(message))]
    at = 0
    while at < len(places):
        first = places[at][1]
        stop = at
        end = 0
        while stop < len(places):
            _, location, size = places[stop]
            if stop > at and (location < first + end or location + size > first + _PIECE):
                break
            end = location + size - first
            stop += 1
        _read(files, first, end, places[at:stop], payloads)
        at = stop
    return payloads


def _read(
    files: SegmentFiles, first: int, size: int, places: Sequence[tuple[int, int, int]], payloads: dict[int, bytes]
) -> None:
    number, offset = first >> OFFSET_BITS, first & OFFSET_MASK
    segment = files.by_number.get(number)
    if segment is None:
        return
    try:
        data = files.reader(segment).read(offset, min(size, segment.end - offset)) if offset < segment.end else b""
    except OSError:
        return
    view = memoryview(data)
    seed = salt(number)
    there = len(data)
    head, crc32 = HEAD.unpack_from, zlib.crc32
    for message, location, length in places:
        at = location - first
        start, stop = at + HEAD_SIZE, at + length
        if stop > there:
            break
        magic, kind, inner, crc = head(data, at)
        record = view[start:stop]
        known = crc32(record, (seed ^ (offset + at) ^ (inner << 8) ^ (kind << 24)) & 0xFFFFFFFF)
        if magic != MAGIC or known != crc or start + inner != stop:
            continue
        start += META1.size if record[9:12] == _USUAL else payload_start(record)
        payloads[message] = data[start:stop]
