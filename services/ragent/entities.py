"""Desired router entities for each address, broker and listener: pure functions, no state.

Every entity that the agent creates has its prefix, and the name alone identifies the address. So a restarted agent
recognises its entities without stored state, and never touches others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from enmasse.model.address_types import TYPES, AddressType
from enmasse.model.feeds import BrokerEndpoint, Placement
from enmasse.model.names import HTTP_GATEWAYS, AddressName, session_prefix, wire_name
from services.ragent.mesh import Endpoint

_DISPATCH: Final = "org.apache.qpid.dispatch."
ADDRESS: Final = _DISPATCH + "router.config.address"
AUTO_LINK: Final = _DISPATCH + "router.config.autoLink"
LINK_ROUTE: Final = _DISPATCH + "router.config.linkRoute"
CONNECTOR: Final = _DISPATCH + "connector"
LISTENER: Final = _DISPATCH + "listener"
SSL_PROFILE: Final = _DISPATCH + "sslProfile"

ADDRESS_TYPES: Final = (ADDRESS, AUTO_LINK, LINK_ROUTE)
"""Entity types of an address, in the order of creation."""
ALL_TYPES: Final = (CONNECTOR, *ADDRESS_TYPES, SSL_PROFILE, LISTENER)
"""All types that the agent creates; the last one admits clients."""

INTER_ROUTER: Final = "inter-router"
"""The role of listeners and connectors between routers."""
PREFIX: Final = "ragent-"
SCRAM: Final = "SCRAM-SHA-256"

EntityKey = tuple[str, str]
"""Type and name of an entity."""
ROUTER: Final = AddressName("")
"""Stands in for an address where an entity has none: connectors, listeners and nodes of services."""

SUBSCRIPTION_CONTROL, MQTT_CONTROL = "$subctrl", "$mqtt/control"
LAST_WILL, MQTT_WILLS = "$lwt", "$mqtt/wills"
MQTT_SESSIONS: Final = "$mqtt/sessions"
LWT_CONTAINER, SUBSCRIPTION_CONTAINER = "lwt-service", "subscription-service"
"""The container-ids with which the services that have these nodes open their connections."""
_SESSIONS: Final = "$sub"
"""Stands for `$sub/<broker>` in the name of an entity that also contains the broker's name."""

COMPARED: Final[Mapping[str, tuple[str, ...]]] = {
    ADDRESS: ("prefix", "pattern", "distribution", "waypoint"),
    AUTO_LINK: ("address", "direction", "connection"),
    LINK_ROUTE: ("prefix", "direction", "connection", "containerId"),
    CONNECTOR: ("host", "port", "role", "sslProfile", "saslMechanisms", "saslUsername"),
    LISTENER: ("host", "port", "role", "sslProfile", "saslPlugin"),
    SSL_PROFILE: ("certFile", "privateKeyFile", "caCertFile"),
}
"""Attributes that are compared with the desired entity. A QUERY requests `name` and these."""

STATUS: Final[Mapping[str, str]] = {
    AUTO_LINK: "operStatus",
    LINK_ROUTE: "operStatus",
    CONNECTOR: "connectionStatus",
    LISTENER: "operStatus",
}
"""Attribute of a type that shows whether an entity works, not only that it exists."""
EXTENSIONS: Final[Mapping[str, tuple[str, ...]]] = {
    LISTENER: ("management", "operStatus", "access"),
    CONNECTOR: ("management",),
}
"""Attributes that Qpid Dispatch does not have: neither requested nor set on a router that does not know them."""
ACTIVE: Final = "active"

_KEYS: Final[Mapping[str, str]] = {
    "address": ADDRESS,
    "in": AUTO_LINK,
    "out": AUTO_LINK,
    "route-in": LINK_ROUTE,
    "route-out": LINK_ROUTE,
    "broker": CONNECTOR,
    "router": CONNECTOR,
    "listener": LISTENER,
    "tls": SSL_PROFILE,
}


class Entity(NamedTuple):
    """One management entity: full type name, name, attributes of its CREATE."""

    type: str
    name: str
    attributes: dict[str, Any]

    def row(self) -> list[Any]:
        """Return the values that a QUERY for `COMPARED` must show; None for attributes that are not set."""
        return [self.attributes.get(key) for key in COMPARED[self.type]]


class TlsFiles(NamedTuple):
    """Files of a certificate, its key, and the authority of clients' certificates (None: clients are not asked)."""

    cert: str
    key: str
    client_ca: str | None = None


class ClientListener(NamedTuple):
    """A listener for clients: name, host, port, its TLS, the router that has it or the `routers` whose ids are this and
    `-NUMBER` (both None: every router without listeners of its own has one), the address space of its clients (None:
    each means its own), and whether other routers listen at the same port."""

    name: str
    host: str
    port: int
    tls: TlsFiles | None = None
    router: str | None = None
    space: str | None = None
    shared: bool = False
    routers: str | None = None

    @property
    def is_of_all(self) -> bool:
        """Return whether each router has it that has no listeners of its own."""
        return self.router is None and self.routers is None

    def is_of(self, router: str) -> bool:
        """Return whether it is among this router's own listeners."""
        return not self.is_of_all and (router == self.router or router.rpartition("-")[0] == self.routers)


class RouterWork(NamedTuple):
    """Work of a router for one address: its kind, and for each broker the directions (`in`, `out`) to create.

    If it is routed, `in` is a client's sender, by Dispatch's convention; else `in` is from the broker. `brokered`: the
    address is of a brokered space.
    """

    kind: AddressType
    links: tuple[tuple[str, str], ...]
    brokered: bool = False

    @property
    def routed(self) -> bool:
        """Return whether links of clients are passed on to the broker: those of topics, and of brokered spaces."""
        return self.brokered or TYPES[self.kind].levels


class EntityName(NamedTuple):
    """Parts of an entity's name: its type; the broker, or ""; the address, router, listener or profile, or ""."""

    type: str
    broker: str
    subject: str


def work_for(type: AddressType | None, placements: Sequence[Placement], *, brokered: bool = False) -> RouterWork | None:
    """Compute the work for an address of this type (None: no longer desired) with these placements. `brokered`: it is
    of a brokered space.

    While a broker holds an object of another kind under the name (the address was retyped, or removed, while it held
    messages), that object stays reachable for its consumers, and the new kind waits: a router's address has one kind.
    """
    entity = None if type is None else TYPES[type].entity
    old = [p for p in placements if p.draining and p.type is not None and p.type != entity]
    if old:
        first = old[0].type
        assert first is not None
        direction = _drain_direction(routed=brokered or TYPES[first].levels)
        return RouterWork(first, tuple((p.broker, direction) for p in old if p.type == first), brokered)
    if type is None:
        # The kind is unknown: placements made by hand name only brokers, and then it is a queue.
        left = [p for p in placements if p.draining]
        direction = _drain_direction(routed=brokered)
        return RouterWork("queue", tuple((p.broker, direction) for p in left), brokered) if left else None
    if entity is None:
        return RouterWork(type, ())
    links: list[tuple[str, str]] = []
    there = [p for p in placements if p.type in (None, entity)]
    routed = brokered or TYPES[type].levels
    # Subscribers of a topic that moves belong on its new broker; consumers of a routed queue empty the old one first.
    drains = not TYPES[type].levels or not any(p.active for p in there)
    elsewhere = brokered and drains and any(p.draining for p in there)
    for placement in there:
        if placement.active:
            links += ((placement.broker, "in"), *(() if elsewhere else ((placement.broker, "out"),)))
        elif placement.draining and drains:
            links.append((placement.broker, _drain_direction(routed=routed)))
    return RouterWork(entity, tuple(links), brokered)


def _drain_direction(*, routed: bool) -> str:
    # An auto-link `in` feeds the router from the broker; a link route `out` lets consumers and subscribers attach.
    return "out" if routed else "in"


def of_address(name: AddressName, work: RouterWork | None) -> list[Entity]:
    """Return the entities of one address on every router."""
    if work is None:
        return []
    traits = TYPES[work.kind]
    if work.routed:
        return [_link_route(name, broker, direction) for broker, direction in work.links]
    attributes = {"pattern": wire_name(name), "distribution": traits.distribution, "waypoint": traits.stored}
    entities = [Entity(ADDRESS, address_key(name)[1], attributes)]
    return entities + [_auto_link(name, broker, direction) for broker, direction in work.links]


def address_key(name: AddressName) -> EntityKey:
    """Return the key of the entity that states the kind of an address."""
    return ADDRESS, f"{PREFIX}address/{name}"


def names_of_address(name: AddressName, work: RouterWork | None) -> list[tuple[str, str]]:
    """Return type and name of each entity of `of_address`."""
    if work is None:
        return []
    if work.routed:
        return [(LINK_ROUTE, _link_name(f"route-{direction}", broker, name)) for broker, direction in work.links]
    links = [(AUTO_LINK, _link_name(direction, broker, name)) for broker, direction in work.links]
    return [address_key(name), *links]


def _auto_link(name: AddressName, broker: str, direction: str) -> Entity:
    attributes = {"address": wire_name(name), "direction": direction, "connection": connector_name(broker)}
    return Entity(AUTO_LINK, _link_name(direction, broker, name), attributes)


def _link_route(name: AddressName, broker: str, direction: str) -> Entity:
    attributes = {"prefix": wire_name(name), "direction": direction, "connection": connector_name(broker)}
    return Entity(LINK_ROUTE, _link_name(f"route-{direction}", broker, name), attributes)


def _link_name(key: str, broker: str, name: str) -> str:
    return f"{PREFIX}{key}/{quote(broker, safe='')}/{name}"


def link_prefixes(broker: str) -> tuple[str, ...]:
    """Return the name prefixes of all auto-links and link routes to a broker."""
    return tuple(_link_name(key, broker, "") for key, type_ in _KEYS.items() if type_ in (AUTO_LINK, LINK_ROUTE))


def connector_name(broker: str) -> str:
    """Return the name of the connector to a broker; auto-links and link routes refer to their connection by it."""
    return f"{PREFIX}broker/{broker}"


class RouterLogin(NamedTuple):
    """Name of a router, and the file, on its machine, with its secret in a line."""

    name: str
    file: str


def _scram(login: RouterLogin | None) -> dict[str, Any]:
    """Return how a router logs in: as stated, or by its own credential, which the agent does not know."""
    stated = {} if login is None else {"saslUsername": login.name, "saslPassword": f"file:{login.file}"}
    return {"saslMechanisms": SCRAM, **stated}


def connector(
    name: str, broker: BrokerEndpoint, profile: str | None = None, login: RouterLogin | None = None
) -> Entity:
    """Return the connector of a router to one broker. `profile`: the TLS profile of the routers' configuration with
    their certificates, for brokers that demand one; without it they log in by SCRAM-SHA-256."""
    attributes: dict[str, Any] = {
        "host": broker.host,
        "port": str(broker.port),
        "role": "route-container",
        "management": False,
    }
    if broker.scram and profile is not None:
        attributes |= {"sslProfile": profile, "saslMechanisms": "EXTERNAL"}
    elif broker.scram:
        attributes |= _scram(login)
    return Entity(CONNECTOR, connector_name(name), attributes)


def neighbour(router: str, endpoint: Endpoint, login: RouterLogin | None = None) -> Entity:
    """Return the connector of a router to another router."""
    attributes: dict[str, Any] = {"host": endpoint.host, "port": endpoint.port, "role": INTER_ROUTER}
    if endpoint.profile:  # the routers of a mesh have the same profiles; certificates rarely name addresses of pods
        attributes |= {"sslProfile": endpoint.profile, "verifyHostname": False}
    if login is not None or endpoint.scram:
        attributes |= _scram(login)
    return Entity(CONNECTOR, f"{PREFIX}router/{router}", attributes)


def listeners(
    wanted: Iterable[ClientListener], sasl_plugin: str | None = None, *, authenticate: bool = False
) -> list[Entity]:
    """Return the client listeners and their TLS profiles. `sasl_plugin`: the authentication service that they ask;
    `authenticate`: no client may skip SASL."""
    entities = []
    for name, host, port, tls, _, space, shared, _ in wanted:
        attributes: dict[str, Any] = {"host": host, "port": str(port), "role": "normal"}
        attributes |= {"authenticatePeer": authenticate, "management": False}
        if sasl_plugin is not None:
            attributes["saslPlugin"] = sasl_plugin
        if space is not None:
            attributes["space"] = space
        if shared:
            attributes["shared"] = True
        if tls is not None:
            profile = f"{PREFIX}tls/{name}"
            files = {"certFile": tls.cert, "privateKeyFile": tls.key}
            if tls.client_ca is not None:
                files["caCertFile"] = tls.client_ca
            entities.append(Entity(SSL_PROFILE, profile, files))
            attributes |= {"sslProfile": profile, "requireSsl": True}
        entities.append(Entity(LISTENER, f"{PREFIX}listener/{name}", attributes))
    return entities


def _node_route(prefix: str, direction: str, container: str) -> Entity:
    name = _link_name(f"route-{direction}", "", prefix)
    return Entity(LINK_ROUTE, name, {"prefix": prefix, "direction": direction, "containerId": container})


def _node(name: str) -> Entity:
    return Entity(ADDRESS, f"{PREFIX}address/{name}", {"pattern": name, "distribution": "balanced", "waypoint": False})


GATEWAY_NODES: Final = (_node(f"{HTTP_GATEWAYS}/#"),)
"""Entities of every router for what gateways ask each other (docs/contracts.md)."""
SERVICE_NODES: Final = (
    _node(MQTT_CONTROL),
    _node_route(SUBSCRIPTION_CONTROL, "in", SUBSCRIPTION_CONTAINER),
    _node_route(LAST_WILL, "in", LWT_CONTAINER),
    _node_route(MQTT_WILLS, "in", LWT_CONTAINER),
    _node_route(MQTT_WILLS, "out", LWT_CONTAINER),
    _node_route(MQTT_SESSIONS, "in", SUBSCRIPTION_CONTAINER),
    _node_route(MQTT_SESSIONS, "out", SUBSCRIPTION_CONTAINER),
)
"""Entities of every router for the nodes of the MQTT services (docs/contracts.md)."""


def session_route(broker: str) -> Entity:
    """Return the link route for receivers of the queues of sessions and durable subscriptions on one broker."""
    attributes = {"prefix": session_prefix(broker), "direction": "out", "connection": connector_name(broker)}
    return Entity(LINK_ROUTE, _link_name("route-out", broker, _SESSIONS), attributes)


def is_node(subject: str) -> bool:
    """Return True if an entity with this subject is a node of a service; names of addresses never begin so."""
    return subject.startswith("$")


def subject_of(key: EntityKey) -> AddressName:
    """Return the address that an entity with our prefix serves; ROUTER if it has no address."""
    found = owner(key[1]) if key[0] in ADDRESS_TYPES else None
    return AddressName(found.subject) if found is not None and not is_node(found.subject) else ROUTER


def owner(name: str) -> EntityName | None:
    """Return the parts of the name of one of the agent's entities; None for a name that it cannot have given."""
    if not name.startswith(PREFIX):
        return None
    key, slash, rest = name[len(PREFIX) :].partition("/")
    type_ = _KEYS.get(key)
    if not slash or type_ is None:
        return None
    if type_ in (AUTO_LINK, LINK_ROUTE):
        broker, slash, subject = rest.partition("/")
        return EntityName(type_, unquote(broker), subject) if slash else None
    if key == "broker":
        return EntityName(type_, rest, "")
    return EntityName(type_, "", rest)
