"""Entities that are their attributes, and the tables of ports: listeners, connectors, SSL profiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

from services.router.management import schema
from services.router.management.entity_bodies import auth_service, connector_config, listener_config, ssl_profile
from services.router.management.entity_tables import Getter, Table
from services.router.management.requests import Request
from services.router.management.schema import BAD_REQUEST, FORBIDDEN, INTERNAL, EntityType, ManagementError, read_body
from services.router.management.supported import (
    check_connector,
    check_listener,
    check_plugin,
    check_profile,
    check_role,
)
from services.router.network.connectors import Connector
from services.router.network.listeners import Listener, ListenError
from services.router.network.sockets import Sockets
from services.router.network.tls import ProfileError


class Entity:
    """An entity that consists of its attributes."""

    __slots__ = ("body", "identity", "name")

    def __init__(self, kind: EntityType, identifier: str, body: dict[str, Any]) -> None:
        self.body = body
        self.identity = f"{kind.short}/{identifier}"
        self.name: str = body["name"] or self.identity


def _body_getters(kind: EntityType) -> dict[str, Getter]:
    def of(name: str) -> Getter:
        return lambda entity: entity.body.get(name)

    getters = {a.name: of(a.name) for a in kind.attributes}
    for name in ("name", "identity"):
        getters[name] = attrgetter(name)
    del getters["type"]
    return getters


class UniqueNames:
    """Names and identities of all entities outside the core: each may be used once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, entity: Any) -> None:
        """Reserve name and identity. Raises ManagementError 400 if one is in use."""
        for attribute, value in (("name", entity.name), ("identity", entity.identity)):
            if value in self._taken:
                raise ManagementError(
                    BAD_REQUEST,
                    f"adding '{entity.name}' duplicates unique attribute '{attribute}' from existing '{value}'",
                )
        self._taken.update((entity.name, entity.identity))

    def free(self, entity: Any) -> None:
        """Release the name and the identity of a deleted entity."""
        self._taken.difference_update((entity.name, entity.identity))


class EntityTable(Table):
    """Entities in a dictionary by name; `identifier` makes the second part of the identity from the attributes."""

    def __init__(
        self,
        kind: EntityType,
        names: UniqueNames,
        identifier: Callable[[dict[str, Any]], str],
    ) -> None:
        super().__init__(kind, _body_getters(kind))
        self.entities: dict[str, Any] = {}
        self.fixed: set[str] = set()  # names of entities from the configuration file
        self._names = names
        self._identifier = identifier

    def rows(self) -> Iterable[Any]:
        """Return the entities."""
        return self.entities.values()

    def by_name(self, name: str) -> Any:
        """Return the entity with this name, or None."""
        return self.entities.get(name)

    def add(self, name: str | None, body: Any) -> Any:
        """Make an entity and store it. Raises ManagementError for an invalid body or a name in use."""
        entity = self.make(read_body(self.type, name, body))
        self._names.take(entity)
        self.entities[entity.name] = entity
        return entity

    def make(self, body: dict[str, Any]) -> Any:
        """Make an entity of a body. Raises ManagementError if this router does not support it."""
        return Entity(self.type, self._identifier(body), body)

    def check_delete(self, entity: Any) -> None:
        """Raise ManagementError for an entity of the configuration file."""
        if entity.name in self.fixed:
            raise ManagementError(
                FORBIDDEN,
                f"{self.type.short} '{entity.name}' stands in the router's configuration file; change it there",
            )

    def delete(self, entity: Any) -> None:
        """Remove the entity and release its name."""
        del self.entities[entity.name]
        self._names.free(entity)


def _endpoint(body: dict[str, Any]) -> str:
    """`host:port` or `host:port:name`."""
    where = f"{body['host']}:{body['port']}"
    return f"{where}:{body['name']}" if body["name"] else where


class ListenerEntity(Entity):
    """Listener entity with its port."""

    __slots__ = ("listener",)
    listener: Listener


class ListenerTable(EntityTable):
    """Table of listeners. A CREATE is answered when the port is open; a DELETE keeps the listener's connections."""

    def __init__(self, names: UniqueNames, sockets: Sockets, mode: str) -> None:
        super().__init__(schema.LISTENER, names, _endpoint)
        self._sockets = sockets
        self._mode = mode
        self.getters["operStatus"] = lambda e: "up" if e.listener.port is not None else "down"
        self.create_slowly = self._create
        self.delete_slowly = self._delete

    def make(self, body: dict[str, Any]) -> ListenerEntity:
        """Return the entity of a listener that is not open yet. Raises ManagementError for an invalid one."""
        entity = ListenerEntity(self.type, self._identifier(body), body)
        where = f"listener '{entity.name}' on {body['host'] or '*'}:{body['port']}"
        check_role(where, body, self._mode)
        try:
            profile, knows_peers = self._sockets.profile, self._sockets.knows_peers
            check_listener(self.type, where, body, profile, knows_peers=knows_peers)
            if body["saslPlugin"]:
                known = body["saslPlugin"] in self._sockets.auth_services
                check_plugin(where, body, known=known, knows_users=self._sockets.knows_users)
        except ProfileError as error:
            raise ManagementError(INTERNAL, f"{where}: {error}") from None
        entity.listener = self._sockets.new_listener(listener_config(entity.name, body))
        return entity

    async def open(self, entity: ListenerEntity) -> None:
        """Open the listener's port. Raises ManagementError 500 if that fails."""
        try:
            await self._sockets.open(entity.listener)
        except ListenError as error:
            raise ManagementError(INTERNAL, str(error)) from None

    def _create(
        self, request: Request, created: Callable[[Any], None], failed: Callable[[ManagementError], None]
    ) -> None:
        entity: ListenerEntity = self.add(request.name, request.body)

        def done(error: ListenError | None) -> None:
            if error is None:
                created(entity)
            else:
                if self.entities.get(entity.name) is entity:
                    self.delete(entity)
                failed(ManagementError(INTERNAL, str(error)))

        self._sockets.open_soon(entity.listener, done)

    def _delete(self, entity: ListenerEntity, deleted: Callable[[], None]) -> None:
        self.delete(entity)
        self._sockets.close_soon(entity.listener, deleted)


class ConnectorEntity(Entity):
    """Connector entity with the connection that it dials."""

    __slots__ = ("connector",)
    connector: Connector


class ConnectorTable(EntityTable):
    """Table of connectors. A connector dials as long as it exists; its connection is closed with it."""

    def __init__(self, names: UniqueNames, sockets: Sockets, mode: str) -> None:
        super().__init__(schema.CONNECTOR, names, _endpoint)
        self._sockets = sockets
        self._mode = mode
        self.getters["connectionStatus"] = attrgetter("connector.status")
        self.getters["connectionMsg"] = attrgetter("connector.message")
        self.getters["saslPassword"] = lambda e: None if e.body["saslPassword"] is None else "*****"

    def make(self, body: dict[str, Any]) -> ConnectorEntity:
        """Return the entity of a connector that does not dial yet. Raises ManagementError for an invalid one."""
        entity = ConnectorEntity(self.type, self._identifier(body), body)
        where = f"connector '{entity.name}' to {body['host']}:{body['port']}"
        check_role(where, body, self._mode)
        check_connector(self.type, where, body, has_credential=self._sockets.has_credential)
        return entity

    def add(self, name: str | None, body: Any) -> ConnectorEntity:
        """Add a connector; it starts to dial."""
        entity: ConnectorEntity = super().add(name, body)
        entity.connector = self._sockets.connect(connector_config(entity.name, entity.body))
        return entity

    def delete(self, entity: ConnectorEntity) -> None:
        """Remove the connector and close its connection."""
        super().delete(entity)
        self._sockets.disconnect(entity.connector)


class SslProfileTable(EntityTable):
    """Table of TLS profiles, to which listeners and connectors refer. Files are read when a port opens or a connection
    is dialled."""

    def __init__(self, names: UniqueNames, sockets: Sockets) -> None:
        super().__init__(schema.SSL_PROFILE, names, lambda body: str(body["name"]))
        self._sockets = sockets

    def make(self, body: dict[str, Any]) -> Any:
        """Return the entity of a profile. Raises ManagementError for an invalid one."""
        check_profile(body)
        return super().make(body)

    def add(self, name: str | None, body: Any) -> Entity:
        """Add a profile, to which listeners and connectors may refer."""
        entity: Entity = super().add(name, body)
        self._sockets.profiles[entity.name] = ssl_profile(entity.name, entity.body)
        return entity

    def delete(self, entity: Entity) -> None:
        """Remove the profile; ports that are open keep what they have read from it."""
        super().delete(entity)
        self._sockets.profiles.pop(entity.name, None)


class AuthServiceTable(EntityTable):
    """Table of authentication services, to which listeners refer. A deleted one can no longer be asked."""

    def __init__(self, names: UniqueNames, sockets: Sockets) -> None:
        super().__init__(schema.AUTH_SERVICE_PLUGIN, names, lambda body: str(body["name"]))
        self._sockets = sockets

    def make(self, body: dict[str, Any]) -> Any:
        """Return the entity of a service. Raises ManagementError without a name, or for an unusable profile."""
        if not body["name"]:
            raise ManagementError(BAD_REQUEST, "an authServicePlugin needs a name, to which listeners refer")
        if body["sslProfile"]:
            try:
                self._sockets.profile(body["sslProfile"])
            except ProfileError as error:
                raise ManagementError(BAD_REQUEST, f"authServicePlugin '{body['name']}': {error}") from None
        return super().make(body)

    def add(self, name: str | None, body: Any) -> Entity:
        """Add a service, to which listeners may refer."""
        entity: Entity = super().add(name, body)
        self._sockets.auth_services[entity.name] = auth_service(entity.name, entity.body)
        return entity

    def delete(self, entity: Entity) -> None:
        """Remove the service: listeners that refer to it can no longer ask it."""
        super().delete(entity)
        self._sockets.auth_services.pop(entity.name, None)
