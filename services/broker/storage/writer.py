"""Appends records about stored messages: definitions, removals, moves, deliveries. Enters each in the live tables;
writes records again that a failed commit left out."""

from __future__ import annotations

from collections.abc import Sequence

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
    REMOVE1,
    REMOVE_S,
    REMOVES,
    UNDEFINE,
    UNDEFINE_S,
    ReferenceState,
    decode_removes,
    decode_roots,
    encode_copy,
    encode_removes,
    encode_roots,
    parse_message,
)
from services.broker.storage.journal.segment import GROUP, HEAD_SIZE, members
from services.broker.storage.live_records import LiveRecords


class Writer:
    """Changes of messages, references and definitions: written to the journal, and in force in `LiveRecords`."""

    def __init__(self, journal: Journal, live: LiveRecords) -> None:
        self._journal = journal
        self._live = live

    def define(self, id: int, value: bytes) -> None:
        """Write a definition."""
        location = self._journal.append(DEFINE, DEFINE_S.pack(id), value)
        self._journal.catalogue.define(id, location, bytes(value))
        self._live.define(id, location, HEAD_SIZE + DEFINE_S.size + len(value))

    def undefine(self, id: int) -> bool:
        """Delete a definition. Return False if it was not defined."""
        roots = self._live.undefine(id)
        if roots is None:
            return False
        self._journal.catalogue.undefine(id)
        self.undefined(id, roots)
        return True

    def undefined(self, id: int, roots: Sequence[int]) -> None:
        """Write the removal of a definition that is no longer live."""
        self.removal(UNDEFINE, UNDEFINE_S.pack(id), roots)

    def state(self, message: int, queue: int, order: int, not_before: int, delivery_count: int) -> None:
        """Write the place, delay and delivery count of a reference."""
        location = self._journal.append(REF, REF_S.pack(message, queue, order, not_before, delivery_count))
        self._live.set_state(message, queue, ReferenceState(location, order, not_before, delivery_count))

    def moved(self, message: int, source: int, target: int, order: int, root: int) -> None:
        """Write that a reference is another queue's."""
        location = self.removal(MOVE, MOVE_S.pack(message, source, target, order), self._live.roots(message, root))
        self._live.set_state(message, target, ReferenceState(location, order, 0, 0))

    def message(self, message: int, *parts: bytes | memoryview) -> None:
        """`parts`: of the COPY that takes the place of the message's record."""
        location = self._journal.append(COPY, *parts)
        self._live.restated(message, location, HEAD_SIZE + sum(map(len, parts)))

    def split(
        self, message: int, queue: int, states: Sequence[tuple[int, ReferenceState]], *parts: bytes | memoryview
    ) -> None:
        """A new message by a COPY: unlike a new one of a producer, it is written again after a failed commit."""
        location = self._journal.append(COPY, *parts)
        self._live.put_again(message, location, HEAD_SIZE + sum(map(len, parts)), (queue,))
        self._live.usage(location >> 32).copied.append(message)
        for queue, state in states:
            self._live.set_state_of_copy(message, queue, state._replace(location=location))

    def removed(self, message: int, queue: int, root: int) -> None:
        """Write the removal of one reference. `root`: the segment of the message's record."""
        if self._live.has_one_root(root):
            location = self._journal.append(REMOVE, REMOVE1.pack(message, queue, root))
            self._live.removal(location, HEAD_SIZE + REMOVE1.size, (root,))
        else:
            self.removal(REMOVE, REMOVE_S.pack(message, queue), self._live.roots(message, root))

    def removed_many(self, messages: Sequence[int], queue: int, root: int) -> int:
        """Write the removal of references to messages (at least one) that all have this root. Return its location."""
        record = encode_removes(messages, queue, root)
        location = self._journal.append(REMOVES, record)
        self._live.removal(location, HEAD_SIZE + len(record), (root,))
        return location

    def removal(self, kind: int, head: bytes, roots: Sequence[int]) -> int:
        """Write a record of this kind that names the segments whose records it overrules. Return its location."""
        location = self._journal.append(kind, head, encode_roots(roots))
        self._live.removal(location, HEAD_SIZE + len(head) + 4 * len(roots), roots)
        return location

    def lost(self, kind: int, payload: memoryview, location: int) -> None:
        """Handle a record that a failed commit left out: forget it with its message, or write it again."""
        live = self._live
        if kind == MESSAGE:
            stored = parse_message(payload)
            found = live.index.find(stored.message)
            if found and found[0] == location:
                for queue in live.index.queues(stored.message):
                    live.forget(stored.message, queue)
            if stored.key and live.key(*stored.key) == (stored.message, location):
                live.forget_key(*stored.key)
        elif kind == COPY:
            stored = parse_message(payload)
            found = live.index.find(stored.message)
            if found and found[0] == location:  # no copy of a compaction, which is not in force yet
                states = [(q, s) for q in stored.queues if (s := live.states.get((stored.message, q)))]
                self.message(stored.message, *encode_copy(payload, stored, live.index.queues(stored.message), states))
        elif kind == REF:
            message, queue, order, not_before, count = REF_S.unpack(payload)
            if self._drop_state(message, queue, location):
                self.state(message, queue, order, not_before, count)
        elif kind in (REMOVE, UNDEFINE):
            size = (REMOVE_S if kind == REMOVE else UNDEFINE_S).size
            if roots := self._existing(payload, size):
                self.removal(kind, bytes(payload[:size]), roots)
        elif kind == REMOVES:
            queue, root, messages = decode_removes(payload)
            if live.exists(root):
                self.removed_many(messages, queue, root)
        elif kind == MOVE:
            message, _, target, order = MOVE_S.unpack_from(payload)
            if roots := self._existing(payload, MOVE_S.size):
                new = self.removal(MOVE, bytes(payload[: MOVE_S.size]), roots)
                if self._drop_state(message, target, location):
                    live.set_state(message, target, ReferenceState(new, order, 0, 0))
        elif kind == GROUP:
            with self._journal.group(len(payload)):
                for inner, start, stop in members(payload, 0, len(payload)):
                    at = location + start  # the head of the group is as long as that of its record
                    if inner == MESSAGE:
                        self._again(payload[start:stop], at)
                    else:
                        self.lost(inner, payload[start:stop], at)
        elif kind == DUPLICATE:
            cache, message = DUPLICATE_S.unpack_from(payload)
            key = bytes(payload[DUPLICATE_S.size :])
            if live.key(cache, key) == (message, location):  # no copy of a compaction
                self._key_again(cache, key, message, location)
        elif kind == DEFINE:
            (id,) = DEFINE_S.unpack_from(payload)
            if id in live.definitions and live.definitions[id].location == location:
                self.define(id, bytes(payload[DEFINE_S.size :]))

    def _again(self, payload: memoryview, location: int) -> None:
        """Write a new message of a group again: the group is written whole, or not at all."""
        live = self._live
        stored = parse_message(payload)
        found = live.index.find(stored.message)
        has_key = stored.key is not None and live.key(*stored.key) == (stored.message, location)
        if found is not None and found[0] == location:
            new = self._journal.append(MESSAGE, bytes(payload))
            live.repeated(stored.message, new, HEAD_SIZE + len(payload))
            if stored.key is not None and has_key:
                live.moved_key(*stored.key, location, new)
        elif stored.key is not None and has_key:
            self._key_again(*stored.key, stored.message, location)

    def _key_again(self, cache: int, key: bytes, message: int, location: int) -> None:
        """Write a key of a group again whose message is gone."""
        new = self._journal.append(DUPLICATE, DUPLICATE_S.pack(cache, message), key)
        self._live.moved_key(cache, key, location, new)

    def _existing(self, payload: memoryview, start: int) -> list[int]:
        """Return the segments that a removal names and that still exist."""
        return [n for n in decode_roots(payload, start) if self._live.exists(n)]

    def _drop_state(self, message: int, queue: int, location: int) -> bool:
        """Drop the state of a reference if the record at `location` has it. Return True if it did."""
        state = self._live.states.get((message, queue))
        if state is None or state.location != location:
            return False
        self._live.drop_state(message, queue, 0)
        return True
