"""An append-only log in segments, durable by group commit.

Appended records gather in memory. `commit` has them written and synced together in the next turn of the loop: in the
loop if they are few and the disk is fast, otherwise in a thread. Every batch begins with a BATCH record, which proves
that everything before it was synced. At start, unreadable bytes before such a proof are damage: they are skipped and
reported, and the file is kept. Unreadable bytes without a later proof are taken for the torn end of the last batch and
cut off. That batch may have been reported: its proof is written by the next batch, or within half a second by `prove`.
So damage to a batch of the last half second before a crash cannot be told from a torn end; it is logged with its size.

A location is `segment << 32 | offset` of a record's head; segments are numbered upwards and never reused.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from enmasse.logs import log as logs
from enmasse.metrics import Histogram
from services.broker.storage.journal.chunk import Chunk, Segment
from services.broker.storage.journal.definitions import Batch, StoredDefinitions
from services.broker.storage.journal.file_operations import File, Files
from services.broker.storage.journal.gathering import Gathering
from services.broker.storage.journal.segment import (
    BATCH,
    FIRST,
    FOOTER,
    HEAD_SIZE,
    OFFSET_BITS,
    OFFSET_MASK,
    encode_head,
    path_of,
    record,
)
from services.broker.storage.journal.segment_files import DamagedError, SegmentFiles, whole
from services.broker.storage.journal.segment_replay import OnDamage, Replay, SegmentReplay
from services.broker.storage.journal.spare import PIECE, Spare

log = logs.get(part="storage")

Done = Callable[[OSError | None], None]
R = TypeVar("R")

SEGMENT_SIZE = 16 << 20
LATENCIES = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
INLINE_BYTES = 64 << 10  # largest batch that is synced in the loop
INLINE_SECONDS = 0.001  # average sync time above which no batch is synced in the loop


def _nothing(*_: object) -> None:
    pass


def _nobody() -> Done:
    return _nothing


class Journal:
    """The journal (see the module), made by `open`. With a loop, commits run in its next turn; without one, in
    `flush`."""

    def __init__(
        self,
        directory: Path,
        files: Files,
        loop: asyncio.AbstractEventLoop | None,
        lost: Replay | None,
        segment_size: int,
        catalogue: StoredDefinitions | None,
        repeat: frozenset[int],
    ) -> None:
        self.directory = directory
        self.catalogue = catalogue or StoredDefinitions(directory, files)
        # see SegmentReplay.finish; runs before anything is read or written
        self.finish_mending: Callable[[], None] = _nothing
        self.uncommitted: Callable[[], Done] = _nobody  # see Store.on_failure
        self.damaged: list[str] = []
        self.damaged_segments: set[int] = set()
        self.syncs = 0
        self.latency = Histogram(LATENCIES)
        """Seconds in which batches were written and synced."""
        self.error: OSError | None = None  # error of the last commit
        self.segment_files = SegmentFiles(directory, files)
        self.segments = self.segment_files.by_number
        self.gathering = Gathering(directory, self.segments, segment_size, repeat)
        self.append = self.gathering.append
        self.append_pair = self.gathering.append_pair
        self.append_run = self.gathering.append_run
        self._files = files
        self._loop = loop
        self.lost = lost
        # one thread each for a commit, a deletion, a summary, a backup
        self._thread = ThreadPoolExecutor(4, "journal") if loop else None
        self._batch: Batch | None = None  # write of the catalogue under way
        self._waiting: list[Done] = []
        self._writing: list[Chunk] = []
        self._writing_done: list[Done] = []
        self._scheduled = False
        self._busy = self._again = False  # a batch is in the thread; another commit was requested meanwhile
        self._closing = self._closed = False
        self._sync_cost = 0.0  # seconds, smoothed
        self._unproved = False  # no BATCH record follows the last batch
        self._proving = False  # a BATCH record is requested
        self._spare = Spare(directory, files)

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
        catalogue: StoredDefinitions | None = None,
        repeat: frozenset[int] = frozenset(),
        on_damage: OnDamage = _nothing,
    ) -> Journal:
        """Read every segment and call `replay` for each record in order. `lost` is called for each record that a
        failed commit leaves out, before its `done(error)`; it may append. `catalogue`: as read. `repeat`: kinds of
        records that summaries repeat. `on_damage`: see SegmentReplay.
        Raises OSError if the directory cannot be used or damage cannot be repaired; damage itself does not raise and
        is listed in `damaged`."""
        self = cls(directory, files, loop, lost, segment_size, catalogue, repeat)
        files.make_dir(directory)
        if catalogue is None:
            self.catalogue.read()
        work = SegmentReplay(directory, files, self.catalogue, replay, on_damage)
        work.run()
        self.segments.update(work.segments)
        self.damaged = work.damaged
        self.damaged_segments = work.damaged_segments
        self.gathering.next_number = work.next
        self.finish_mending = work.finish
        empty = [n for n, segment in self.segments.items() if segment.end <= FIRST and n not in work.damaged_segments]
        if empty:
            error = self.segment_files.unlink(self.segment_files.take_out(empty))
            if error is not None:
                raise error
            self.segment_files.left(empty)
        self.catalogue.replace(
            self.catalogue.definitions, {n: (segment.size, segment.end) for n, segment in self.segments.items()}
        )
        return self

    def save_catalogue(self) -> bool:
        """Write the catalogue; blocks; only while nothing is appended. Return False if that failed: the next commit
        repeats it."""
        batch = self.catalogue.cut(self.gathering.place)
        if batch is not None:
            try:
                self.catalogue.write(batch)
            except OSError as error:
                log.warning("broker.catalogue.write-failed", directory=str(self.directory), reason=str(error))
                return False
        return True

    # -- what there is -------------------------------------------------------------------------------------------------
    @property
    def gathered(self) -> bool:
        """Return True if records are appended that no commit includes yet."""
        return self.gathering.holds_records or self.catalogue.changed

    @property
    def closed(self) -> bool:
        """Return True if nothing more is written."""
        return self._closed

    @property
    def segment_size(self) -> int:
        """Size of a new segment in bytes."""
        return self.gathering.segment_size

    @property
    def quiet(self) -> bool:
        """Return True if everything appended is on disk."""
        return not self.gathered and not self._busy

    @property
    def current(self) -> int:
        """Number of the segment being appended to; 0 before the first one."""
        return self.gathering.current

    @property
    def tail(self) -> int:
        """Lowest segment that is not completely committed; segments below it no longer change."""
        chunks = self._writing or self.gathering.chunks
        return chunks[0].segment.number if chunks else self.gathering.next_number

    @contextlib.contextmanager
    def group(self, size: int) -> Iterator[None]:
        """Make one record of those that are appended inside, of some `size` bytes: a crash leaves all or none, an
        exception inside leaves none."""
        self.gathering.begin_group(size)
        try:
            yield
        except BaseException:
            self.gathering.drop_group()
            raise
        self.gathering.end_group()

    # -- committing ----------------------------------------------------------------------------------------------------
    def commit(self, done: Done | None = None) -> None:
        """Make all records appended so far durable. Calls `done(None)` in the loop once they are on disk, or
        `done(error)`: then nothing appended since the last success is on disk, nor will be."""
        if done is not None:
            self._waiting.append(done)
        if not self._scheduled and self._loop and not self._closed:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def commit_now(self, done: Done | None = None) -> None:
        """`commit` without waiting for further records: `done` may be called inside."""
        if done is not None:
            self._waiting.append(done)
        if self._loop:
            self._turn()

    def _turn(self) -> None:
        self._scheduled = False
        if self._busy or self._closed:
            self._again = True  # after the write under way
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
            seconds = time.perf_counter() - began
            self.latency.observe(seconds)
            self._took(seconds)
            self._finish(error)
        else:
            self._busy = True
            self._in_thread(self._write_timed, self._written)

    def _write_timed(self) -> tuple[OSError | None, float]:
        began = time.perf_counter()
        error = self._write()
        return error, time.perf_counter() - began

    def _written(self, future: Future[tuple[OSError | None, float]]) -> None:
        self._busy = False
        if self._closed:
            return
        error, seconds = future.result()
        self.latency.observe(seconds)
        if sum(c.stop - c.start for c in self._writing) <= INLINE_BYTES:
            self._took(seconds)
        else:
            self._sync_cost *= (
                0.9  # the time of a large batch does not predict that of a small one: let the estimate decay
            )
        self._finish(error)
        again, self._again = self._again, False
        if again:
            self.commit()

    def free_bytes(self) -> int:
        """Return the bytes that are free on the file system. Raises OSError."""
        return self._files.free(self.directory)

    def _took(self, seconds: float) -> None:
        self._sync_cost += (min(seconds, 0.1) - self._sync_cost) * 0.1

    def flush(self) -> None:
        """Write and sync the gathered records, blocking, and call the waiting callbacks. Not while a batch is in the
        thread."""
        assert not self._busy
        if self._cut() or self._batch is not None or self._writing_done:
            self._finish(self._write() if self._writing or self._batch is not None else None)

    def prove(self) -> None:
        """While nothing is appended: write a BATCH record after the last batch, so that damage to it can be
        distinguished from a torn end. Costs one small sync for each idle period."""
        if self._unproved and self.quiet and self.current:
            self._proving = True
            if self._loop and not self._closing:
                self.commit()
            else:
                self.flush()

    def end_segment(self, done: Done) -> int:
        """Commit, close the current segment and begin a new one. Return a number: once committed, all segments below it
        are closed."""
        if self.current:
            self.gathering.roll(0)
        self.commit(done)
        return self.current or self.gathering.next_number

    def retry(self) -> None:
        """After a failed commit, while nothing is appended: try to write a new segment; `error` has the outcome."""
        if self.error is None or not self.quiet:
            return
        if not self.current:
            self.gathering.roll(0)
        self._proving = True
        if self._loop and not self._closing:
            self.commit()
        else:
            self.flush()

    def _cut(self) -> int:
        """Take the gathered records as the batch to write. Return its size in bytes, 0 if there is nothing."""
        self._writing_done, self._waiting = self._waiting, []
        proving, self._proving = self._proving, False
        gathered = self.gathering.holds_records
        if gathered or proving:
            self._writing = self.gathering.cut()
            self._unproved = gathered
        self._batch = self.catalogue.cut(self.gathering.place)
        return sum(c.stop - c.start for c in self._writing)

    def _write(self) -> OSError | None:
        """Write the segments in order: the head of a new one proves where the one before ends and that it is synced."""
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
            segment.size = file.size()  # not every file system preallocates
            self._files.sync_dir(self.directory)
        except OSError:
            with contextlib.suppress(OSError):
                file.close()
                self._files.unlink(segment.path)
            raise
        segment.file = file
        return file

    def keep_spare(self) -> None:
        """Reserve the spare space while there is room: see `Spare`."""
        self._spare.keep()

    def _allocate(self, file: File, size: int) -> None:
        """Reserve a segment's space; on a full disk only the space of its first records."""
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
                if segment is not self.gathering.segment and all(
                    c.segment is not segment for c in self.gathering.chunks
                ):
                    self.segment_files.close(segment)
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
                log.exception("broker.journal.callback-failed")

    def _fail(self, chunks: list[Chunk], error: OSError) -> None:
        """Fail the batch. After a failed sync the file's content after its committed end is unknown: the next batch
        goes to a new file, whose head states that end. Records appended meanwhile may depend on lost ones, so they are
        lost as well."""
        if self.error is None:  # logged once, although retried
            log.error("broker.journal.commit-failed", directory=str(self.directory), reason=str(error))
        self.error = error
        chunks = chunks + self.gathering.drop()
        self._unproved = False
        self.segment_files.forget_ahead()
        for segment in {c.segment.number: c.segment for c in chunks}.values():
            made = segment.file is not None
            with contextlib.suppress(OSError):
                if segment.end > FIRST and segment.file:
                    segment.file.truncate(segment.end)
                    segment.size = segment.end
                    segment.file.write(segment.end, record(FOOTER, segment.number, segment.end))
                    segment.file.sync()
                    segment.size = segment.end = segment.end + HEAD_SIZE
            self.segment_files.close(segment)
            if segment.end > FIRST:
                segment.kept = [(at, record) for at, record in segment.kept or () if at < segment.end]
                self.catalogue.made(segment.number, segment.size, segment.end)
            else:  # empty: leave no trace of it
                del self.segments[segment.number]
                self.catalogue.gone([segment.number])
                if made:
                    with contextlib.suppress(OSError):
                        self._files.unlink(segment.path)
        if self.lost:
            for chunk in chunks:
                for kind, payload, location in chunk.records():
                    if kind != BATCH:
                        self.lost(kind, payload, location)

    # -- reading -------------------------------------------------------------------------------------------------------
    def read(self, location: int, size: int) -> tuple[int, memoryview]:
        """Return (kind, payload) of the record; `size`: of the record with its head. Raises DamagedError (lost for
        good) and OSError (it cannot be read now; the record may be intact)."""
        number, offset = location >> OFFSET_BITS, location & OFFSET_MASK
        segment = self.segments.get(number)
        if segment is None:
            raise DamagedError(f"{path_of(self.directory, number)}: offset {offset}: the segment was deleted")
        if offset + size > segment.end:
            for chunk in self._writing + self.gathering.chunks:
                if chunk.segment is segment and offset >= chunk.start:
                    data = chunk.data()
                    piece = whole(data, offset - chunk.start, offset, size, number)
                    if piece is not None:
                        return piece[0], memoryview(data)[piece[1] : piece[2]]
        return self.segment_files.record(segment, offset, size)

    def run_aside(self, work: Callable[[], R], done: Callable[[R], None]) -> None:
        """Run background work and call `done` with its result: in a thread if there is a loop, otherwise at once."""
        if self._loop is None or self._thread is None or self._closing:
            done(work())
            return

        def finished(future: Future[R]) -> None:
            if not self._closed:
                done(future.result())

        self._in_thread(work, finished)

    def _in_thread(self, work: Callable[[], R], done: Callable[[Future[R]], None]) -> None:
        """Call `done` in the loop once a thread has done the work. `run_in_executor` does the same with a future of the
        loop, which costs as much as two messages."""
        loop, thread = self._loop, self._thread
        assert loop and thread
        thread.submit(work).add_done_callback(lambda future: loop.call_soon_threadsafe(done, future))

    # -- deleting, closing ---------------------------------------------------------------------------------------------
    def retire(self, numbers: Sequence[int], done: Done) -> None:
        """Remove these segments from the catalogue and commit that, before they are deleted. After an error the
        catalogue contains them again."""
        self.catalogue.gone(numbers)

        def committed(error: OSError | None) -> None:
            if error is not None:
                for number in numbers:
                    segment = self.segments[number]
                    self.catalogue.made(number, segment.size, segment.end)
            done(error)

        self.commit(committed)

    def close(self, before: Callable[[], None] = _nothing) -> None:
        """Commit the gathered records, record where the journal ends, close the files. `before` runs when writing has
        ended and the files are still open. Blocks."""
        if self._closed:
            return
        self._closing = True
        if self._thread:
            self._thread.shutdown(wait=True)
        if self._busy:  # written by the thread, whose callback has not run yet
            self._busy = False
            self._finish(self._write())
        self.flush()
        self._end()
        before()
        self._closed = True
        for segment in self.segments.values():
            self.segment_files.close(segment)
        self.catalogue.close()

    def _end(self) -> None:
        """Record on disk where the journal ends, so that a missing end is detected."""
        segment = self.gathering.segment
        if segment is not None and segment.end > FIRST:
            end = self.gathering.end_segment()
            self.catalogue.made(segment.number, end, end)
        self.flush()
        if segment is not None and segment is self.gathering.segment and segment.file:
            with contextlib.suppress(OSError):
                segment.file.truncate(segment.end)
                segment.size = segment.end
        self.gathering.drop()
