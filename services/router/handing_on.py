"""Clients of a router that are closed a few at a time, for them to connect to another one: all when it leaves, a
surplus after another one came.

A connection is ended just after something has come from it: then its client reads, and its next heartbeat is not due.
It is a moment when nothing is unsettled on it, or half a second after it was chosen: what is unsettled then is
redelivered, or sent again. The client sees the end of the stream and usually no close (decision 60). Processes of the
suite and operators stay until the router ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from enmasse.amqp.codec.errors import CONNECTION_FORCED, AmqpError
from enmasse.network.trickle import LEAVING, SETTLING, Trickle, pace
from services.router.routing.connection import RouterConnection
from services.router.routing.router import Router

CONNECT_AGAIN = "this router hands clients on: connect again"
FRESH: Final = 3.0
"""Seconds, at most, after something came in which a client is taken for one that reads; less than between heartbeats,
of which there are four in an idle time-out."""
PATIENCE: Final = 30.0
"""Seconds, at most, for a client to send something; less than its idle time-out, which would end the connection."""


@dataclass(slots=True)
class _Chosen:
    """A connection that is to be ended. `settling`: until when what is under way has time; `latest`: when it is ended,
    whatever it does; `size`: bytes that have come, lately until `fresh`."""

    settling: float
    latest: float
    size: int
    fresh: float = 0.0


class MovingConnections:
    """As trickle.ClosesSome. `also_later`: those that connect later are closed as well. `moved`: closed so far."""

    def __init__(self, router: Router, *, also_later: bool = True) -> None:
        self._router = router
        self._also_later = also_later
        self._waiting = [] if also_later else [each for each in router.connections.values() if is_spread(each)]
        self._asked: dict[RouterConnection, _Chosen] = {}
        self._closing: set[int] = set()
        """Identities of connections that are closed from this side."""
        self._first = self.number
        self._ends = Trickle(pace(self._first, LEAVING), router.now())
        """Pace of the ends: connections that wait for a sign of their clients would end in a crowd otherwise."""
        self.moved = 0

    @property
    def number(self) -> int:
        """As trickle.ClosesSome."""
        return sum(map(is_moved, self._router.connections.values()))

    @property
    def progress(self) -> str:
        """Return for people how many connections are open."""
        number = self.number
        return f"leaving, {number} of {max(number, self._first)} connections"

    def begin(self, most: int) -> int:
        """As trickle.ClosesSome."""
        open_now = self._router.connections
        if not self._waiting and self._also_later:
            self._waiting = [
                each
                for each in open_now.values()
                if is_moved(each) and each not in self._asked and each.identity not in self._closing
            ]
        begun = 0
        while begun < most and self._waiting:
            connection = self._waiting.pop()
            if connection.identity in open_now:
                self._asked[connection] = _chosen(connection, self._router.now())
                begun += 1
        return begun

    def look(self, now: float) -> bool:
        """As trickle.ClosesSome."""
        due = self._ends.due(now)
        for connection, chosen in list(self._asked.items()):
            if connection.identity not in self._router.connections:
                del self._asked[connection]
            elif _may_end(connection, chosen, now) and due:
                due -= 1
                del self._asked[connection]
                self._closing.add(connection.identity)
                self.moved += 1
                connection.amqp.hand_on(AmqpError(CONNECTION_FORCED, CONNECT_AGAIN), int(now * 1000))
        self._ends.give_back(due)
        return bool(self._asked)


def _chosen(connection: RouterConnection, now: float) -> _Chosen:
    """Return the times of a connection that is chosen now. Without a time-out there are no heartbeats to wait for."""
    idle = connection.amqp.idle_timeout_ms / 1000
    return _Chosen(now + SETTLING, now + max(SETTLING, min(idle * 3 / 4, PATIENCE)), connection.amqp.bytes_in)


def _may_end(connection: RouterConnection, chosen: _Chosen, now: float) -> bool:
    """Return whether the client reads, and nothing is under way or has had its time. Notes what has come."""
    amqp = connection.amqp
    if amqp.bytes_in != chosen.size or amqp.backlog:
        chosen.size, chosen.fresh = amqp.bytes_in, now + min(FRESH, amqp.idle_timeout_ms * 3 / 16_000)
    if now >= chosen.latest:
        return True
    reads = now < chosen.fresh or not amqp.idle_timeout_ms
    return reads and (now >= chosen.settling or not any(record.link.unsettled for record in connection.links.values()))


def is_moved(connection: RouterConnection) -> bool:
    """Return True for a connection of a client program: not of the suite's processes, other routers and brokers."""
    return connection.is_client and not connection.of_process


def is_spread(connection: RouterConnection) -> bool:
    """Return True for a client that would come to any router if it connected again: its gateway goes to its own."""
    return is_moved(connection) and not connection.by_gateway
