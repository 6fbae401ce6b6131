"""What is kept beside a closed segment, in NUMBER.summary, in case the segment is damaged or gone: where it ends, the
records that are not messages (so that nothing consumed comes back), and which messages lay in it for which queues."""

from __future__ import annotations

import re
import zlib
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from services.broker.storage.files import Files, write_anew
from services.broker.storage.index import BLOCK_BITS, MANY, ORPHAN
from services.broker.storage.segment import OFFSET_BITS, OFFSET_MASK

NAME = re.compile(r"(\d{10})\.summary")
_MAGIC = b"ENMSUMM1"

Kept = Sequence[tuple[int, bytes]]
"""Offsets in the segment, and whole records."""


class Contents(msgspec.Struct, array_like=True):
    """Which messages lay in a segment: as the index of the store has them, in blocks of 256 ids."""

    last_id: int  # no id above it was given before
    numbers: list[int]  # of the blocks
    queues: bytes  # of each block its 256 queues
    locations: bytes  # … and its 256 locations
    many: dict[int, tuple[int, ...]]  # messages that several queues refer to


class Summary(msgspec.Struct, array_like=True):
    number: int
    end: int
    contents: Contents
    offsets: list[int]
    records: list[bytes]

    def kept(self) -> Iterator[tuple[int, bytes]]:
        return zip(self.offsets, self.records, strict=True)

    def messages(self) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """(offset, message, queues) of each message in the segment."""
        queues, locations = array("Q", self.contents.queues), array("Q", self.contents.locations)
        at = 0
        for number in self.contents.numbers:
            for i in range(1 << BLOCK_BITS):
                queue, location = queues[at + i], locations[at + i]
                if queue and queue != ORPHAN and location >> OFFSET_BITS == self.number:
                    message = number << BLOCK_BITS | i
                    several = self.contents.many.get(message, ()) if queue == MANY else (queue,)
                    yield location & OFFSET_MASK, message, several
            at += 1 << BLOCK_BITS


def path_of(segment: Path) -> Path:
    return segment.with_suffix(".summary")


def write(files: Files, segment: Path, summary: Summary) -> None:
    """Durable when it returns. Takes a while: for a thread. Raises OSError."""
    body = zlib.compress(msgspec.msgpack.encode(summary), 1)
    write_anew(files, path_of(segment), _MAGIC + zlib.crc32(body).to_bytes(4, "little") + body)


def read(files: Files, segment: Path, number: int) -> Summary | None:
    """None: there is none, or it is damaged itself. Raises OSError if it cannot be read."""
    path = path_of(segment)
    if path.name not in files.list(path.parent):
        return None
    file = files.open(path)
    try:
        data = file.read(0, file.size())
    finally:
        file.close()
    body = data[12:]
    if data[:8] != _MAGIC or zlib.crc32(body) != int.from_bytes(data[8:12], "little"):
        return None
    summary = msgspec.msgpack.decode(zlib.decompress(body), type=Summary)
    return summary if summary.number == number else None
