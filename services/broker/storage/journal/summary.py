"""Summary of a closed segment, in NUMBER.summary, for the case that the segment is damaged or missing: its end, its
records other than messages (so that no consumed message is delivered again), and its messages with their queues."""

from __future__ import annotations

import re
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path

import msgspec

from services.broker.storage.index import BLOCK_BITS, MANY, ORPHAN
from services.broker.storage.journal.file_operations import Files, write_anew
from services.broker.storage.journal.segment import OFFSET_BITS, OFFSET_MASK

NAME = re.compile(r"(\d{10})\.summary")
_MAGIC = b"ENMSUMM1"


class MessageIndex(msgspec.Struct, array_like=True):
    """Messages of a segment in the form of the store's index: blocks of 256 ids."""

    last_id: int  # no higher id was assigned before
    numbers: list[int]  # numbers of the blocks
    queues: bytes  # 256 queues for each block
    locations: bytes  # 256 locations for each block
    many: dict[int, tuple[int, ...]]  # messages that several queues refer to


class Summary(msgspec.Struct, array_like=True):
    """Contents of a segment: the index of its messages, its other records with their offsets."""

    number: int
    end: int
    contents: MessageIndex
    offsets: list[int]
    records: list[bytes]

    def kept(self) -> Iterator[tuple[int, bytes]]:
        """Iterate over the records with their offsets."""
        return zip(self.offsets, self.records, strict=True)

    def messages(self) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """Yield (offset, message, queues) of each message in the segment."""
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
    """Return the path of the summary of a segment."""
    return segment.with_suffix(".summary")


def write(files: Files, segment: Path, summary: Summary) -> None:
    """Write the summary durably. Slow: run it in a thread. Raises OSError."""
    body = zlib.compress(msgspec.msgpack.encode(summary), 1)
    write_anew(files, path_of(segment), _MAGIC + zlib.crc32(body).to_bytes(4, "little") + body)


def read(files: Files, segment: Path, number: int) -> Summary | None:
    """Return the summary, None if it is missing or damaged itself. Raises OSError if it cannot be read."""
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
