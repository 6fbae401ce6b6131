"""Routers that are neighbours, and their clients, all in memory, with a clock of the test's own."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from services.router.routing.configuration import AddressConfig
from services.router.routing.connection import INTER_ROUTER, NORMAL, RouterConnection
from services.router.routing.handler import RouterHandler
from services.router.routing.neighbours.network import TICK
from services.router.routing.router import Router
from tests.router.world import Clock


class Line:
    """Routers, each a neighbour of the next."""

    def __init__(self, names: str, addresses: Iterable[AddressConfig] = ()) -> None:
        self.clock = Clock()
        self.routers = {name: Router(name, self.clock) for name in names}
        for router in self.routers.values():
            for address in addresses:
                router.add_address_config(address)
        self.pairs: list[tuple[Connection, Connection]] = []
        for name, other in pairwise(names):
            dialling = self._end(name, INTER_ROUTER, is_client=True)
            self._connect(dialling, self._end(other, INTER_ROUTER, is_client=False))
        self.wait(10)  # limit: of the clock inside

    def _end(self, name: str, role: str, *, is_client: bool) -> Connection:
        """Return a router's end of a connection."""
        router = self.routers[name]
        direction = "out" if is_client else "in"
        record = RouterConnection(router, name=None, role=role, direction=direction, host="127.0.0.1:1", capacity=250)
        end = Connection(RouterHandler(router), container_id=name, is_client=is_client)
        end.context, record.amqp = record, end
        return end

    def _connect(self, dialling: Connection, listening: Connection) -> None:
        self.pairs.append((dialling, listening))
        dialling.open()
        self.pump()

    def client(self, name: str, handler: Handler | None = None) -> Connection:
        """Return an open connection of a client to a router."""
        client = Connection(handler or Handler(), container_id="client", is_client=True)
        self._connect(client, self._end(name, NORMAL, is_client=False))
        return client

    def close(self, client: Connection) -> None:
        """Close the connection of a client."""
        client.close()
        self.pump()
        self.pairs = [pair for pair in self.pairs if pair[0] is not client]

    def pump(self) -> None:
        """Bring bytes to the other ends until none has any."""
        moved = True
        while moved:
            moved = False
            for dialling, listening in self.pairs:
                for sends, receives in ((dialling, listening), (listening, dialling)):
                    data = sends.take_output()
                    if data:
                        receives.receive(data)
                        moved = True
                self.clock.run()

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(int(seconds / TICK)):
            due, self.clock.later = self.clock.later, []
            self.clock.now += TICK
            for what in due:
                what()
            self.pump()
