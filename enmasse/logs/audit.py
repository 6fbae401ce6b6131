"""Audit events: limits for those that repeat. `enmasse.logs.log.audit` writes them. No clock of its own, no sockets."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

INTERVAL = 60.0
"""Seconds between two lines about the same matter."""
MAX_KEYS = 20_000
"""Matters that are remembered; the oldest give way."""

K = TypeVar("K", bound=Hashable)


class RepeatedEvents(Generic[K]):
    """Limits events that repeat: the first of a matter is written at once, the others together after INTERVAL.

    `now`: a clock in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._known: OrderedDict[K, tuple[float, int]] = OrderedDict()
        """Matter → time of its last line, events since then."""
        self._dropped: list[tuple[K, int]] = []

    def count(self, key: K) -> int:
        """Count an event. Return the number of events that a line written now stands for; 0: write none yet."""
        last, left_out = self._known.get(key, (-INTERVAL, 0))
        if self._now() - last < INTERVAL:
            self._known[key] = last, left_out + 1
            return 0
        self._known[key] = self._now(), 0
        self._known.move_to_end(key)
        if len(self._known) > MAX_KEYS:
            oldest, (_, others) = self._known.popitem(last=False)
            if others:
                self._dropped.append((oldest, others))
        return left_out + 1

    def due(self) -> list[tuple[K, int]]:
        """Return matters with events for which no line was written, and how many, INTERVAL after their last line."""
        found, self._dropped = self._dropped, []
        now = self._now()
        for key, (last, left_out) in list(self._known.items()):
            if now - last >= INTERVAL:
                if left_out:
                    found.append((key, left_out))
                    self._known[key] = now, 0
                    self._known.move_to_end(key)
                else:
                    del self._known[key]
        return found
