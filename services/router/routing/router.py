"""The router: its addresses, links and connections, and the routing of its own messages.

Free of sockets and clocks: time and timers come from a Clock, bytes are moved by the engine's connections.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Iterator
from typing import Any

from enmasse.amqp.codec.errors import RESOURCE_DELETED, AmqpError
from enmasse.clock import Clock
from enmasse.model.names import DEFAULT_SPACE
from services.router.routing.addresses.address import RoutedAddress
from services.router.routing.addresses.addresses import Addresses
from services.router.routing.addresses.temporaries import Temporaries
from services.router.routing.addresses.traffic import Traffic
from services.router.routing.brokers.auto_links import AutoLinks
from services.router.routing.brokers.containers import Containers
from services.router.routing.brokers.link_routes import NO_ROUTE, LinkRoute, LinkRoutes
from services.router.routing.brokers.routed_attaches import PassingOn
from services.router.routing.configuration import BALANCED, AddressConfig, LinkRouteConfig
from services.router.routing.connection import LinkRecord, RouterConnection, RouterCore
from services.router.routing.neighbours.network import Network
from services.router.routing.periodic_checks import Watch

BLOCKED = 10.0
"""Seconds without credit after which a link counts as blocked."""
_ALPHABET = string.ascii_letters + string.digits


class Totals:
    """Counters over links. `stuck` counts live ones only."""

    __slots__ = (
        "accepted",
        "delayed1",
        "delayed10",
        "dropped",
        "egress",
        "egress_containers",
        "ingress",
        "ingress_containers",
        "modified",
        "presettled",
        "rejected",
        "released",
        "stuck",
        "transit",
    )

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)

    accepted: int
    delayed1: int
    delayed10: int
    dropped: int
    egress: int
    egress_containers: int
    ingress: int
    ingress_containers: int
    modified: int
    presettled: int
    rejected: int
    released: int
    stuck: int
    transit: int

    def add(self, record: LinkRecord) -> None:
        """Count a link: outcomes where deliveries come in, so that each counts once, at a client's router. Transit:
        what goes to other routers."""
        if record.connection.is_neighbour:
            if record.direction == "out" and record.link_type != "router-control":
                self.transit += record.link.deliveries
            return
        container = record.connection.is_container
        count = record.link.deliveries
        if record.direction == "in":
            self.ingress += count
            if container:
                self.ingress_containers += count
            self.presettled += record.presettled
            self.accepted += record.accepted
            self.rejected += record.rejected
            self.released += record.released
            self.modified += record.modified
        else:
            self.egress += count
            if container:
                self.egress_containers += count
        self.dropped += record.dropped


class Router(RouterCore):
    """One router. `default` is the treatment of mobile addresses without configuration, `instance` the time of its
    start in whole seconds, as other routers learn it."""

    def __init__(
        self, router_id: str, clock: Clock, *, default: str = BALANCED, mode: str = "interior", instance: int = 1
    ) -> None:
        super().__init__(clock)
        self.id = router_id
        self.now = clock.time
        self.mode = mode
        self.allow_resumable = True
        self.started = clock.time()
        self.connections: dict[int, RouterConnection] = {}
        self.addresses = Addresses(router_id, clock, self.next_identity, default)
        self.containers = Containers()
        self.auto_links = AutoLinks(self.addresses, self.containers)
        self.link_routes = LinkRoutes(self.containers)
        self.temporaries = Temporaries(self.addresses.configured)
        self.passing_on = PassingOn(self.temporaries)
        self.traffic = Traffic(self.link_routes.covering)
        self.addresses.on_over = self.traffic.address_over
        self.watch = Watch(self.connections, clock)
        self.network = Network(router_id, clock, instance, self.addresses, self.link_routes)
        self._clients: dict[str, int] = {}  # open connections of clients by known_as
        self._gone = Totals()
        self._turn = 0

    def random_name(self, prefix: str) -> str:
        """Return `prefix` with 15 random characters."""
        return prefix + "".join(secrets.choice(_ALPHABET) for _ in range(15))

    # Configuration

    def add_address_config(self, config: AddressConfig) -> AddressConfig:
        """Add a configured address. Raises ValueError. Clients' links in another phase than the new configuration
        requires are detached, so that clients attach again."""
        for address in self.addresses.add_config(config):
            phase = int(address.key[1])
            if phase != config.ingress_phase:
                _send_away(address, "in")
            if phase != config.egress_phase:
                _send_away(address, "out")
        return config

    def add_link_route(self, config: LinkRouteConfig) -> LinkRoute:
        """Add a link route. Raises ValueError. Clients' links to an address of its name, which had another type, are
        detached, because nothing comes there from now on. Clients attach again, by the route."""
        route = self.link_routes.add(config)
        for address in self.addresses.of_name(config.prefix) if config.prefix is not None else ():
            _send_away(address, config.direction or "in")
        return route

    def remove_link_route(self, route: LinkRoute) -> None:
        """Remove a link route. If another one leads to where the address is now, its links are detached, so that
        clients attach there; attaches that were not answered yet go there at once."""
        for pair in self.link_routes.remove(route):
            self.passing_on.move(pair, AmqpError(RESOURCE_DELETED, "the address has moved to another broker"))

    def knows(self, name: str) -> bool:
        """Return True if an address of this name is configured."""
        return self.addresses.configured.match(name) is not None or self.link_routes.covers(name)

    # Messages of its own

    def deliver(self, to: str, payload: Any) -> bool:
        """Send a message, settled. Return False if there is no receiver, or too many messages wait for it."""
        try:
            address = self.addresses.for_message(to)
        except AmqpError:
            return False
        out = None if address is None else address.everyone.pick()
        if out is None or address is None:
            return False
        address.from_router += 1
        return out.reply(payload)

    # Brokers

    def brokers(self, space: str) -> list[RouterConnection]:
        """Return the connection to each route container that auto-links, or link routes of addresses, use: of several
        by address space that of this one."""
        groups: dict[object, list[RouterConnection]] = {}
        for c in self.containers.all():
            if c.usable:
                groups.setdefault(c.spaces or c, []).append(c)
        return [
            next((c for c in group if c.carries(space)), group[0])
            for group in groups.values()
            if any(self.auto_links.use(c) or self.link_routes.to_broker(c) for c in group)
        ]

    def broker_for_temporary(self, kind: str, space: str) -> RouterConnection | None:
        """Return the broker for a new temporary queue or topic of an address space, in turn: one of those that have
        addresses of it, if any does, so that transactions may use both. None if no broker is configured. Raises
        AmqpError if none is connected."""
        connected = self.brokers(space)
        if connected:
            theirs = [c for c in connected if self.containers.serves(c, space or DEFAULT_SPACE)]
            connected = theirs or connected
            self._turn += 1
            return connected[self._turn % len(connected)]
        if not self.auto_links.by_name and not self.link_routes.any_broker:
            return None
        raise AmqpError(
            NO_ROUTE, f"a temporary {kind} is stored at a broker, and none is connected at the moment: try again"
        )

    # Connections and links

    def is_known(self, known_as: str) -> bool:
        """Return True if a client of this name (RouterConnection.known_as) is connected."""
        return known_as in self._clients

    def add_connection(self, connection: RouterConnection) -> None:
        """Add a connection whose Open was received and not refused."""
        self.connections[connection.identity] = connection
        if connection.is_client:
            name = connection.known_as
            self._clients[name] = self._clients.get(name, 0) + 1

    def connection_opened(self, connection: RouterConnection) -> None:
        """Handle a connection whose Opens were exchanged."""
        self.changes += 1
        connection.opened_at = self.now()
        if connection.is_container:
            self.containers.add(connection)
            self.link_routes.connection_opened(connection)
            self.auto_links.connection_opened(connection)
        elif connection.is_neighbour:
            self.network.connection_opened(connection)

    def connection_closed(self, connection: RouterConnection) -> None:
        """Remove a closed connection; most of its links were reported before."""
        self.changes += 1
        connection.closed = True
        if self.connections.pop(connection.identity, None) is not None and connection.is_client:
            name = connection.known_as
            self._clients[name] -= 1
            if not self._clients[name]:
                del self._clients[name]
        if connection.is_container and connection.opened_at is not None:
            self.containers.remove(connection)
            self.link_routes.connection_closed(connection)
            self.auto_links.connection_closed(connection)
        elif connection.is_neighbour:
            self.network.connection_closed(connection)
        for record in list(connection.links.values()):
            connection.link_over(record)
            self.passing_on.link_over(record)
        self.passing_on.connection_closed(connection)
        connection.waiting.clear()

    def link_over(self, record: LinkRecord) -> None:
        """Remove a link that its connection has dropped, and settle its deliveries."""
        self.changes += 1
        connection = record.connection
        self._gone.add(record)
        self.traffic.link_over(record)
        self.temporaries.link_over(record)
        if record.direction == "in":
            connection.senders -= record.counted
            connection.ended_in += record.link.deliveries
        else:
            connection.receivers -= record.counted
            connection.ended_out += record.link.deliveries
        owning = record.owning
        record.gone()
        address = None if owning is None else self.addresses.get(owning)
        if address is not None:
            self.addresses.tidy(address)

    # Attributes for management

    def totals(self) -> Totals:
        """Return counters over all links, closed ones included."""
        total = Totals()
        for name in Totals.__slots__:
            setattr(total, name, getattr(self._gone, name))
        total.delayed1, total.delayed10 = self.watch.delayed1, self.watch.delayed10
        for connection in self.connections.values():
            for record in connection.links.values():
                total.add(record)
                total.stuck += record.stuck
        return total

    def client_links(self) -> Iterator[LinkRecord]:
        """Yield the links of clients and services."""
        for connection in self.connections.values():
            if not connection.is_broker:
                yield from (record for record in connection.links.values() if record.faces_client)

    def links_blocked(self) -> int:
        """Return the number of links without credit for longer than BLOCKED seconds."""
        since = self.now() - BLOCKED
        return sum(
            1
            for connection in self.connections.values()
            for link in connection.links.values()
            if link.zero_since is not None and link.zero_since < since
        )


def _send_away(address: RoutedAddress, direction: str) -> None:
    """Detach the clients that send to this address (`in`), or receive from it (`out`)."""
    links: list[Any] = (
        [producer for producer in address.ins if producer not in address.feeds]
        if direction == "in"
        else [out for out in address.outs if out not in address.stores]
    )
    for link in links:
        link.detach(AmqpError(RESOURCE_DELETED, "the address has a new configuration"))
