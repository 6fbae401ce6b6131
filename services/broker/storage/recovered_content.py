"""Content of the store at the start, for the broker."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

from services.broker.storage.index import BLOCK_BITS, BLOCK_MASK, MANY, Index
from services.broker.storage.journal.records import META1, ReferenceState
from services.broker.storage.journal.segment import HEAD_SIZE

Progress = Callable[[float], None]
"""Called with the finished share of the work, 0 to 1. An exception that it raises ends the work."""


def unreported(_: float) -> None:
    """A `Progress` without effect."""


class Reference(NamedTuple):
    """One message in one queue, as found at start. Times: milliseconds since 1970, 0 = none; `size`: payload bytes."""

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


FRONT = HEAD_SIZE + META1.size  # bytes of a record before its payload, with one queue and no options


class Facts:
    """Attributes of 256 messages that only the broker's start needs; kept only if one of the messages is unusual.
    `front`: bytes of the record before the payload."""

    __slots__ = ("expiry", "front", "not_before", "priority")

    def __init__(self) -> None:
        self.front = array("I", (FRONT,)) * (1 << BLOCK_BITS)
        self.priority = bytearray(b"\4" * (1 << BLOCK_BITS))
        self.expiry = array("Q", bytes(8 << BLOCK_BITS))
        self.not_before = array("Q", bytes(8 << BLOCK_BITS))


class Recovered:
    """Definitions by id, and the references of each defined queue in queue order, as found on disk. Takes 8 bytes a
    message, 30 if messages differ in their attributes. `Store.take_recovered` returns it once; it must be consumed
    before the store is changed."""

    def __init__(self, index: Index | None = None) -> None:
        self.definitions: dict[int, bytes] = {}
        self.damaged: list[str] = []  # one line for each damaged place: file, offset, lost records
        self.lost: dict[int, int] = {}  # number of messages lost by damage, by the id of their queue
        self.unknown: dict[int, int] = {}  # number of kept references to each undefined id
        self.order: dict[int, array[int]] = {}  # messages of each queue
        self.facts: dict[int, Facts] = {}  # by number of the block
        self.states: dict[tuple[int, int], ReferenceState] = {}
        self._index = index or Index()

    def references(self, queue: int) -> Iterator[Reference]:
        """Yield the messages of a queue in order of arrival; payloads stay on disk."""
        return map(self._reference, self.order.get(queue, ()), repeat(queue))

    def _reference(self, message: int, queue: int) -> Reference:
        facts = self.facts.get(message >> BLOCK_BITS, _USUAL)
        i = message & BLOCK_MASK
        state = self.states.get((message, queue))
        return Reference(
            message,
            self._index.blocks[message >> BLOCK_BITS].sizes[i] - facts.front[i],
            facts.priority[i],
            facts.expiry[i],
            state.not_before if state else facts.not_before[i],
            state.delivery_count if state else 0,
        )

    def parts(self, queue: int, count: int) -> Iterator[Run | list[Reference]]:
        """Yield `references` in parts of `count`; a part is a Run if all its messages are of the usual kind."""
        order = self.order.get(queue, ())
        for at in range(0, len(order), count):
            messages = order[at : at + count]
            sizes = self._usual_sizes(messages, queue)
            yield [self._reference(m, queue) for m in messages] if sizes is None else Run(messages, sizes)

    def _usual_sizes(self, messages: Sequence[int], queue: int) -> list[int] | None:
        """Return the sizes of the payloads; None if one of the messages is not of the usual kind."""
        if self.states and any((message, queue) in self.states for message in messages):
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
            if first >> BLOCK_BITS in self.facts or MANY in block.queues[start : start + some]:
                return None
            sizes += block.sizes[start : start + some]
            at += some
        return [size - FRONT for size in sizes]

    def holders(self, message: int) -> int:
        """Return how many queues refer to the message."""
        return len(self._index.queues(message))

    def count(self, queue: int) -> int:
        """Return the number of references from a queue."""
        return len(self.order.get(queue, ()))

    def queues(self) -> Iterable[int]:
        """Return the ids of the definitions that hold at least one reference."""
        return self.order.keys()


_USUAL = Facts()
