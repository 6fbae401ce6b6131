"""Limits of what AMQP clients of an address space send in a second: messages and bytes.

Nothing is asked for a message. Every TICK the counters of links and connections show what has come; connections that
have sent are not read while their space is in debt.
"""

from __future__ import annotations

from collections.abc import Mapping

from enmasse.clock import Clock
from enmasse.identity.allowances import Allowances
from enmasse.identity.space_rates import TICK, SpaceRates
from services.router.routing.connection import RouterConnection


class ConnectionRates:
    """Rates of all spaces that have one. `connections`: those of the router."""

    def __init__(self, connections: Mapping[int, RouterConnection], allowances: Allowances, clock: Clock) -> None:
        self._connections = connections
        self._rates = SpaceRates(allowances, clock.time)
        self._clock = clock
        self._seen: dict[RouterConnection, tuple[int, int]] = {}
        self._throttled: dict[RouterConnection, None] = {}
        self._runs = False

    def start(self) -> None:
        """Begin to look if a space has a rate; called when that may have changed."""
        if not self._runs and self._rates.needed:
            self._runs = True
            self._seen = {each: _counts(each) for each in self._connections.values() if each.prefix}
            self._rates.begin()
            self._clock.call_later(TICK, self._tick)

    def _tick(self) -> None:
        self._rates.pass_time()
        spaces = self._rates.spaces
        senders: dict[str, list[RouterConnection]] = {}
        seen, self._seen = self._seen, {}
        for connection in self._connections.values():
            account = spaces.get(connection.space)
            if account is None:
                continue
            last = seen.get(connection, (0, 0))
            if connection.amqp.bytes_in == last[1]:
                self._seen[connection] = last
                continue
            messages, size = self._seen[connection] = _counts(connection)
            if messages > last[0] or connection in self._throttled:
                senders.setdefault(connection.space, []).append(connection)
            account.count(max(0, messages - last[0]), max(0, size - last[1]))
        in_debt = {space for space, account in spaces.items() if account.in_debt}
        for space in in_debt:
            for connection in senders.get(space, ()):
                if connection not in self._throttled:
                    self._throttled[connection] = None
                    connection.amqp.held.throttle(True)
        for connection in [each for each in self._throttled if each.closed or each.space not in in_debt]:
            del self._throttled[connection]
            if not connection.closed:
                connection.amqp.held.throttle(False)
        self._rates.report()
        if spaces or self._throttled:
            self._clock.call_later(TICK, self._tick)
        else:
            self._runs = False


def _counts(connection: RouterConnection) -> tuple[int, int]:
    """Return how many messages, and bytes of frames, a connection has sent so far."""
    live = sum(record.link.deliveries for record in connection.links.values() if record.direction == "in")
    return connection.ended_in + live, connection.amqp.bytes_in
