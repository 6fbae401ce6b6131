"""Tables of what is made of sockets and files: listeners, connectors, sslProfiles, plugins, policy, vhosts, logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from enmasse import log
from services.router.management import schema
from services.router.management.schema import BAD_REQUEST, FORBIDDEN, EntityType, ManagementError, coerce, read_body
from services.router.management.supported import check_policy, check_profile
from services.router.management.tables import Getter, Table, zero
from services.router.routing.policy import Policy, Vhost

if TYPE_CHECKING:
    from services.router.management.agent import Request
    from services.router.network.connectors import Connector
    from services.router.network.listeners import Listener
    from services.router.network.sockets import Sockets


class Entity:
    """An entity that is its attributes."""

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


class Names:
    """Names and identities of all entities that are not core's: each may be used once (A.1.5)."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, entity: Any) -> None:
        """Raises ManagementError 400 when name or identity are in use."""
        for attribute, value in (("name", entity.name), ("identity", entity.identity)):
            if value in self._taken:
                raise ManagementError(
                    BAD_REQUEST,
                    f"adding '{entity.name}' duplicates unique attribute '{attribute}' from existing '{value}'",
                )
        self._taken.update((entity.name, entity.identity))

    def free(self, entity: Any) -> None:
        self._taken.difference_update((entity.name, entity.identity))


class EntityTable(Table):
    """Entities in a dictionary by name; `identifier` makes the second part of the identity from the attributes."""

    def __init__(
        self,
        kind: EntityType,
        names: Names,
        identifier: Callable[[dict[str, Any]], str],
        check: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        super().__init__(kind, _body_getters(kind))
        self._check = check
        self.entities: dict[str, Any] = {}
        self.fixed: set[str] = set()  # names of those that stand in the configuration file
        self._names = names
        self._identifier = identifier

    def rows(self) -> Iterable[Any]:
        return self.entities.values()

    def by_name(self, name: str) -> Any:
        return self.entities.get(name)

    def add(self, name: str | None, body: Any) -> Any:
        entity = self.make(read_body(self.type, name, body))
        self._names.take(entity)
        self.entities[entity.name] = entity
        return entity

    def make(self, body: dict[str, Any]) -> Any:
        """Raises ManagementError for a body that this router would not honour."""
        if self._check is not None:
            self._check(body)
        return Entity(self.type, self._identifier(body), body)

    def check_delete(self, entity: Any) -> None:
        if entity.name in self.fixed:
            raise ManagementError(
                FORBIDDEN,
                f"{self.type.short} '{entity.name}' stands in the router's configuration file; change it there",
            )

    def delete(self, entity: Any) -> None:
        del self.entities[entity.name]
        self._names.free(entity)


def _endpoint(body: dict[str, Any]) -> str:
    """`host:port` or `host:port:name`."""
    where = f"{body['host']}:{body['port']}"
    return f"{where}:{body['name']}" if body["name"] else where


class ListenerTable(EntityTable):
    """A listener is answered for once its port is open; deleting it leaves its connections."""

    def __init__(self, names: Names, sockets: Sockets) -> None:
        super().__init__(schema.LISTENER, names, _endpoint)
        self._sockets = sockets
        self.getters["operStatus"] = lambda e: "up" if e.port is not None else "down"
        self.create_slowly = self._create
        self.delete_slowly = self._delete

    def make(self, body: dict[str, Any]) -> Listener:
        return self._sockets.new_listener(super().make(body))

    def _create(
        self, request: Request, created: Callable[[Any], None], failed: Callable[[ManagementError], None]
    ) -> None:
        listener: Listener = self.add(request.name, request.body)

        def done(error: ManagementError | None) -> None:
            if error is None:
                created(listener)
            else:
                if self.entities.get(listener.name) is listener:
                    self.delete(listener)
                failed(error)

        self._sockets.open_soon(listener, done)

    def _delete(self, listener: Listener, deleted: Callable[[], None]) -> None:
        self.delete(listener)
        self._sockets.close_soon(listener, deleted)


class ConnectorTable(EntityTable):
    """A connector dials as long as it exists; its connection goes with it."""

    def __init__(self, names: Names, sockets: Sockets) -> None:
        super().__init__(schema.CONNECTOR, names, _endpoint)
        self._sockets = sockets
        self.getters["connectionStatus"] = attrgetter("status")
        self.getters["connectionMsg"] = attrgetter("message")
        self.getters["saslPassword"] = lambda e: None if e.body["saslPassword"] is None else "*****"

    def make(self, body: dict[str, Any]) -> Connector:
        return self._sockets.new_connector(super().make(body))

    def create(self, request: Request) -> Any:
        connector: Connector = super().create(request)
        connector.start()
        return connector

    def delete(self, entity: Connector) -> None:
        super().delete(entity)
        entity.stop()


class VhostTable(EntityTable):
    """Vhosts of the policy; a change counts for connections that open after it."""

    def __init__(self, names: Names, policy: Policy) -> None:
        super().__init__(schema.VHOST, names, lambda body: str(body["hostname"]))
        self._policy = policy

    def add(self, name: str | None, body: Any) -> Entity:
        entity: Entity = super().add(name, body)
        try:
            self._policy.vhosts[entity.name] = Vhost(entity.body)
        except ManagementError:
            super().delete(entity)
            raise
        return entity

    def delete(self, entity: Entity) -> None:
        super().delete(entity)
        self._policy.vhosts.pop(entity.name, None)


class VhostStatsTable(Table):
    """What each vhost has allowed and denied."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        super().__init__(
            schema.VHOST_STATS,
            {
                "name": attrgetter("hostname"),
                "identity": lambda v: f"vhostStats/{v.hostname}",
                "id": attrgetter("hostname"),
                "hostname": attrgetter("hostname"),
                "connectionsApproved": attrgetter("approved"),
                "connectionsDenied": attrgetter("denied"),
                "connectionsCurrent": lambda v: sum(map(len, policy.connections_of(v)[0].values())),
                "perUserState": lambda v: policy.connections_of(v)[0],
                "perHostState": lambda v: policy.connections_of(v)[1],
                "sessionDenied": zero,
                "senderDenied": lambda v: v.denials.senders,
                "receiverDenied": lambda v: v.denials.receivers,
                "maxMessageSizeDenied": lambda v: v.denials.sizes,
            },
        )

    def rows(self) -> Iterable[Vhost]:
        return self._policy.vhosts.values()


class NoneTable(Table):
    """A type that tools ask for, of which there is none here."""

    def rows(self) -> Iterable[Any]:
        return ()


class PolicyTable(EntityTable):
    """The one policy entity; configured by the file, shown with its counters."""

    def __init__(self, names: Names, policy: Policy) -> None:
        super().__init__(schema.POLICY, names, lambda _: "policy", check_policy)
        self._policy = policy
        self._default: Entity | None = None
        self.getters |= {
            "connectionsProcessed": lambda _: policy.processed,
            "connectionsDenied": lambda _: policy.denied,
            "connectionsCurrent": lambda _: policy.current,
            "linksDenied": lambda _: policy.links_denied,
            "maxMessageSizeDenied": lambda _: policy.size_denied,
            "totalDenials": lambda _: policy.denied + policy.links_denied + policy.size_denied,
        }

    def rows(self) -> Iterable[Any]:
        """There is always one."""
        if not self.entities and self._default is None:
            self._default = Entity(self.type, "policy", read_body(self.type, None, {}))
        return self.entities.values() or (self._default,)

    def make(self, body: dict[str, Any]) -> Entity:
        entity: Entity = super().make(body)
        self._policy.configure(body)
        return entity


_LEVELS = {
    "trace": "debug",
    "debug": "debug",
    "info": "info",
    "notice": "info",
    "warning": "warning",
    "error": "error",
    "critical": "error",
    "none": "error",
}
"""Dispatch's levels as this router's."""


class LogTable(EntityTable):
    """Log settings of Dispatch's modules. That of DEFAULT is this router's: `enable` sets its level; others are kept
    and shown."""

    def __init__(self, names: Names) -> None:
        super().__init__(schema.LOG, names, lambda body: str(body["module"]))
        super().add(None, {"module": "DEFAULT", "enable": f"{log.level()}+", "outputFile": "stderr"})

    def add(self, name: str | None, body: Any) -> Entity:
        """Modules have one entity each, which is there: what the file says changes it."""
        wanted = read_body(self.type, name, body)
        present = next((e for e in self.entities.values() if e.body["module"] == wanted["module"]), None)
        entity: Entity = super().add(name, body) if present is None else present
        self._set(entity, {key: value for key, value in wanted.items() if value is not None and key != "name"})
        return entity

    def _set(self, entity: Entity, changed: dict[str, Any]) -> None:
        enable = changed.get("enable")
        if enable is not None and enable != "default":
            words = [word.strip().rstrip("+") for word in str(enable).split(",")]
            unknown = next((word for word in words if word not in _LEVELS), None)
            if unknown is not None:
                raise ManagementError(
                    BAD_REQUEST, f"log '{entity.name}': enable: '{unknown}' is none of {', '.join(_LEVELS)}"
                )
            if entity.body["module"] == "DEFAULT":
                log.set_level(min((_LEVELS[word] for word in words), key=("debug", "info", "warning", "error").index))
        entity.body.update(changed)

    def update(self, request: Request, entity: Entity) -> dict[str, Any]:
        body = request.body if isinstance(request.body, dict) else {}
        attributes = {a.name: a for a in self.type.attributes}
        changed: dict[str, Any] = {}
        for key, value in body.items():
            attribute = attributes.get(str(key))
            if attribute is None:
                raise ManagementError(BAD_REQUEST, f"Unknown attribute '{key}' for '{self.type.name}'")
            if not attribute.update:
                if self.getters[attribute.name](entity) != value:
                    raise ManagementError(BAD_REQUEST, f"Cannot update attribute '{key}' in UPDATE")
                continue
            changed[attribute.name] = coerce(attribute, value)
        self._set(entity, changed)
        return self.show(entity)


def stats_tables(policy: Policy) -> list[Table]:
    """Tables that nobody configures."""
    return [VhostStatsTable(policy), NoneTable(schema.VHOST_GROUP_TYPE, {}), NoneTable(schema.ALLOCATOR, {})]


def static_tables(sockets: Sockets, policy: Policy) -> list[EntityTable]:
    """In the order in which a configuration must be read: what others refer to comes first."""
    names = Names()
    profiles = EntityTable(schema.SSL_PROFILE, names, lambda body: str(body["name"]), check_profile)
    sockets.ssl_profiles = profiles.entities
    return [
        PolicyTable(names, policy),
        VhostTable(names, policy),
        LogTable(names),
        profiles,
        EntityTable(schema.AUTH_SERVICE_PLUGIN, names, lambda body: str(body["name"])),
        ListenerTable(names, sockets),
        ConnectorTable(names, sockets),
    ]
