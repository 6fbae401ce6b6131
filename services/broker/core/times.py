"""When messages of a queue become ready, and when they expire. Milliseconds of the broker's clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from services.broker.core.stored_message import StoredMessage

AGAIN, FAR = 1000, 3_600_000
"""Milliseconds until messages are looked for that are being delivered now, and if there are none."""


class Schedule:
    """Messages whose time has not come."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, StoredMessage]] = []  # (due, id, message)

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, message: StoredMessage, due: int) -> None:
        heappush(self._heap, (due, message.id, message))

    def take_due(self, now: int) -> list[StoredMessage]:
        """Takes out those whose time has come."""
        due: list[StoredMessage] = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heappop(self._heap)[2])
        return due

    def take(self, chosen: Callable[[StoredMessage], bool]) -> list[StoredMessage]:
        """Takes out those that are chosen."""
        taken = [entry for entry in self._heap if chosen(entry[2])]
        if taken:
            ids = {entry[1] for entry in taken}
            self._heap = [entry for entry in self._heap if entry[1] not in ids]
            heapify(self._heap)
        return [entry[2] for entry in taken]

    def messages(self) -> Iterator[StoredMessage]:
        """In no order."""
        return (entry[2] for entry in self._heap)


class Expiries:
    """`watched`: messages with an expiry, scheduled ones and those being delivered included. `next`: no message expires
    before this (0 = none does). `handed`: ids of messages that came back from consumers which may have begun to hand
    them on: these do not expire any more."""

    __slots__ = ("handed", "next", "watched")

    def __init__(self) -> None:
        self.watched = self.next = 0
        self.handed: dict[int, None] = {}  # see Turns.draining

    def add(self, expires: int) -> None:
        self.watched += 1
        if not self.next or expires < self.next:
            self.next = expires

    def remove(self, message: StoredMessage) -> None:
        self.watched -= 1
        self.handed.pop(message.id, None)
        if not self.watched:
            self.next = 0

    def look_on(self, waiting: Sequence[int], now: int) -> None:
        """What was due was taken out; `waiting`: when the waiting messages expire. What is being delivered may come
        back, and is looked for from time to time."""
        others = self.watched - len(self.handed)
        later = now + (AGAIN if others else FAR)
        self.next = min((time for time in waiting if time > now), default=later) if self.watched else 0

    def due(self, now: int) -> bool:
        """Whether a message may have expired."""
        return self.watched > 0 and self.next <= now
