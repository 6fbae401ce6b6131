"""Replays the journal's records into the live tables and the content that the broker needs at the start."""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterable, Sequence

from services.broker.storage.index import BLOCK_BITS, BLOCK_MASK, MANY, ORPHAN
from services.broker.storage.journal.definitions import StoredDefinitions
from services.broker.storage.journal.mending import Range, guess
from services.broker.storage.journal.records import (
    COPY,
    DEFINE,
    DEFINE_S,
    DUPLICATE,
    DUPLICATE_S,
    MESSAGE,
    META1,
    MOVE,
    MOVE_S,
    REF,
    REF_S,
    REMOVE,
    REMOVE_S,
    REMOVES,
    UNDEFINE,
    UNDEFINE_S,
    ReferenceState,
    decode_removes,
    decode_roots,
    parse_message,
)
from services.broker.storage.journal.segment import HEAD_SIZE
from services.broker.storage.journal.summary import Summary
from services.broker.storage.live_records import LiveRecords
from services.broker.storage.recovered_content import FRONT, Facts, Progress, Recovered, unreported


class _All:
    """Set-like object that contains every id except the given ones."""

    def __init__(self, but: Container[int]) -> None:
        self._but = but

    def __contains__(self, id: object) -> bool:
        return id not in self._but


class RecordReplay:
    """`replay` takes the journal's records in order, `finish` drops references and keys without a definition."""

    def __init__(self, live: LiveRecords, segments: int, progress: Progress = unreported) -> None:
        """`progress` is called after each of `segments` segments."""
        self._live = live
        self._segments = segments
        self._begun = 0
        self._progress = progress
        self._values: dict[int, bytes] = {}
        self._facts: dict[int, Facts] = {}
        self._moved: set[int] = set()  # queues whose order differs from that of message ids
        self._undefined: set[int] = set()
        self._missing: dict[int, set[int]] = {}  # messages whose records were damaged or missing, with their queues
        self._segment = 0  # number of the last segment

    def replay(self, kind: int, payload: memoryview, location: int) -> None:
        """Take one record of the journal, in the order in which they were written."""
        live = self._live
        if self._segment != location >> 32:
            self._begin(location >> 32)
        if kind == MESSAGE:
            message, priority, flags, n, expiry, not_before, queue = META1.unpack_from(payload)
            if n != 1 or flags or not live.put(message, location, HEAD_SIZE + len(payload), queue):
                self._message(payload, location)
                return
            if message > live.last_id:
                live.last_id = message
            if queue > message:
                live.met(queue)
            if priority != 4 or expiry or not_before:
                self._note(message, FRONT, priority, expiry, not_before)
        elif kind == COPY:
            (message,) = DEFINE_S.unpack_from(payload)
            live.usage(location >> 32).copied.append(message)
            self._missing.pop(message, None)
            self._message(payload, location)
        elif kind == REMOVE:
            message, queue = REMOVE_S.unpack_from(payload)
            self._removal(payload, REMOVE_S.size, location)
            self._discard(message, queue)
            if message > live.last_id:
                live.last_id = message
        elif kind == REMOVES:
            queue, root, messages = decode_removes(payload)
            live.removal(location, HEAD_SIZE + len(payload), (root,))
            for message in messages:
                self._discard(message, queue)
            live.met(*messages)
        elif kind == REF:
            message, queue, order, not_before, count = REF_S.unpack(payload)
            live.met(message, queue, order)
            self._set_state(message, queue, ReferenceState(location, order, not_before, count))
        elif kind == MOVE:
            message, source, target, order = MOVE_S.unpack_from(payload)
            self._removal(payload, MOVE_S.size, location)
            live.met(message, target, order)
            self._set_state(message, target, ReferenceState(location, order, 0, 0))
            self._discard(message, source)
        elif kind == DEFINE:
            (id,) = DEFINE_S.unpack_from(payload)
            live.met(id)
            live.define(id, location, HEAD_SIZE + len(payload))
            self._values[id] = bytes(payload[DEFINE_S.size :])
        elif kind == UNDEFINE:
            (id,) = UNDEFINE_S.unpack_from(payload)
            self._removal(payload, UNDEFINE_S.size, location)
            self._undefined.add(id)
            live.undefine(id)
            self._values.pop(id, None)
            live.met(id)
        elif kind == DUPLICATE:
            cache, message = DUPLICATE_S.unpack_from(payload)
            self._key(cache, bytes(payload[DUPLICATE_S.size :]), message, location)
            live.met(message, cache)

    def _begin(self, number: int) -> None:
        self._segment = number
        self._live.usage(number).first = self._live.last_id
        self._progress(min(1.0, self._begun / self._segments))
        self._begun += 1

    def _message(self, payload: memoryview, location: int) -> None:
        """Handle an unusual or repeated message."""
        live = self._live
        stored = parse_message(payload)
        message = stored.message
        live.put_again(message, location, HEAD_SIZE + len(payload), stored.queues)
        for queue, order, before, count in stored.states:
            live.set_state_of_copy(message, queue, ReferenceState(location, order, before, count))
            if order != message:
                self._moved.add(queue)
                live.met(order)
        if stored.key:
            self._key(*stored.key, message, location)
        front = HEAD_SIZE + stored.start
        unusual = front != FRONT or stored.priority != 4 or stored.expiry or stored.not_before
        if unusual or message >> BLOCK_BITS in self._facts:
            self._note(message, front, stored.priority, stored.expiry, stored.not_before)
        live.met(message, *stored.queues)

    def _note(self, message: int, front: int, priority: int, expiry: int, not_before: int) -> None:
        facts = self._facts.get(message >> BLOCK_BITS)
        if facts is None:
            facts = self._facts[message >> BLOCK_BITS] = Facts()
        i = message & BLOCK_MASK
        facts.front[i] = front
        facts.priority[i] = priority
        facts.expiry[i] = expiry
        facts.not_before[i] = not_before

    def _set_state(self, message: int, queue: int, state: ReferenceState) -> None:
        live = self._live
        found = live.index.find(message)
        if found is None:
            if message in self._missing:
                self._missing[message].add(queue)
            return  # the message was removed with its state
        live.refer_again(message, queue)
        live.drop_state(message, queue, found[0])
        live.set_state(message, queue, state)
        if state.order != message:
            self._moved.add(queue)

    def _discard(self, message: int, queue: int) -> None:
        if not self._live.orphan(message, queue) and message in self._missing:
            self._missing[message].discard(queue)

    def _removal(self, payload: memoryview, start: int, location: int) -> None:
        self._live.removal(location, HEAD_SIZE + len(payload), decode_roots(payload, start))

    def _key(self, cache: int, key: bytes, message: int, location: int) -> None:
        old = self._live.key(cache, key)
        if old is None or old[0] <= message:
            self._live.remember(cache, key, message, location, bounded=False)

    # -- damage --------------------------------------------------------------------------------------------------------
    def damaged(self, number: int, ranges: Sequence[Range], summary: Summary | None, data: bytes) -> None:
        """Handle unreadable ranges of a segment. Later records about their messages remain valid."""
        if summary is None:
            for message, queues in guess(data, ranges):
                self._miss(message, queues)
            return
        self._live.met(summary.contents.last_id)
        for offset, message, queues in summary.messages():
            if any(start <= offset < stop for start, stop in ranges):
                self._miss(message, queues)

    def _miss(self, message: int, queues: Sequence[int]) -> None:
        if self._live.index.find(message) is None:
            self._missing[message] = set(queues)

    def _count_lost(self) -> dict[int, int]:
        lost: dict[int, int] = {}
        for message, queues in self._missing.items():
            if self._live.index.find(message) is None:
                for queue in queues & self._live.definitions.keys():
                    lost[queue] = lost.get(queue, 0) + 1
        return lost

    # -- when all is read ----------------------------------------------------------------------------------------------
    def merge(self, catalogue: StoredDefinitions) -> tuple[dict[int, bytes], dict[int, tuple[int, ...]]]:
        """Merge the catalogue. Return the definitions of which only the catalogue has the newest value, and those that
        it records as deleted, with the segments that mention them; the latter are dropped."""
        live = self._live
        dropped: dict[int, tuple[int, ...]] = {}
        for id, (location, _, _) in list(live.definitions.items()):
            unknown = catalogue.intact and id not in catalogue.definitions and location < catalogue.upto
            if unknown or id in catalogue.undefined:
                del self._values[id]
                dropped[id] = live.undefine(id) or ()
        restored: dict[int, bytes] = {}
        for id, (location, value) in catalogue.definitions.items():
            if id in self._undefined:
                continue
            found = live.definitions.get(id)
            if found is None or (found.location < location and self._values[id] != value):
                restored[id] = self._values[id] = value
                live.met(id)
        return restored, dropped

    def defined(self) -> dict[int, tuple[int, bytes]]:
        """Return id → (location, value) of the definitions in the journal."""
        return {id: (location, self._values[id]) for id, (location, _, _) in self._live.definitions.items()}

    def finish(self, kept: Iterable[int] = (), *, keep_unknown: bool = False) -> Recovered:
        """Drop references and keys of undefined ids, and sort each queue. References to ids in `kept` stay, and with
        `keep_unknown` those to all ids that were not deleted."""
        live = self._live
        definitions: Container[int] = self._values.keys() | (set(kept) - self._undefined)
        if keep_unknown:
            definitions = _All(self._undefined)
        for cache in list(live.keys):
            if cache in definitions:
                live.sort_cache(cache)
            else:
                live.forget_cache(cache)
        recovered = Recovered(live.index)
        recovered.definitions = self._values
        order = recovered.order
        for number in sorted(live.index.blocks):
            block = live.index.blocks[number]
            base = number << BLOCK_BITS
            first = block.queues[0]
            # all messages of the block are in one queue
            if first in definitions and block.queues.count(first) > BLOCK_MASK:
                order.setdefault(first, array("Q")).extend(range(base, base + BLOCK_MASK + 1))
                continue
            for i, queue in enumerate(block.queues.tolist()):
                if not queue:
                    continue
                message = base | i
                if queue == ORPHAN:
                    live.forget_orphan(message)
                    continue
                for q in live.index.many[message] if queue == MANY else (queue,):
                    if q not in definitions:
                        live.forget(message, q)
                        continue
                    ids = order.get(q)
                    if ids is None:
                        ids = order[q] = array("Q")
                    ids.append(message)
            if not block.live:
                self._facts.pop(number, None)
        for queue in self._moved & order.keys():

            def place(message: int, queue: int = queue) -> int:
                state = live.states.get((message, queue))
                return state.order if state else message

            order[queue] = array("Q", sorted(order[queue], key=place))
        recovered.lost = self._count_lost()
        recovered.unknown = {queue: len(ids) for queue, ids in order.items() if queue not in self._values}
        recovered.facts = {number: facts for number, facts in self._facts.items() if number in live.index.blocks}
        recovered.states = dict(live.states)
        return recovered
