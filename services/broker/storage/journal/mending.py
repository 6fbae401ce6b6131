"""Rebuilds a damaged segment from its readable records and its summary. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

from services.broker.storage.journal.records import COPY, MESSAGE, META, parse_message
from services.broker.storage.journal.segment import (
    BAD,
    FIRST,
    FOOTER,
    HEAD,
    HEAD_SIZE,
    MAGIC,
    PAD,
    TAIL,
    check,
    record,
    salt,
    walk,
)

Range = tuple[int, int]


def unreadable(data: bytes, number: int, end: int) -> list[Range]:
    """Return the ranges without valid records between the header and `end`, which may be beyond the data."""
    found: list[Range] = []
    at = FIRST
    for kind, start, stop in walk(data, number, min(end, len(data))):
        if kind in (BAD, TAIL):
            if found and found[-1][1] == start:
                start = found.pop()[0]
            found.append((start, stop))
        at = stop
    if at < end:
        if found and found[-1][1] == at:
            at = found.pop()[0]
        found.append((at, end))
    return found


def mend(
    data: bytes, number: int, ranges: Sequence[Range], end: int, head: bytes, kept: Iterable[tuple[int, bytes]]
) -> bytes:
    """Return the rebuilt segment with every record at its old offset. Unreadable ranges contain the records of these
    ranges that its summary has (`kept`), and padding."""
    mended = bytearray(data[:end].ljust(end, b"\0"))
    mended[:FIRST] = head
    records = sorted(kept)
    for start, stop in ranges:
        at = start
        for offset, found in records:
            if start <= offset and offset + len(found) <= stop and _is_whole(found, number, offset):
                mended[at:offset] = _filled(number, at, offset)
                mended[offset : offset + len(found)] = found
                at = offset + len(found)
        mended[at:stop] = _filled(number, at, stop, is_end=stop == end)
    return bytes(mended)


def _is_whole(found: bytes, number: int, offset: int) -> bool:
    piece = check(found, 0, offset, len(found), salt(number))
    return piece is not None and piece[2] == len(found)


def _filled(number: int, start: int, stop: int, *, is_end: bool = False) -> bytes:
    """Fill a range with padding records. The range contained whole records, so the head of one fits."""
    size = stop - start
    if is_end and (size == HEAD_SIZE or size >= 2 * HEAD_SIZE):
        footer = record(FOOTER, number, stop - HEAD_SIZE)
        return footer if size == HEAD_SIZE else _padding(number, start, size - HEAD_SIZE) + footer
    return _padding(number, start, size) if size >= HEAD_SIZE else bytes(size)


def _padding(number: int, at: int, size: int) -> bytes:
    return record(PAD, number, at, bytes(size - HEAD_SIZE))


def guess(data: bytes, ranges: Sequence[Range]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield (message, queues) of damaged records whose heads look like messages, for segments without a summary. The
    caller must check this against other knowledge."""
    for start, stop in ranges:
        if start + HEAD_SIZE + META.size > len(data):
            continue
        magic, kind, length, _ = HEAD.unpack_from(data, start)
        if magic != MAGIC or kind not in (MESSAGE, COPY) or start + HEAD_SIZE + length > stop:
            continue
        try:
            found = parse_message(memoryview(data)[start + HEAD_SIZE : start + HEAD_SIZE + length])
        except (struct.error, IndexError):  # not a message's record
            continue
        yield found.message, tuple(found.queues)
