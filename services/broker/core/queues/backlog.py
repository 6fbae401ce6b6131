"""The tail of a long queue: a few bytes a message in place of an object each.

What a queue sends next it keeps as StoredMessage objects, its head. What arrives while there are HEAD of them goes into
a Backlog: gathered as objects, then packed in slices, which keep only columns of numbers. The payloads leave
memory with that. When the head is used up, a slice becomes objects again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, repeat, zip_longest
from operator import attrgetter
from typing import Union

from services.broker.core.limits.broker_address import BrokerAddress
from services.broker.core.messages.payloads import Payloads
from services.broker.core.messages.stored_message import PRIORITY_SHIFT, STORED, StoredMessage

HEAD = 10_000  # messages a queue keeps as objects before it has a backlog
SLICE = 1000  # messages packed together
LOADED = 2 << 20  # bytes of payloads read when a slice becomes objects again; others are read when they are sent

_by_id = attrgetter("id")
_first = attrgetter("first")
Column = Union[int, range, "array[int]"]


class Slice:
    """Messages in order. A column of equal numbers is kept as that number, one of consecutive numbers as a range.

    Packed is what can be made again from its numbers: only this queue refers to it, and its payload is in the store or
    the pager. Any other message stays in `objects`; what has become objects again is all there, so that a browser that
    still has the slice sees what has become of them.
    """

    __slots__ = ("_expires", "_flags", "_owner", "_places", "_sizes", "count", "ids", "nearest", "objects")

    def __init__(self, ids: Sequence[int], sizes: Sequence[int], flags: int, owner: BrokerAddress) -> None:
        """Stored messages that never expire."""
        self.count = len(ids)
        self.ids = _column("Q", ids)
        self._sizes = _column("I", sizes)
        self._flags: Column = flags
        self._expires: Column = 0
        self._places: Column = 0
        self._owner = owner
        self.nearest = 0  # when the first of them expires, 0 = none does
        self.objects: list[StoredMessage | None] | None = None

    def pack(self, messages: Sequence[StoredMessage], payloads: Payloads, durable: bool) -> None:
        """Replace the messages of the slice. `durable`: the queue is durable."""
        self.count = len(messages)
        self.ids = _column("Q", [message.id for message in messages])
        self._sizes = _column("I", [message.size for message in messages])
        self._flags = _column("B", [message.flags for message in messages])
        expires = [message.expires for message in messages]
        self._expires = _column("Q", expires)
        self.nearest = min(filter(None, expires), default=0)
        owner = self._owner
        pressed = bool(messages) and payloads.pressed_by(messages[0])
        objects: list[StoredMessage | None] = [None] * len(messages)
        kept = False
        for i, message in enumerate(messages):
            alone = message.refs == 1 and message.owner is owner
            if alone and message.payload is not None and (pressed or (message.flags & STORED and durable)):
                payloads.put_out(message)
            if alone and message.payload is None:
                message.refs = 0  # this object stands for it no longer
            else:
                objects[i] = message
                kept = True
        self.objects = objects if kept else None
        self._places = _column("Q", [message.place or 0 for message in messages])

    def messages(self) -> list[StoredMessage]:
        """Return all messages, as objects: those that are packed are made for the caller."""
        objects = self.objects
        if objects is not None and None not in objects:
            return list(filter(None, objects))
        return self._made(0, self.count)

    def behind(self, id: int, count: int) -> list[StoredMessage]:
        """Return the first `count` messages with higher ids, as `messages` makes them."""
        if not self.count:
            return []
        start = self._position(id)
        return self._made(start, min(start + count, self.count))

    def _position(self, id: int) -> int:
        """Return how many messages have this id or a lower one."""
        return int(id >= self.ids) if isinstance(self.ids, int) else bisect_right(self.ids, id)

    def _made(self, start: int, stop: int) -> list[StoredMessage]:
        owner, places = self._owner, self._places
        made = [
            StoredMessage(id, None, size, flags, expires, owner, 1)
            for id, size, flags, expires in zip(
                self._some(self.ids, start, stop),
                self._some(self._sizes, start, stop),
                self._some(self._flags, start, stop),
                self._some(self._expires, start, stop),
                strict=True,
            )
        ]
        if places != 0:
            for message, place in zip(made, self._some(places, start, stop), strict=True):
                message.place = place or None
        if self.objects is not None:
            made = [old or new for old, new in zip(self.objects[start:stop], made, strict=True)]
        return made

    def revive(self) -> list[StoredMessage]:
        """Return the messages as objects, which replace the packed ones."""
        made = self.messages()
        self.objects = list(made)
        self.count = 0  # none is packed, none is to be taken out here
        return made

    @staticmethod
    def _some(column: Column, start: int, stop: int) -> Sequence[int] | repeat[int]:
        return repeat(column, stop - start) if isinstance(column, int) else column[start:stop]

    def take(self, ids: set[int], payloads: Payloads, durable: bool) -> list[StoredMessage]:
        """Take out messages by their ids."""
        keep: list[StoredMessage] = []
        taken: list[StoredMessage] = []
        for message in self.messages() if self.count else ():
            (taken if message.id in ids else keep).append(message)
        if taken:
            self.pack(keep, payloads, durable)
        return taken

    @property
    def first(self) -> int:
        """The lowest id, 0 = no messages are left."""
        if isinstance(self.ids, int):
            return self.ids
        return self.ids[0] if self.ids else 0

    @property
    def highest(self) -> int:
        """The highest id, 0 = no messages are left."""
        if isinstance(self.ids, int):
            return self.ids
        return self.ids[-1] if self.ids else 0


def _column(code: str, values: Sequence[int]) -> Column:
    if not values:
        return range(0)
    first, count = values[0], len(values)
    if values[-1] == first and values.count(first) == count:
        return first
    if values[-1] - first == count - 1 and list(values) == list(range(first, first + count)):
        return range(first, first + count)
    return array(code, values)


class Backlog:
    """Messages of a queue behind its head, in order."""

    __slots__ = ("_durable", "_payloads", "gathered", "slices")

    def __init__(self, payloads: Payloads, durable: bool) -> None:
        """`durable`: the queue is durable."""
        self._payloads = payloads
        self._durable = durable
        self.slices: deque[Slice] = deque()
        self.gathered: list[StoredMessage] = []  # behind the slices, not packed yet

    def __bool__(self) -> bool:
        return bool(self.slices or self.gathered)

    def append(self, message: StoredMessage) -> None:
        """Put a message at the end; it is packed when a slice is full."""
        self.gathered.append(message)
        if len(self.gathered) >= SLICE:
            self.seal()

    def extend(self, messages: Sequence[StoredMessage]) -> None:
        """Put messages at the end; they are packed when a slice is full."""
        self.gathered += messages
        if len(self.gathered) >= SLICE:
            self.seal()

    def seal(self) -> None:
        """Pack the messages gathered so far."""
        messages, self.gathered = self.gathered, []
        if messages:
            some = Slice((), (), 0, messages[0].owner)
            some.pack(messages, self._payloads, self._durable)
            self.slices.append(some)

    def restore(self, some: Slice) -> None:
        """Restore packed messages that were found in the store at the start."""
        self.seal()
        self.slices.append(some)

    def shift(self) -> list[StoredMessage]:
        """Take out the first slice, as objects, with as many payloads as may be in memory."""
        if not self.slices:
            messages, self.gathered = self.gathered, []
            return messages
        messages = self.slices.popleft().revive()
        self._payloads.bring_in(messages, LOADED)
        return messages

    def merge(self, messages: list[StoredMessage]) -> list[StoredMessage]:
        """Take in messages, sorted by id, that belong behind the first one of the backlog. Return the others."""
        if not self:
            return messages
        self.seal()
        first = self.slices[0].first
        mine = [m for m in messages if m.id > first and m.flags >> PRIORITY_SHIFT == 4]
        if not mine:
            return messages
        rest = [m for m in messages if not (m.id > first and m.flags >> PRIORITY_SHIFT == 4)]
        for some, following in zip_longest(self.slices, islice(self.slices, 1, None)):
            count = len(mine) if following is None else bisect_left(mine, following.first, key=_by_id)
            if count:
                some.pack(sorted([*some.messages(), *mine[:count]], key=_by_id), self._payloads, self._durable)
                mine = mine[count:]
            if not mine:
                break
        return rest

    def parts(self) -> Iterator[Slice]:
        """Yield all slices, in order."""
        self.seal()
        yield from self.slices

    def behind(self, id: int, worth: Callable[[Slice], bool]) -> Slice | None:
        """Return the first packed slice that has a message with a higher id and that `worth` selects."""
        at = max(0, bisect_right(self.slices, id, key=_first) - 1)
        return next((some for some in islice(self.slices, at, None) if some.highest > id and worth(some)), None)

    def prune(self) -> None:
        """Remove slices of which nothing is left."""
        self.slices = deque(some for some in self.slices if some.count)
