"""Tables of the management node: rows and columns of each entity type, and how entities are found, made and removed.

`Table` is the general form. Configured addresses, auto-links and link routes are here; runtime objects are in
`live.py`, ports in `entities.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any

from enmasse.amqp.codec.encoder import encode, encoded_map
from enmasse.text import whole_number
from services.router.management import schema
from services.router.management.entity_bodies import address_config, auto_link_config, checked, link_route_config
from services.router.management.requests import Request
from services.router.management.schema import BAD_REQUEST, NOT_FOUND, EntityType, ManagementError
from services.router.routing.configuration import UNAVAILABLE
from services.router.routing.router import Router

Getter = Callable[[Any], Any]


def none(_: Any) -> None:
    """Getter of a column without a value."""
    return None


def zero(_: Any) -> int:
    """Getter of a column that counts events that do not occur in this router."""
    return 0


class Table:
    """One entity type. Subclasses provide the rows; `getters` return the value of each column of a row."""

    type: EntityType
    create_slowly: Callable[[Request, Callable[[Any], None], Callable[[ManagementError], None]], None] | None = None
    delete_slowly: Callable[[Any, Callable[[], None]], None] | None = None

    def __init__(self, kind: EntityType, getters: Mapping[str, Getter]) -> None:
        self.type = kind
        type_name = kind.name
        self.getters: dict[str, Getter] = {
            "type": lambda _: type_name,
            "name": attrgetter("name"),
            "identity": lambda entity: str(entity.identity),
            **getters,
        }
        for name in kind.columns:
            self.getters.setdefault(name, none)
        self._columns = [(name, encode(name)) for name in kind.columns]

    def getter(self, name: str) -> Getter:
        """Return the getter of the column `name`; an unknown column is null."""
        return self.getters.get(name, none)

    def rows(self) -> Iterable[Any]:
        """Return the entities."""
        raise NotImplementedError

    def show(self, entity: Any) -> dict[str, Any]:
        """Return all columns of one entity."""
        return {name: self.getters[name](entity) for name, _ in self._columns}

    def encode(self, entity: Any) -> bytes:
        """Return what `show` returns, encoded."""
        elements: list[bytes] = []
        for name, key in self._columns:
            elements += key, encode(self.getters[name](entity))
        return encoded_map(elements)

    def find(self, request: Request) -> Any:
        """Find an entity by identity or name. Raises ManagementError 400 or 404."""
        if request.identity is None and request.name is None:
            raise ManagementError(BAD_REQUEST, "No name or identity provided")
        identity = request.identity
        found = self.by_identity(identity) if identity is not None else self.by_name(request.name or "")
        if found is None:
            which = f"identity={request.identity}" if request.identity is not None else f"name={request.name}"
            raise ManagementError(NOT_FOUND, "Not Found" if self.type.core else f"No entity with {which}")
        return found

    def by_identity(self, identity: str) -> Any:
        """Return the entity with this identity, or None."""
        get = self.getters["identity"]
        return next((row for row in self.rows() if get(row) == identity), None)

    def by_name(self, name: str) -> Any:
        """Return the entity with this name, or None."""
        get = self.getters["name"]
        return next((row for row in self.rows() if get(row) == name), None)

    def create(self, request: Request) -> Any:
        """Handle a CREATE: return the new entity. Raises ManagementError if it is invalid."""
        return self.add(request.name, request.body)

    def add(self, name: str | None, body: Any) -> Any:
        """Make an entity. Raises ManagementError 400."""
        raise NotImplementedError

    def update(self, request: Request, entity: Any) -> dict[str, Any]:
        """Handle an UPDATE: return all attributes after it. Raises ManagementError if it is not allowed."""
        raise NotImplementedError

    def check_delete(self, entity: Any) -> None:
        """Raise ManagementError 403 for an entity that must not be deleted."""

    def delete(self, entity: Any) -> None:
        """Remove an entity."""
        raise NotImplementedError


class ConfigTable(Table):
    """Configured addresses, link routes, auto-links: dictionaries by name and by identity, which is a number."""

    def __init__(
        self,
        kind: EntityType,
        router: Router,
        make: Callable[[int, dict[str, Any]], Any],
        store: Any,
        add: Callable[[Any], Any],
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
        """Return the configured entities."""
        return self._store.by_name.values()  # type: ignore[no-any-return]  # stores have no type in common

    def by_identity(self, identity: str) -> Any:
        """Return the entity with this number, or None."""
        return self._store.by_identity.get(whole_number(identity))

    def by_name(self, name: str) -> Any:
        """Return the entity with this name, or None."""
        return self._store.by_name.get(name)

    def add(self, name: str | None, body: Any) -> Any:
        """Make an entity and apply it. Raises ManagementError for an invalid body or a name in use."""
        if name is not None and name in self._store.by_name:
            raise ManagementError(BAD_REQUEST, "Name conflicts with an existing entity")
        config = self._make(self._router.next_identity(), schema.read_body(self.type, name, body))
        return checked(lambda: self._add(config))

    def delete(self, entity: Any) -> None:
        """Remove the entity from the configuration of the router."""
        self._remove(entity)


def address_configs(router: Router) -> ConfigTable:
    """Return the table of configured addresses."""
    return ConfigTable(
        schema.CONFIG_ADDRESS,
        router,
        address_config,
        router.addresses.configured,
        router.add_address_config,
        router.addresses.remove_config,
        {
            "prefix": attrgetter("prefix"),
            "pattern": attrgetter("pattern"),
            "distribution": lambda c: None if c.treatment == UNAVAILABLE else c.treatment,
            "waypoint": attrgetter("waypoint"),
            "ingressPhase": attrgetter("ingress_phase"),
            "egressPhase": attrgetter("egress_phase"),
            "priority": attrgetter("priority"),
            "fallback": lambda _: False,
        },
    )


def link_routes(router: Router) -> ConfigTable:
    """Return the table of configured link routes."""
    return ConfigTable(
        schema.CONFIG_LINK_ROUTE,
        router,
        link_route_config,
        router.link_routes,
        router.add_link_route,
        router.remove_link_route,
        {
            "name": attrgetter("config.name"),
            "identity": lambda route: str(route.config.identity),
            "prefix": attrgetter("config.prefix"),
            "pattern": attrgetter("config.pattern"),
            "distribution": lambda _: "linkBalanced",
            "connection": attrgetter("config.connection"),
            "containerId": attrgetter("config.container_id"),
            "direction": attrgetter("config.direction"),
            "dir": attrgetter("config.direction"),
            "operStatus": lambda route: "active" if route.connections else "inactive",
            "addExternalPrefix": attrgetter("config.add_prefix"),
            "delExternalPrefix": attrgetter("config.del_prefix"),
        },
    )


def auto_links(router: Router) -> ConfigTable:
    """Return the table of auto-links."""
    return ConfigTable(
        schema.CONFIG_AUTO_LINK,
        router,
        auto_link_config,
        router.auto_links,
        router.auto_links.add,
        router.auto_links.remove,
        {
            "name": attrgetter("config.name"),
            "identity": lambda autolink: str(autolink.config.identity),
            "address": attrgetter("config.address"),
            "addr": attrgetter("config.address"),
            "direction": attrgetter("config.direction"),
            "dir": attrgetter("config.direction"),
            "phase": attrgetter("config.phase"),
            "connection": attrgetter("config.connection"),
            "containerId": attrgetter("config.container_id"),
            "externalAddress": attrgetter("config.external"),
            "externalAddr": attrgetter("config.external"),
            "linkRef": attrgetter("link_ref"),
            "operStatus": attrgetter("status"),
            "lastError": attrgetter("last_error"),
            "fallback": lambda _: False,
        },
    )
