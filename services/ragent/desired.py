"""Desired entities of each router, kept up to date from the feeds: a changed address costs work for one address.

Every query names a router by its id: all have the same entities except for listeners and the routers that they dial.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

import msgspec

from enmasse.model import feeds
from enmasse.model.address_types import TYPES, AddressType
from enmasse.model.names import SPACE, AddressName
from enmasse.reconcile import Sources
from services.ragent import entities
from services.ragent.entities import ClientListener, Entity, EntityKey, RouterLogin, RouterWork
from services.ragent.mesh import Endpoint, Mesh

N = TypeVar("N", bound=str)
_NONE: tuple[feeds.Placement, ...] = ()


class Desired:
    """The desired state. Methods that take a feed's message return the addresses whose entities may have changed."""

    def __init__(
        self,
        listeners: Iterable[ClientListener],
        *,
        mqtt: bool = False,
        sasl_plugin: str | None = None,
        broker_profile: str | None = None,
        router_secrets: str | None = None,
        authenticate: bool = False,
        spaces: bool = True,
    ) -> None:
        self.sources = Sources(("addresses", "placements"))
        self._broker_profile = broker_profile
        self._router_secrets = router_secrets
        self.by_hand: dict[str, feeds.BrokerEndpoint] = {}
        """Brokers managed by hand."""
        self.has_made = True
        """True if a storage controller made at least one broker, or there is no broker."""
        self.mesh = Mesh(time.monotonic)
        self._listeners = tuple(listeners)
        self._mqtt = mqtt
        self._sasl_plugin = sasl_plugin
        self._authenticate = authenticate
        self._spaces = spaces
        self._types: dict[AddressName, AddressType] = {}
        self._brokered: set[AddressName] = set()
        """Addresses of brokered spaces, also those that are gone and still placed."""
        self._placed: dict[AddressName, tuple[feeds.Placement, ...]] = {}
        self._brokers: Mapping[str, feeds.BrokerEndpoint] = {}
        self._invalid: frozenset[AddressName] = frozenset()
        self._invalid_brokers: frozenset[str] = frozenset()
        # Thousands of addresses have equal placements, so they share one tuple and the work derived from it.
        self._shared: dict[tuple[feeds.Placement, ...], tuple[feeds.Placement, ...]] = {}
        self._works: dict[tuple[AddressType | None, tuple[feeds.Placement, ...], bool], RouterWork | None] = {}

    def set_addresses(self, body: feeds.Addresses) -> list[AddressName]:
        """Take a message of the feed `addresses` or `addresses/changes`."""
        types, invalid = self._types, _names(body.invalid)
        gone = [name for name in feeds.gone(body, types) if name not in invalid and name in types]
        brokered = self._brokered
        changed = [
            name
            for name, address in body.addresses.items()
            if types.get(name) != address.type or address.brokered is not (name in brokered)
        ]
        unclear = [n for n in invalid ^ self._invalid if n in self._placed and n not in types and n not in changed]
        types.update((name, body.addresses[name].type) for name in changed)
        for name in changed:
            (brokered.add if body.addresses[name].brokered else brokered.discard)(name)
        for name in gone:
            del types[name]
        brokered.difference_update(name for name in gone if name not in self._placed)
        self._invalid = invalid
        return changed + gone + [name for name in unclear if name not in types]

    def set_placements(self, body: feeds.Placements) -> tuple[list[AddressName], set[str]]:
        """Take a message of the feed `placements` or `placements/changes`. Return the changed addresses, and the
        brokers that were added, removed, moved or restarted."""
        placed, changed = self._placed, []
        for name, entries in body.addresses.items():
            key = tuple(entries)
            if placed.get(name) != key:
                changed.append(name)
                placed[name] = self._shared.setdefault(key, key)
        for name in feeds.gone(body, placed):
            if placed.pop(name, None) is not None:
                changed.append(name)
            if name not in self._types:
                self._brokered.discard(name)
        brokers = self._brokers
        moved = {n for n in body.brokers.keys() | brokers.keys() if body.brokers.get(n) != brokers.get(n)}
        self._brokers, self._invalid_brokers = body.brokers, _names(body.invalid)
        if len(self._shared) > 2 * len(placed) + 100:
            self._shared = {key: key for key in placed.values()}
        self.by_hand = {name: broker for name, broker in body.brokers.items() if broker.by_hand}
        self.has_made = not self.by_hand or len(self.by_hand) < len(body.brokers)
        self._works.clear()
        return changed, moved

    # addresses

    @property
    def addresses(self) -> Collection[AddressName]:
        """Names of all desired addresses."""
        return self._types.keys()

    def known_names(self) -> Iterable[AddressName]:
        """Return names of all addresses that routers must know: desired ones and those being drained."""
        yield from self._types
        yield from (name for name in self._placed if name not in self._types)

    def type(self, name: AddressName) -> AddressType | None:
        """Return the desired type of an address; None if it is not desired."""
        return self._types.get(name)

    def is_routed(self, name: AddressName) -> bool:
        """Return whether links of clients to an address are passed on to its broker, which alone counts them."""
        type_ = self._types.get(name)
        return name in self._brokered or (type_ is not None and TYPES[type_].levels)

    def placements(self, name: AddressName) -> tuple[feeds.Placement, ...]:
        """Return the brokers that hold an address, with their states; empty if none does."""
        return self._placed.get(name, _NONE)

    def placed_on(self, brokers: Collection[str]) -> list[AddressName]:
        """Return the addresses that are placed on one of these brokers."""
        if not brokers:
            return []
        return [name for name, placed in self._placed.items() if any(each.broker in brokers for each in placed)]

    # what one router is to have

    def may_have(self, name: AddressName) -> bool:
        """Return whether routers may have the address: they would not keep clients out of other spaces' otherwise."""
        return self._spaces or not name.startswith(SPACE)

    def work(self, router: str, name: AddressName) -> RouterWork | None:
        """Return the work of a router for the address."""
        if not self.may_have(name):
            return None
        type_, placed = self._types.get(name), self._placed.get(name, _NONE)
        if type_ is None and name in self._invalid:  # an invalid entry: keep what the placements show
            type_ = next((p.type for p in placed if p.active), None)
        brokered = name in self._brokered
        key = type_, placed, brokered
        try:
            return self._works[key]
        except KeyError:
            return self._works.setdefault(key, entities.work_for(type_, placed, brokered=brokered))

    def of_address(self, router: str, name: AddressName) -> list[Entity]:
        """Return the entities of one address."""
        return entities.of_address(name, self.work(router, name))

    def brokers(self, router: str) -> Mapping[str, feeds.BrokerEndpoint]:
        """Return the brokers to which the router is connected."""
        return self._brokers

    def connectors(self, router: str) -> list[Entity]:
        """Return the router's connectors to brokers, and to the routers that it dials."""
        return [
            *(self._to_broker(router, name, broker) for name, broker in self.brokers(router).items()),
            *(self._to_router(router, other, endpoint) for other, endpoint in self.mesh.dials(router).items()),
        ]

    def _to_broker(self, router: str, name: str, broker: feeds.BrokerEndpoint) -> Entity:
        return entities.connector(name, broker, self._broker_profile, self._login(router))

    def _to_router(self, router: str, other: str, endpoint: Endpoint) -> Entity:
        return entities.neighbour(other, endpoint, self._login(router))

    def _login(self, router: str) -> RouterLogin | None:
        files = self._router_secrets
        return None if files is None else RouterLogin(router, files.replace("{router}", router))

    def nodes(self, router: str) -> list[Entity]:
        """Return the entities for the nodes of gateways, of the MQTT services, and the queues of sessions."""
        if not self._mqtt:
            return list(entities.GATEWAY_NODES)
        of_sessions = [entities.session_route(name) for name in self.brokers(router)]
        return [*entities.GATEWAY_NODES, *entities.SERVICE_NODES, *of_sessions]

    def set_listeners(self, listeners: Iterable[ClientListener]) -> bool:
        """Take other listeners for clients. Return whether they differ."""
        before, self._listeners = self._listeners, tuple(listeners)
        return before != self._listeners

    @property
    def shares_listeners(self) -> bool:
        """Return True if routers listen beside others: a new listener may be opened before an old one is closed that
        has its port."""
        return all(each.shared for each in self._listeners)

    @property
    def has_listeners(self) -> bool:
        """Return True if at least one router has a listener for clients."""
        return bool(self._listeners)

    def listeners(self, router: str) -> list[Entity]:
        """Return the router's listeners for clients, and their TLS profiles. A port of a host belongs to one router;
        one that has listeners of its own has none of those of all."""
        own = [each for each in self._listeners if each.is_of(router)]
        wanted = own or [each for each in self._listeners if each.is_of_all]
        return entities.listeners(wanted, self._sasl_plugin, authenticate=self._authenticate)

    def space_of(self, router: str) -> str | None:
        """Return the address space whose clients alone come to this router; None: those of all come."""
        return next((each.space for each in self._listeners if each.is_of(router)), None)

    def expected(self, router: str, type_: str, name: str) -> Entity | None:
        """Return the desired entity of this name; None if it is not desired, or if the agent gives no such name."""
        owner = entities.owner(name)
        if owner is None or owner.type != type_:
            return None
        if type_ == entities.CONNECTOR:
            return next((entity for entity in self._connectors_to(router, owner) if entity.name == name), None)
        if entities.is_node(owner.subject):
            there = [entities.session_route(owner.broker)] if owner.broker in self.brokers(router) else []
            there = [*entities.GATEWAY_NODES, *([*entities.SERVICE_NODES, *there] if self._mqtt else [])]
        elif type_ in entities.ADDRESS_TYPES:
            there = self.of_address(router, AddressName(owner.subject))
        else:
            there = self.listeners(router)
        return next((entity for entity in there if entity.name == name and entity.type == type_), None)

    def is_kept(self, key: EntityKey) -> bool:
        """Return True if an entity must stay unchanged: the configured entry of its address or broker is invalid, or it
        leads to a router that may return."""
        owner = entities.owner(key[1])
        if owner is None:
            return False
        if owner.type == entities.CONNECTOR and not owner.broker:
            return self.mesh.may_come(owner.subject)
        return owner.subject in self._invalid or owner.broker in self._invalid_brokers

    def _connectors_to(self, router: str, owner: entities.EntityName) -> Iterable[Entity]:
        """Return the connector to a broker or to another router."""
        broker, endpoint = self.brokers(router).get(owner.broker), self.mesh.dials(router).get(owner.subject)
        if broker is not None:
            yield self._to_broker(router, owner.broker, broker)
        if endpoint is not None:
            yield self._to_router(router, owner.subject, endpoint)


def _names(names: Iterable[N] | msgspec.UnsetType) -> frozenset[N]:
    return frozenset() if isinstance(names, msgspec.UnsetType) else frozenset(names)
