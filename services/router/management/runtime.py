"""Tables of runtime objects: addresses, links, connections, the router itself."""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from enmasse import __version__
from enmasse.identity.refused import OPERATOR
from enmasse.text import whole_number
from services.router import SIMULATES
from services.router.management import schema
from services.router.management.entity_tables import Getter, Table, address_configs, auto_links, link_routes, zero
from services.router.management.requests import Request
from services.router.management.schema import BAD_REQUEST, FORBIDDEN, NOT_FOUND, ManagementError
from services.router.mesh.control_messages import VERSION
from services.router.routing.addresses.address import RoutedAddress
from services.router.routing.configuration import MULTICAST
from services.router.routing.connection import LinkRecord, RouterConnection
from services.router.routing.neighbours.network import is_route_key, route_key
from services.router.routing.router import Router, Totals


class LinkRouteAddress:
    """Address that a link route covers: it has no links of its own. `containers`: connected ones."""

    treatment = "linkBalanced"
    subscriber = None
    outs: tuple[()] = ()
    ins = neighbours = outs
    ingress = relayed = egress = transit = from_router = ingress_containers = egress_containers = 0
    priority = -1

    def __init__(self, key: str, containers: int) -> None:
        self.key = key
        self.containers = containers


class AddressTable(Table):
    """Address objects, by key, and those that link routes cover, here or at other routers."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._addresses = router.addresses.by_key
        super().__init__(
            schema.ADDRESS,
            {
                "name": attrgetter("key"),
                "identity": attrgetter("key"),
                "key": attrgetter("key"),
                "distribution": lambda a: "multicast" if a.treatment == MULTICAST else a.treatment,
                "inProcess": lambda a: int(a.subscriber is not None),
                "subscriberCount": lambda a: len(a.outs) - len(a.neighbours),
                "remoteCount": lambda a: len(router.network.remotes.get(a.key, ())),
                "containerCount": lambda a: a.containers if isinstance(a, LinkRouteAddress) else 0,
                "remoteHostRouters": lambda a: sorted(router.network.remotes.get(a.key, ())),
                "deliveriesIngress": lambda a: a.ingress + a.relayed + sum(link.received for link in a.ins),
                "deliveriesEgress": lambda a: a.egress + sum(link.sent for link in a.outs if link not in a.neighbours),
                "deliveriesTransit": lambda a: a.transit + sum(hop.sent for hop in a.neighbours),
                "deliveriesToContainer": _to_router,
                "deliveriesFromContainer": attrgetter("from_router"),
                "deliveriesEgressRouteContainer": lambda a: (
                    a.egress_containers + sum(link.sent for link in a.outs if link.connection.is_container)
                ),
                "deliveriesIngressRouteContainer": lambda a: (
                    a.ingress_containers + sum(link.received for link in a.ins if link.connection.is_container)
                ),
                "trackedDeliveries": lambda a: sum(out.load for out in a.outs),
                "priority": attrgetter("priority"),
                "deliveriesRedirectedToFallback": zero,
            },
        )

    def rows(self) -> Iterable[RoutedAddress | LinkRouteAddress]:
        """Return all addresses."""
        return chain(self._addresses.values(), self._covered().values())

    def by_name(self, name: str) -> RoutedAddress | LinkRouteAddress | None:
        """Return the address with this key, or None."""
        return self._addresses.get(name) or (self._covered().get(name) if is_route_key(name) else None)

    def by_identity(self, identity: str) -> RoutedAddress | LinkRouteAddress | None:
        """Return the address with this key, or None."""
        return self.by_name(identity)

    def _covered(self) -> dict[str, LinkRouteAddress]:
        containers = Counter(dict.fromkeys(filter(is_route_key, self._router.network.remotes), 0))
        for route in self._router.link_routes.by_name.values():
            containers[route_key(route.config.direction or "in", route.config.stated)] += len(route.connections)
        return {key: LinkRouteAddress(key, count) for key, count in containers.items()}


def _to_router(address: RoutedAddress) -> int:
    return (
        0
        if address.subscriber is None
        else address.ingress + address.relayed + sum(link.received for link in address.ins)
    )


def _status(record: Any) -> str:
    return "up" if record.link.attached else "down"


class LinkEntityTable(Table):
    """The links of all connections."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._rates: dict[int, tuple[float, int, int]] = {}  # identity → (time, settled by then, rate by then)
        super().__init__(
            schema.LINK,
            {
                "linkName": attrgetter("name"),
                "linkType": attrgetter("link_type"),
                "linkDir": attrgetter("direction"),
                "owningAddr": attrgetter("owning"),
                "capacity": attrgetter("capacity"),
                "peer": lambda r: None if r.peer is None else str(r.peer),
                "undeliveredCount": attrgetter("undelivered"),
                "unsettledCount": lambda r: r.link.unsettled,
                "deliveryCount": lambda r: r.link.deliveries,
                "connectionId": lambda r: str(r.connection.identity),
                "adminStatus": lambda _: "enabled",
                "operStatus": _status,
                "presettledCount": attrgetter("presettled"),
                "droppedPresettledCount": attrgetter("dropped"),
                "acceptedCount": attrgetter("accepted"),
                "rejectedCount": attrgetter("rejected"),
                "releasedCount": attrgetter("released"),
                "modifiedCount": attrgetter("modified"),
                "deliveriesDelayed1Sec": attrgetter("delayed1"),
                "deliveriesDelayed10Sec": attrgetter("delayed10"),
                "deliveriesStuck": attrgetter("stuck"),
                "ingressHistogram": lambda r: [r.link.deliveries] if r.direction == "out" else None,
                "priority": attrgetter("priority"),
                "settleRate": self._rate,
                "creditAvailable": lambda r: r.link.credit,
                "zeroCreditSeconds": lambda r: 0 if r.zero_since is None else int(router.now() - r.zero_since),
            },
        )

    def _rate(self, record: LinkRecord) -> int:
        """Return the settlements a second since the previous request for this link; 0 the first time."""
        now, settled = self._router.now(), record.link.deliveries - record.link.unsettled
        when, before, rate = self._rates.get(record.identity, (now, settled, 0))
        if now - when >= 1.0:
            when, before, rate = now, settled, int((settled - before) / (now - when))
        self._rates[record.identity] = when, before, rate
        return rate

    def rows(self) -> Iterable[LinkRecord]:
        """Return the links of all connections, one connection after the other."""
        if len(self._rates) > 1000 + 2 * sum(len(c.links) for c in self._router.connections.values()):
            self._rates.clear()  # most entries are of closed links
        for connection in list(self._router.connections.values()):
            yield from list(connection.links.values())

    def by_identity(self, identity: str) -> Any:
        """Return the link with this number, or None."""
        number = whole_number(identity)
        return next((c.links[number] for c in self._router.connections.values() if number in c.links), None)


class ConnectionTable(Table):
    """Open connections; setting adminStatus to `deleted` drops one."""

    def __init__(self, router: Router) -> None:
        self._router = router
        super().__init__(
            schema.CONNECTION,
            {
                "name": lambda c: f"connection/{c.host}",
                "host": attrgetter("host"),
                "role": attrgetter("role"),
                "protocol": lambda _: "amqp",
                "dir": attrgetter("dir"),
                "container": attrgetter("container"),
                "sasl": lambda c: c.mechanism,
                "isAuthenticated": attrgetter("authenticated"),
                "user": lambda c: c.amqp.user or "anonymous",
                "isEncrypted": lambda c: c.tls is not None,
                "ssl": lambda c: c.tls is not None,
                "sslProto": lambda c: c.tls and c.tls.protocol,
                "sslCipher": lambda c: c.tls and c.tls.cipher,
                "sslSsf": lambda c: c.tls.bits if c.tls else 0,
                "properties": _properties,
                "opened": lambda c: c.opened_at is not None,
                "active": lambda c: c.opened_at is not None,
                "adminStatus": lambda _: "enabled",
                "operStatus": lambda _: "up",
                "uptimeSeconds": lambda c: int(router.now() - (c.opened_at or router.now())),
                "lastDlvSeconds": lambda c: None if c.last_delivery is None else int(router.now() - c.last_delivery),
                "enableProtocolTrace": lambda _: False,
            },
        )

    def rows(self) -> Iterable[RouterConnection]:
        """Return the open connections."""
        return self._router.connections.values()

    def find(self, request: Request) -> Any:
        """Return the connection by its identity. Raises ManagementError without one, or if it is unknown."""
        if request.identity is None:
            text = (
                "Name not supported. Identity required" if request.name is not None else "No name or identity provided"
            )
            raise ManagementError(BAD_REQUEST, text)
        number = whole_number(request.identity)
        connection = None if number is None else self._router.connections.get(number)
        if connection is None:
            raise ManagementError(BAD_REQUEST if request.operation == "UPDATE" else NOT_FOUND)
        return connection

    def update(self, request: Request, entity: RouterConnection) -> dict[str, Any]:
        """Set adminStatus; `deleted` drops the connection after the answer. Raises ManagementError for another value,
        and for a connection between routers."""
        body = request.body if isinstance(request.body, dict) else {}
        wanted = body.get("adminStatus")
        if wanted not in ("enabled", "deleted"):
            raise ManagementError(BAD_REQUEST)
        if wanted == "deleted":
            if entity.role in ("inter-router", "edge"):
                raise ManagementError(FORBIDDEN, "You are not allowed to perform this operation.")
            shown = self.show(entity)
            shown["adminStatus"] = "deleted"
            by = str(request.values.get("by") or OPERATOR)
            self._router.clock.call_soon(lambda: entity.closed_by(by))
            return shown
        return self.show(entity)


def _properties(connection: RouterConnection) -> dict[str, Any]:
    return {
        str(key): value
        for key, value in connection.properties.items()
        if isinstance(value, str | int) and not isinstance(value, bool)
    }


class RouterTable(Table):
    """The router itself, with its totals."""

    def __init__(self, router: Router, config: dict[str, Any]) -> None:
        self._router = router
        self._totals: Totals | None = None
        super().__init__(
            schema.ROUTER,
            {
                "name": lambda r: config.get("name") or f"router/{r.id}",
                "identity": lambda _: "1",
                "id": attrgetter("id"),
                "mode": attrgetter("mode"),
                "area": lambda _: "0",
                "version": lambda _: f"{SIMULATES} (enmasse {__version__})",
                "metadata": lambda _: config.get("metadata"),
                "addrCount": lambda r: len(r.addresses),
                "linkCount": lambda r: sum(len(c.links) for c in r.connections.values()),
                "nodeCount": lambda r: len(r.network.engine.topology.costs),
                "linkRouteCount": lambda r: len(r.link_routes.by_name),
                "autoLinkCount": lambda r: len(r.auto_links.by_name),
                "connectionCount": lambda r: len(r.connections),
                "presettledDeliveries": self._total("presettled"),
                "droppedPresettledDeliveries": self._total("dropped"),
                "acceptedDeliveries": self._total("accepted"),
                "rejectedDeliveries": self._total("rejected"),
                "releasedDeliveries": self._total("released"),
                "modifiedDeliveries": self._total("modified"),
                "deliveriesDelayed1Sec": self._total("delayed1"),
                "deliveriesDelayed10Sec": self._total("delayed10"),
                "deliveriesStuck": self._total("stuck"),
                "deliveriesIngress": self._total("ingress"),
                "deliveriesEgress": self._total("egress"),
                "deliveriesTransit": self._total("transit"),
                "deliveriesIngressRouteContainer": self._total("ingress_containers"),
                "deliveriesEgressRouteContainer": self._total("egress_containers"),
                "deliveriesRedirectedToFallback": zero,
                "linksBlocked": lambda r: r.links_blocked(),
                "uptimeSeconds": lambda r: int(r.now() - r.started),
                "memoryUsage": _memory,
                "workerThreads": lambda _: 1,
            },
        )

    def _total(self, name: str) -> Getter:
        def value(router: Router) -> int:
            return int(getattr(self._totals or router.totals(), name))

        return value

    def rows(self) -> Iterable[Router]:
        """Return the router, with its totals taken now."""
        self._totals = self._router.totals()
        return (self._router,)

    def find(self, request: Request) -> Router:
        """Return the router if the request names it. Raises ManagementError otherwise."""
        for given in (request.name, request.identity):
            if given not in (
                None,
                "1",
                self._router.id,
                f"router/{self._router.id}",
                self.getters["name"](self._router),
            ):
                raise ManagementError(NOT_FOUND, f"No entity with name={given}")
        self._totals = self._router.totals()
        return self._router


def _memory(_: Any) -> int:
    """Return the bytes of memory in use, or their maximum so far if the system does not report the former."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class NetworkRow(NamedTuple):
    """A router of the network. `next_hop` None: a neighbour. `peers`: its own neighbours."""

    id: str
    instance: int
    peers: list[str]
    next_hop: str | None
    valid_origins: list[str]
    cost: int
    number: int
    link: int | None = None
    """Number of the connection to a neighbour."""


class NodeTable(Table):
    """The routers of the network: this one, and those that a path leads to."""

    def __init__(self, router: Router) -> None:
        self._engine = router.network.engine
        super().__init__(
            schema.NODE,
            {
                "name": lambda n: f"router.node/{n.id}",
                "identity": lambda n: f"router.node/{n.id}",
                "id": attrgetter("id"),
                "protocolVersion": lambda _: VERSION,
                "instance": attrgetter("instance"),
                "linkState": attrgetter("peers"),
                "nextHop": attrgetter("next_hop"),
                "validOrigins": attrgetter("valid_origins"),
                "address": lambda n: f"amqp:/_topo/0/{n.id}",
                "routerLink": attrgetter("link"),
                "cost": attrgetter("cost"),
                "lastTopoChange": lambda _: 0,
                "index": attrgetter("number"),
            },
        )

    def rows(self) -> Iterable[NetworkRow]:
        """Return this router and the others."""
        engine = self._engine
        topology = engine.topology
        yield NetworkRow(engine.own, engine.instance, sorted(engine.neighbours.routers()), "(self)", [], 0, 0)
        for index, (router, cost) in enumerate(topology.costs.items(), 1):
            known, hop = engine.routers.get(router), topology.next_hops[router]
            instance, peers = (0, []) if known is None else (known.instance, sorted(known.peers))
            origins = topology.valid_origins(router)
            link = engine.neighbours.link_of(router) if hop == router else None
            yield NetworkRow(router, instance, peers, None if hop == router else hop, origins, cost, index, link)


def core_tables(router: Router, config: dict[str, Any]) -> list[Table]:
    """Return the tables of the objects in the router's core."""
    return [
        address_configs(router),
        link_routes(router),
        auto_links(router),
        AddressTable(router),
        LinkEntityTable(router),
        ConnectionTable(router),
        RouterTable(router, config),
        NodeTable(router),
    ]
