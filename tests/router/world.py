"""A router in memory, with a clock of the test's own and the engine at both ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from enmasse.amqp.codec.performatives import Source, Target
from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from enmasse.amqp.link import Receiver, Sender
from enmasse.identity.processes.peer_check import PeerCheck
from enmasse.identity.processes.roles import Listener, Role
from services.router.routing.connection import RouterConnection
from services.router.routing.handler import RouterHandler
from services.router.routing.peers import PeerRights
from services.router.routing.router import Router


class Clock:
    """Time stands still; what is to be done soon is done by `run`."""

    now = 0.0

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.later: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, what: Callable[[], None]) -> None:
        self.soon.append(what)

    def call_later(self, delay: float, what: Callable[[], None]) -> None:
        """Keep it: looks are made by the test, which may call these."""
        self.later.append(what)

    def run(self) -> None:
        while self.soon:
            self.soon.pop(0)()


class World:
    """A router with one client's connection, all in memory."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.router = Router("r", self.clock)
        self.server, self.client = self.connected()
        self.record: RouterConnection = self.server.context
        session = self.client.begin()
        self.receiver: Receiver = session.attach_receiver("r", Source(address="a"), Target())
        self.receiver.credit_window = 1000
        self.arrived: list[int] = []
        self.receiver.on_delivery = lambda link, delivery_id, *_: self.arrived.append(delivery_id)
        self.pump()
        self.sender: Sender = session.attach_sender("s", Source(), Target(address="a"))
        self.pump()

    def connected(self) -> tuple[Connection, Connection]:
        """Return the router's side and the client's of a further connection, which is open."""
        record = RouterConnection(
            self.router, name=None, role="normal", direction="in", host="127.0.0.1:1", capacity=250
        )  # fmt: skip
        server = Connection(RouterHandler(self.router), container_id="r", is_client=False)
        server.context, record.amqp = record, server
        client = Connection(Handler(), container_id="c", is_client=True)
        client.open()
        self._exchange(server, client)
        return server, client

    def _exchange(self, server: Connection, client: Connection) -> None:
        for _ in range(6):
            server.receive(client.take_output())
            self.clock.run()
            client.receive(server.take_output())

    def pump(self) -> None:
        self._exchange(self.server, self.client)

    def send(self, count: int) -> None:
        for _ in range(count):
            self.sender.send(b"\x00\x53\x75\xa0\x01x", object())
        self.pump()

    def settle(self, *delivery_ids: int) -> None:
        for delivery_id in delivery_ids:
            self.receiver.session.settle(delivery_id)
        self.pump()

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.clock.now += 1.0
            self.router.watch.start()
            self.clock.run()

    def counts(self) -> list[tuple[int, int, int]]:
        """Delayed 1 s, delayed 10 s, stuck: of the link that comes in, of the one that goes out, of the router."""
        total = self.router.totals()
        links: list[Any] = sorted(self.record.links.values(), key=lambda link: link.direction)
        return [(x.delayed1, x.delayed10, x.stuck) for x in (*links, total)]


def gateway_rights() -> PeerRights:
    """Return the rights of a connection of a gateway."""
    admission = PeerCheck(Listener.SERVICES, None, "", {"subject": ((("commonName", f"{Role.GATEWAY}/g"),),)})
    admission.certified()
    return PeerRights(admission, "r", 0)
