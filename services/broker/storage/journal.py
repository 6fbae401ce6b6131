"""An append-only log in segments, durable by group commit.

Appended records gather in memory; `commit` lets them be written and synced together once the loop comes round, at once
when they are few and the disk is fast, in a thread otherwise. Every batch begins with a BATCH record, which proves what
lies before it had been synced. At start, bytes that cannot be read before such a proof are damage: skipped, reported,
the file kept aside. Without a proof behind them they are the torn end of the last batch, of which nobody was told: cut
off.

A location is `segment << 32 | offset` of a record's head; segments are numbered upwards and never reused.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from enmasse import log as logs
from services.broker.storage import summary
from services.broker.storage.catalogue import Batch, Catalogue
from services.broker.storage.chunk import Chunk, Segment
from services.broker.storage.files import File, Files
from services.broker.storage.replaying import Hurt, Replay, Replaying, path_of
from services.broker.storage.segment import (
    BATCH,
    FIRST,
    FOOTER,
    HEAD,
    HEAD_SIZE,
    MAGIC,
    OFFSET_BITS,
    OFFSET_MASK,
    Piece,
    check,
    encode_head,
    record,
    salt,
    walk,
)
from services.broker.storage.spare import PIECE, Spare
from services.broker.storage.summary import Contents, Summary

log = logs.get(part="storage")

Done = Callable[[OSError | None], None]

SEGMENT_SIZE = 16 << 20
INLINE_BYTES = 64 << 10  # a batch up to this is synced in the loop
INLINE_SECONDS = 0.001  # unless syncs have been taking longer than this
READ_AHEAD = 128 << 10
READERS = 16


def _untold(*_: object) -> None:
    pass


def _nobody() -> Done:
    return _untold


class DamagedError(LookupError):
    """A record is not there any more, or was read and is not what was written: it will never be read."""


class Journal:
    """See the module. `open` makes one. With a loop, commits happen by themselves; without, in `flush`."""

    def __init__(
        self,
        directory: Path,
        files: Files,
        loop: asyncio.AbstractEventLoop | None,
        lost: Replay | None,
        segment_size: int,
        catalogue: Catalogue | None,
        repeat: frozenset[int],
    ) -> None:
        self.directory = directory
        self.catalogue = catalogue or Catalogue(directory, files)
        self.finish_mending: Callable[[], None] = _untold  # see Replaying.finish; before anything is read or written
        self.uncommitted: Callable[[], Done] = _nobody  # see Store.on_failure
        self.summary_failed = False  # the last summary could not be written
        self.summarising = 0  # the segment whose summary is being written
        self.segments: dict[int, Segment] = {}
        self.damaged: list[str] = []
        self.damaged_segments: set[int] = set()
        self.syncs = 0
        self.error: OSError | None = None  # of the last commit
        self._files = files
        self._loop = loop
        self._lost = lost
        self._segment_size = segment_size
        self._repeat = repeat
        self._kept: list[tuple[int, bytes]] = []  # of the segment appended to, records of these kinds
        self._next = 1
        self._thread = ThreadPoolExecutor(2, "journal") if loop else None  # a commit, and something that can wait
        self._batch: Batch | None = None  # of the catalogue, being written
        self._chunks: list[Chunk] = []  # gathered; the last one is being appended to
        self._parts: list[bytes | bytearray | memoryview] = []  # those of the last chunk
        self._segment: Segment | None = None  # appended to
        self._at = 0  # where the next record goes
        self._limit = 0  # and where the segment ends
        self._base = self._salt = 0
        self._waiting: list[Done] = []
        self._writing: list[Chunk] = []
        self._writing_done: list[Done] = []
        self._scheduled = False
        self._busy = self._again = False  # a batch is in the thread; another was asked for meanwhile
        self._closing = self._closed = False
        self._sync_cost = 0.0  # seconds, smoothed
        self._unproved = False  # the last batch has no BATCH record behind it
        self._proving = False  # one is to be written
        self._ahead: tuple[int, int, bytes] = (0, 0, b"")  # segment, offset, bytes read ahead
        self._last_read = 0
        self._spare = Spare(directory, files)
        self._readers: dict[int, File] = {}  # files open for reading, the oldest first

    # -- opening -------------------------------------------------------------------------------------------------------
    @classmethod
    def open(
        cls,
        directory: Path,
        files: Files,
        replay: Replay,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        lost: Replay | None = None,
        segment_size: int = SEGMENT_SIZE,
        catalogue: Catalogue | None = None,
        repeat: frozenset[int] = frozenset(),
        hurt: Hurt = _untold,
        legacy: bool = False,
    ) -> Journal:
        """Reads every segment, calling `replay` for each record in order. `lost` is called for each record that a
        failed commit leaves out, before its `done(error)`; it may append. `catalogue`: as read. `repeat`: kinds of
        records that summaries hold a second time. `hurt`: told of damage as it is met. `legacy`: written by a version
        without footers. Raises OSError where the directory cannot be used, or damage not be mended; damage itself
        raises nothing and is told in `damaged`."""
        self = cls(directory, files, loop, lost, segment_size, catalogue, repeat)
        files.make_dir(directory)
        if catalogue is None:
            self.catalogue.read()
        work = Replaying(directory, files, self.catalogue, replay, hurt, legacy=legacy)
        work.run()
        self.segments = work.segments
        self.damaged = work.damaged
        self.damaged_segments = work.hurt
        self._next = work.next
        self.finish_mending = work.finish
        empty = [n for n, segment in self.segments.items() if segment.end <= FIRST and n not in work.hurt]
        if empty:
            self.delete(empty)
        self.catalogue.replace(
            self.catalogue.definitions, {n: (segment.size, segment.end) for n, segment in self.segments.items()}
        )
        return self

    def save_catalogue(self) -> bool:
        """Blocking, while nothing is appended. False: it could not be written, and will be with the next commit."""
        batch = self.catalogue.cut(self._next << OFFSET_BITS)
        if batch is not None:
            try:
                self.catalogue.write(batch)
            except OSError as error:
                log.warning("catalogue.not-written", directory=str(self.directory), reason=str(error))
                return False
        return True

    # -- appending -----------------------------------------------------------------------------------------------------
    def append(self, kind: int, *parts: bytes | bytearray | memoryview) -> int:
        """One record, in memory; returns its location. The parts must not change until the commit is done."""
        size = 0
        for part in parts:
            size += len(part)
        at = self._at
        stop = at + HEAD_SIZE + size
        if stop > self._limit:
            self._roll(size)
            at = self._at
            stop = at + HEAD_SIZE + size
        crc = (self._salt ^ at ^ (size << 8) ^ (kind << 24)) & 0xFFFFFFFF
        for part in parts:
            crc = zlib.crc32(part, crc)
        head = HEAD.pack(MAGIC, kind, size, crc)
        self._parts.append(head)
        self._parts += parts
        if kind in self._repeat:
            self._kept.append((at, b"".join((head, *parts))))
        self._at = stop
        return self._base | at

    def append_pair(self, kind: int, head: bytes, payload: bytes | bytearray | memoryview) -> int:
        """`append` of two parts, as short as it can be: every message comes this way."""
        size = len(head) + len(payload)
        at = self._at
        stop = at + HEAD_SIZE + size
        if stop > self._limit:
            return self.append(kind, head, payload)
        seed = (self._salt ^ at ^ (size << 8) ^ (kind << 24)) & 0xFFFFFFFF
        parts = self._parts
        parts.append(HEAD.pack(MAGIC, kind, size, zlib.crc32(payload, zlib.crc32(head, seed))) + head)
        parts.append(payload)
        self._at = stop
        return self._base | at

    def append_run(self, kind: int, heads: Sequence[bytes], payloads: Sequence[bytes]) -> list[int]:
        """`append` of one record of two parts after the other; their locations."""
        crc32, pack = zlib.crc32, HEAD.pack
        locations: list[int] = []
        at, parts, limit, base, seed = self._at, self._parts, self._limit, self._base, self._salt ^ (kind << 24)
        for head, payload in zip(heads, payloads, strict=True):
            size = len(head) + len(payload)
            stop = at + HEAD_SIZE + size
            if stop > limit:
                self._at = at
                self._roll(size)
                at, parts, limit, base, seed = self._at, self._parts, self._limit, self._base, self._salt ^ (kind << 24)
                stop = at + HEAD_SIZE + size
            crc = crc32(payload, crc32(head, (seed ^ at ^ (size << 8)) & 0xFFFFFFFF))
            parts += (pack(MAGIC, kind, size, crc), head, payload)
            locations.append(base | at)
            at = stop
        self._at = at
        return locations

    def _roll(self, size: int) -> None:
        """A new segment, in memory; its file is made when it is written."""
        last = self._segment
        if last is None and self.segments:
            last = self.segments[max(self.segments)]
            end = last.end
        else:
            if last is not None:
                self._append_footer()
            end = self._at
        number = self._next
        self._next += 1
        allocated = max(self._segment_size, FIRST + 3 * HEAD_SIZE + size)
        segment = Segment(number, path_of(self.directory, number), allocated)
        if last:
            segment.previous, segment.previous_end = last.number, end
        self._close_chunk()
        self.segments[number] = self._segment = segment
        self._base = number << OFFSET_BITS
        self._salt = salt(number)
        self._at = FIRST
        self._limit = segment.size - 2 * HEAD_SIZE  # the BATCH record of the next batch, and the FOOTER, always fit
        segment.kept = self._kept = []
        self._begin_chunk()

    def _append_footer(self) -> None:
        assert self._segment is not None
        self._parts.append(record(FOOTER, self._segment.number, self._at))
        self._at += HEAD_SIZE

    def _begin_chunk(self) -> None:
        segment = self._segment
        assert segment is not None
        chunk = Chunk(segment, self._at)
        self._chunks.append(chunk)
        self._parts = chunk.parts
        self._parts.append(record(BATCH, segment.number, self._at))
        self._at += HEAD_SIZE

    def _close_chunk(self) -> None:
        if self._chunks:
            self._chunks[-1].stop = self._at

    @property
    def gathered(self) -> bool:
        """Whether something is appended that no commit has taken up."""
        return len(self._parts) > 1 or len(self._chunks) > 1 or self.catalogue.changed

    @property
    def quiet(self) -> bool:
        """Whether all that was ever appended is on disk."""
        return not self.gathered and not self._busy

    @property
    def segment_size(self) -> int:
        return self._segment_size

    @property
    def current(self) -> int:
        """The segment appended to; 0: none yet."""
        return self._segment.number if self._segment else 0

    @property
    def tail(self) -> int:
        """The lowest segment that is not completely committed; those below it do not change any more."""
        chunks = self._writing or self._chunks
        return chunks[0].segment.number if chunks else self._next

    # -- committing ----------------------------------------------------------------------------------------------------
    def commit(self, done: Done | None = None) -> None:
        """`done(None)` in the loop once all appended so far is on disk; `done(error)` if it is not and will not be.
        Then nothing appended since the last success is on disk."""
        if done is not None:
            self._waiting.append(done)
        if not self._scheduled and self._loop and not self._closed:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def commit_now(self, done: Done | None = None) -> None:
        """As `commit`, but what has gathered is not made to wait for more: `done` may be called inside."""
        if done is not None:
            self._waiting.append(done)
        if self._loop:
            self._turn()

    def _turn(self) -> None:
        self._scheduled = False
        if self._busy or self._closed:
            self._again = True  # when what is being written is done
            return
        size = self._cut()
        if size == 0 and self._batch is None:
            self._finish(None)
        elif (
            size <= INLINE_BYTES
            and self._sync_cost < INLINE_SECONDS
            and self._writing_done
            and (self._batch is None or not self._batch.whole)
            and (not self._writing or self._writing[-1].segment.file is not None)
        ):
            began = time.perf_counter()
            error = self._write()
            self._took(time.perf_counter() - began)
            self._finish(error)
        else:
            assert self._loop and self._thread
            self._busy = True
            self._loop.run_in_executor(self._thread, self._write_timed).add_done_callback(self._written)

    def _write_timed(self) -> tuple[OSError | None, float]:
        began = time.perf_counter()
        error = self._write()
        return error, time.perf_counter() - began

    def _written(self, future: asyncio.Future[tuple[OSError | None, float]]) -> None:
        self._busy = False
        if future.cancelled() or self._closed:
            return
        error, seconds = future.result()
        if sum(c.stop - c.start for c in self._writing) <= INLINE_BYTES:
            self._took(seconds)
        else:
            self._sync_cost *= 0.9  # a large batch says little of a small one's cost: try in the loop again some time
        self._finish(error)
        again, self._again = self._again, False
        if again:
            self.commit()

    def _took(self, seconds: float) -> None:
        self._sync_cost += (min(seconds, 0.1) - self._sync_cost) * 0.1

    def flush(self) -> None:
        """Writes and syncs what has gathered, blocking, and calls what waits. Not while a batch is in the thread."""
        assert not self._busy
        if self._cut() or self._batch is not None or self._writing_done:
            self._finish(self._write() if self._writing or self._batch is not None else None)

    def prove(self) -> None:
        """When nothing is being appended: puts a BATCH record behind the last batch, so that damage to it is told from
        a torn end. Costs one small sync per idle time."""
        if self._unproved and self.quiet and self._segment:
            self._proving = True
            if self._loop and not self._closing:
                self.commit()
            else:
                self.flush()

    def retry(self) -> None:
        """After a failed commit, when nothing is being appended: tries to write a new segment; `error` tells."""
        if self.error is None or not self.quiet:
            return
        if self._segment is None:
            self._roll(0)
        self._proving = True
        if self._loop and not self._closing:
            self.commit()
        else:
            self.flush()

    def _cut(self) -> int:
        """Takes what has gathered as the batch to write; its size in bytes, 0 = nothing."""
        self._writing_done, self._waiting = self._waiting, []
        proving, self._proving = self._proving, False
        gathered = len(self._parts) > 1 or len(self._chunks) > 1
        if gathered or proving:
            self._close_chunk()
            self._writing = self._chunks
            self._chunks = []
            self._begin_chunk()
            self._unproved = gathered
        self._batch = self.catalogue.cut(self._base | self._at if self._segment else self._next << OFFSET_BITS)
        return sum(c.stop - c.start for c in self._writing)

    def _write(self) -> OSError | None:
        """One segment after the other: the head of a new one says where the last one ends, and that it is synced."""
        try:
            for chunk in self._writing:
                segment = chunk.segment
                file = segment.file
                if file is None:
                    file = self._create(segment)
                self._spare.spend(partial(file.write, chunk.start, chunk.data()))
                file.sync()
                self.syncs += 1
        except OSError as e:
            if self._batch is not None:
                self.catalogue.failed()
            return e
        try:
            if self._batch is not None:
                self._spare.spend(partial(self.catalogue.write, self._batch))
        except OSError as e:
            return e
        return None

    def _create(self, segment: Segment) -> File:
        file = self._files.open(segment.path, create=True)
        try:
            self._allocate(file, segment.size)
            file.write(0, encode_head(segment.number, segment.previous, segment.previous_end))
            file.sync()
            segment.size = file.size()  # not every file system allocates
            self._files.sync_dir(self.directory)
        except OSError:
            with contextlib.suppress(OSError):
                file.close()
                self._files.unlink(segment.path)
            raise
        segment.file = file
        return file

    def keep_spare(self) -> None:
        """While there is room: see `Spare`."""
        self._spare.keep()

    def _allocate(self, file: File, size: int) -> None:
        """Reserves a segment's space; on a full disk only that of the first records."""
        try:
            file.allocate(size)
        except OSError:
            self._spare.spend(partial(file.allocate, min(size, PIECE)))

    def _finish(self, error: OSError | None) -> None:
        chunks, self._writing = self._writing, []
        batch, self._batch = self._batch, None
        done, self._writing_done = self._writing_done, []
        if error is None:
            if chunks or batch is not None:
                self.error = None
            for chunk in chunks:
                segment = chunk.segment
                segment.end = chunk.stop
                if segment is not self._segment and all(c.segment is not segment for c in self._chunks):
                    self._close_file(segment)
                    self.catalogue.made(segment.number, segment.size, segment.end)
                else:
                    self.catalogue.made(segment.number, segment.size)
        else:
            done += [*self._waiting, self.uncommitted()]
            self._waiting = []
            self._fail(chunks, error)
        for call in done:
            try:
                call(error)
            except Exception:
                log.exception("journal.callback-failed")

    def _fail(self, chunks: list[Chunk], error: OSError) -> None:
        """After a failed sync nothing is known of the file behind its committed end: the next batch goes to a new one,
        whose head says so. What was appended meanwhile may build on what is lost, so it is lost as well."""
        if self.error is None:  # once; it is tried again and again
            log.error("journal.commit-failed", directory=str(self.directory), reason=str(error))
        self.error = error
        self._close_chunk()
        chunks = chunks + self._chunks
        self._chunks = []
        self._parts = []
        self._segment = None
        self._limit = 0
        self._unproved = False
        self._ahead = (0, 0, b"")
        for segment in {c.segment.number: c.segment for c in chunks}.values():
            made = segment.file is not None
            with contextlib.suppress(OSError):
                if segment.end > FIRST and segment.file:
                    segment.file.truncate(segment.end)
                    segment.size = segment.end
                    segment.file.write(segment.end, record(FOOTER, segment.number, segment.end))
                    segment.file.sync()
                    segment.size = segment.end = segment.end + HEAD_SIZE
            self._close_file(segment)
            if segment.end > FIRST:
                segment.kept = [(at, record) for at, record in segment.kept or () if at < segment.end]
                self.catalogue.made(segment.number, segment.size, segment.end)
            else:  # holds nothing: no trace of it
                del self.segments[segment.number]
                self.catalogue.gone([segment.number])
                if made:
                    with contextlib.suppress(OSError):
                        self._files.unlink(segment.path)
        if self._lost:
            for chunk in chunks:
                for kind, payload, location in chunk.records():
                    if kind != BATCH:
                        self._lost(kind, payload, location)

    # -- reading -------------------------------------------------------------------------------------------------------
    def read(self, location: int, size: int) -> tuple[int, memoryview]:
        """(kind, payload) of the record; `size`: of the record with its head. Raises DamagedError (gone for good) and
        OSError (it cannot be read now, which says nothing of the record)."""
        number, offset = location >> OFFSET_BITS, location & OFFSET_MASK
        segment = self.segments.get(number)
        if segment is None:
            raise DamagedError(f"{path_of(self.directory, number)}: offset {offset}: the segment was deleted")
        data, at = self._bytes(segment, offset, size)
        piece = _whole(data, at, offset, size, number)
        if piece is None:  # once more, and not from what was read ahead
            data, at = self.reader(segment).read(offset, size), 0
            if len(data) < size:
                self._forget_reader(number)  # the file may be put back as another one
                raise OSError(errno.EIO, "the file ends before the record does", str(segment.path))
            piece = _whole(data, at, offset, size, number)
            if piece is None:
                raise DamagedError(f"{segment.path}: offset {offset}: the record is damaged")
        kind, start, stop = piece
        return kind, memoryview(data)[start:stop]

    def _bytes(self, segment: Segment, offset: int, size: int) -> tuple[bytes, int]:
        """The bytes at `offset`, within a larger buffer where they are read one after the other."""
        if offset + size > segment.end:
            for chunk in self._writing + self._chunks:
                if chunk.segment is segment and offset >= chunk.start:
                    data = chunk.data()
                    if offset - chunk.start + size <= len(data):
                        return data, offset - chunk.start
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

    def reader(self, segment: Segment) -> File:
        """A file to read from; a few are kept open, however many segments there are."""
        if segment.file is not None:
            return segment.file
        file = self._readers.get(segment.number)
        if file is None:
            file = self._readers[segment.number] = self._files.open(segment.path)
            if len(self._readers) > READERS:
                self._readers.pop(next(iter(self._readers))).close()
        return file

    def _close_file(self, segment: Segment) -> None:
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

    def records(self, number: int) -> Iterator[tuple[int, memoryview, int, int]]:
        """(kind, payload, location, size with head) of every record of a segment below `tail`. Raises OSError where the
        segment cannot be read as a whole now, DamagedError at the first record that is damaged."""
        segment = self.segments[number]
        data = self.reader(segment).read(0, segment.end)
        if len(data) < segment.end:
            self._forget_reader(number)
            raise OSError(errno.EIO, "the file is shorter than what was written to it", str(segment.path))
        view = memoryview(data)
        base = number << OFFSET_BITS
        for kind, start, stop in walk(data, number, len(data)):
            if BATCH < kind < FOOTER:
                yield kind, view[start:stop], base | (start - HEAD_SIZE), stop - start + HEAD_SIZE
            elif kind < 0:
                raise DamagedError(f"{segment.path}: offset {start}: the record is damaged")

    # -- summaries -----------------------------------------------------------------------------------------------------
    def unsummarised(self) -> list[int]:
        """Closed segments beside which there is no summary."""
        tail, current = self.tail, self.current
        return [n for n, s in self.segments.items() if not s.summarised and n < tail and n != current]

    def summarise(self, number: int, contents: Contents) -> None:
        """Writes the summary of a closed segment, in the thread where there is one. A failure is logged."""
        segment = self.segments[number]
        if self._loop and self._thread and not self._closing:
            self.summarising = number
            future = self._loop.run_in_executor(self._thread, partial(self._summarise, segment, contents))
            future.add_done_callback(partial(self._summarised, segment))
        else:
            self._note_summary(segment, self._summarise(segment, contents))

    def _summarise(self, segment: Segment, contents: Contents) -> Exception | None:
        try:
            kept = segment.kept
            if kept is None:
                kept = self._read_kept(segment)
            offsets, records = [at for at, _ in kept], [record for _, record in kept]
            summary.write(self._files, segment.path, Summary(segment.number, segment.end, contents, offsets, records))
        except (OSError, DamagedError) as error:
            return error
        return None

    def _read_kept(self, segment: Segment) -> list[tuple[int, bytes]]:
        """In a thread, so not by way of `reader`. Raises OSError, DamagedError."""
        file = self._files.open(segment.path)
        try:
            data = file.read(0, segment.end)
        finally:
            file.close()
        if len(data) < segment.end:
            raise OSError(errno.EIO, "the file is shorter than what was written to it", str(segment.path))
        kept = []
        for kind, start, stop in walk(data, segment.number, segment.end):
            if kind < 0:
                raise DamagedError(f"{segment.path}: offset {start}: the record is damaged")
            if kind in self._repeat:
                kept.append((start - HEAD_SIZE, data[start - HEAD_SIZE : stop]))
        return kept

    def _summarised(self, segment: Segment, future: asyncio.Future[Exception | None]) -> None:
        self.summarising = 0
        if not future.cancelled():
            self._note_summary(segment, future.result())

    def _note_summary(self, segment: Segment, error: Exception | None) -> None:
        self.summary_failed = isinstance(error, OSError)
        if not self.summary_failed:  # what is damaged is for the next start
            segment.summarised = True
            segment.kept = None
        if error is not None:
            log.warning("journal.not-summarised", file=str(segment.path), reason=str(error))

    # -- deleting, closing ---------------------------------------------------------------------------------------------
    def retire(self, numbers: Sequence[int], done: Done) -> None:
        """The catalogue says that these segments are deleted: to be done before they are. With an error it does not."""
        self.catalogue.gone(numbers)

        def told(error: OSError | None) -> None:
            if error is not None:
                for number in numbers:
                    segment = self.segments[number]
                    self.catalogue.made(number, segment.size, segment.end)
            done(error)

        self.commit(told)

    def delete(self, numbers: Sequence[int]) -> None:
        """Deletes segments durably, blocking. They are below `tail`. Raises OSError; then some may still be there."""
        for number in numbers:
            segment = self.segments[number]
            self._unlink_one(segment)
            self._close_file(segment)
            del self.segments[number]
        self._files.sync_dir(self.directory)

    def _unlink_one(self, segment: Segment) -> None:
        """The summary first: one without a segment says that the segment is missing."""
        with contextlib.suppress(FileNotFoundError):
            self._files.unlink(summary.path_of(segment.path))
        self._files.unlink(segment.path)

    def delete_later(self, numbers: Sequence[int], done: Done) -> None:
        """The same in the thread; `done` in the loop. The segments are gone from `segments` at once."""
        assert self._loop and self._thread
        gone = [self.segments.pop(number) for number in numbers]
        for segment in gone:
            self._close_file(segment)
        future = self._loop.run_in_executor(self._thread, partial(self._unlink, gone))
        future.add_done_callback(lambda f: None if f.cancelled() or self._closed else done(f.result()))

    def _unlink(self, segments: Sequence[Segment]) -> OSError | None:
        try:
            for segment in segments:
                self._unlink_one(segment)
            self._files.sync_dir(self.directory)
        except OSError as e:
            return e
        return None

    @property
    def disk_bytes(self) -> int:
        return sum(s.size for s in self.segments.values())

    def close(self, before: Callable[[], None] = _untold) -> None:
        """Commits what has gathered, says where the journal ends, closes the files; `before` that, when nothing is
        written to any more. Blocks."""
        if self._closed:
            return
        self._closing = True
        if self._thread:
            self._thread.shutdown(wait=True)
        if self._busy:  # the thread has written it, its callback has not run yet
            self._busy = False
            self._finish(self._write())
        self.flush()
        self._end()
        before()
        self._closed = True
        for segment in self.segments.values():
            self._close_file(segment)
        self.catalogue.close()

    def _end(self) -> None:
        """Says on disk where the journal ends: nothing is missing that nobody knows of."""
        segment = self._segment
        if segment is not None and segment.end > FIRST:
            self._append_footer()
            self.catalogue.made(segment.number, self._at, self._at)
        self.flush()
        if segment is not None and segment is self._segment and segment.file:
            with contextlib.suppress(OSError):
                segment.file.truncate(segment.end)
                segment.size = segment.end
        self._segment = None
        self._chunks, self._parts = [], []


def _whole(data: bytes, at: int, offset: int, size: int, number: int) -> Piece | None:
    """The record of just this size at `data[at]`, which is at `offset` of the segment."""
    if len(data) < at + size:
        return None
    piece = check(data, at, offset, at + size, salt(number))
    return piece if piece is not None and piece[2] == at + size else None
