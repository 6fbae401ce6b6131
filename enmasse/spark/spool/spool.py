"""The spool: what makes AMQP replayable for Spark.

AMQP has no offsets; Spark must be able to read a range again. So what arrives is appended to segment files and only
then accepted. Offsets number the records of the spool, from 0, without gaps, for as long as the folder lives.

    spool/
      00000000000000000000.seg     records from that number on (enmasse.spark.spool.segment)
      00000000000000000000.idx     where some of them begin (enmasse.spark.spool.segment_index)
      id                           32 hexadecimal digits, random: which spool this is, wherever its folder is seen
      origin                       the address whose messages are in it (enmasse.spark.spool.origin)
      settled, unsettled           what the address may deliver again (enmasse.spark.receiver.unsettled)
      partition-1, …               what further receivers have stored, each in a folder like this one
      head                         8 bytes, big-endian: one past the last durable record (a hint, mapped by readers)
      owner                        the one process that writes (enmasse.spark.spool.ownership)
      lock                         held by it, on its machine

A torn tail is cut off when the writer opens the spool: it was never accepted. `head` distinguishes it from damage: it
is put forward only after a sync, so a spool with fewer records than it states has lost some that were accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import mmap
import os
import secrets
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from enmasse.spark.spool.bucket import Bucket
from enmasse.spark.spool.ownership import Lease, SpoolTakenError
from enmasse.spark.spool.segment import NO_END, RECORD, SpoolError, read_segment, segment_name, segments
from enmasse.spark.spool.segment_index import IndexEntry, IndexWriter, index_of
from enmasse.storage.durable import private, replace_file, sync_folder

COUNT = struct.Struct(">Q")
SEGMENT_BYTES = 8 << 20
MUCH = 16 << 10
"""Bytes whose sync is worth a thread of its own."""


class SpoolInUseError(SpoolError):
    """The spool is written by another process."""


class SpoolSegment(NamedTuple):
    """Complete segment: one past its last record, and its file."""

    end: int
    path: Path


class MappedCount:
    """Number in a file, shared with other processes through a mapping: 8 bytes, big-endian.

    A number that was put outlives the process that put it; after a loss of power it may be an earlier number.
    """

    def __init__(self, path: Path, *, create: int | None = None) -> None:
        """create: what it begins with if there is no such file yet; None: it is there, and only read."""
        if create is not None and (not path.exists() or path.stat().st_size < COUNT.size):  # short: the disk was full
            with open(path, "wb", opener=private) as file:
                file.write(COUNT.pack(create))
        with path.open("rb" if create is None else "r+b") as file:
            access = mmap.ACCESS_READ if create is None else mmap.ACCESS_WRITE
            self._map = mmap.mmap(file.fileno(), COUNT.size, access=access)

    def get(self) -> int:
        """Return the number."""
        (count,) = COUNT.unpack(self._map[: COUNT.size])
        return int(count)

    def put(self, count: int) -> None:
        """Set the number, for all processes at once."""
        self._map[: COUNT.size] = COUNT.pack(count)


def head_of(folder: Path) -> MappedCount:
    """Return the number of durable records of a spool that a receiver has opened, for readers."""
    return MappedCount(folder / "head")


def id_of(folder: Path) -> str:
    """Return which spool is in a folder; empty if none is there, or none that this process may read."""
    try:
        return (folder / "id").read_text()
    except (OSError, UnicodeDecodeError):
        return ""


class SpoolWriter:
    """The one writer of a spool. `append` buffers, `sync` makes durable; accept messages after `sync`, never before.

    limit: bytes the spool may hold, if its owner keeps to one; a segment is at most half of that, or a spool of one
    segment, which is never deleted, would stay over it.
    """

    def __init__(self, folder: Path, limit: int | None = None, bucket: Bucket | None = None) -> None:
        """Open or make the spool in `folder`, or that in `bucket` with its copy in `folder`, whose files are replaced.

        Raises SpoolError; OSError if folder or bucket cannot be used.
        """
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = folder
        self._segment_bytes = SEGMENT_BYTES if limit is None else min(SEGMENT_BYTES, limit // 2)
        if bucket is not None:
            self._segment_bytes = 1
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise SpoolInUseError(
                f"{folder}: another receiver writes this spool; give each query a spool of its own"
            ) from None
        self.bucket = bucket
        if bucket is not None:
            for path in folder.iterdir():
                if path.is_file() and path.name != "lock":
                    path.unlink()
            bucket.open(folder)
        self._lease = Lease(folder)
        if not id_of(folder):
            replace_file(folder / "id", secrets.token_hex(16).encode())
        self._head = MappedCount(folder / "head", create=0)
        self._file, self._first, self._size, self.count, self._index = self._recover()
        self._ended: dict[Path, int] = {}
        self._ended_bytes = 0
        self.measure()
        self._head.put(self.count)
        self._end_at(1)  # an earlier owner may still append to the last one
        self._buffer: list[bytes] = []
        self._buffered = self._buffered_bytes = 0
        self._refused = 0  # bytes that could not be written last

    def append(self, message: bytes, arrived_ms: int) -> None:
        """Buffer a message, with the time of its arrival in milliseconds since 1970."""
        self.extend((message,), arrived_ms)

    def extend(self, messages: Sequence[bytes], arrived_ms: int) -> None:
        """`append` messages that arrived together."""
        index, buffer = self._index, self._buffer
        at = self._size + self._buffered_bytes
        for record, message in enumerate(messages, self.count + self._buffered):
            crc = zlib.crc32(message)
            if at >= index.wanted:
                index.offer(IndexEntry(record, at, crc))
            buffer.append(RECORD.pack(len(message), crc, arrived_ms))
            buffer.append(message)
            at += RECORD.size + len(message)
        self._buffered += len(messages)
        self._buffered_bytes = at - self._size

    def sync(self) -> None:
        """Return when everything appended is durable, and this is still the owner of the spool.

        Raises OSError (disk full …), or SpoolTakenError: then nothing of it counts.
        """
        if not self._buffered:
            return
        data, count = self._write()
        with self._undone(len(data)):
            if self.bucket is not None:
                self.bucket.put(self.count, data, self.count + count, self._settled())
            else:
                os.fdatasync(self._file)
        self._add(len(data), count)

    async def synced(self) -> None:
        """As `sync`; an object is put, and much is synced, without keeping the event loop from other things."""
        if not self._buffered:
            return
        data, count = self._write()
        with self._undone(len(data)):
            if self.bucket is not None:
                await asyncio.to_thread(self.bucket.put, self.count, data, self.count + count, self._settled())
            elif len(data) >= MUCH:
                await asyncio.to_thread(os.fdatasync, self._file)
            else:
                os.fdatasync(self._file)
        self._add(len(data), count)

    def _write(self) -> tuple[bytes, int]:
        """Write what was appended to the segment; return it, and its number of records. Raises OSError."""
        data = b"".join(self._buffer)
        try:
            with self._undone(len(data)):
                self.end_segment()  # if that failed after the last group
                written = 0
                while written < len(data):
                    written += os.write(self._file, data[written:])
        finally:
            count, self._buffered, self._buffered_bytes = self._buffered, 0, 0
            self._buffer.clear()
        return data, count

    @contextlib.contextmanager
    def _undone(self, size: int) -> Iterator[None]:
        """Take back what was written if it cannot be stored."""
        try:
            yield
        except OSError:
            self._refused = size
            self._index.discard()
            os.ftruncate(self._file, self._size)
            raise

    def _add(self, size: int, count: int) -> None:
        """Count what was written. Raises SpoolError, SpoolTakenError: it is on disk, but not accepted."""
        try:
            self._lease.check()
        except OSError as error:  # whether this is still the owner is unknown
            raise SpoolError(f"{error.filename}: {error.strerror}; what came last was not accepted") from None
        if os.fstat(self._file).st_size != self._size + size:
            raise SpoolTakenError(
                f"{self.folder}: another process appends to this spool; what came last was not accepted"
            )
        self._index.flush()
        self._size += size
        self.count += count
        self._head.put(self.count)
        with contextlib.suppress(OSError):  # the group is stored nevertheless
            self.end_segment()

    def _settled(self) -> int | None:
        """Return what the file `settled` holds, which belongs to enmasse.spark.receiver.unsettled."""
        try:
            return int.from_bytes((self.folder / "settled").read_bytes()[: COUNT.size], "big")
        except FileNotFoundError:
            return None

    def check_room(self) -> None:
        """Return if there is room for what could not be written last. Raises OSError."""
        if not self._refused:
            return
        self.end_segment()
        try:
            os.posix_fallocate(self._file, self._size, self._refused)
        finally:
            os.ftruncate(self._file, self._size)
        self._refused = 0

    def keep(self, content: bytes) -> None:
        """Replace the file `unsettled` of the spool durably. Raises SpoolTakenError; OSError."""
        self._lease.check()
        if self.bucket is not None:
            self.bucket.keep(content)
        replace_file(self.folder / "unsettled", content)

    def origin(self) -> bytes:
        """Return what `note_origin` has noted last; empty: nothing. Raises OSError."""
        if self.bucket is not None:
            return self.bucket.origin()
        path = self.folder / "origin"
        return path.read_bytes() if path.exists() else b""

    def note_origin(self, content: bytes) -> None:
        """Note durably of what the spool has messages, if it is not noted yet. Raises OSError."""
        if self.origin() == content:
            return
        if self.bucket is not None:
            self.bucket.note_origin(content)
        else:
            replace_file(self.folder / "origin", content)

    def bytes_held(self) -> int:
        """Return the bytes of all segments, from a running total."""
        return self._ended_bytes + self._size

    def measure(self) -> None:
        """Read the sizes of the ended segments from the files: at the start, and because one may have been deleted."""
        self._ended = {path: size_of(path) for _, path in segments(self.folder)[:-1]}
        self._ended_bytes = sum(self._ended.values())

    def forgettable(self, end: int) -> list[SpoolSegment]:
        """Return the segments that end at or before `end`, without the last one, which always stays; in a bucket
        without the last one that has records, which tells how many there were."""
        known = segments(self.folder)
        end = end if self.bucket is None else min(end, self.count - 1)
        return [
            SpoolSegment(following, path) for (_, path), (following, _) in itertools.pairwise(known) if following <= end
        ]

    def forget(self, gone: list[SpoolSegment]) -> int:
        """Delete segments; return how many.

        Raises SpoolTakenError; OSError: those before the one that failed are deleted.
        """
        self._lease.check()
        for segment in gone:
            index_of(segment.path).unlink(missing_ok=True)
            segment.path.unlink(missing_ok=True)
            self._ended_bytes -= self._ended.pop(segment.path, 0)
        return len(gone)

    def close(self) -> None:
        """Close the files and release the lock; what was not synced is lost."""
        self._index.close()
        os.close(self._file)
        os.close(self._lock)

    def end_segment(self) -> None:
        """Begin a new segment if the last one is full. Raises OSError if it cannot be made: then it is still to do."""
        self._end_at(self._segment_bytes)

    def _end_at(self, least: int) -> None:
        """Begin a new segment if the last one has `least` bytes, and at least one. Raises OSError."""
        if self._size > 0 and self._size >= least:
            following, index = self._create(self.count)
            ended = self.folder / segment_name(self._first)
            self._ended[ended] = self._size
            self._ended_bytes += self._size
            os.close(self._file)
            self._index.close()
            self._file, self._first, self._size, self._index = following, self.count, 0, index

    def _recover(self) -> tuple[int, int, int, int, IndexWriter]:
        """Return the last segment, opened, its first record, its bytes, the number of records of the spool, and the
        segment's index, which is made from the records.

        Raises SpoolError if accepted records are lost.
        """
        known = segments(self.folder)
        first, path = known[-1] if known else (0, self.folder / segment_name(0))
        size, count = 0, first
        entries: list[IndexEntry] = []
        for record in read_segment(path, first, first, NO_END) if known else ():
            entries.append(IndexEntry(record.offset, size, zlib.crc32(record.message)))
            size += RECORD.size + len(record.message)
            count += 1
        accepted = self._head.get()
        if count < accepted:
            os.close(self._lock)
            raise SpoolError(
                f"{path}: missing or damaged after record {count}, but {accepted} were accepted. Put it back from a "
                "copy; to continue without the lost records, give the query a new spool and a new checkpoint"
            )
        if not known:
            created, index = self._create(0)
            return created, 0, 0, 0, index
        if not size:
            path.unlink()  # an earlier owner may still append to it
            created, index = self._create(first)
            return created, first, 0, count, index
        file = os.open(path, os.O_RDWR | os.O_APPEND)
        os.ftruncate(file, size)
        os.fsync(file)
        return file, first, size, count, IndexWriter(path, entries)

    def _create(self, first: int) -> tuple[int, IndexWriter]:
        path = self.folder / segment_name(first)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_EXCL, 0o600)
        try:
            sync_folder(self.folder)
        except OSError:
            path.unlink()  # the next attempt makes it
            os.close(file)
            raise
        return file, IndexWriter(path)


def size_of(path: Path) -> int:
    """Return the size of a segment in bytes; 0 if a commit has just deleted it."""
    try:
        return path.stat().st_size
    except FileNotFoundError:  # a commit has just deleted it
        return 0
