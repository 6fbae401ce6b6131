"""Which queues are to be looked at when: messages become ready, or expire. Milliseconds of the broker's clock."""

from __future__ import annotations

from heapq import heappop, heappush

from services.broker.core.queues.queue import Queue
from services.broker.core.turn_shares import Spent

_SCAN = 500  # from one look for expired messages to the next


class Timers:
    """Queues to be woken at a time, and those whose messages expire."""

    def __init__(self) -> None:
        self._wakes: list[tuple[int, int, Queue]] = []  # heap of (due, number, queue)
        self._expiring: dict[Queue, None] = {}
        self._next_scan = 0

    def wake_at(self, queue: Queue, due: int) -> int:
        """Wake the queue at `due`, when messages become ready. Return when `run` is to be called."""
        heappush(self._wakes, (due, id(queue), queue))
        return due

    def watch_expiries(self, queue: Queue, now: int) -> int:
        """Watch a queue with messages that expire. Return when `run` is to be called; 0: it is being watched
        already."""
        if queue in self._expiring:
            return 0
        self._expiring[queue] = None
        return now + _SCAN

    def forget(self, queue: Queue) -> None:
        """Forget a deleted queue."""
        self._expiring.pop(queue, None)

    def run(self, now: int, spent: Spent) -> None:
        """Wake the queues that are due at `now` (milliseconds), and remove expired messages; in turns of their own
        when `spent`."""
        while self._wakes and self._wakes[0][0] <= now:
            queue = heappop(self._wakes)[2]
            if not queue.deleted:
                queue.wake(at_once=not spent())
        if self._expiring and now >= self._next_scan:
            self._next_scan = now + _SCAN
            for queue in list(self._expiring):
                if queue.deleted or not queue.expiries.watched:
                    self._expiring.pop(queue, None)
                else:
                    queue.disposal.expire_due(at_once=not spent())

    @property
    def next(self) -> int:
        """When `run` is to be called, 0 = never."""
        deadlines = [self._wakes[0][0]] if self._wakes else []
        if self._expiring:
            deadlines.append(self._next_scan)
        return min(deadlines, default=0)
