"""Giving back the space of what is gone: dead segments are deleted, sparse ones copied to the end in small slices.

Copies count only once they are committed; the segment goes after that. A crash in between leaves two copies of one
message under one id, of which replay takes the later, whole truth.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from enmasse import log as logs
from services.broker.storage.index import BLOCK_BITS, BLOCK_MASK
from services.broker.storage.journal import DamagedError
from services.broker.storage.records import (
    COPY,
    DEFINE,
    DEFINE_S,
    DUPLICATE,
    DUPLICATE_S,
    KEY_COST,
    MESSAGE,
    MOVE,
    MOVE_S,
    REF,
    REF_S,
    REMOVE,
    REMOVE_S,
    REMOVES,
    STATE_COST,
    UNDEFINE,
    UNDEFINE_S,
    State,
    decode_removes,
    decode_roots,
    encode_copy,
    encode_removes,
    parse_message,
)
from services.broker.storage.segment import HEAD_SIZE

if TYPE_CHECKING:
    from services.broker.storage.store import Store

log = logs.get(part="storage")

SLICE_BYTES = 256 << 10
SCAN_BYTES = 1 << 20
SLICE_PAUSE = 0.005  # seconds between slices, for the messages of others
SPARSE = 0.5  # a segment of which less than this is needed is worth copying
SLACK = 4  # segments' worth of garbage that is left alone
PAUSE = 60  # steps for which a segment is left alone that could not be read


class _Job:
    """The compaction of one segment."""

    def __init__(self, number: int, records: Iterator[tuple[int, memoryview, int, int]]) -> None:
        self.number = number
        self.records = records
        self.ended = False
        self.failed = False  # the rest of it cannot be read now
        self.waiting = False  # for the commit of a slice
        self.pinned: set[int] = set()  # segments with its copies, which do not count as live before that
        # of the slice that is being committed: id or key -> (old location, new location, size)
        self.messages: dict[int, tuple[int, int, int]] = {}
        self.definitions: dict[int, tuple[int, int]] = {}
        self.states: dict[tuple[int, int], tuple[int, int]] = {}
        self.keys: dict[tuple[int, bytes], tuple[int, int]] = {}


class Compactor:
    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop | None) -> None:
        self._store = store
        self._loop = loop
        self._job: _Job | None = None
        self._deleting: set[int] = set()
        self._undeleted: set[int] = set()  # an unlink failed: still on disk until the next start
        self._steps = 0
        self._left: dict[int, int] = {}  # segments that could not be copied, and from which step on they may be again

    # -- deleting ------------------------------------------------------------------------------------------------------
    def step(self) -> None:
        """Deletes what is dead and begins to copy the sparsest segment, if that is worth it."""
        self._steps += 1
        self._prune()
        if not self._deleting:
            self._delete()
        if self._job is None:
            number = self._choose()
            if number is not None:
                self._begin(number)
        elif self._loop is None and not self._job.waiting:
            self._slice()

    def _prune(self) -> None:
        store = self._store
        segments = store.journal.segments
        for number in [n for n in store.usages if n not in segments and n not in self._deleting]:
            if number not in self._undeleted and number < store.journal.tail:
                del store.usages[number]

    def exists(self, number: int) -> bool:
        """Whether the segment may be on disk."""
        return number in self._store.journal.segments or number in self._deleting or number in self._undeleted

    def _delete(self) -> None:
        """Those with nothing live that overrule nothing: after them, in later rounds, those that overruled them."""
        store = self._store
        journal = store.journal
        busy = {self._job.number, *self._job.pinned} if self._job else set()
        busy.add(journal.summarising)
        dead = []
        for number in journal.segments:
            usage = store.usage(number)
            if usage.live <= 0 and number < journal.tail and number not in busy and number != journal.current:
                usage.kills = {n for n in usage.kills if self.exists(n)}
                if not usage.kills:
                    dead.append(number)
        if not dead:
            return
        self._deleting = set(dead)
        # With the commit, the removals that made them dead are on disk as well.
        journal.retire(dead, lambda error: self._unlink(dead, error))

    def _unlink(self, dead: list[int], error: OSError | None) -> None:
        if error:
            self._deleting = set()  # another time
        elif self._loop:
            self._store.journal.delete_later(dead, lambda error: self._gone(dead, error))
        else:
            self._gone(dead, self._delete_now(dead))
            self._delete()

    def _delete_now(self, dead: list[int]) -> OSError | None:
        try:
            self._store.journal.delete(dead)
        except OSError as e:
            for number in dead:
                self._store.journal.segments.pop(number, None)
            return e
        return None

    def _gone(self, dead: list[int], error: OSError | None) -> None:
        self._deleting = set()
        if error:  # whatever overrules them stays, too
            log.warning("store.not-deleted", directory=str(self._store.directory), segments=dead, reason=str(error))
            self._undeleted.update(dead)
            return
        for number in dead:
            self._store.usages.pop(number, None)
        if self._loop:
            self._delete()

    # -- choosing ------------------------------------------------------------------------------------------------------
    def _choose(self) -> int | None:
        store = self._store
        journal = store.journal
        best, best_share = None, SPARSE
        light = None
        garbage = live = 0
        for number, segment in journal.segments.items():
            if number >= journal.tail or number == journal.current or number in self._deleting:
                continue
            if self._left and self._left.get(number, 0) > self._steps:
                continue
            usage = store.usage(number)
            if usage.live <= 0 and not usage.tombs:
                continue  # waits for older ones, then goes
            needed = usage.live + (usage.tombs if usage.kills else 0)
            live += usage.live
            garbage += max(segment.end - needed, 0)
            share = needed / segment.end
            if share < best_share:
                best, best_share = number, share
            if light is None and usage.live > 0 and share < SPARSE and self._definitions_alone(number) is not None:
                light = number
        if garbage < max(live // 2, SLACK * journal.segment_size):
            return light if store.full else None  # a full disk needs each segment that goes; definitions are small
        return best if light is None else light

    def _definitions_alone(self, number: int) -> list[tuple[int, int]] | None:
        """(location, size) of the definitions in a segment where nothing else is in force. Where messages come and go
        all later segments wait for one such."""
        store = self._store
        usage = store.usage(number)
        if any(n != number and self.exists(n) for n in usage.kills):
            return None
        found = [(at, size) for at, size, _ in store.definitions.values() if at >> 32 == number]
        return found if usage.live == sum(size for _, size in found) else None

    # -- copying -------------------------------------------------------------------------------------------------------
    def _begin(self, number: int) -> None:
        self._job = _Job(number, self._records(number))
        self._slice()

    def _leave(self, job: _Job, error: Exception) -> None:
        """The rest of the segment cannot be read now. What was copied counts; the segment stays, for another time."""
        job.ended = job.failed = True
        self._left[job.number] = self._steps + PAUSE
        log.warning("store.not-compacted", segment=job.number, reason=str(error))

    def _records(self, number: int) -> Iterator[tuple[int, memoryview, int, int]]:
        """What may be in force in a segment."""
        journal = self._store.journal
        found = self._definitions_alone(number)
        if found is None:
            return journal.records(number)
        return ((*journal.read(at, size), at, size) for at, size in found)

    def _slice(self) -> None:
        job, store = self._job, self._store
        if job is None or store.closed:
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
            store.commit(self._committed)
        else:
            self._committed(None)

    def _copy(self, job: _Job, kind: int, payload: memoryview, location: int) -> int:
        """Writes a record again if it is in force; bytes written."""
        store = self._store
        append = store.journal.append
        new = 0
        size = HEAD_SIZE + len(payload)
        if kind in (MESSAGE, COPY):
            (message,) = DEFINE_S.unpack_from(payload)
            stored = parse_message(payload)
            found = store.index.find(message)
            if found and found[0] == location:
                queues = store.index.queues(message)
                states = [(q, s) for q in queues if (s := store.states.get((message, q)))]
                parts = encode_copy(payload, stored, queues, states)
                new = append(COPY, *parts)
                size = HEAD_SIZE + sum(map(len, parts))
                job.messages[message] = (location, new, size)
                store.moving[message] = new >> 32
                usage = store.usage(new >> 32)
                usage.overrules |= {job.number} | store.usage(job.number).overrules
                usage.overrules.discard(new >> 32)
                usage.copied.append(message)
            if stored.key:
                cache, key = stored.key
                if store.key(cache, key) == (message, location):
                    new = append(DUPLICATE, DUPLICATE_S.pack(cache, message), key)
                    job.keys[cache, key] = (location, new)
        elif kind == DUPLICATE:
            cache, message = DUPLICATE_S.unpack_from(payload)
            key = bytes(payload[DUPLICATE_S.size :])
            if store.key(cache, key) == (message, location):
                new = append(DUPLICATE, payload)
                job.keys[cache, key] = (location, new)
        elif kind == DEFINE:
            (id,) = DEFINE_S.unpack_from(payload)
            if id in store.definitions and store.definitions[id][0] == location:
                new = append(DEFINE, payload)
                job.definitions[id] = (location, new)
                roots = store.definitions[id][2]
                if new >> 32 not in roots:
                    store.definitions[id] = (location, size, (*roots, new >> 32))
        elif kind == REF:
            message, queue, *_ = REF_S.unpack(payload)
            state = store.states.get((message, queue))
            if state and state.location == location:
                new = append(REF, payload)
                job.states[message, queue] = (location, new)
        elif kind == MOVE:
            message, source, target, order = MOVE_S.unpack_from(payload)
            state = store.states.get((message, target))
            if state and state.location == location:
                new = append(REF, REF_S.pack(message, target, order, 0, 0))
                job.states[message, target] = (location, new)
            roots = self._roots(job, payload, MOVE_S.size)
            if roots and (message, source) not in store.states:
                new = store.tomb(REMOVE, REMOVE_S.pack(message, source), roots)
        elif kind == REMOVES:
            queue, root, messages = decode_removes(payload)
            still = [m for m in messages if (m, queue) not in store.states]
            if still and root != job.number and self.exists(root):
                new = append(REMOVES, encode_removes(still, queue, root))
                usage = store.usage(new >> 32)
                usage.tombs += size
                if root != new >> 32:
                    usage.kills.add(root)
        elif kind in (REMOVE, UNDEFINE):
            if kind == REMOVE:
                head = bytes(payload[: REMOVE_S.size])
                needed = REMOVE_S.unpack(head) not in store.states
            else:
                head = bytes(payload[: UNDEFINE_S.size])
                needed = UNDEFINE_S.unpack(head)[0] not in store.definitions
            roots = self._roots(job, payload, len(head))
            if needed and roots:
                new = store.tomb(kind, head, roots)
        if not new:
            return 0
        job.pinned.add(new >> 32)
        return size

    def _roots(self, job: _Job, payload: memoryview, start: int) -> tuple[int, ...]:
        """The segments that a removal names and that will be there when its own is gone."""
        return tuple(n for n in decode_roots(payload, start) if n != job.number and self.exists(n))

    def _committed(self, error: OSError | None) -> None:
        job, store = self._job, self._store
        assert job is not None
        store.moving.clear()
        job.waiting = False
        if error is not None:
            self._job = None  # nothing has changed; another time
            return
        usages = store.usages
        for message, (old, new, size) in job.messages.items():
            found = store.index.find(message)
            if found is None or found[0] != old:
                continue  # removed meanwhile
            block = store.index.blocks[message >> BLOCK_BITS]
            i = message & BLOCK_MASK
            block.locations[i] = new
            block.sizes[i] = size
            usages[old >> 32].live -= found[1]
            store.usage(new >> 32).live += size
            for queue in store.index.queues(message):
                state = store.states.get((message, queue))
                if state and state.location < new:  # the copy says it
                    if state.location != old:
                        usages[state.location >> 32].live -= STATE_COST
                    store.states[message, queue] = state._replace(location=new)
        for (message, queue), (old, new) in job.states.items():
            state = store.states.get((message, queue))
            if state and state.location == old:
                usages[old >> 32].live -= STATE_COST
                store.usage(new >> 32).live += STATE_COST
                store.states[message, queue] = State(new, *state[1:])
        for id, (old, new) in job.definitions.items():
            location, length, roots = store.definitions.get(id, (0, 0, ()))
            if location == old:
                usages[old >> 32].live -= length
                store.usage(new >> 32).live += length
                store.definitions[id] = (new, length, roots)
        for (cache, key), (old, new) in job.keys.items():
            found = store.key(cache, key)
            if found and found[1] == old:
                usages[old >> 32].live -= KEY_COST + len(key)
                store.usage(new >> 32).live += KEY_COST + len(key)
                store.keys[cache][key] = (found[0], new)
        job.pinned.clear()
        job.messages.clear()
        job.states.clear()
        job.definitions.clear()
        job.keys.clear()
        if not job.ended:
            if self._loop:
                self._loop.call_later(SLICE_PAUSE, self._slice)
            return  # without a loop: the next step
        self._end(job)

    def _end(self, job: _Job) -> None:
        """All that was in force lies further on."""
        store = self._store
        usage = store.usage(job.number)
        self._job = None
        if job.failed:
            return
        self._left.pop(job.number, None)
        if usage.live > 0:
            self._left[job.number] = self._steps + PAUSE
            log.warning(
                "store.compaction-left", segment=job.number, bytes=usage.live, directory=str(store.directory)
            )  # unreadable: stays until its messages are removed
            return
        usage.kills = set()
        if self._loop and not self._deleting:
            self._delete()
