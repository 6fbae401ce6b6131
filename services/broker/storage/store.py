"""Durable messages, their references from queues, and definitions, on the journal.

All methods belong to the thread of the event loop. Nothing is durable before the `commit` that follows it has reported
success. Ids (messages, queues, addresses, caches alike) are positive integers from one counter, never used again.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from enmasse.metrics import Histogram
from services.broker.storage.format import GROUPS, StoreError, write_format
from services.broker.storage.index import BLOCK_BITS
from services.broker.storage.journal import file_operations as layer
from services.broker.storage.journal.file_operations import Files
from services.broker.storage.journal.journal import SEGMENT_SIZE
from services.broker.storage.journal.records import HAS_KEY, KEY, MESSAGE, META, META1, encode_copy_head, payload_start
from services.broker.storage.journal.segment import HEAD_SIZE
from services.broker.storage.journal.segment_files import DamagedError
from services.broker.storage.maintenance.housekeeping import Housekeeping
from services.broker.storage.reading import read_payloads
from services.broker.storage.recovered_content import Progress, Recovered, Reference, unreported
from services.broker.storage.startup_recovery import Opened, open_directory

Done = Callable[[OSError | None], None]
Payload = bytes | bytearray | memoryview

_MOST_REMOVES = 1000  # in one record
_ROW = 1 << BLOCK_BITS


def _nothing() -> None:
    pass


_Added = tuple[int, Sequence[int], tuple[int, bytes] | None]
"""Id of a message, its queues, cache and key of its duplicate id."""


class Store:
    """The store (see the module). `Store.open` replays the directory; `take_recovered` returns what it found."""

    def __init__(self, directory: Path, files: Files, opened: Opened, loop: asyncio.AbstractEventLoop | None) -> None:
        """`opened`: the directory, by `open_directory`."""
        self.directory = directory
        self.identity = opened.identity
        self.recovered = opened.recovered
        self.losses = opened.losses
        self.live = opened.live
        self.journal = opened.journal
        self.closed = False
        self._format = opened.format
        self._added: list[_Added] | None = None  # in the group that is open
        self.on_space: Callable[[], None] = _nothing  # called when `full` has changed
        self._files = files
        self._lock = opened.lock
        self._writer = opened.writer
        self._housekeeping = Housekeeping(directory, files, opened, lambda: self.on_space(), loop)
        self._housekeeping.check_space()

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        files: Files | None = None,
        segment_size: int = SEGMENT_SIZE,
        progress: Progress = unreported,
    ) -> Store:
        """Lock and replay the directory, creating it if missing. Raises StoreError, and what `progress` raises. Takes
        two seconds for a million messages and may run in a thread if the store is not used before it returns. Without
        a loop, commits run in `flush` and housekeeping in `tick`; with one, call `start_housekeeping` once the
        recovered content has been taken."""
        files = files or layer.FILES
        opened = open_directory(directory, files, loop=loop, segment_size=segment_size, progress=progress)
        return cls(directory, files, opened, loop)

    def start_housekeeping(self) -> None:
        """Start the periodic work, twice a second in the loop."""
        if not self.closed:
            self._housekeeping.start()

    def tick(self) -> None:
        """Run one round of the periodic work."""
        self._housekeeping.tick()

    def close(self) -> None:
        """Commit appended records and unlock the directory. Blocks."""
        if self.closed:
            return
        self.closed = True
        self._housekeeping.stop()
        self._files.unlock(self._lock)

    # -- how it is -----------------------------------------------------------------------------------------------------
    @property
    def full(self) -> bool:
        """Return True if no further messages may be stored: refuse or block senders. Removals are still possible."""
        return self._housekeeping.full

    @property
    def unusable(self) -> bool:
        """Return True if `full` has another reason than space: the directory cannot be read, or was replaced."""
        return self._housekeeping.unusable

    @property
    def trouble(self) -> str:
        """Return a sentence on why messages are not stored and what to do; empty if they are."""
        return self._housekeeping.trouble

    @property
    def failing(self) -> bool:
        """Return True if the last commit failed."""
        return self.journal.error is not None

    @property
    def disk_bytes(self) -> int:
        """Bytes of the segments on disk."""
        return self.journal.segment_files.disk_bytes

    @property
    def disk_free(self) -> int | None:
        """Bytes that are free on the file system; None if it does not say."""
        try:
            return self.journal.free_bytes()
        except OSError:
            return None

    @property
    def latency(self) -> Histogram:
        """Seconds in which batches were written and synced."""
        return self.journal.latency

    def take_recovered(self) -> Recovered:
        """Return the content found at the start, once, so that its memory can be released. It must be consumed before
        the store is changed."""
        recovered, self.recovered = self.recovered, Recovered()
        return recovered

    def new_id(self, count: int = 1) -> int:
        """Reserve an id for a definition or a message that is not stored; with `count`, that many. Return the first."""
        return self.live.new_id(count)

    # -- definitions: queues, addresses, settings; the value is the caller's (JSON) -----------------------------------
    def define(self, id: int, value: bytes) -> None:
        """Create or replace a definition. A queue must be defined before the commit of its first reference: references
        to undefined ids are dropped at start."""
        self._writer.define(id, value)

    def undefine(self, id: int) -> None:
        """Delete a definition with its references and its duplicate cache. Call `discard` for each reference still
        held, so that memory and disk space are released."""
        if self._writer.undefine(id):
            self.live.forget_cache(id)

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
        """Store one copy with a reference from each queue (at least one), in one atomic record. Return the message's
        id. `duplicate` = (id of the definition that owns the cache, key): stored together with the message."""
        live = self.live
        live.last_id = message = live.last_id + 1
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
        if n == 1:
            live.put(message, location, size, queues[0])
        else:
            live.put_again(message, location, size, queues)
        if duplicate:
            live.remember(duplicate[0], duplicate[1], message, location)
        if self._added is not None:
            self._added.append((message, queues, duplicate))
        return message

    def add_run(self, payloads: Sequence[bytes], queue: int, priority: int) -> int:
        """Store several messages of one queue. Return the id of the first; the others are consecutive."""
        first = self.live.new_id(len(payloads))
        pack = META1.pack
        heads = [pack(message, priority, 0, 1, 0, 0, queue) for message in range(first, first + len(payloads))]
        locations = self.journal.append_run(MESSAGE, heads, payloads)
        sizes = [HEAD_SIZE + META1.size + len(payload) for payload in payloads]
        self.live.put_run(first, locations, sizes, queue)
        return first

    def reference(self, message: int, queue: int) -> None:
        """Add a reference to the message at the end of a further queue."""
        if self.live.refer(message, queue):
            self._writer.state(message, queue, self.new_id(), 0, 0)

    def remove(self, message: int, queue: int) -> None:
        """Remove a reference (acknowledged, expired, purged), with the last one the message. Ignores unknown ones."""
        root = self.live.forget(message, queue)
        if root:
            self._writer.removed(message, queue, root)

    def remove_many(self, messages: list[int], queue: int) -> None:
        """`remove` many references of one queue, in few records: in order, but not atomically."""
        live, writer = self.live, self._writer
        done, count = 0, len(messages)
        while done < count:
            some, root = live.forget_row(messages[done : done + _ROW], queue)
            if not some:
                break
            writer.removed_many(messages[done : done + some], queue, root)
            done += some
        run: list[int] = []
        run_root = 0
        for message in messages[done:]:
            root = live.forget(message, queue)
            if not root:
                continue
            is_plain = live.has_one_root(root)
            if run and (root != run_root or len(run) == _MOST_REMOVES or not is_plain):
                writer.removed_many(run, queue, run_root)
                run = []
            if is_plain:
                run.append(message)
                run_root = root
            else:
                writer.removed(message, queue, root)
        if run:
            writer.removed_many(run, queue, run_root)

    def discard(self, message: int, queue: int) -> None:
        """Forget a reference whose queue was undefined, without writing a record."""
        self.live.forget(message, queue)

    def move(self, message: int, source: int, target: int) -> None:
        """Move a reference from `source` to the end of `target`, atomically; its delivery count starts at 0."""
        queues = self.live.index.queues(message)
        if source not in queues or source == target:
            return
        if target in queues:
            self.remove(message, source)
        else:
            root = self.live.leave(message, source, target)
            self._writer.moved(message, source, target, self.new_id(), root)

    def update(self, message: int, queue: int, *, delivery_count: int, not_before: int = 0) -> None:
        """Record the delivery count and the time before which there must be no further delivery."""
        found = self.live.index.find(message)
        if found is None or queue not in self.live.index.queues(message):
            return
        old = self.live.drop_state(message, queue, found[0])
        self._writer.state(message, queue, old.order if old else message, not_before, delivery_count)

    def change(self, message: int, payload: Payload, *, priority: int, expiry: int) -> None:
        """Replace the payload of a message; its id, its references and their states stay."""
        queues = self.live.index.queues(message)
        if queues:
            states = [(queue, state) for queue in queues if (state := self.live.states.get((message, queue)))]
            head = encode_copy_head(message, priority, expiry, 0, queues, states)
            self._writer.message(message, head, bytes(payload))

    def split(self, message: int, queue: int, payload: Payload, *, priority: int, expiry: int) -> int:
        """Turn the queue's reference into a message of its own, with another payload and the state of the reference.
        Return its id."""
        new = self.new_id()
        state = self.live.states.get((message, queue))
        states = [(queue, state._replace(order=new))] if state else []
        head = encode_copy_head(new, priority, expiry, 0, (queue,), states)
        self._writer.split(new, queue, states, head, bytes(payload))
        self.remove(message, queue)
        return new

    def load(self, message: int) -> bytes:
        """Return the payload, from disk. Raises KeyError (unknown message), DamagedError (its record is lost for good)
        and OSError (it cannot be read now: try again)."""
        found = self.live.index.find(message)
        if found is None:
            raise KeyError(message)
        _, record = self.journal.read(*found)
        return bytes(record[payload_start(record) :])

    def load_many(self, messages: Sequence[int]) -> dict[int, bytes]:
        """`load` messages that are stored one after the other; unavailable ones are left out."""
        return read_payloads(self.live.index, self.journal.segment_files, messages)

    # -- duplicates ----------------------------------------------------------------------------------------------------
    def seen(self, cache: int, key: bytes) -> bool:
        """Return True if `add` was called with this duplicate key and its cache still has it. Durable with the next
        commit, like its message."""
        return self.live.seen(cache, key)

    def limit_duplicates(self, cache: int, count: int) -> None:
        """Set the number of keys that the cache keeps of each sender (default 20,000)."""
        self.live.limit_keys(cache, count)

    # -- groups --------------------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def group(self, size: int) -> Iterator[None]:
        """Make all changes inside atomic: after a crash all are there, or none. `size`: bytes that they take on disk,
        about. A commit that fails keeps the group, its messages too, and the next one writes it. An exception inside
        undoes what was added; nothing else may have been done by then. Raises OSError before anything is changed."""
        if self._format != GROUPS:  # earlier versions must not read past such records
            write_format(self.directory, self._files, GROUPS)
            self._format = GROUPS
        added: list[_Added] = []
        self._added = added
        try:
            with self.journal.group(size):
                yield
        except BaseException:
            self._undo(added)
            raise
        finally:
            self._added = None

    def _undo(self, added: list[_Added]) -> None:
        """Forget messages of which no record stays."""
        for message, queues, duplicate in added:
            for queue in queues:
                self.live.forget(message, queue)
            if duplicate is not None and (self.live.key(*duplicate) or (0,))[0] == message:
                self.live.forget_key(*duplicate)

    # -- durability ----------------------------------------------------------------------------------------------------
    def commit(self, done: Done | None = None) -> None:
        """Make all changes so far durable: calls `done(None)` once they are on disk, `done(error)` if that failed.
        After a failure messages added since the last success are forgotten (reject them; their ids are unknown from
        then on), while removals, moves, updates and definitions are kept in memory and written with the next commit.
        `done` runs in the loop, never inside this call (without a loop: inside `flush`)."""
        self.journal.commit(done)

    def commit_now(self, done: Done | None = None) -> None:
        """`commit` at the end of a turn of the loop: it does not wait for further changes, and `done` may run
        inside."""
        self.journal.commit_now(done)

    def on_failure(self, uncommitted: Callable[[], Done]) -> None:
        """Set the callback for failed commits. A failure also covers additions made since that commit began:
        `uncommitted` returns the `done` of those for which `commit` was not called yet."""
        self.journal.uncommitted = uncommitted

    def flush(self) -> None:
        """Write and sync now, blocking, and call the waiting callbacks. Only for a store without a loop."""
        self.journal.flush()


__all__ = ["DamagedError", "Done", "Payload", "Recovered", "Reference", "Store", "StoreError"]
