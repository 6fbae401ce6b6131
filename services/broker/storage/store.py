"""Durable messages, their references from queues, and definitions, on the journal.

All methods belong to the thread of the event loop. Nothing is durable before the `commit` that follows it has reported
success. Ids (messages, queues, addresses, caches alike) are positive integers from one counter, never used again.

The record that stores a message (MESSAGE, or COPY once it has been moved) is its root: what else is written of it hangs
on that. A removal names the segments in which there is a root it overrules. A segment goes when nothing in it is live
and no segment is left that its removals name (`Usage.kills`), so what is removed cannot come back, in whatever order
they go."""

from __future__ import annotations

import asyncio
import json
import struct
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

from enmasse import log as logs
from services.broker.storage import files as layer
from services.broker.storage.catalogue import Catalogue
from services.broker.storage.compaction import Compactor
from services.broker.storage.files import Files
from services.broker.storage.format import FORMAT, OLD, StoreError, check_format, write_format
from services.broker.storage.index import BLOCK_BITS, BLOCK_MASK, MANY, NO_QUEUES, Block, Index
from services.broker.storage.journal import SEGMENT_SIZE, DamagedError, Journal
from services.broker.storage.losses import Losses
from services.broker.storage.reading import read_payloads
from services.broker.storage.records import (
    DEFINE,
    DEFINE_S,
    HAS_KEY,
    KEY,
    KEY_COST,
    MESSAGE,
    META,
    META1,
    MOVE,
    MOVE_S,
    REF,
    REF_S,
    REMOVE,
    REMOVE1,
    REMOVE_S,
    REMOVES,
    REPEATED,
    STATE_COST,
    UNDEFINE,
    UNDEFINE_S,
    State,
    decode_removes,
    decode_roots,
    encode_removes,
    encode_roots,
    parse_message,
    payload_start,
)
from services.broker.storage.recovery import Progress, Recovered, Recovery, Reference, untold
from services.broker.storage.segment import HEAD_SIZE
from services.broker.storage.summary import Contents

log = logs.get(part="storage")

Done = Callable[[OSError | None], None]
Payload = bytes | bytearray | memoryview

DUPLICATES = 20_000
_MOST_REMOVES = 1000  # in one record
TICK_SECONDS = 0.5
SUMMARY_PAUSE = 60  # ticks after a summary could not be written
RESERVE = 4  # segments' worth of free space below which no more messages are taken


def _nothing() -> None:
    pass


def _name_of(value: bytes) -> str:
    """What a definition calls what it defines, if it is a JSON object that does; else nothing."""
    try:
        found = json.loads(value)
    except ValueError:
        return ""
    return str(found.get("name", "")) if isinstance(found, dict) else ""


class Usage:
    """What is worth keeping in a segment."""

    __slots__ = ("copied", "first", "kills", "live", "overrules", "tombs")

    def __init__(self) -> None:
        self.live = 0  # bytes of records that are in force
        self.kills: set[int] = set()  # segments that its removals name
        self.overrules: set[int] = set()  # segments that hold earlier roots of messages whose root is here
        self.tombs = 0  # bytes of removals
        self.first = 0  # no message that was stored here has a lower id
        self.copied = array("Q")  # but these, which were moved here


class Store:
    """See the module. `Store.open` replays; then `recovered` tells what was there."""

    def __init__(self, directory: Path, files: Files, loop: asyncio.AbstractEventLoop | None) -> None:
        self.directory = directory
        self.recovered = Recovered()
        self.full = False  # too little space for more messages, removals still fit: refuse or block senders
        self.on_space: Callable[[], None] = _nothing  # `full` has changed
        self.losses = Losses(directory)
        self.trouble = ""  # why no more is stored and what to do, a sentence; empty: all is well
        self.index = Index()
        self.states: dict[tuple[int, int], State] = {}  # by message and queue
        self.definitions: dict[int, tuple[int, int, tuple[int, ...]]] = {}  # location, size, segments that mention it
        self.keys: dict[int, OrderedDict[bytes, tuple[int, int]]] = {}  # by cache: message, location
        self.usages: dict[int, Usage] = {}
        self.moving: dict[int, int] = {}  # being copied: id -> segment of the copy
        self._key_limits: dict[int, int] = {}
        self._last_id = 0
        self._pause = 0  # ticks without summaries
        self._last_block: tuple[int, Block] = (-1, Block())
        self._tail: tuple[int, Usage] = (-1, Usage())
        self._files = files
        self._loop = loop
        self._lock: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.closed = False
        self.journal: Journal
        self.compactor: Compactor

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        files: Files | None = None,
        segment_size: int = SEGMENT_SIZE,
        progress: Progress = untold,
    ) -> Store:
        """Locks and replays the directory (made when missing). Raises StoreError, and what `progress` raises. Takes
        two seconds for a million messages: it may be called in a thread, as long as nobody uses the store before it
        returns. Without a loop, commits happen in `flush` and housekeeping in `tick`; with one, `keep_house` when what
        was recovered has been taken in."""
        files = files or layer.FILES
        self = cls(directory, files, loop)
        try:
            files.make_dir(directory)
            self._lock = files.lock(directory / "LOCK")
            if self._lock is None:
                raise StoreError(
                    f"{directory} is in use by another process: end that one or choose another data directory"
                )
            version = check_format(directory, files)
            catalogue = Catalogue(directory, files)
            catalogue.read()
            segments = sum(name.endswith(".journal") for name in files.list(directory))
            recovery = Recovery(self, max(1, segments), progress)
            self.journal = Journal.open(
                directory,
                files,
                recovery.replay,
                loop=loop,
                lost=self._lost,
                segment_size=segment_size,
                catalogue=catalogue,
                repeat=REPEATED,
                hurt=recovery.hurt,
                legacy=version == OLD,
            )
        except OSError as e:
            self.close()
            raise StoreError(f"{directory} cannot be used as data directory: {e.strerror or e}") from e
        except BaseException:
            self.close()
            raise
        self.compactor = Compactor(self, loop)
        self._last_id = recovery.last_id
        try:
            self._take_in(recovery, catalogue, version)
        except OSError as e:
            self.close()
            raise StoreError(f"{directory} cannot be used as data directory: {e.strerror or e}") from e
        self._check_space()
        return self

    def _take_in(self, recovery: Recovery, catalogue: Catalogue, version: int) -> None:
        """Journal and catalogue agree from now on."""
        damaged = self.journal.damaged
        hurt = bool(damaged)
        if not catalogue.intact and version == FORMAT and self.journal.segments:
            for start, stop in catalogue.damage or [(0, 0)]:
                what = f"offset {start}: {stop - start} bytes cannot be read" if stop else "the file is missing"
                damaged.append(f"{catalogue.path}: {what}; it was made again from the journal")
        restored, dropped = recovery.merge(catalogue)
        # Nothing may be written before what is lost has been told.
        self.recovered = recovery.finish(catalogue.kept, keep_unknown=hurt and not catalogue.intact)
        self.recovered.damaged = damaged
        for place in damaged:
            self.losses.add(place)
        for id, count in self.recovered.lost.items():
            name = _name_of(self.recovered.definitions[id])
            self.losses.add("their records were damaged or missing at the start", name or str(id), count)
        if damaged:
            self.losses.sync()
        self.journal.finish_mending()
        for usage in self.usages.values():
            usage.copied = array("Q", usage.copied)
        catalogue.replace(recovery.defined(), catalogue.segments)
        for id in catalogue.kept | self.recovered.unknown.keys():
            catalogue.keep(id, id in self.recovered.unknown)
        for id, value in restored.items():
            self.define(id, value)
        for id, roots in dropped.items():
            self.tomb(UNDEFINE, UNDEFINE_S.pack(id), [n for n in roots if self.compactor.exists(n)])
        if restored or dropped:
            self.journal.flush()
        if self.journal.save_catalogue() and version != FORMAT:
            try:
                write_format(self.directory, self._files)
            except OSError as error:
                log.warning("store.not-upgraded", directory=str(self.directory), reason=str(error))

    def keep_house(self) -> None:
        """From now on, twice a second in the loop."""
        if self._loop and not self.closed:
            self._timer = self._loop.call_later(TICK_SECONDS, self._ticks)

    def close(self) -> None:
        """Commits what is appended, unlocks. Blocks."""
        if self.closed:
            return
        self.closed = True
        if self._timer:
            self._timer.cancel()
        if hasattr(self, "journal"):
            self.journal.close(self._summarise_all)
        if self._lock is not None:
            self._files.unlock(self._lock)

    def take_recovered(self) -> Recovered:
        """What was found at the start, which the store forgets: its memory is given back with it. To be used up before
        anything is changed in the store."""
        recovered, self.recovered = self.recovered, Recovered()
        return recovered

    def new_id(self, count: int = 1) -> int:
        """An id for a definition or a message that is not stored; with `count` the first of so many."""
        self._last_id += count
        return self._last_id - count + 1

    # -- definitions: queues, addresses, settings; the value is the caller's (JSON) -----------------------------------
    def define(self, id: int, value: bytes) -> None:
        """Creates or replaces the definition. A queue must be defined before the commit of its first reference:
        references to ids without a definition are dropped at start."""
        old = self.definitions.get(id)
        location = self.journal.append(DEFINE, DEFINE_S.pack(id), value)
        size = HEAD_SIZE + DEFINE_S.size + len(value)
        self.journal.catalogue.define(id, location, bytes(value))
        self.usage(location >> 32).live += size
        roots: tuple[int, ...] = (location >> 32,)
        if old:
            self.usages[old[0] >> 32].live -= old[1]
            roots += tuple(n for n in old[2] if n != location >> 32 and self.compactor.exists(n))
        self.definitions[id] = (location, size, roots)

    def undefine(self, id: int) -> None:
        """Deletes a definition. Its references and its duplicate cache are gone with it; call `discard` for each
        reference still held, so that memory and disk are given back."""
        old = self.definitions.pop(id, None)
        if old is None:
            return
        self.usages[old[0] >> 32].live -= old[1]
        self.journal.catalogue.undefine(id)
        self.tomb(UNDEFINE, UNDEFINE_S.pack(id), [n for n in old[2] if self.compactor.exists(n)])
        for key, (_, location) in self.keys.pop(id, OrderedDict()).items():
            self.usages[location >> 32].live -= KEY_COST + len(key)
        self._key_limits.pop(id, None)

    # -- messages ------------------------------------------------------------------------------------------------------
    def add(
        self,
        payload: Payload | Sequence[Payload],
        queues: Sequence[int],
        *,
        priority: int = 4,
        expiry: int = 0,
        not_before: int = 0,
        duplicate: tuple[int, bytes] | None = None,
    ) -> int:
        """Stores one copy with a reference from each queue (at least one), in one atomic record; returns the message's
        id. `duplicate` = (id of the definition whose cache it is, key): remembered together with the message."""
        self._last_id = message = self._last_id + 1
        n = len(queues)
        assert n, "a message that no queue refers to"
        if n == 1 and duplicate is None:
            head = META1.pack(message, priority, 0, 1, expiry, not_before, queues[0])
        else:
            head = META.pack(message, priority, HAS_KEY if duplicate else 0, n, expiry, not_before)
            head += struct.pack(f"<{n}Q", *queues)
            if duplicate:
                head += KEY.pack(duplicate[0], len(duplicate[1])) + duplicate[1]
        if isinstance(payload, (bytes, memoryview, bytearray)):
            location = self.journal.append_pair(MESSAGE, head, payload)
            size = HEAD_SIZE + len(head) + len(payload)
        else:
            location = self.journal.append(MESSAGE, head, *payload)
            size = HEAD_SIZE + len(head) + sum(map(len, payload))
        number, usage = self._tail
        if number != location >> 32:
            usage = self.usage(location >> 32)
            self._tail = (location >> 32, usage)
        usage.live += size
        if n == 1:
            number, block = self._last_block
            if number != message >> BLOCK_BITS or not block.live:
                number = message >> BLOCK_BITS
                found = self.index.blocks.get(number)
                if found is None:
                    found = self.index.blocks[number] = Block()
                block = found
                self._last_block = (number, block)
            i = message & BLOCK_MASK
            block.locations[i] = location
            block.queues[i] = queues[0]
            block.sizes[i] = size
            block.live += 1
        else:
            self.index.put(message, location, size, tuple(dict.fromkeys(queues)))
        if duplicate:
            self.remember(duplicate[0], duplicate[1], message, location)
        return message

    def add_run(self, payloads: Sequence[bytes], queue: int, priority: int) -> int:
        """`add` of several messages that this one queue refers to; the id of the first, the others' follow it."""
        first = self._last_id + 1
        self._last_id += len(payloads)
        pack = META1.pack
        heads = [pack(message, priority, 0, 1, 0, 0, queue) for message in range(first, self._last_id + 1)]
        locations = self.journal.append_run(MESSAGE, heads, payloads)
        sizes = [HEAD_SIZE + META1.size + len(payload) for payload in payloads]
        usage = self.usage(locations[0] >> 32)
        if usage.first > first:
            usage.first = first
        if locations[0] >> 32 == locations[-1] >> 32:
            usage.live += sum(sizes)
        else:
            for i, (location, size) in enumerate(zip(locations, sizes, strict=True)):
                usage = self.usage(location >> 32)
                usage.live += size
                if usage.first > first + i:
                    usage.first = first + i
        self.index.put_run(first, locations, sizes, queue)
        return first

    def reference(self, message: int, queue: int) -> None:
        """One more queue refers to the message, at the end of that queue."""
        queues = self.index.queues(message)
        if not queues or queue in queues:
            return
        self.index.set_queues(message, (*queues, queue))
        self._write_state(message, queue, self.new_id(), 0, 0)

    def remove(self, message: int, queue: int) -> None:
        """Acknowledged, expired or purged: the reference is gone; with the last one, the message. Unknown ones are
        ignored."""
        block = self.index.blocks.get(message >> BLOCK_BITS)
        if block is None:
            return
        i = message & BLOCK_MASK
        root = block.locations[i] >> 32
        if not self._forget(block, i, message, queue):
            return
        if self.moving or self.usages[root].overrules:
            self.tomb(REMOVE, REMOVE_S.pack(message, queue), self._roots(message, root))
            return
        location = self.journal.append(REMOVE, REMOVE1.pack(message, queue, root))
        number, usage = self._tail
        if number != location >> 32:
            usage = self.usage(location >> 32)
            self._tail = (location >> 32, usage)
        usage.tombs += HEAD_SIZE + REMOVE1.size
        if root != location >> 32:
            usage.kills.add(root)

    def remove_many(self, messages: list[int], queue: int) -> None:
        """`remove` of many references of one queue, in few records: in order, but not all or nothing."""
        if not (self.states or self.moving):
            messages = self._remove_rows(messages, queue)
        blocks = self.index.blocks
        run: list[int] = []
        run_root = -1
        for message in messages:
            block = blocks.get(message >> BLOCK_BITS)
            if block is None:
                continue
            i = message & BLOCK_MASK
            root = block.locations[i] >> 32
            if root != run_root or len(run) == _MOST_REMOVES:
                self._write_removes(run, queue, run_root)
                run = []
                run_root = root
            if not self._forget(block, i, message, queue):
                continue
            if self.moving or self.usages[root].overrules:
                self._write_removes(run, queue, run_root)
                run = []
                self.tomb(REMOVE, REMOVE_S.pack(message, queue), self._roots(message, root))
            else:
                run.append(message)
        self._write_removes(run, queue, run_root)

    def _remove_rows(self, messages: list[int], queue: int) -> list[int]:
        """The usual case of `remove_many`, in slices: ids without a gap, which nothing but the index knows of. Returns
        the messages that are left to do."""
        done, count = 0, len(messages)
        while done < count:
            first = messages[done]
            block = self.index.blocks.get(first >> BLOCK_BITS)
            start = first & BLOCK_MASK
            stop = min(start + count - done, BLOCK_MASK + 1)
            some = stop - start
            row = messages[done : done + some]
            if row != list(range(first, first + some)) or block is None or block.queues[start:stop].count(queue) < some:
                break
            locations = block.locations[start:stop]
            root = min(locations) >> 32
            usage = self.usages[root]
            if max(locations) >> 32 != root or usage.overrules:
                break
            usage.live -= sum(block.sizes[start:stop])
            block.queues[start:stop] = NO_QUEUES[:some]
            block.live -= some
            if not block.live:
                del self.index.blocks[first >> BLOCK_BITS]
            self._write_removes(row, queue, root)
            done += some
        return messages[done:]

    def _write_removes(self, messages: Sequence[int], queue: int, root: int) -> None:
        if not messages:
            return
        record = encode_removes(messages, queue, root)
        location = self.journal.append(REMOVES, record)
        usage = self.usage(location >> 32)
        usage.tombs += HEAD_SIZE + len(record)
        if root != location >> 32:
            usage.kills.add(root)

    def discard(self, message: int, queue: int) -> None:
        """Forgets a reference whose queue was undefined: nothing is written."""
        block = self.index.blocks.get(message >> BLOCK_BITS)
        if block is not None:
            self._forget(block, message & BLOCK_MASK, message, queue)

    def _forget(self, block: Block, i: int, message: int, queue: int) -> bool:
        """Takes a reference out of memory; False when there is none."""
        found = block.queues[i]
        if found == queue:
            if not found:
                return False
            self.usages[block.locations[i] >> 32].live -= block.sizes[i]
            block.queues[i] = 0
            block.live -= 1
            if not block.live:
                del self.index.blocks[message >> BLOCK_BITS]
        elif found == MANY:
            queues = self.index.many[message]
            if queue not in queues:
                return False
            self.index.set_queues(message, tuple(q for q in queues if q != queue))
        else:
            return False
        if self.states:
            self._drop_state(message, queue, block.locations[i])
        return True

    def move(self, message: int, source: int, target: int) -> None:
        """The reference leaves `source` and arrives at the end of `target`, atomically; its delivery count starts at
        0."""
        queues = self.index.queues(message)
        if source not in queues or source == target:
            return
        if target in queues:
            self.remove(message, source)
            return
        found = self.index.find(message)
        assert found
        self._drop_state(message, source, found[0])
        self.index.set_queues(message, tuple(target if q == source else q for q in queues))
        order = self.new_id()
        head = MOVE_S.pack(message, source, target, order)
        location = self.tomb(MOVE, head, self._roots(message, found[0] >> 32))
        self.states[message, target] = State(location, order, 0, 0)
        self.usage(location >> 32).live += STATE_COST

    def update(self, message: int, queue: int, *, delivery_count: int, not_before: int = 0) -> None:
        """Records deliveries made and the time before which there is to be no other."""
        found = self.index.find(message)
        if found is None or queue not in self.index.queues(message):
            return
        old = self._drop_state(message, queue, found[0])
        self._write_state(message, queue, old.order if old else message, not_before, delivery_count)

    def _write_state(self, message: int, queue: int, order: int, not_before: int, delivery_count: int) -> None:
        location = self.journal.append(REF, REF_S.pack(message, queue, order, not_before, delivery_count))
        self.usage(location >> 32).live += STATE_COST
        self.states[message, queue] = State(location, order, not_before, delivery_count)

    def _drop_state(self, message: int, queue: int, root: int) -> State | None:
        state = self.states.pop((message, queue), None)
        if state and state.location != root:
            self.usages[state.location >> 32].live -= STATE_COST
        return state

    def load(self, message: int) -> bytes:
        """The payload, from disk. Raises KeyError (no such message), DamagedError (its record will never be read) and
        OSError (it cannot be read now: try again)."""
        found = self.index.find(message)
        if found is None:
            raise KeyError(message)
        _, record = self.journal.read(*found)
        return bytes(record[payload_start(record) :])

    def load_many(self, messages: Sequence[int]) -> dict[int, bytes]:
        """`load` of messages that lie one behind the other; what is not there for any reason is left out."""
        return read_payloads(self.index, self.journal, messages)

    # -- duplicates ----------------------------------------------------------------------------------------------------
    def seen(self, cache: int, key: bytes) -> bool:
        """Whether `add` was called with this duplicate key and it is still among the newest of its cache. Durable with
        the next commit, like the message it came with."""
        keys = self.keys.get(cache)
        return keys is not None and key in keys

    def limit_duplicates(self, cache: int, count: int) -> None:
        """How many keys the cache keeps (default 20,000)."""
        self._key_limits[cache] = count
        self._trim(cache)

    def remember(self, cache: int, key: bytes, message: int, location: int) -> None:
        keys = self.keys.get(cache)
        if keys is None:
            keys = self.keys[cache] = OrderedDict()
        old = keys.pop(key, None)
        if old:
            self.usages[old[1] >> 32].live -= KEY_COST + len(key)
        keys[key] = (message, location)
        self.usage(location >> 32).live += KEY_COST + len(key)
        self._trim(cache)

    def key(self, cache: int, key: bytes) -> tuple[int, int] | None:
        """(message, location) of a remembered key."""
        keys = self.keys.get(cache)
        return keys.get(key) if keys else None

    def _trim(self, cache: int) -> None:
        keys = self.keys.get(cache)
        if not keys:
            return
        limit = self._key_limits.get(cache, DUPLICATES)
        while len(keys) > limit:
            key, (_, location) = keys.popitem(last=False)
            self.usages[location >> 32].live -= KEY_COST + len(key)

    # -- durability ----------------------------------------------------------------------------------------------------
    def commit(self, done: Done | None = None) -> None:
        """`done(None)` once everything called so far is on disk, `done(error)` when it is not and will not be: then
        messages added since the last success are forgotten (reject them; their ids are unknown from here on), while
        removals, moves, updates and definitions are kept in memory and written with the next commit. `done` runs in the
        loop, never inside this call (without a loop: inside `flush`)."""
        self.journal.commit(done)

    def commit_now(self, done: Done | None = None) -> None:
        """`commit` at the end of a turn of the loop: nothing more is waited for, and `done` may run inside."""
        self.journal.commit_now(done)

    def on_failure(self, uncommitted: Callable[[], Done]) -> None:
        """A commit that fails takes along what was added since it began. `uncommitted` is called then: it gives the
        `done` of what no `commit` has been called for yet."""
        self.journal.uncommitted = uncommitted

    def flush(self) -> None:
        """Writes and syncs now, blocking; calls what waits. Only for a store without a loop."""
        self.journal.flush()

    def _lost(self, kind: int, payload: memoryview, location: int) -> None:
        """A record that a failed commit left out: forgotten with its message, or written again further on."""
        if kind == MESSAGE:
            stored = parse_message(payload)
            found = self.index.find(stored.message)
            if found and found[0] == location:
                for queue in self.index.queues(stored.message):
                    self.discard(stored.message, queue)
            if stored.key:
                cache, key = stored.key
                if self.key(cache, key) == (stored.message, location):
                    del self.keys[cache][key]
                    self.usages[location >> 32].live -= KEY_COST + len(key)
        elif kind == REF:
            message, queue, order, not_before, count = REF_S.unpack(payload)
            state = self.states.get((message, queue))
            if state and state.location == location:
                self._drop_state(message, queue, 0)
                self._write_state(message, queue, order, not_before, count)
        elif kind in (REMOVE, UNDEFINE):
            size = (REMOVE_S if kind == REMOVE else UNDEFINE_S).size
            roots = [n for n in decode_roots(payload, size) if self.compactor.exists(n)]
            if roots:
                self.tomb(kind, bytes(payload[:size]), roots)
        elif kind == REMOVES:
            queue, root, messages = decode_removes(payload)
            if self.compactor.exists(root):
                self._write_removes(messages, queue, root)
        elif kind == MOVE:
            message, _, target, order = MOVE_S.unpack_from(payload)
            state = self.states.get((message, target))
            roots = [n for n in decode_roots(payload, MOVE_S.size) if self.compactor.exists(n)]
            if roots:
                new = self.tomb(MOVE, bytes(payload[: MOVE_S.size]), roots)
                if state and state.location == location:
                    self._drop_state(message, target, 0)
                    self.states[message, target] = State(new, order, 0, 0)
                    self.usage(new >> 32).live += STATE_COST
        elif kind == DEFINE:
            (id,) = DEFINE_S.unpack_from(payload)
            if id in self.definitions and self.definitions[id][0] == location:
                self.define(id, bytes(payload[DEFINE_S.size :]))

    # -- segments ------------------------------------------------------------------------------------------------------
    def usage(self, number: int) -> Usage:
        usage = self.usages.get(number)
        if usage is None:
            usage = self.usages[number] = Usage()
            usage.first = self._last_id
        return usage

    def _roots(self, message: int, root: int) -> list[int]:
        """The segments with a root of a message: the one in force, one being written, and those not deleted yet."""
        roots = [root]
        overrules = self.usages[root].overrules
        if overrules:
            overrules = self.usages[root].overrules = {n for n in overrules if self.compactor.exists(n)}
            roots += overrules
        if message in self.moving and self.moving[message] not in roots:
            roots.append(self.moving[message])
        return roots

    def tomb(self, kind: int, head: bytes, roots: Sequence[int]) -> int:
        """Writes a removal."""
        location = self.journal.append(kind, head, encode_roots(roots))
        usage = self.usage(location >> 32)
        usage.tombs += HEAD_SIZE + len(head) + 4 * len(roots)
        usage.kills.update(roots)
        usage.kills.discard(location >> 32)
        return location

    # -- housekeeping --------------------------------------------------------------------------------------------------
    def _ticks(self) -> None:
        try:
            self.tick()
        except Exception:
            log.exception("store.housekeeping-failed", directory=str(self.directory))
        if self.journal.error is None:
            self.journal.keep_spare()
        self.keep_house()

    def _summarise(self) -> None:
        """Writes the summary of a closed segment, one at a time."""
        if self.journal.summary_failed:
            self._pause = SUMMARY_PAUSE
            self.journal.summary_failed = False
        if self._pause:
            self._pause -= 1
            return
        numbers = self.journal.unsummarised()
        if numbers and not self.journal.summarising:
            self.journal.summarise(numbers[0], self._contents(numbers[0]))

    def _summarise_all(self) -> None:
        """At the end: of the segments of this run. Those of earlier runs are for another time."""
        for number in self.journal.unsummarised():
            if self.journal.segments[number].kept is not None:
                self.journal.summarise(number, self._contents(number))

    def _contents(self, number: int) -> Contents:
        """Which messages lie in a segment, those of its neighbours in the same blocks among them."""
        usage = self.usage(number)
        low = usage.first >> BLOCK_BITS
        high = min((u.first for n, u in self.usages.items() if n > number), default=self._last_id) >> BLOCK_BITS
        blocks = self.index.blocks
        numbers = {message >> BLOCK_BITS for message in usage.copied}
        numbers.update(range(low, high + 1) if high - low < len(blocks) else (n for n in blocks if low <= n <= high))
        found = sorted(numbers & blocks.keys())
        usage.copied = array("Q")
        many: dict[int, tuple[int, ...]] = {}
        for block in found:
            queues = blocks[block].queues
            if MANY in queues:
                some = (block << BLOCK_BITS | i for i, queue in enumerate(queues) if queue == MANY)
                many.update((message, self.index.many[message]) for message in some)
        return Contents(
            self._last_id,
            found,
            b"".join([blocks[n].queues.tobytes() for n in found]),
            b"".join([blocks[n].locations.tobytes() for n in found]),
            many,
        )

    def tick(self) -> None:
        """Deletes what is dead, compacts what is sparse, proves what is idle, writes down what closed segments hold;
        after a failed write tries one."""
        self._check_space()
        self.losses.check()
        self._summarise()
        self.compactor.step()
        if self.journal.gathered:
            self.journal.commit()
        elif self.journal.error is not None:
            self.journal.retry()
        else:
            self.journal.prove()

    def _check_space(self) -> None:
        was_full = self.full
        try:
            trouble = self._find_trouble()
        except OSError as error:
            self.full = True
            trouble = (
                f"data directory {self.directory}: {error.strerror or error}; messages are refused until it is back"
            )
        if trouble and not self.trouble:
            log.warning("store.trouble", reason=trouble)
        elif self.trouble and not trouble:
            log.warning("store.well-again", directory=str(self.directory))
        self.trouble = trouble
        if self.full != was_full:
            self.on_space()

    def _find_trouble(self) -> str:
        """Sets `full`; why nothing more is stored. Raises OSError."""
        assert self._lock is not None
        self.full = True
        if not self._files.holds(self._lock, self.directory / "LOCK"):
            return (
                f"data directory {self.directory} was deleted or replaced: messages are refused, those held can be"
                " consumed; restart the broker to begin with what the directory holds then"
            )
        free, need = self._files.free(self.directory), RESERVE * self.journal.segment_size
        if free < need:
            return (
                f"data directory {self.directory}: disk full, {free >> 20} MiB free of {need >> 20} that must be;"
                " messages are refused until there is space"
            )
        self.full = False
        error = self.journal.error
        return "" if error is None else f"data directory {self.directory}: the last write failed: {error}"

    @property
    def failing(self) -> bool:
        """Whether the last commit failed."""
        return self.journal.error is not None

    @property
    def disk_bytes(self) -> int:
        """What the segments take."""
        return self.journal.disk_bytes


__all__ = ["DamagedError", "Done", "Payload", "Recovered", "Reference", "Store", "StoreError"]
