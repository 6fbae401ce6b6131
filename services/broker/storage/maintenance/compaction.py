"""Copies sparse segments to the end of the journal, in small slices, so that they can be deleted.

Copies are valid once they are committed; the segment is deleted after that. A crash in between leaves two copies of a
message under one id; replay uses the later one, which is complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from enmasse.logs import log as logs
from services.broker.storage.journal.journal import Journal
from services.broker.storage.journal.records import (
    COPY,
    DEFINE,
    DEFINE_S,
    DUPLICATE,
    DUPLICATE_S,
    MESSAGE,
    MOVE,
    MOVE_S,
    REF,
    REF_S,
    REMOVE,
    REMOVE_S,
    REMOVES,
    UNDEFINE,
    UNDEFINE_S,
    decode_removes,
    decode_roots,
    encode_copy,
    parse_message,
)
from services.broker.storage.journal.segment import HEAD_SIZE
from services.broker.storage.journal.segment_files import DamagedError
from services.broker.storage.live_records import LiveRecords
from services.broker.storage.maintenance.deletion import Deletion
from services.broker.storage.writer import Writer

log = logs.get(part="storage")

SLICE_BYTES = 256 << 10
SCAN_BYTES = 1 << 20
SLICE_PAUSE = 0.005  # seconds between slices, left to other work
SPARSE = 0.5  # live fraction below which a segment is worth copying
SLACK = 4  # garbage that is tolerated, in segments
PAUSE = 60  # steps until a segment that could not be read is tried again


class _Job:
    """The compaction of one segment."""

    def __init__(self, number: int, records: Iterator[tuple[int, memoryview, int, int]]) -> None:
        self.number = number
        self.records = records
        self.ended = False
        self.failed = False  # the rest of the segment cannot be read now
        self.waiting = False  # for the commit of a slice
        self.pinned: set[int] = set()  # segments with copies that are not committed and so not counted as live yet
        # of the slice that is being committed: id or key -> (old location, new location, size)
        self.messages: dict[int, tuple[int, int, int]] = {}
        self.definitions: dict[int, tuple[int, int]] = {}
        self.states: dict[tuple[int, int], tuple[int, int]] = {}
        self.keys: dict[tuple[int, bytes], tuple[int, int]] = {}


class Compactor:
    """Chooses and copies segments; the owner calls `step` periodically."""

    def __init__(
        self,
        journal: Journal,
        live: LiveRecords,
        writer: Writer,
        deletion: Deletion,
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self._journal = journal
        self._live = live
        self._writer = writer
        self._deletion = deletion
        self._loop = loop
        self._job: _Job | None = None
        self._steps = 0
        self._left: dict[int, int] = {}  # segments that could not be copied → step of the next attempt

    def step(self, *, full: bool) -> None:
        """Begin to copy the sparsest segment, if that is worth it. `full`: the disk is full, so every segment is
        worth it."""
        self._steps += 1
        if self._job is None:
            number = self._choose(full)
            if number is not None:
                self._begin(number)
        elif self._loop is None and not self._job.waiting:
            self._slice()

    # -- choosing ------------------------------------------------------------------------------------------------------
    def _choose(self, full: bool) -> int | None:
        journal = self._journal
        best, best_share = None, SPARSE
        light = None
        garbage = live = 0
        for number, segment in journal.segments.items():
            if number >= journal.tail or number == journal.current:
                continue
            if self._left and self._left.get(number, 0) > self._steps:
                continue
            usage = self._live.usage(number)
            if usage.live <= 0 and not usage.tombs:
                continue  # deleted once older segments are
            needed = usage.live + (usage.tombs if usage.kills else 0)
            live += usage.live
            garbage += max(segment.end - needed, 0)
            share = needed / segment.end
            if share < best_share:
                best, best_share = number, share
            if light is None and usage.live > 0 and share < SPARSE and self._definitions_alone(number) is not None:
                light = number
        if garbage < max(live // 2, SLACK * journal.segment_size):
            return light if full else None  # a full disk needs every freed segment; definitions are small
        return best if light is None else light

    def _definitions_alone(self, number: int) -> list[tuple[int, int]] | None:
        """Return (location, size) of the definitions of a segment in which nothing else is live. Without copying these,
        all later segments would wait for this one."""
        live = self._live
        usage = live.usage(number)
        if any(n != number and live.exists(n) for n in usage.kills):
            return None
        found = [(at, size) for at, size, _ in live.definitions.values() if at >> 32 == number]
        return found if usage.live == sum(size for _, size in found) else None

    # -- copying -------------------------------------------------------------------------------------------------------
    def _begin(self, number: int) -> None:
        self._job = _Job(number, self._records(number))
        self._live.usage(number).pins += 1
        self._slice()

    def _leave(self, job: _Job, error: Exception) -> None:
        """Stop because the rest of the segment cannot be read now: the copies made are valid, the segment stays."""
        job.ended = job.failed = True
        self._left[job.number] = self._steps + PAUSE
        log.warning("broker.segment.compaction-failed", segment=job.number, reason=str(error))

    def _records(self, number: int) -> Iterator[tuple[int, memoryview, int, int]]:
        """Yield the records of a segment that may be live."""
        journal = self._journal
        found = self._definitions_alone(number)
        if found is None:
            return journal.segment_files.records(journal.segments[number])
        return ((*journal.read(at, size), at, size) for at, size in found)

    def _slice(self) -> None:
        job = self._job
        if job is None or self._journal.closed:
            return
        copied = scanned = 0
        try:
            for kind, payload, location, size in job.records:
                scanned += size
                copied += self._copy(job, kind, payload, location)
                if copied >= SLICE_BYTES or scanned >= SCAN_BYTES:
                    break
            else:
                job.ended = True
        except (OSError, DamagedError) as error:
            self._leave(job, error)
        if copied:
            job.waiting = True
            self._journal.commit(self._committed)
        else:
            self._committed(None)

    def _copy(self, job: _Job, kind: int, payload: memoryview, location: int) -> int:
        """Write a record again if it is live. Return the bytes written."""
        live, append = self._live, self._journal.append
        new = 0
        size = HEAD_SIZE + len(payload)
        if kind in (MESSAGE, COPY):
            return self._copy_message(job, payload, location)
        if kind == DUPLICATE:
            cache, message = DUPLICATE_S.unpack_from(payload)
            key = bytes(payload[DUPLICATE_S.size :])
            if live.key(cache, key) == (message, location):
                new = append(DUPLICATE, payload)
                job.keys[cache, key] = (location, new)
        elif kind == DEFINE:
            (id,) = DEFINE_S.unpack_from(payload)
            if id in live.definitions and live.definitions[id].location == location:
                new = append(DEFINE, payload)
                job.definitions[id] = (location, new)
                live.copying_definition(id, new)
        elif kind == REF:
            message, queue, *_ = REF_S.unpack(payload)
            state = live.states.get((message, queue))
            if state and state.location == location:
                new = append(REF, payload)
                job.states[message, queue] = (location, new)
        elif kind == MOVE:
            message, source, target, order = MOVE_S.unpack_from(payload)
            state = live.states.get((message, target))
            if state and state.location == location:
                new = append(REF, REF_S.pack(message, target, order, 0, 0))
                job.states[message, target] = (location, new)
            roots = self._roots(job, payload, MOVE_S.size)
            if roots and (message, source) not in live.states:
                new = self._writer.removal(REMOVE, REMOVE_S.pack(message, source), roots)
        elif kind == REMOVES:
            queue, root, messages = decode_removes(payload)
            still = [m for m in messages if (m, queue) not in live.states]
            if still and root != job.number and live.exists(root):
                new = self._writer.removed_many(still, queue, root)
        elif kind in (REMOVE, UNDEFINE):
            if kind == REMOVE:
                head = bytes(payload[: REMOVE_S.size])
                needed = REMOVE_S.unpack(head) not in live.states
            else:
                head = bytes(payload[: UNDEFINE_S.size])
                needed = UNDEFINE_S.unpack(head)[0] not in live.definitions
            roots = self._roots(job, payload, len(head))
            if needed and roots:
                new = self._writer.removal(kind, head, roots)
        if not new:
            return 0
        self._pin(job, new)
        return size

    def _copy_message(self, job: _Job, payload: memoryview, location: int) -> int:
        """Write a message again if it is live, and the duplicate key that came with it. Return the bytes written."""
        live, append = self._live, self._journal.append
        stored = parse_message(payload)
        message = stored.message
        found = live.index.find(message)
        written = 0
        if found and found[0] == location:
            queues = live.index.queues(message)
            states = [(q, s) for q in queues if (s := live.states.get((message, q)))]
            parts = encode_copy(payload, stored, queues, states)
            new = append(COPY, *parts)
            written = HEAD_SIZE + sum(map(len, parts))
            job.messages[message] = (location, new, written)
            live.copying(message, location, new)
            self._pin(job, new)
        if stored.key:
            cache, key = stored.key
            if live.key(cache, key) == (message, location):
                new = append(DUPLICATE, DUPLICATE_S.pack(cache, message), key)
                written += HEAD_SIZE + DUPLICATE_S.size + len(key)
                job.keys[cache, key] = (location, new)
                self._pin(job, new)
        return written

    def _pin(self, job: _Job, location: int) -> None:
        """Keep the segment of the copy until the copy is committed."""
        number = location >> 32
        if number not in job.pinned:
            job.pinned.add(number)
            self._live.usage(number).pins += 1

    def _roots(self, job: _Job, payload: memoryview, start: int) -> tuple[int, ...]:
        """Return the segments that a removal names and that will outlive the removal's own segment."""
        return tuple(n for n in decode_roots(payload, start) if n != job.number and self._live.exists(n))

    def _committed(self, error: OSError | None) -> None:
        job, live = self._job, self._live
        assert job is not None
        live.moving.clear()
        job.waiting = False
        if error is None:
            for message, (old, new, size) in job.messages.items():
                live.copied(message, old, new, size)
            for (message, queue), (old, new) in job.states.items():
                live.moved_state(message, queue, old, new)
            for id, (old, new) in job.definitions.items():
                live.moved_definition(id, old, new)
            for (cache, key), (old, new) in job.keys.items():
                live.moved_key(cache, key, old, new)
        for number in job.pinned:
            live.usage(number).pins -= 1
        for copies in (job.pinned, job.messages, job.states, job.definitions, job.keys):
            copies.clear()
        if error is not None:  # earlier copies are valid; the rest is tried again later
            self._end(job)
        elif job.ended:
            self._end(job)
            self._finish(job)
        elif self._loop:
            self._loop.call_later(SLICE_PAUSE, self._slice)
        # without a loop: the next step

    def _end(self, job: _Job) -> None:
        self._job = None
        self._live.usage(job.number).pins -= 1

    def _finish(self, job: _Job) -> None:
        """Finish the segment: all its live records were copied."""
        if job.failed:
            return
        usage = self._live.usage(job.number)
        self._left.pop(job.number, None)
        if usage.live > 0:
            self._left[job.number] = self._steps + PAUSE
            log.warning(
                "broker.segment.retained", segment=job.number, bytes=usage.live, directory=str(self._journal.directory)
            )  # unreadable: kept until its messages are removed
            return
        usage.kills = set()
        if self._loop:
            self._deletion.step()
