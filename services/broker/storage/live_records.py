"""Tables of the live records, and of the reasons why each segment is still needed.

The record that stores a message (MESSAGE, or COPY once it has been moved) is its root; other records refer to it. A
removal names the segments that hold roots of the removed message. A segment may be deleted if (1) it holds no live
record and (2) every segment that its removals name (`Usage.kills`) is deleted. Otherwise a restart would restore
removed messages.

Does not access files: replay enters the records that it reads, the store those that it appends, compaction those that
it has moved.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from services.broker.keys import LIMIT, Keys
from services.broker.storage.index import BLOCK_BITS, BLOCK_MASK, MANY, NO_QUEUES, ORPHAN, Block, Index
from services.broker.storage.journal.records import KEY_COST, STATE_COST, ReferenceState


class Usage:
    """Reasons why a segment is still needed."""

    __slots__ = ("copied", "first", "kills", "live", "overrules", "pins", "tombs")

    def __init__(self, first: int) -> None:
        self.live = 0  # bytes of live records
        self.kills: set[int] = set()  # segments that its removals name
        self.overrules: set[int] = set()  # segments that hold earlier roots of messages whose root is here
        self.tombs = 0  # bytes of removals
        self.pins = 0  # uncommitted copies and summaries under way: the segment stays until this is 0
        self.first = first  # lowest id of the messages first stored here
        self.copied = array("Q")  # ids of messages that were moved here


class Definition(NamedTuple):
    """Location and size of a definition's record, and the segments that have records of this definition."""

    location: int
    size: int
    roots: tuple[int, ...]


def _always(_: int) -> bool:
    return True


class LiveRecords:
    """The tables (see the module). Other classes read them; only these methods change them.

    Ids (messages, queues, addresses, caches alike) are positive integers from one counter, never used again.
    """

    def __init__(self) -> None:
        self.last_id = 0
        self.index = Index()
        self.states: dict[tuple[int, int], ReferenceState] = {}  # by message and queue
        self.definitions: dict[int, Definition] = {}
        self.keys: dict[int, Keys[tuple[int, int]]] = {}  # by cache: message, location
        self.usages: dict[int, Usage] = {}
        self.moving: dict[int, int] = {}  # message being copied → segment of the uncommitted copy
        self.exists: Callable[[int], bool] = _always  # returns True if a segment may be on disk; always during replay
        self._key_limits: dict[int, int] = {}
        self._last_block: tuple[int, Block] = (-1, Block())
        self._tail: tuple[int, Usage] = (-1, Usage(0))

    def new_id(self, count: int = 1) -> int:
        """Reserve `count` consecutive ids. Return the first."""
        self.last_id += count
        return self.last_id - count + 1

    def met(self, *ids: int) -> None:
        """During replay: record that these ids are in use."""
        self.last_id = max(self.last_id, *ids)

    # -- segments ------------------------------------------------------------------------------------------------------
    def usage(self, number: int) -> Usage:
        """Return the use of a segment by number."""
        usage = self.usages.get(number)
        if usage is None:
            usage = self.usages[number] = Usage(self.last_id)
        return usage

    def forget_segment(self, number: int) -> None:
        """Record that the segment was deleted."""
        self.usages.pop(number, None)

    def removal(self, location: int, size: int, roots: Sequence[int]) -> None:
        """Enter a removal (`size`: bytes of its head) of a message or definition with roots in these segments."""
        segment = location >> 32
        number, usage = self._tail
        if number != segment:
            usage = self.usage(segment)
            self._tail = (segment, usage)
        usage.tombs += size
        usage.kills.update(roots)
        usage.kills.discard(segment)

    def roots(self, message: int, root: int) -> list[int]:
        """Return the segments with a root of a message: the live one, a copy under way, and earlier ones still on
        disk."""
        roots = [root]
        overrules = self.usages[root].overrules
        if overrules:
            overrules = self.usages[root].overrules = {n for n in overrules if self.exists(n)}
            roots += overrules
        if message in self.moving and self.moving[message] not in roots:
            roots.append(self.moving[message])
        return roots

    def has_one_root(self, root: int) -> bool:
        """Return True if the removal of a message with its root in this segment needs to name no other segment."""
        return not (self.moving or self.usages[root].overrules)

    def kept_by(self, number: int) -> set[int]:
        """Return the segments on disk that removals in this one name: it must not be deleted before them."""
        usage = self.usage(number)
        usage.kills = {n for n in usage.kills if self.exists(n)}
        return usage.kills

    # -- messages ------------------------------------------------------------------------------------------------------
    def put(self, message: int, location: int, size: int, queue: int) -> bool:
        """Enter a message that one queue refers to. Return False, without a change, if the id exists."""
        segment = location >> 32
        number, block = self._last_block
        if number != message >> BLOCK_BITS or not block.live:
            number = message >> BLOCK_BITS
            found = self.index.blocks.get(number)
            if found is None:
                found = self.index.blocks[number] = Block()
            block = found
            self._last_block = (number, block)
        i = message & BLOCK_MASK
        if block.queues[i]:
            return False
        block.locations[i] = location
        block.queues[i] = queue
        block.sizes[i] = size
        block.live += 1
        number, usage = self._tail
        if number != segment:
            usage = self.usage(segment)
            self._tail = (segment, usage)
        usage.live += size
        return True

    def put_again(self, message: int, location: int, size: int, queues: Sequence[int]) -> None:
        """Enter a message that queues refer to, replacing an earlier record of it and the state of its references."""
        usage = self.usage(location >> 32)
        old = self.index.find(message)
        if old:
            before = self.usages[old[0] >> 32]
            before.live -= old[1]
            usage.overrules |= {old[0] >> 32} | before.overrules
            usage.overrules.discard(location >> 32)
            for queue in self.index.queues(message):
                self.drop_state(message, queue, old[0])
        self.index.put(message, location, size, tuple(dict.fromkeys(queues)))
        usage.live += size

    def put_run(self, first: int, locations: Sequence[int], sizes: Sequence[int], queue: int) -> None:
        """Enter new messages with consecutive ids, which one queue refers to."""
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

    def refer(self, message: int, queue: int) -> bool:
        """Add a reference from a queue. Return False if it exists already, or the message does not exist."""
        queues = self.index.queues(message)
        if not queues or queue in queues:
            return False
        self.index.set_queues(message, (*queues, queue))
        return True

    def refer_again(self, message: int, queue: int) -> None:
        """During replay: add a reference from a queue to an existing message, which may be an orphan."""
        queues = self.index.queues(message)
        if queue not in queues:
            self.index.set_queues(message, (*queues, queue))

    def forget(self, message: int, queue: int) -> int:
        """Remove a reference, and with the last one the message. Return the segment of the message's root; 0 if the
        reference did not exist."""
        block = self.index.blocks.get(message >> BLOCK_BITS)
        if block is None:
            return 0
        i = message & BLOCK_MASK
        location = block.locations[i]
        found = block.queues[i]
        if found == queue:
            if not found:
                return 0
            self.usages[location >> 32].live -= block.sizes[i]
            block.queues[i] = 0
            block.live -= 1
            if not block.live:
                del self.index.blocks[message >> BLOCK_BITS]
        elif found == MANY:
            queues = self.index.many[message]
            if queue not in queues:
                return 0
            self.index.set_queues(message, tuple(q for q in queues if q != queue))
        else:
            return 0
        if self.states:
            self.drop_state(message, queue, location)
        return location >> 32

    def forget_row(self, messages: Sequence[int], queue: int) -> tuple[int, int]:
        """`forget` for as many of the first `messages` as form the common case: consecutive ids in one block, roots in
        one segment that replace no earlier ones, no state, no copy under way. Return their number and the segment of
        their roots; (0, 0) if the first needs `forget`."""
        if self.states or self.moving:
            return 0, 0
        first = messages[0]
        block = self.index.blocks.get(first >> BLOCK_BITS)
        start = first & BLOCK_MASK
        stop = min(start + len(messages), BLOCK_MASK + 1)
        some = stop - start
        if (
            block is None
            or messages[:some] != list(range(first, first + some))
            or block.queues[start:stop].count(queue) < some
        ):
            return 0, 0
        locations = block.locations[start:stop]
        root = min(locations) >> 32
        usage = self.usages[root]
        if max(locations) >> 32 != root or usage.overrules:
            return 0, 0
        usage.live -= sum(block.sizes[start:stop])
        block.queues[start:stop] = NO_QUEUES[:some]
        block.live -= some
        if not block.live:
            del self.index.blocks[first >> BLOCK_BITS]
        return some, root

    def orphan(self, message: int, queue: int) -> bool:
        """During replay: remove a reference but keep the message, because compaction may have moved another reference
        to a later record. Return False if the reference does not exist."""
        queues = self.index.queues(message)
        if queue not in queues:
            return False
        if self.states:
            found = self.index.find(message)
            assert found
            self.drop_state(message, queue, found[0])
        if len(queues) == 1:
            self.index.orphan(message)
        else:
            self.index.set_queues(message, tuple(q for q in queues if q != queue))
        return True

    def forget_orphan(self, message: int) -> None:
        """After replay: remove a message that is still without references."""
        self.forget(message, ORPHAN)

    def leave(self, message: int, source: int, target: int) -> int:
        """Move a reference to the queue `target`, without its state. Return the segment of the message's root."""
        found = self.index.find(message)
        assert found
        self.drop_state(message, source, found[0])
        queues = self.index.queues(message)
        self.index.set_queues(message, tuple(target if q == source else q for q in queues))
        return found[0] >> 32

    def copying(self, message: int, old: int, new: int) -> None:
        """Record that a message's record at `old` was copied to `new`; not committed yet."""
        self.moving[message] = new >> 32
        usage = self.usage(new >> 32)
        usage.overrules |= {old >> 32} | self.usage(old >> 32).overrules
        usage.overrules.discard(new >> 32)
        usage.copied.append(message)

    def copied(self, message: int, old: int, new: int, size: int) -> None:
        """Use the committed copy, unless the message was removed meanwhile; it has the references as of the copying."""
        found = self.index.find(message)
        if found is None or found[0] != old:
            return
        self.index.relocate(message, new, size)
        self.usages[old >> 32].live -= found[1]
        self.usage(new >> 32).live += size
        self._restate_references(message, old, new)

    def restated(self, message: int, location: int, size: int) -> None:
        """A message's record was written again, with another payload: in force from now on."""
        old = self.repeated(message, location, size)
        self._restate_references(message, old, location)

    def repeated(self, message: int, location: int, size: int) -> int:
        """A message's record was written again unchanged: in force from now on. Return its former location."""
        found = self.index.find(message)
        assert found
        before = self.usages[found[0] >> 32]
        before.live -= found[1]
        usage = self.usage(location >> 32)
        usage.live += size
        usage.overrules |= {found[0] >> 32} | before.overrules
        if message in self.moving:
            usage.overrules.add(self.moving[message])
        usage.overrules.discard(location >> 32)
        usage.copied.append(message)
        self.index.relocate(message, location, size)
        return found[0]

    def _restate_references(self, message: int, old: int, new: int) -> None:
        """Relocate the states of references to a new record of the message, which contains them."""
        for queue in self.index.queues(message):
            state = self.states.get((message, queue))
            if state and state.location < new:
                if state.location != old:
                    self.usages[state.location >> 32].live -= STATE_COST
                self.states[message, queue] = state._replace(location=new)

    # -- states of references ------------------------------------------------------------------------------------------
    def set_state(self, message: int, queue: int, state: ReferenceState) -> None:
        """Enter the state of a reference that has a record of its own."""
        self.usage(state.location >> 32).live += STATE_COST
        self.states[message, queue] = state

    def set_state_of_copy(self, message: int, queue: int, state: ReferenceState) -> None:
        """Enter the state of a reference that is part of the message's record."""
        self.states[message, queue] = state

    def drop_state(self, message: int, queue: int, root: int) -> ReferenceState | None:
        """Remove the state of a reference. `root`: location of the message's record, whose bytes are counted
        already."""
        state = self.states.pop((message, queue), None)
        if state and state.location != root:
            self.usages[state.location >> 32].live -= STATE_COST
        return state

    def moved_state(self, message: int, queue: int, old: int, new: int) -> None:
        """Use the compacted copy unless a newer record exists."""
        state = self.states.get((message, queue))
        if state and state.location == old:
            self.usages[old >> 32].live -= STATE_COST
            self.set_state(message, queue, state._replace(location=new))

    # -- definitions ---------------------------------------------------------------------------------------------------
    def define(self, id: int, location: int, size: int) -> None:
        """A definition is at `location`, with its size in bytes; an older one is superseded."""
        old = self.definitions.get(id)
        roots: tuple[int, ...] = (location >> 32,)
        if old:
            self.usages[old.location >> 32].live -= old.size
            roots += tuple(n for n in old.roots if n != location >> 32 and self.exists(n))
        self.definitions[id] = Definition(location, size, roots)
        self.usage(location >> 32).live += size

    def undefine(self, id: int) -> tuple[int, ...] | None:
        """Remove a definition. Return the segments that mention it; None if it was not defined."""
        old = self.definitions.pop(id, None)
        if old is None:
            return None
        self.usages[old.location >> 32].live -= old.size
        return tuple(n for n in old.roots if self.exists(n))

    def copying_definition(self, id: int, new: int) -> None:
        """Record that the definition was copied to `new`; not committed yet."""
        found = self.definitions[id]
        if new >> 32 not in found.roots:
            self.definitions[id] = found._replace(roots=(*found.roots, new >> 32))

    def moved_definition(self, id: int, old: int, new: int) -> None:
        """Use the compacted copy unless a newer record exists."""
        found = self.definitions.get(id)
        if found and found.location == old:
            self.usages[old >> 32].live -= found.size
            self.usage(new >> 32).live += found.size
            self.definitions[id] = found._replace(location=new)

    # -- duplicate keys ------------------------------------------------------------------------------------------------
    def remember(self, cache: int, key: bytes, message: int, location: int, *, bounded: bool = True) -> None:
        """Add the newest key of the cache; those that are to go then are dropped if `bounded`."""
        keys = self.keys.get(cache)
        if keys is None:
            keys = self.keys[cache] = Keys(self._key_limits.get(cache, LIMIT))
        gone = keys.add(key, (message, location), bounded=bounded)
        if gone:
            self._dropped(gone)
        self.usage(location >> 32).live += KEY_COST + len(key)

    def _dropped(self, keys: Iterable[tuple[bytes, tuple[int, int]]]) -> None:
        for key, (_, location) in keys:
            self.usages[location >> 32].live -= KEY_COST + len(key)

    def key(self, cache: int, key: bytes) -> tuple[int, int] | None:
        """Return (message, location) of a remembered key, None if it is unknown."""
        keys = self.keys.get(cache)
        return keys.get(key) if keys else None

    def seen(self, cache: int, key: bytes) -> bool:
        """Return whether this id is remembered, for this sender or of an earlier version."""
        keys = self.keys.get(cache)
        return keys is not None and keys.seen(key)

    def forget_key(self, cache: int, key: bytes) -> None:
        """Drop a remembered key."""
        _, location = self.keys[cache].remove(key)
        self.usages[location >> 32].live -= KEY_COST + len(key)

    def moved_key(self, cache: int, key: bytes, old: int, new: int) -> None:
        """Use the compacted copy unless a newer record exists."""
        found = self.key(cache, key)
        if found and found[1] == old:
            self.usages[old >> 32].live -= KEY_COST + len(key)
            self.usage(new >> 32).live += KEY_COST + len(key)
            self.keys[cache].replace(key, (found[0], new))

    def forget_cache(self, cache: int) -> None:
        """Remove the duplicate keys of a cache."""
        keys = self.keys.pop(cache, None)
        self._dropped(() if keys is None else keys.items())
        self._key_limits.pop(cache, None)

    def sort_cache(self, cache: int) -> None:
        """After replay: sort the keys into the order of their messages."""
        old = self.keys[cache]
        keys = self.keys[cache] = Keys(old.limit)
        for key, value in sorted(old.items(), key=lambda item: item[1][0]):
            keys.add(key, value, bounded=False)

    def limit_keys(self, cache: int, count: int) -> None:
        """Keep at most `count` keys of each sender in a cache, the newest."""
        self._key_limits[cache] = count
        keys = self.keys.get(cache)
        if keys is not None:
            self._dropped(keys.set_limit(count))
