"""Limits of what the clients of an address space send in a second: messages and bytes.

Nothing is asked for a message. Every TICK the counters of links and connections show what has come; a space that has
sent more than its rate is in debt, and connections that have sent are not read until time has paid for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from enmasse.clock import Clock
from enmasse.identity.allowances import Allowances
from enmasse.model.tenants.shares import BYTES, MESSAGES
from services.router.routing.connection import RouterConnection

TICK: Final = 0.05
BURST: Final = 0.25
"""Seconds for which a space that was silent may send at once."""
_REPORT: Final = 1.0
"""Seconds between two reports of rates."""


class _Bucket:
    """One rate of one space. `level`: what may come now; below 0 it is a debt. `came`: since the last report."""

    __slots__ = ("came", "level")

    def __init__(self) -> None:
        self.level = self.came = 0.0

    def pass_time(self, seconds: float, rate: int, came: int) -> None:
        """Take what has come in these seconds."""
        self.level = min(self.level + rate * seconds, rate * BURST) - came
        self.came += came


class SpaceRates:
    """Rates of all spaces that have one. `connections`: those of the router."""

    def __init__(self, connections: Mapping[int, RouterConnection], allowances: Allowances, clock: Clock) -> None:
        self._connections = connections
        self._allowances = allowances
        self._clock = clock
        self._buckets: dict[tuple[str, str], _Bucket] = {}
        self._seen: dict[RouterConnection, tuple[int, int]] = {}
        self._throttled: dict[RouterConnection, None] = {}
        self._last = self._reported = clock.time()
        self._runs = self._active = False

    def start(self) -> None:
        """Begin to look if a space has a rate; called when that may have changed."""
        if not self._runs and self._limits():
            self._runs = True
            self._seen = {each: _counts(each) for each in self._connections.values() if each.prefix}
            self._last = self._clock.time()
            self._clock.call_later(TICK, self._tick)

    def _limits(self) -> dict[tuple[str, str], int]:
        """Return the rates of this router: its share of each."""
        return {
            (name, space): self._allowances.share(name, space, limit)
            for space, limits in self._allowances.all_limits().items()
            for name, limit in ((MESSAGES, limits.messages_per_second), (BYTES, limits.bytes_per_second))
            if limit is not None
        }

    def _tick(self) -> None:
        limits = self._limits()
        now = self._clock.time()
        seconds, self._last = now - self._last, now
        spaces = {space for _, space in limits}
        came: dict[tuple[str, str], int] = dict.fromkeys(limits, 0)
        senders: dict[str, list[RouterConnection]] = {}
        seen, self._seen = self._seen, {}
        for connection in self._connections.values():
            if connection.space not in spaces:
                continue
            last = seen.get(connection, (0, 0))
            if connection.amqp.bytes_in == last[1]:
                self._seen[connection] = last
                continue
            messages, size = self._seen[connection] = _counts(connection)
            if messages > last[0] or connection in self._throttled:
                senders.setdefault(connection.space, []).append(connection)
            for name, count in ((MESSAGES, messages - last[0]), (BYTES, size - last[1])):
                if (name, connection.space) in came:
                    came[name, connection.space] += max(0, count)
        self._buckets = {key: self._buckets.get(key) or _Bucket() for key in limits}
        for key, bucket in self._buckets.items():
            bucket.pass_time(seconds, limits[key], came[key])
        in_debt = {space for (_, space), bucket in self._buckets.items() if bucket.level < 0}
        for space in in_debt:
            for connection in senders.get(space, ()):
                if connection not in self._throttled:
                    self._throttled[connection] = None
                    connection.amqp.held.throttle(True)
        for connection in [each for each in self._throttled if each.closed or each.space not in in_debt]:
            del self._throttled[connection]
            if not connection.closed:
                connection.amqp.held.throttle(False)
        begins = any(count and not self._active for count in came.values())  # others have shares of it
        if now - self._reported >= _REPORT or begins:
            self._active = any(bucket.came for bucket in self._buckets.values())
            self._report(max(TICK, now - self._reported), limits, in_debt)
            self._reported = now
        if limits or self._throttled:
            self._clock.call_later(TICK, self._tick)
        else:
            self._runs = False

    def _report(self, seconds: float, limits: Mapping[tuple[str, str], int], in_debt: set[str]) -> None:
        for (name, space), bucket in self._buckets.items():
            wanted = limits[name, space] if space in in_debt else 0
            self._allowances.use(name, space, round(bucket.came / seconds), wanted)
            bucket.came = 0.0


def _counts(connection: RouterConnection) -> tuple[int, int]:
    """Return how many messages, and bytes of frames, a connection has sent so far."""
    live = sum(record.link.deliveries for record in connection.links.values() if record.direction == "in")
    return connection.ended_in + live, connection.amqp.bytes_in
