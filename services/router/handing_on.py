"""Clients of a router that leaves: closed a few at a time, for them to connect to another one.

A connection is closed at a moment when nothing is unsettled on it, or half a second after it was chosen: what is
unsettled then is redelivered, or sent again. Processes of the suite and operators stay until the router ends.
"""

from __future__ import annotations

from enmasse.amqp.codec.errors import CONNECTION_FORCED, AmqpError
from enmasse.network.trickle import SETTLING
from services.router.routing.connection import RouterConnection
from services.router.routing.router import Router

CONNECT_AGAIN = "this router hands clients on: connect again"


class MovingConnections:
    """As trickle.ClosesSome. `moved`: closed so far."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._waiting: list[RouterConnection] = []
        self._asked: dict[RouterConnection, float] = {}
        """Connection that was chosen → until when it is given time."""
        self._closing: set[int] = set()
        """Identities of connections that are closed from this side."""
        self._first = self.number
        self.moved = 0

    @property
    def number(self) -> int:
        """As trickle.ClosesSome."""
        return sum(map(_is_moved, self._router.connections.values()))

    @property
    def progress(self) -> str:
        """Return for people how many connections are open."""
        number = self.number
        return f"leaving, {number} of {max(number, self._first)} connections"

    def begin(self, most: int) -> int:
        """As trickle.ClosesSome."""
        open_now = self._router.connections
        if not self._waiting:
            self._waiting = [
                each
                for each in open_now.values()
                if _is_moved(each) and each not in self._asked and each.identity not in self._closing
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
                connection.amqp.close(AmqpError(CONNECTION_FORCED, CONNECT_AGAIN))
                connection.amqp.wake()


def _is_moved(connection: RouterConnection) -> bool:
    return connection.is_client and not connection.of_process
