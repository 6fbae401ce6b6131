"""When messages of a queue become ready, and when they expire. Milliseconds of the broker's clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from services.broker.core.messages.stored_message import StoredMessage

AGAIN, FAR = 1000, 3_600_000
"""Milliseconds until the next look for expired messages: if some are being delivered now, and otherwise."""


class Schedule:
    """Messages whose time has not come."""

    __slots__ = ("_heap", "_messages")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []  # (due, id); also of messages that were taken out
        self._messages: dict[int, StoredMessage] = {}

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, message: StoredMessage, due: int) -> bool:
        """Return whether it is the first whose time will come."""
        heappush(self._heap, (due, message.id))
        self._messages[message.id] = message
        return self._heap[0][1] == message.id

    @property
    def next(self) -> int:
        """When `take_due` is to be called, 0 = never."""
        return self._heap[0][0] if self._heap else 0

    def take_due(self, now: int, count: int) -> list[StoredMessage]:
        """Take out those whose time has come, up to `count`."""
        due: list[StoredMessage] = []
        while self._heap and self._heap[0][0] <= now and len(due) < count:
            message = self._messages.pop(heappop(self._heap)[1], None)
            if message is not None:
                due.append(message)
        return due

    def ids(self) -> list[int]:
        """Return the ids of all messages, in no order."""
        return list(self._messages)

    def find(self, id: int) -> StoredMessage | None:
        """Return a scheduled message by id, None without one."""
        return self._messages.get(id)

    def take(self, messages: Iterable[StoredMessage]) -> None:
        """Take out messages, all of which are there."""
        for message in messages:
            del self._messages[message.id]
        if not self._messages:
            self._heap.clear()

    def messages(self) -> Iterator[StoredMessage]:
        """Return an iterator over all messages, in no order."""
        return iter(self._messages.values())


class Expiries:
    """`watched`: messages with an expiry, scheduled ones and those being delivered included. `next`: no message expires
    before this (0 = none does). `handed`: ids of messages returned by consumers which may have begun to hand them
    on: these no longer expire."""

    __slots__ = ("handed", "next", "watched")

    def __init__(self) -> None:
        self.watched = self.next = 0
        self.handed: dict[int, None] = {}  # see Turns.draining

    def add(self, expires: int) -> None:
        """Watch a message that expires at this time (milliseconds)."""
        self.watched += 1
        if not self.next or expires < self.next:
            self.next = expires

    def remove(self, message: StoredMessage) -> None:
        """Watch a message no longer."""
        self.watched -= 1
        self.handed.pop(message.id, None)
        if not self.watched:
            self.next = 0

    def rename(self, message: int, new: int) -> None:
        """The message has another id from now on."""
        if message in self.handed:
            del self.handed[message]
            self.handed[new] = None

    def has_expired(self, message: StoredMessage, now: int) -> bool:
        """Return whether a message may no longer be delivered."""
        return 0 < message.expires <= now and message.id not in self.handed

    def begin(self, now: int) -> None:
        """Begin a look at all messages; the expiry of those added meanwhile is noted."""
        self.next = now + FAR

    def look_on(self, nearest: int, now: int) -> None:
        """Set the time of the next look, after one; `nearest`: when the first of the other waiting messages expires, 0
        = never. Messages that are being delivered may be returned, which is checked from time to time."""
        others = self.watched - len(self.handed)
        later = nearest or now + (AGAIN if others else FAR)
        self.next = min(self.next, later) if self.watched else 0

    def due(self, now: int) -> bool:
        """Return whether a message may have expired."""
        return self.watched > 0 and self.next <= now
