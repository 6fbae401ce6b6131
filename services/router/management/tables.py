"""Tables of the management node: for each entity type its rows, how they are found, made and removed, and its columns.

`Table` is the general form; the entities of the router's core are here, those of sockets and policy in `statics.py`.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from services.router import SIMULATES, VERSION
from services.router.address import MULTICAST, UNAVAILABLE, Address
from services.router.autolinks import AutoLink
from services.router.configured import AddressConfig
from services.router.connections import RouterConnection
from services.router.core import Router, Totals
from services.router.linkroutes import LinkRoute, RoutedHalf
from services.router.links import InLink, OutLink
from services.router.management import schema
from services.router.management.schema import BAD_REQUEST, FORBIDDEN, NOT_FOUND, EntityType, ManagementError

if TYPE_CHECKING:
    from services.router.management.agent import Request

Getter = Callable[[Any], Any]


class Table:
    """One entity type. Subclasses say where rows are; `getters` give the value of each column of a row."""

    type: EntityType
    create_slowly: Callable[[Request, Callable[[Any], None], Callable[[ManagementError], None]], None] | None = None
    delete_slowly: Callable[[Any, Callable[[], None]], None] | None = None

    def __init__(self, kind: EntityType, getters: Mapping[str, Getter]) -> None:
        self.type = kind
        self.getters: dict[str, Getter] = {
            "type": lambda _: kind.name,
            "name": attrgetter("name"),
            "identity": lambda entity: str(entity.identity),
            **getters,
        }
        for name in kind.columns:
            self.getters.setdefault(name, lambda _: None)

    def getter(self, name: str) -> Getter:
        """What gives the column `name` of a row; null for a column that is not known."""
        return self.getters.get(name, _none)

    def rows(self) -> Iterable[Any]:
        raise NotImplementedError

    def show(self, entity: Any) -> dict[str, Any]:
        """All columns of one entity."""
        return {name: self.getters[name](entity) for name in self.type.columns}

    def find(self, request: Request) -> Any:
        """By identity or name. Raises ManagementError 400 or 404."""
        if request.identity is None and request.name is None:
            raise ManagementError(BAD_REQUEST, "No name or identity provided")
        identity = request.identity
        found = self.by_identity(identity) if identity is not None else self.by_name(request.name or "")
        if found is None:
            which = f"identity={request.identity}" if request.identity is not None else f"name={request.name}"
            raise ManagementError(NOT_FOUND, "Not Found" if self.type.core else f"No entity with {which}")
        return found

    def by_identity(self, identity: str) -> Any:
        get = self.getters["identity"]
        return next((row for row in self.rows() if get(row) == identity), None)

    def by_name(self, name: str) -> Any:
        get = self.getters["name"]
        return next((row for row in self.rows() if get(row) == name), None)

    def create(self, request: Request) -> Any:
        return self.add(request.name, request.body)

    def add(self, name: str | None, body: Any) -> Any:
        """Make an entity. Raises ManagementError 400."""
        raise NotImplementedError

    def update(self, request: Request, entity: Any) -> dict[str, Any]:
        raise NotImplementedError

    def delete(self, entity: Any) -> None:
        raise NotImplementedError


class ConfigTable(Table):
    """Configured addresses, link routes, auto-links: dictionaries by name and by identity, which is a number."""

    def __init__(
        self,
        kind: EntityType,
        router: Router,
        make: Callable[[int, dict[str, Any]], Any],
        store: Any,
        add: Callable[[Any], None],
        remove: Callable[[Any], None],
        getters: Mapping[str, Getter],
    ) -> None:
        super().__init__(kind, getters)
        self._router = router
        self._make = make
        self._store = store
        self._add = add
        self._remove = remove

    def rows(self) -> Iterable[Any]:
        return self._store.by_name.values()  # type: ignore[no-any-return]

    def by_identity(self, identity: str) -> Any:
        return self._store.by_identity.get(int(identity)) if identity.isdigit() else None

    def by_name(self, name: str) -> Any:
        return self._store.by_name.get(name)

    def add(self, name: str | None, body: Any) -> Any:
        if name is not None and name in self._store.by_name:
            raise ManagementError(BAD_REQUEST, "Name conflicts with an existing entity")
        entity = self._make(self._router.next_identity(), schema.read_body(self.type, name, body))
        self._add(entity)
        return entity

    def delete(self, entity: Any) -> None:
        self._remove(entity)


def _shown_prefix(entity: AddressConfig | LinkRoute) -> str | None:
    return entity.shown if entity.prefix else None


def _shown_pattern(entity: AddressConfig | LinkRoute) -> str | None:
    return None if entity.prefix else entity.shown


def address_configs(router: Router) -> ConfigTable:
    return ConfigTable(
        schema.CONFIG_ADDRESS,
        router,
        AddressConfig,
        router.configured,
        router.add_address_config,
        router.remove_address_config,
        {
            "prefix": _shown_prefix,
            "pattern": _shown_pattern,
            "distribution": lambda e: None if e.treatment == UNAVAILABLE else e.treatment,
            "waypoint": attrgetter("waypoint"),
            "ingressPhase": attrgetter("ingress_phase"),
            "egressPhase": attrgetter("egress_phase"),
            "priority": attrgetter("priority"),
            "fallback": lambda _: False,
        },
    )


def link_routes(router: Router) -> ConfigTable:
    return ConfigTable(
        schema.CONFIG_LINK_ROUTE,
        router,
        LinkRoute,
        router.link_routes,
        router.link_routes.add,
        router.link_routes.remove,
        {
            "prefix": _shown_prefix,
            "pattern": _shown_pattern,
            "distribution": lambda _: "linkBalanced",
            "connection": attrgetter("connection"),
            "containerId": attrgetter("container_id"),
            "direction": attrgetter("direction"),
            "dir": attrgetter("direction"),
            "operStatus": lambda e: "active" if e.connections else "inactive",
            "addExternalPrefix": attrgetter("add_prefix"),
            "delExternalPrefix": attrgetter("del_prefix"),
        },
    )


def auto_links(router: Router) -> ConfigTable:
    return ConfigTable(
        schema.CONFIG_AUTO_LINK,
        router,
        AutoLink,
        router.autolinks,
        router.autolinks.add,
        router.autolinks.remove,
        {
            "address": attrgetter("address"),
            "addr": attrgetter("address"),
            "direction": attrgetter("direction"),
            "dir": attrgetter("direction"),
            "phase": attrgetter("phase"),
            "connection": attrgetter("connection"),
            "containerId": attrgetter("container_id"),
            "externalAddress": attrgetter("external"),
            "externalAddr": attrgetter("external"),
            "linkRef": attrgetter("link_ref"),
            "operStatus": attrgetter("status"),
            "lastError": attrgetter("last_error"),
            "fallback": lambda _: False,
        },
    )


def _zero(_: Any) -> int:
    return 0


def _none(_: Any) -> None:
    return None


class AddressTable(Table):
    """Address objects, by key."""

    def __init__(self, router: Router) -> None:
        self._addresses = router.addresses
        super().__init__(
            schema.ADDRESS,
            {
                "name": attrgetter("key"),
                "identity": attrgetter("key"),
                "key": attrgetter("key"),
                "distribution": lambda a: "multicast" if a.treatment == MULTICAST else a.treatment,
                "inProcess": lambda a: int(a.subscriber is not None),
                "subscriberCount": lambda a: len(a.outs),
                "remoteCount": lambda a: len(a.remotes),
                "containerCount": _zero,
                "remoteHostRouters": lambda a: list(a.remotes),
                "deliveriesIngress": lambda a: a.ingress + sum(link.received for link in a.ins),
                "deliveriesEgress": lambda a: a.egress + sum(link.sent for link in a.outs),
                "deliveriesTransit": _zero,
                "deliveriesToContainer": _to_router,
                "deliveriesFromContainer": attrgetter("from_router"),
                "deliveriesEgressRouteContainer": lambda a: (
                    a.egress_containers + sum(link.sent for link in a.outs if link.connection.is_container)
                ),
                "deliveriesIngressRouteContainer": lambda a: (
                    a.ingress_containers + sum(link.received for link in a.ins if link.connection.is_container)
                ),
                "trackedDeliveries": lambda a: sum(link.unsettled + link.undelivered for link in a.outs),
                "priority": attrgetter("priority"),
                "deliveriesRedirectedToFallback": _zero,
            },
        )

    def rows(self) -> Iterable[Address]:
        return self._addresses.values()

    def by_name(self, name: str) -> Address | None:
        return self._addresses.get(name)

    def by_identity(self, identity: str) -> Address | None:
        return self._addresses.get(identity)


def _to_router(address: Address) -> int:
    return 0 if address.subscriber is None else address.ingress + sum(link.received for link in address.ins)


def _owning(record: Any) -> str | None:
    if isinstance(record, RoutedHalf):
        return record.pair.owning
    return None if record.address is None else str(record.address.key)


def _of_link(name: str) -> Getter:
    """A counter of a link's record; of a routed link it is the pair's."""
    get = attrgetter(name)

    def value(record: Any) -> Any:
        return get(record.pair if isinstance(record, RoutedHalf) else record)

    return value


def _peer(record: Any) -> str | None:
    if not isinstance(record, RoutedHalf) or not hasattr(record.pair, "container"):
        return None
    pair = record.pair
    return str((pair.container if pair.client is record else pair.client).identity)


def _status(record: Any) -> str:
    return "up" if record.link.attached else "down"


class LinkTable(Table):
    """The links of all connections."""

    def __init__(self, router: Router) -> None:
        self._router = router
        zeros = dict.fromkeys(
            ("deliveriesDelayed1Sec", "deliveriesDelayed10Sec", "deliveriesStuck", "settleRate", "priority"), _zero
        )
        super().__init__(
            schema.LINK,
            {
                **zeros,
                "linkName": attrgetter("name"),
                "linkType": lambda _: "endpoint",
                "linkDir": attrgetter("direction"),
                "owningAddr": _owning,
                "capacity": lambda r: 0 if isinstance(r, RoutedHalf) else r.capacity,
                "peer": _peer,
                "undeliveredCount": lambda r: len(r.pair.queue) if isinstance(r, RoutedHalf) else r.undelivered,
                "unsettledCount": lambda r: r.link.unsettled,
                "deliveryCount": lambda r: r.link.deliveries,
                "connectionId": lambda r: str(r.connection.identity),
                "adminStatus": lambda _: "enabled",
                "operStatus": _status,
                "presettledCount": _of_link("presettled"),
                "droppedPresettledCount": lambda r: 0 if isinstance(r, RoutedHalf) else r.dropped,
                "acceptedCount": _of_link("accepted"),
                "rejectedCount": _of_link("rejected"),
                "releasedCount": _of_link("released"),
                "modifiedCount": _of_link("modified"),
                "ingressHistogram": lambda _: [0] * 6,
                "creditAvailable": lambda r: r.link.credit,
                "zeroCreditSeconds": lambda r: 0 if isinstance(r, RoutedHalf) else r.zero_credit_seconds,
            },
        )

    def rows(self) -> Iterable[InLink | OutLink | RoutedHalf]:
        for connection in list(self._router.connections.values()):
            yield from list(connection.links.values())

    def by_identity(self, identity: str) -> Any:
        if not identity.isdigit():
            return None
        number = int(identity)
        return next((c.links[number] for c in self._router.connections.values() if number in c.links), None)

    def update(self, request: Request, entity: Any) -> dict[str, Any]:
        return self.show(entity)


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
                "sslProto": lambda c: c.tls and c.tls[0],
                "sslCipher": lambda c: c.tls and c.tls[1],
                "sslSsf": _zero,
                "properties": _properties,
                "opened": lambda c: c.opened_at is not None,
                "active": lambda c: c.opened_at is not None,
                "adminStatus": lambda _: "enabled",
                "operStatus": lambda _: "up",
                "uptimeSeconds": lambda c: int(router.now() - (c.opened_at or router.now())),
                "lastDlvSeconds": _none,
                "enableProtocolTrace": lambda _: False,
            },
        )

    def rows(self) -> Iterable[RouterConnection]:
        return self._router.connections.values()

    def find(self, request: Request) -> Any:
        if request.identity is None:
            text = (
                "Name not supported. Identity required" if request.name is not None else "No name or identity provided"
            )
            raise ManagementError(BAD_REQUEST, text)
        identity = request.identity
        connection = self._router.connections.get(int(identity)) if identity.isdigit() else None
        if connection is None:
            raise ManagementError(BAD_REQUEST if request.operation == "UPDATE" else NOT_FOUND)
        return connection

    def update(self, request: Request, entity: RouterConnection) -> dict[str, Any]:
        body = request.body if isinstance(request.body, dict) else {}
        wanted = body.get("adminStatus")
        if wanted is None and "enableProtocolTrace" not in body:
            raise ManagementError(BAD_REQUEST)
        if wanted is not None and wanted not in ("enabled", "deleted"):
            raise ManagementError(BAD_REQUEST)
        if wanted == "deleted":
            asking = None if request.source is None else request.source.connection
            if entity.role in ("inter-router", "edge") or (
                asking is not None and asking.rights is not None and not asking.rights.admin
            ):
                raise ManagementError(FORBIDDEN, "You are not allowed to perform this operation.")
            shown = self.show(entity)
            shown["adminStatus"] = "deleted"
            self._router.clock.call_soon(entity.drop)
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
                "version": lambda _: f"{SIMULATES} (enmasse {VERSION})",
                "metadata": lambda _: config.get("metadata"),
                "addrCount": lambda r: len(r.addresses),
                "linkCount": lambda r: sum(len(c.links) for c in r.connections.values()),
                "nodeCount": _zero,
                "linkRouteCount": lambda r: len(r.link_routes.by_name),
                "autoLinkCount": lambda r: len(r.autolinks.by_name),
                "connectionCount": lambda r: len(r.connections),
                "presettledDeliveries": self._total("presettled"),
                "droppedPresettledDeliveries": self._total("dropped"),
                "acceptedDeliveries": self._total("accepted"),
                "rejectedDeliveries": self._total("rejected"),
                "releasedDeliveries": self._total("released"),
                "modifiedDeliveries": self._total("modified"),
                "deliveriesDelayed1Sec": _zero,
                "deliveriesDelayed10Sec": _zero,
                "deliveriesStuck": _zero,
                "deliveriesIngress": self._total("ingress"),
                "deliveriesEgress": self._total("egress"),
                "deliveriesTransit": _zero,
                "deliveriesIngressRouteContainer": self._total("ingress_containers"),
                "deliveriesEgressRouteContainer": self._total("egress_containers"),
                "deliveriesRedirectedToFallback": _zero,
                "linksBlocked": links_blocked,
                "uptimeSeconds": lambda r: int(r.now() - r.started),
                "memoryUsage": lambda _: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                "workerThreads": lambda _: 1,
            },
        )

    def _total(self, name: str) -> Getter:
        def value(router: Router) -> int:
            return int(getattr(self._totals or router.totals(), name))

        return value

    def rows(self) -> Iterable[Router]:
        self._totals = self._router.totals()
        return (self._router,)

    def find(self, request: Request) -> Router:
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


def links_blocked(router: Router) -> int:
    """Incoming links that have no credit for want of a destination."""
    return sum(
        1
        for connection in router.connections.values()
        for link in connection.links.values()
        if isinstance(link, InLink) and link.zero_since is not None
    )


class NodeTable(Table):
    """The routers of the network: this one."""

    def __init__(self, router: Router) -> None:
        self._router = router
        super().__init__(
            schema.NODE,
            {
                "name": lambda r: f"router.node/{r.id}",
                "identity": lambda r: f"router.node/{r.id}",
                "id": attrgetter("id"),
                "protocolVersion": lambda _: 1,
                "instance": lambda _: 0,
                "linkState": lambda _: [],
                "nextHop": lambda _: "(self)",
                "validOrigins": lambda _: [],
                "address": lambda r: f"amqp:/_topo/0/{r.id}",
                "cost": _zero,
                "lastTopoChange": lambda _: 0,
                "index": _zero,
            },
        )

    def rows(self) -> Iterable[Router]:
        return (self._router,)


def core_tables(router: Router, config: dict[str, Any]) -> list[Table]:
    """The tables of everything that lives in the router's core."""
    return [
        address_configs(router),
        link_routes(router),
        auto_links(router),
        AddressTable(router),
        LinkTable(router),
        ConnectionTable(router),
        RouterTable(router, config),
        NodeTable(router),
    ]
