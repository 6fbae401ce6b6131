"""What the broker finds in its store at the start."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

from services.broker.storage.index import BLOCK_BITS, BLOCK_MASK, MANY, Index
from services.broker.storage.records import META1, State
from services.broker.storage.segment import HEAD_SIZE

Progress = Callable[[float], None]
"""Called with how much of the work is done, 0 to 1. What it raises ends the work."""


def unreported(_: float) -> None:
    """A `Progress` that nothing listens to."""


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


FRONT = HEAD_SIZE + META1.size  # of a record, what is not payload: one queue and nothing else


class Facts:
    """What the broker asks of 256 messages at start, and the store never again; kept if one of them is not as most are.
    `front`: of the record, what is not payload."""

    __slots__ = ("expiry", "front", "not_before", "priority")

    def __init__(self) -> None:
        self.front = array("I", (FRONT,)) * (1 << BLOCK_BITS)
        self.priority = bytearray(b"\4" * (1 << BLOCK_BITS))
        self.expiry = array("Q", bytes(8 << BLOCK_BITS))
        self.not_before = array("Q", bytes(8 << BLOCK_BITS))


class Recovered:
    """What was found on disk: definitions by id, and the references of each defined queue in queue order. Takes 8
    bytes a message, 30 if they are not all alike: `Store.take_recovered` gives it once; it has to be used
    up before anything is changed in the store."""

    def __init__(self, index: Index | None = None) -> None:
        self.definitions: dict[int, bytes] = {}
        self.damaged: list[str] = []  # one line per damaged place: file, offset, what was lost
        self.lost: dict[int, int] = {}  # messages that damage has cost, by the id of their queue
        self.unknown: dict[int, int] = {}  # references to ids that are not defined, and kept; how many of each
        self.order: dict[int, array[int]] = {}  # messages by queue
        self.facts: dict[int, Facts] = {}  # by number of the block
        self.states: dict[tuple[int, int], State] = {}
        self._index = index or Index()

    def references(self, queue: int) -> Iterator[Reference]:
        """The messages of a queue in order of arrival; made on the fly, payloads stay on disk."""
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
        """`references`, so many at a time; as a Run if all of them are of the usual kind."""
        order = self.order.get(queue, ())
        for at in range(0, len(order), count):
            messages = order[at : at + count]
            sizes = self._usual_sizes(messages, queue)
            yield [self._reference(m, queue) for m in messages] if sizes is None else Run(messages, sizes)

    def _usual_sizes(self, messages: Sequence[int], queue: int) -> list[int] | None:
        """The sizes of payloads; None if there is a message that has to be looked at by itself."""
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
        """How many queues refer to it."""
        return len(self._index.queues(message))

    def count(self, queue: int) -> int:
        return len(self.order.get(queue, ()))

    def queues(self) -> Iterable[int]:
        """Ids of the definitions that hold at least one reference."""
        return self.order.keys()


_USUAL = Facts()
