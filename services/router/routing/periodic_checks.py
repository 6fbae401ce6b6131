"""Checks that run once a second instead of for every message: deliveries that take long (their senders get credit
without waiting for them), links without credit, streams without a taker or with a stalled sender, idle connections.

The age of a delivery is known by its id: each look notes the id that comes next, so what is unsettled and older than
the id noted ten looks ago is stuck. Only deliveries that cross a threshold are touched one by one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from itertools import islice, takewhile
from typing import Any

from enmasse.clock import Clock
from services.router.routing.connection import LinkRecord, RouterConnection

INTERVAL = 1.0
"""Seconds between two looks."""
SLOW, STUCK = 1, 10
"""Looks after which an unsettled delivery counts as delayed, and as stuck."""
_TURN = 0.001
"""Longest time in seconds that a look may take before messages have their turn."""


class _Lost(LinkRecord):
    """Stands in for the record of an ended link."""

    def __init__(self) -> None:
        self.delayed1 = self.delayed10 = self.slow = self.stuck = 0


def _before(delivery_id: int, mark: int) -> bool:
    """Compare serial numbers of 32 bits (RFC 1982)."""
    return bool((delivery_id - mark) & 0x80000000)


def _ended(old: dict[int, LinkRecord], held: Mapping[int, Any]) -> list[LinkRecord]:
    """Remove the deliveries that are held no longer. Return their records."""
    return [old.pop(delivery_id) for delivery_id in [i for i in old if i not in held]]


class UnsettledByAge:
    """The unsettled deliveries of one direction of a session, by age."""

    __slots__ = ("_marks", "_slow", "_stuck", "delayed1", "delayed10")

    def __init__(self) -> None:
        self._marks: deque[int] = deque(maxlen=STUCK + 1)
        self._slow: dict[int, LinkRecord] = {}
        self._stuck: dict[int, LinkRecord] = {}
        self.delayed1 = self.delayed10 = 0

    def look(
        self, next_id: int, held: Mapping[int, Any], record_of: Callable[[Any], LinkRecord]
    ) -> Collection[LinkRecord]:
        """Check the unsettled deliveries `held`, by id, oldest first; `next_id`: the next id (-1: no delivery yet).
        Return the records whose number of waiting deliveries has changed."""
        slow, stuck, marks = self._slow, self._stuck, self._marks
        changed: dict[int, LinkRecord] = {}
        for record in _ended(slow, held):
            changed[id(record)] = record
            record.slow -= 1
            record.delayed1 += 1
            self.delayed1 += 1
        for record in _ended(stuck, held):
            changed[id(record)] = record
            record.stuck -= 1
            record.delayed10 += 1
            self.delayed10 += 1
        marks.append(next_id)
        if not held or len(marks) <= SLOW or marks[-1 - SLOW] < 0:
            return changed.values()
        if len(marks) > STUCK and marks[0] >= 0:
            oldest = marks[0]
            for delivery_id in list(takewhile(lambda i: _before(i, oldest), slow)):
                record = stuck[delivery_id] = slow.pop(delivery_id)
                record.slow -= 1
                record.stuck += 1
        mark = marks[-1 - SLOW]
        for delivery_id, value in islice(held.items(), len(slow) + len(stuck), None):
            if not _before(delivery_id, mark):
                break
            record = slow[delivery_id] = record_of(value)
            record.slow += 1
            changed[id(record)] = record
        return changed.values()


class _Seen:
    """State of a session at the last look. `settled`: nothing was unsettled."""

    __slots__ = ("moved", "received", "sent", "settled")

    def __init__(self) -> None:
        self.received = UnsettledByAge()
        self.sent = UnsettledByAge()
        self.moved = (-1, 0)  # next incoming and outgoing ids at the last look; initially none
        self.settled = False


def _receiving(link: Any) -> LinkRecord:
    return link.context or _Lost()


def _sending(entry: Any) -> LinkRecord:
    return entry[0].context or _Lost()


class Watch:
    """Checks all sessions of the router's connections; `delayed1` and `delayed10` count incoming deliveries that took
    longer than 1 and 10 seconds."""

    def __init__(self, connections: Mapping[int, RouterConnection], clock: Clock) -> None:
        self._connections = connections
        self._clock = clock
        self._todo: list[RouterConnection] = []
        self.delayed1 = self.delayed10 = 0

    def start(self) -> None:
        """Check now, and again every INTERVAL."""
        self._todo = list(self._connections.values())
        self._turn()

    def _turn(self) -> None:
        clock = self._clock
        until = clock.time() + _TURN
        while self._todo:
            self.look(self._todo.pop())
            if clock.time() > until and self._todo:
                clock.call_soon(self._turn)
                return
        clock.call_later(INTERVAL, self.start)

    def look(self, connection: RouterConnection) -> None:
        """Check one connection; called every INTERVAL."""
        now = self._clock.time()
        for session in connection.amqp.sessions():
            if session.context is None:
                session.context = _Seen()
            seen: _Seen = session.context
            next_in, held_in = session.unsettled_in()
            next_out, held_out = session.unsettled_out()
            moved = next_in, next_out
            if not held_in and not held_out and seen.settled and seen.moved == moved:
                continue  # most sessions of many clients, most of the time; the marks stay right
            received, sent = seen.received, seen.sent
            before1, before10 = received.delayed1, received.delayed10
            for record in received.look(next_in, held_in, _receiving):
                record.expect(record.slow + record.stuck)
            sent.look(next_out, held_out, _sending)
            self.delayed1 += received.delayed1 - before1
            self.delayed10 += received.delayed10 - before10
            seen.settled = not held_in and not held_out
            if seen.moved != moved:
                seen.moved = moved
                connection.last_delivery = now
        if connection.streams or connection.extras or connection.waiting:
            self._look_at_links(connection, now)

    @staticmethod
    def _look_at_links(connection: RouterConnection, now: float) -> None:
        stuck: set[LinkRecord] = set()
        for stream in list(connection.streams):
            stream.look(now, stuck)
        for source in stuck:
            source.widen(stuck)
        for extra in list(connection.extras):
            extra.look(now, stuck)
        for link in list(connection.waiting):
            link.look(now, stuck)
