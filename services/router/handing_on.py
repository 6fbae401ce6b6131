"""Clients of a router that are closed a few at a time, for them to connect to another one: all when it leaves, a
surplus after another one came.

A connection is ended at a moment when nothing is unsettled on it, or half a second after it was chosen: what is
unsettled then is redelivered, or sent again. Its client sees the end of the stream and usually no close (decision 60).
Processes of the suite and operators stay until the router ends.
"""

from __future__ import annotations

from enmasse.amqp.codec.errors import CONNECTION_FORCED, AmqpError
from enmasse.network.trickle import SETTLING
from services.router.routing.connection import RouterConnection
from services.router.routing.router import Router

CONNECT_AGAIN = "this router hands clients on: connect again"


class MovingConnections:
    """As trickle.ClosesSome. `also_later`: those that connect later are closed as well. `moved`: closed so far."""

    def __init__(self, router: Router, *, also_later: bool = True) -> None:
        self._router = router
        self._also_later = also_later
        self._waiting = [] if also_later else [each for each in router.connections.values() if is_spread(each)]
        self._asked: dict[RouterConnection, float] = {}
        """Connection that was chosen → until when it is given time."""
        self._closing: set[int] = set()
        """Identities of connections that are closed from this side."""
        self._first = self.number
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
                self._asked[connection] = self._router.now() + SETTLING
                begun += 1
        return begun

    def look(self, now: float) -> None:
        """As trickle.ClosesSome."""
        for connection, until in list(self._asked.items()):
            if connection.identity not in self._router.connections:
                del self._asked[connection]
            elif now >= until or not any(record.link.unsettled for record in connection.links.values()):
                del self._asked[connection]
                self._closing.add(connection.identity)
                self.moved += 1
                connection.amqp.hand_on(AmqpError(CONNECTION_FORCED, CONNECT_AGAIN), int(now * 1000))


def is_moved(connection: RouterConnection) -> bool:
    """Return True for a connection of a client program: not of the suite's processes, other routers and brokers."""
    return connection.is_client and not connection.of_process


def is_spread(connection: RouterConnection) -> bool:
    """Return True for a client that would come to any router if it connected again: its gateway goes to its own."""
    return is_moved(connection) and not connection.by_gateway
