"""Byte format of a journal segment: header, records, and the search for valid records in a damaged segment.

A segment is a file of at most 4 GiB: 64 bytes of header, then records to the FOOTER, or to the first zeros in a segment
that is or was being written to. A record is
12 bytes (magic, kind, length, CRC-32) and its payload. The CRC starts from a seed made of segment number, offset,
length and kind: a flipped bit in the head is detected like one in the payload, and bytes that look like a record, such
as a journal sent as a message, are not valid at another place.

The payload of a GROUP is whole records, each valid by itself at its place: they can be read by their locations, and
what damage has left of a closed segment's group is not lost. A torn end has none of them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

MAGIC = 0x9DE3  # not part of any text encoding
MAGIC_BYTES = MAGIC.to_bytes(2, "little")
HEAD = struct.Struct("<HBxII")
HEAD_SIZE = HEAD.size
SEGMENT_HEAD = struct.Struct("<8sQQQI")  # magic, number, previous number, end of the previous segment's data, CRC
SEGMENT_MAGIC = b"ENMJRNL1"
FIRST = 64  # offset of the first record
OFFSET_BITS = 32
OFFSET_MASK = (1 << OFFSET_BITS) - 1

BATCH = 1  # without payload; everything before it was synced when it was written
GROUP = 249  # its payload is records that are in force together or not at all
FOOTER = 250  # without payload; the segment ends here and is closed
PAD = 251  # replaces unreadable records
ENTRIES = 252  # entries of the catalogue
BAD = -1  # kind from `walk`: invalid bytes that are followed by valid records
TAIL = -2  # kind from `walk`: invalid bytes that are not followed by a valid record

_RESYNC_BUDGET = 64 << 20  # limit of bytes checked by CRC in search of the next valid record of a segment


Piece = tuple[int, int, int]
"""(kind, start, stop): a record (kind > 0) with the bounds of its payload, or invalid bytes (BAD, TAIL)."""


def path_of(directory: Path, number: int) -> Path:
    """Return the path of a segment."""
    return directory / f"{number:010}.journal"


def salt(number: int) -> int:
    """Return the seed of a segment's CRCs, made of its number alone so that it does not depend on its header."""
    return zlib.crc32(number.to_bytes(8, "little"))


def encode_head(number: int, previous: int, previous_end: int) -> bytes:
    """Return the head of a segment, which names the one before it and where that ends."""
    head = SEGMENT_HEAD.pack(SEGMENT_MAGIC, number, previous, previous_end, 0)[:-4]
    return (head + zlib.crc32(head).to_bytes(4, "little")).ljust(FIRST, b"\0")


def decode_head(data: bytes, number: int) -> tuple[int, int] | None:
    """Return (previous segment, its end), None if the header is damaged or was never written."""
    if len(data) < FIRST:
        return None
    magic, found, previous, end, crc = SEGMENT_HEAD.unpack_from(data)
    if magic != SEGMENT_MAGIC or found != number or crc != zlib.crc32(data[: SEGMENT_HEAD.size - 4]):
        return None
    return previous, end


def is_of_another(data: bytes, number: int) -> bool:
    """Return whether the file has the intact header of another segment. One that a power cut has torn has not."""
    found = SEGMENT_HEAD.unpack_from(data)[1] if len(data) >= FIRST else number
    return found != number and decode_head(data, found) is not None


def check(data: bytes | memoryview, at: int, offset: int, limit: int, seed: int) -> Piece | None:
    """Return the record whose head is at `data[at]` if it is complete and its CRC matches. `offset`: of `data[at]` in
    the segment."""
    if at + HEAD_SIZE > limit:
        return None
    magic, kind, length, crc = HEAD.unpack_from(data, at)
    start = at + HEAD_SIZE
    stop = start + length
    if magic != MAGIC or kind == 0 or stop > limit:
        return None
    view = memoryview(data)[start:stop]
    if zlib.crc32(view, (seed ^ offset ^ (length << 8) ^ (kind << 24)) & 0xFFFFFFFF) != crc:
        return None
    return kind, start, stop


def record(kind: int, number: int, at: int, payload: bytes = b"") -> bytes:
    """Return a whole record, to be written at offset `at` of the segment."""
    size = len(payload)
    seed = (salt(number) ^ at ^ (size << 8) ^ (kind << 24)) & 0xFFFFFFFF
    return HEAD.pack(MAGIC, kind, size, zlib.crc32(payload, seed)) + payload


def members(data: bytes | memoryview, start: int, stop: int) -> Iterator[Piece]:
    """Yield the records of an intact GROUP whose payload is `data[start:stop]`."""
    while start < stop:
        _, kind, length, _ = HEAD.unpack_from(data, start)
        begin = start + HEAD_SIZE
        start = begin + length
        yield kind, begin, start


def walk(data: bytes, number: int, limit: int, start_at: int = FIRST) -> Iterator[Piece]:
    """Yield every valid record of a completely read segment, in order, and the invalid ranges between them. Zeros up to
    the end are not reported."""
    seed = salt(number)
    view = memoryview(data)
    budget = _RESYNC_BUDGET
    at = start_at
    crc32 = zlib.crc32
    unpack = HEAD.unpack_from
    while at + HEAD_SIZE <= limit:
        magic, kind, length, crc = unpack(data, at)
        start = at + HEAD_SIZE
        stop = start + length
        if (
            magic == MAGIC
            and stop <= limit
            and crc32(view[start:stop], (seed ^ at ^ (length << 8) ^ (kind << 24)) & 0xFFFFFFFF) == crc
        ):
            yield kind, start, stop
            at = stop
            continue
        found = data.find(MAGIC_BYTES, at + 1, limit)
        good: Piece | None = None
        while found >= 0:
            if found + HEAD_SIZE <= limit:
                length = HEAD.unpack_from(data, found)[2]
                if found + HEAD_SIZE + length <= limit:
                    budget -= length + HEAD_SIZE
                    if budget < 0:  # crafted input must not cause an endless search
                        break
                    good = check(data, found, found, limit, seed)
                    if good:
                        break
            found = data.find(MAGIC_BYTES, found + 1, limit)
        if good is None:
            break
        yield BAD, at, found
        at = found
    if at < limit and data[at:limit].strip(b"\0"):
        yield TAIL, at, limit
