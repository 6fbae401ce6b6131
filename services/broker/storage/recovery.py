"""Replaying the journal: from its records to the index of what is live, and to what the broker wants to know at
start."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

from services.broker.storage.index import BLOCK_BITS, BLOCK_MASK, MANY, ORPHAN, Block, Index
from services.broker.storage.mending import Range, guess
from services.broker.storage.records import (
    COPY,
    DEFINE,
    DEFINE_S,
    DUPLICATE,
    DUPLICATE_S,
    KEY_COST,
    MESSAGE,
    META,
    META1,
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
    parse_message,
)
from services.broker.storage.segment import HEAD_SIZE
from services.broker.storage.summary import Summary

if TYPE_CHECKING:
    from services.broker.storage.catalogue import Catalogue
    from services.broker.storage.store import Store, Usage


Progress = Callable[[float], None]
"""Told how much of the work is done, 0 to 1. What it raises ends the work."""


def untold(_: float) -> None:
    """A `Progress` for nobody."""


class Reference(NamedTuple):
    """One message in one queue, as found at start. Times are milliseconds since 1970, 0 = none; `size` is that of the
    payload."""

    message: int
    size: int
    priority: int
    expiry: int
    not_before: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class Run:
    """Messages in a queue's order which only this queue refers to, of priority 4, without expiry, never delivered and
    not delayed; and the sizes of their payloads."""

    messages: Sequence[int]
    sizes: Sequence[int]


_FRONT = HEAD_SIZE + META1.size  # of a record, what is not payload: one queue and nothing else


class _Facts:
    """What the broker asks of 256 messages at start, and the store never again; kept where one of them is not as most
    are. `front`: of the record, what is not payload."""

    __slots__ = ("expiry", "front", "not_before", "priority")

    def __init__(self) -> None:
        self.front = array("I", (_FRONT,)) * (1 << BLOCK_BITS)
        self.priority = bytearray(b"\4" * (1 << BLOCK_BITS))
        self.expiry = array("Q", bytes(8 << BLOCK_BITS))
        self.not_before = array("Q", bytes(8 << BLOCK_BITS))


class Recovered:
    """What was found on disk: definitions by id, and the references of each defined queue in queue order. Takes 8
    bytes a message, 30 where they are not all alike: let go of it (`store.recovered = Recovered()`) once it is taken
    in, which has to be before anything is changed in the store."""

    def __init__(self, index: Index | None = None) -> None:
        self._index = index or Index()
        self.definitions: dict[int, bytes] = {}
        self.damaged: list[str] = []  # one line per damaged place: file, offset, what was lost
        self.lost: dict[int, int] = {}  # messages that damage has cost, by the id of their queue
        self.unknown: dict[int, int] = {}  # references to ids that are not defined, and kept; how many of each
        self._facts: dict[int, _Facts] = {}
        self._order: dict[int, array[int]] = {}
        self._states: dict[tuple[int, int], State] = {}

    def references(self, queue: int) -> Iterator[Reference]:
        """The messages of a queue in order of arrival; made on the fly, payloads stay on disk."""
        return map(self._reference, self._order.get(queue, ()), repeat(queue))

    def _reference(self, message: int, queue: int) -> Reference:
        facts = self._facts.get(message >> BLOCK_BITS, _USUAL)
        i = message & BLOCK_MASK
        state = self._states.get((message, queue))
        return Reference(
            message,
            self._index.blocks[message >> BLOCK_BITS].sizes[i] - facts.front[i],
            facts.priority[i],
            facts.expiry[i],
            state.not_before if state else facts.not_before[i],
            state.delivery_count if state else 0,
        )

    def parts(self, queue: int, count: int) -> Iterator[Run | list[Reference]]:
        """`references`, so many at a time; as a Run where all of them are of the usual kind."""
        order = self._order.get(queue, ())
        for at in range(0, len(order), count):
            messages = order[at : at + count]
            sizes = self._usual_sizes(messages, queue)
            yield [self._reference(m, queue) for m in messages] if sizes is None else Run(messages, sizes)

    def _usual_sizes(self, messages: Sequence[int], queue: int) -> list[int] | None:
        """The sizes of payloads; None where there is a message that has to be looked at by itself."""
        if self._states and any((message, queue) in self._states for message in messages):
            return None
        sizes: list[int] = []
        at, count = 0, len(messages)
        while at < count:
            first = messages[at]
            block = self._index.blocks[first >> BLOCK_BITS]
            start = first & BLOCK_MASK
            some = min(count - at, BLOCK_MASK + 1 - start)
            if messages[at + some - 1] != first + some - 1:
                some = 1
            if first >> BLOCK_BITS in self._facts or MANY in block.queues[start : start + some]:
                return None
            sizes += block.sizes[start : start + some]
            at += some
        return [size - _FRONT for size in sizes]

    def holders(self, message: int) -> int:
        """How many queues refer to it."""
        return len(self._index.queues(message))

    def count(self, queue: int) -> int:
        return len(self._order.get(queue, ()))

    def queues(self) -> Iterable[int]:
        """Ids of the definitions that hold at least one reference."""
        return self._order.keys()


_USUAL = _Facts()


class _All:
    """In place of a set of ids: every id but these."""

    def __init__(self, but: Container[int]) -> None:
        self._but = but

    def __contains__(self, id: object) -> bool:
        return id not in self._but


class Recovery:
    """`replay` takes the journal's records in order, `finish` drops what belongs to nothing."""

    def __init__(self, store: Store, segments: int, progress: Progress = untold) -> None:
        """`progress` is told after each of so many segments."""
        self.last_id = 0
        self._segments = segments
        self._begun = 0
        self._progress = progress
        self._store = store
        self._values: dict[int, bytes] = {}
        self._facts: dict[int, _Facts] = {}
        self._moved: set[int] = set()  # queues whose order is not that of message ids
        self._undefined: set[int] = set()
        self._missing: dict[int, set[int]] = {}  # messages whose records were damaged or missing, with their queues
        self._segment: tuple[int, Usage] = (0, store.usage(0))  # the last one looked up
        self._block: tuple[int, Block] = (-1, Block())

    def replay(self, kind: int, payload: memoryview, location: int) -> None:
        number, usage = self._segment
        if number != location >> 32:
            usage = self._store.usage(location >> 32)
            usage.first = self.last_id
            self._segment = (location >> 32, usage)
            self._progress(min(1.0, self._begun / self._segments))
            self._begun += 1
        if kind == MESSAGE:
            message, priority, flags, n, expiry, not_before, queue = META1.unpack_from(payload)
            if n != 1 or flags or not self._simple(message, queue, location, len(payload), usage):
                self._message(payload, location, usage)
                return
            if priority != 4 or expiry or not_before:
                self._note(message, _FRONT, priority, expiry, not_before)
        elif kind == COPY:
            (message,) = DEFINE_S.unpack_from(payload)
            usage.copied.append(message)
            self._missing.pop(message, None)
            self._message(payload, location, usage)
        elif kind == REMOVE:
            message, queue = REMOVE_S.unpack_from(payload)
            self._tomb(payload, REMOVE_S.size, location, usage)
            self._discard(message, queue)
            self.last_id = max(self.last_id, message)
        elif kind == REMOVES:
            queue, root, messages = decode_removes(payload)
            usage.tombs += HEAD_SIZE + len(payload)
            if root != location >> 32:
                usage.kills.add(root)
            for message in messages:
                self._discard(message, queue)
            self.last_id = max(self.last_id, *messages)
        elif kind == REF:
            self._ref(payload, location, usage)
        elif kind == MOVE:
            self._move(payload, location, usage)
        elif kind == DEFINE:
            self._define(payload, location, usage)
        elif kind == UNDEFINE:
            (id,) = UNDEFINE_S.unpack_from(payload)
            self._tomb(payload, UNDEFINE_S.size, location, usage)
            self._undefined.add(id)
            old = self._store.definitions.pop(id, None)
            if old:
                self._store.usages[old[0] >> 32].live -= old[1]
                del self._values[id]
            self.last_id = max(self.last_id, id)
        elif kind == DUPLICATE:
            cache, message = DUPLICATE_S.unpack_from(payload)
            self._key(cache, bytes(payload[DUPLICATE_S.size :]), message, location)
            self.last_id = max(self.last_id, message, cache)

    def _simple(self, message: int, queue: int, location: int, length: int, usage: Usage) -> bool:
        """The short way for a message of one queue that is met for the first time; False: it has been met before."""
        number, block = self._block
        if number != message >> BLOCK_BITS:
            number = message >> BLOCK_BITS
            found = self._store.index.blocks.get(number)
            if found is None:
                found = self._store.index.blocks[number] = Block()
            block = found
            self._block = (number, block)
        i = message & BLOCK_MASK
        if block.queues[i]:
            return False
        block.queues[i] = queue
        block.locations[i] = location
        block.sizes[i] = size = HEAD_SIZE + length
        block.live += 1
        usage.live += size
        if message > self.last_id:
            self.last_id = message
        if queue > self.last_id:
            self.last_id = queue
        return True

    def _message(self, payload: memoryview, location: int, usage: Usage) -> None:
        message, priority, _, _, expiry, not_before = META.unpack_from(payload)
        index = self._store.index
        old = index.find(message)
        if old:
            self._store.usages[old[0] >> 32].live -= old[1]
            usage.overrules |= {old[0] >> 32} | self._store.usages[old[0] >> 32].overrules
            usage.overrules.discard(location >> 32)
            for queue in index.queues(message):
                self._drop_state(message, queue, old[0])
        stored = parse_message(payload)
        size = HEAD_SIZE + len(payload)
        index.put(message, location, size, tuple(dict.fromkeys(stored.queues)))
        usage.live += size
        for queue, order, before, count in stored.states:
            self._store.states[message, queue] = State(location, order, before, count)
            if order != message:
                self._moved.add(queue)
                self.last_id = max(self.last_id, order)
        if stored.key:
            self._key(*stored.key, message, location)
        front = HEAD_SIZE + stored.start
        if front != _FRONT or priority != 4 or expiry or not_before or message >> BLOCK_BITS in self._facts:
            self._note(message, front, priority, expiry, not_before)
        self.last_id = max(self.last_id, message, *stored.queues)

    def _note(self, message: int, front: int, priority: int, expiry: int, not_before: int) -> None:
        facts = self._facts.get(message >> BLOCK_BITS)
        if facts is None:
            facts = self._facts[message >> BLOCK_BITS] = _Facts()
        i = message & BLOCK_MASK
        facts.front[i] = front
        facts.priority[i] = priority
        facts.expiry[i] = expiry
        facts.not_before[i] = not_before

    def _ref(self, payload: memoryview, location: int, usage: Usage) -> None:
        message, queue, order, not_before, count = REF_S.unpack(payload)
        self.last_id = max(self.last_id, message, queue, order)
        self._set_state(message, queue, State(location, order, not_before, count), usage)

    def _set_state(self, message: int, queue: int, state: State, usage: Usage) -> None:
        index = self._store.index
        found = index.find(message)
        if found is None:
            if message in self._missing:
                self._missing[message].add(queue)
            return  # the message is gone, and with it what was said of it
        queues = index.queues(message)
        if queue not in queues:
            index.set_queues(message, (*queues, queue))
        self._drop_state(message, queue, found[0])
        self._store.states[message, queue] = state
        usage.live += STATE_COST
        if state.order != message:
            self._moved.add(queue)

    def _drop_state(self, message: int, queue: int, root: int) -> None:
        state = self._store.states.pop((message, queue), None)
        if state and state.location != root:
            self._store.usages[state.location >> 32].live -= STATE_COST

    def _discard(self, message: int, queue: int) -> None:
        """The reference is gone; the message stays, for a reference further on: compaction may have moved one there."""
        index = self._store.index
        queues = index.queues(message)
        if queue not in queues:
            if message in self._missing:
                self._missing[message].discard(queue)
            return
        if self._store.states:
            found = index.find(message)
            assert found
            self._drop_state(message, queue, found[0])
        if len(queues) == 1:
            index.orphan(message)
        else:
            index.set_queues(message, tuple(q for q in queues if q != queue))

    def _move(self, payload: memoryview, location: int, usage: Usage) -> None:
        message, source, target, order = MOVE_S.unpack_from(payload)
        self._tomb(payload, MOVE_S.size, location, usage)
        self.last_id = max(self.last_id, message, target, order)
        self._set_state(message, target, State(location, order, 0, 0), usage)
        self._discard(message, source)

    def _define(self, payload: memoryview, location: int, usage: Usage) -> None:
        (id,) = DEFINE_S.unpack_from(payload)
        self.last_id = max(self.last_id, id)
        definitions = self._store.definitions
        old = definitions.get(id)
        roots: tuple[int, ...] = (location >> 32,)
        if old:
            self._store.usages[old[0] >> 32].live -= old[1]
            roots += tuple(n for n in old[2] if n != location >> 32)
        size = HEAD_SIZE + len(payload)
        definitions[id] = (location, size, roots)
        usage.live += size
        self._values[id] = bytes(payload[DEFINE_S.size :])

    def _tomb(self, payload: memoryview, start: int, location: int, usage: Usage) -> None:
        usage.tombs += HEAD_SIZE + len(payload)
        usage.kills.update(decode_roots(payload, start))
        usage.kills.discard(location >> 32)

    def _key(self, cache: int, key: bytes, message: int, location: int) -> None:
        keys = self._store.keys.setdefault(cache, OrderedDict())
        old = keys.get(key)
        if old and old[0] > message:
            return
        if old:
            self._store.usages[old[1] >> 32].live -= KEY_COST + len(key)
        keys[key] = (message, location)
        self._store.usage(location >> 32).live += KEY_COST + len(key)

    # -- damage --------------------------------------------------------------------------------------------------------
    def hurt(self, number: int, ranges: Sequence[Range], summary: Summary | None, data: bytes) -> None:
        """What lay in these ranges of a segment cannot be read. What is said of it further on still counts."""
        if summary is None:
            for message, queues in guess(data, ranges):
                self._miss(message, queues)
            return
        self.last_id = max(self.last_id, summary.contents.last_id)
        for offset, message, queues in summary.messages():
            if any(start <= offset < stop for start, stop in ranges):
                self._miss(message, queues)

    def _miss(self, message: int, queues: Sequence[int]) -> None:
        if self._store.index.find(message) is None:
            self._missing[message] = set(queues)

    def _count_lost(self) -> dict[int, int]:
        lost: dict[int, int] = {}
        for message, queues in self._missing.items():
            if self._store.index.find(message) is None:
                for queue in queues & self._store.definitions.keys():
                    lost[queue] = lost.get(queue, 0) + 1
        return lost

    def merge(self, catalogue: Catalogue) -> tuple[dict[int, bytes], dict[int, tuple[int, ...]]]:
        """Definitions that only the catalogue has, or has a newer value of; and those that it knows to be deleted, with
        the segments that mention them: they are dropped here."""
        definitions = self._store.definitions
        dropped: dict[int, tuple[int, ...]] = {}
        for id, (location, size, roots) in list(definitions.items()):
            unknown = catalogue.intact and id not in catalogue.definitions and location < catalogue.upto
            if unknown or id in catalogue.undefined:
                del definitions[id], self._values[id]
                self._store.usages[location >> 32].live -= size
                dropped[id] = roots
        restored: dict[int, bytes] = {}
        for id, (location, value) in catalogue.definitions.items():
            if id in self._undefined:
                continue
            found = definitions.get(id)
            if found is None or (found[0] < location and self._values[id] != value):
                restored[id] = self._values[id] = value
                self.last_id = max(self.last_id, id)
        return restored, dropped

    def defined(self) -> dict[int, tuple[int, bytes]]:
        """Location and value of the definitions that are in the journal."""
        return {id: (location, self._values[id]) for id, (location, _, _) in self._store.definitions.items()}

    def finish(self, kept: Iterable[int] = (), *, keep_unknown: bool = False) -> Recovered:
        """Drops references and keys of what is not defined; puts each queue in order. References to ids in `kept` stay,
        and with `keep_unknown` those to all that were not deleted."""
        store = self._store
        definitions: Container[int] = self._values.keys() | (set(kept) - self._undefined)
        if keep_unknown:
            definitions = _All(self._undefined)
        for cache in list(store.keys):
            keys = store.keys[cache]
            if cache in definitions:
                store.keys[cache] = OrderedDict(sorted(keys.items(), key=lambda item: item[1][0]))
                continue
            del store.keys[cache]
            for key, (_, location) in keys.items():
                store.usages[location >> 32].live -= KEY_COST + len(key)
        recovered = Recovered(store.index)
        recovered.definitions = self._values
        order = recovered._order
        states = store.states
        for number in sorted(store.index.blocks):
            block = store.index.blocks[number]
            base = number << BLOCK_BITS
            first = block.queues[0]
            if first in definitions and block.queues.count(first) > BLOCK_MASK:  # a block of one queue
                order.setdefault(first, array("Q")).extend(range(base, base + BLOCK_MASK + 1))
                continue
            for i, queue in enumerate(block.queues.tolist()):
                if not queue:
                    continue
                message = base | i
                if queue == ORPHAN:
                    store.discard(message, queue)
                    continue
                for q in store.index.many[message] if queue == MANY else (queue,):
                    if q not in definitions:
                        store.discard(message, q)
                        continue
                    ids = order.get(q)
                    if ids is None:
                        ids = order[q] = array("Q")
                    ids.append(message)
            if not block.live:
                self._facts.pop(number, None)
        for queue in self._moved & order.keys():

            def place(message: int, queue: int = queue) -> int:
                state = states.get((message, queue))
                return state.order if state else message

            order[queue] = array("Q", sorted(order[queue], key=place))
        recovered.lost = self._count_lost()
        recovered.unknown = {queue: len(ids) for queue, ids in order.items() if queue not in self._values}
        live = store.index.blocks
        recovered._facts = {number: facts for number, facts in self._facts.items() if number in live}
        recovered._states = dict(states)
        return recovered
