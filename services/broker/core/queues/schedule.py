"""When messages of a queue become ready. Milliseconds of the broker's clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from services.broker.core.messages.stored_message import StoredMessage


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
