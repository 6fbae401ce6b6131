"""The router's part in a network of routers: its connections to others, and the engine of the mesh on these.

A router without such connections makes nothing of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from typing import Final

from enmasse.amqp.codec.errors import NOT_ALLOWED, AmqpError
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.clock import Clock
from services.router.mesh.mesh_engine import (
    Action,
    MeshEngine,
    MeshEvent,
    MeshNotice,
    RefuseLink,
    SendControl,
)
from services.router.routing.connection import RouterConnection
from services.router.routing.neighbours.control_links import CONTROL, ControlIn, ControlOut, has_capability, termini

TICK: Final = 0.25
"""Seconds between two looks at what is due."""
COST: Final = "qd.inter-router-cost"
"""Property of an Open: the cost of the connection. The greater one of both sides counts."""
MAX_COST: Final = 2**31 - 1


class NeighbourConnection:
    """A connection to another router. It counts as open once both of its control links are."""

    __slots__ = ("connection", "control_in", "control_out", "cost", "open")

    def __init__(self, connection: RouterConnection) -> None:
        self.connection = connection
        stated = connection.properties.get(COST)
        theirs = stated if isinstance(stated, int) and not isinstance(stated, bool) and 0 < stated <= MAX_COST else 1
        self.cost = max(connection.cost, theirs)
        self.control_in: ControlIn | None = None
        self.control_out: ControlOut | None = None
        self.open = False


class Network:
    """`instance`: time of the router's start in whole seconds. `on_notice` gets what operators should know."""

    def __init__(self, router_id: str, clock: Clock, instance: int) -> None:
        self.engine = MeshEngine(router_id, instance, clock.time(), secrets.randbelow(1 << 30))
        self.on_notice: Callable[[MeshEvent, str, str], None] = lambda event, router, text: None
        self._clock = clock
        self._links: dict[int, NeighbourConnection] = {}
        self._ticking = False

    # Connections

    def connection_opened(self, connection: RouterConnection) -> None:
        """Handle an open connection to another router. The side that dials attaches the links."""
        links = self._links[connection.identity] = NeighbourConnection(connection)
        if connection.dir == "out":
            session = connection.amqp.begin()
            source, target = termini(CONTROL)
            self._control(links, session.attach_receiver(None, source, target))
            self._control(links, session.attach_sender(None, source, target))
            connection.amqp.wake()

    def connection_closed(self, connection: RouterConnection) -> None:
        """Handle the end of a connection: a neighbour is lost with it at once."""
        links = self._links.pop(connection.identity, None)
        if links is not None and links.open:
            self._do(self.engine.link_closed(connection.identity, self._clock.time()))

    def attach(self, connection: RouterConnection, link: Link) -> None:
        """Answer the attach of another router. Raises AmqpError."""
        links = self._links.get(connection.identity)
        if links is None or not has_capability(link, CONTROL):
            raise AmqpError("qd:connection-role", "Link attach forbidden on inter-router connection")
        if connection.dir == "out" or (links.control_in if isinstance(link, Receiver) else links.control_out):
            raise AmqpError(NOT_ALLOWED, "this connection has its control links")
        self._control(links, link)
        link.accept()
        self._opened(links)

    def _control(self, links: NeighbourConnection, link: Link) -> None:
        connection = links.connection

        def lost() -> None:
            if connection.usable:
                self._refuse(connection, "a control link has ended")

        record: ControlIn | ControlOut
        if isinstance(link, Receiver):
            record = links.control_in = ControlIn(connection, link, lambda: self._opened(links), lost)
            record.receive(lambda payload: self._received(links, payload))
        else:
            assert isinstance(link, Sender)
            record = links.control_out = ControlOut(connection, link, lambda: self._opened(links), lost)
        link.context = record
        connection.add(record)

    def _opened(self, links: NeighbourConnection) -> None:
        """Begin to exchange control messages, once both links are open."""
        both = (links.control_in, links.control_out)
        if links.open or not all(each is not None and each.link.attached for each in both):
            return
        links.open = True
        self._do(self.engine.link_opened(links.connection.identity, links.cost, self._clock.time()))
        if not self._ticking:
            self._ticking = True
            self._clock.call_later(TICK, self._tick)

    def _refuse(self, connection: RouterConnection, reason: str) -> None:
        connection.amqp.close(AmqpError(NOT_ALLOWED, reason))
        connection.amqp.wake()

    # The engine

    def _received(self, links: NeighbourConnection, payload: bytes) -> None:
        if links.open:
            self._do(self.engine.received(links.connection.identity, payload, self._clock.time()))

    def _tick(self) -> None:
        self._do(self.engine.tick(self._clock.time()))
        if self._links or self.engine.routers:
            self._clock.call_later(TICK, self._tick)
        else:
            self._ticking = False

    def _do(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, SendControl):
                links = self._links.get(action.link)
                if links is not None and links.control_out is not None:
                    links.control_out.send(action.message.encode())
            elif isinstance(action, RefuseLink):
                links = self._links.get(action.link)
                if links is not None:
                    self._refuse(links.connection, action.reason)
            elif isinstance(action, MeshNotice):
                self.on_notice(action.event, action.router, action.text)
