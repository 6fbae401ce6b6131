"""Our entities on one router, as last read, and their difference from the desired ones. No sockets, no clocks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from enmasse.model.names import AddressName
from services.ragent.entities import (
    ACTIVE,
    ADDRESS,
    ADDRESS_TYPES,
    ALL_TYPES,
    AUTO_LINK,
    COMPARED,
    CONNECTOR,
    EXTENSIONS,
    INTER_ROUTER,
    LINK_ROUTE,
    LISTENER,
    PREFIX,
    ROUTER,
    SCRAM,
    SSL_PROFILE,
    STATUS,
    Entity,
    EntityKey,
    EntityName,
    RouterWork,
    connector_name,
    link_prefixes,
    names_of_address,
    owner,
    subject_of,
)
from services.ragent.mesh import Endpoint

PRESENT = "present"
"""Status of an entity that is as desired, for types without a status attribute."""
DIFFERENT = "different"
"""Status of an entity whose attributes differ from the desired ones."""

OUTDATED = "outdated"
"""Status of an entity whose desired state has changed; it has to be compared again."""
CREATED = "created"
"""Status of an entity that the router has created (201) and that was not verified yet."""
WORKING = frozenset({PRESENT, ACTIVE, "success", "up"})

Expected = Callable[[str, str], Entity | None]

_CREATE_ORDER = {type_: number for number, type_ in enumerate(ALL_TYPES)}
_DELETE_ORDER = {LISTENER: 0, SSL_PROFILE: 1, AUTO_LINK: 2, LINK_ROUTE: 3, ADDRESS: 4, CONNECTOR: 5}


class EntityOperation(NamedTuple):
    """CREATE (with attributes) or DELETE (without) of one entity."""

    type: str
    name: str
    attributes: Mapping[str, Any] | None


class OwnEntities:
    """Entities with our prefix on one router: type → name → status (`active`, `inactive`, `present` …)."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, str]] = {type_: {} for type_ in ALL_TYPES}
        self.errors: dict[str, str] = {}
        """Entity name → why it does not work or could not be created, in the router's words."""
        self.waiting: set[EntityKey] = set()
        """Existing entities that have not been seen to work yet."""
        self.version = dict.fromkeys(ALL_TYPES, 0)
        """Type → number of changes so far."""
        self.foreign: dict[str, dict[str, str]] = {type_: {} for type_ in ALL_TYPES}
        """Entities made by others: type → name → their target."""
        self._of: dict[AddressName, tuple[EntityKey, ...]] = {}

    def status(self, key: EntityKey) -> str | None:
        """Return the status of an entity; None if the router does not have it."""
        return self.rows[key[0]].get(key[1])

    def of(self, subject: AddressName) -> tuple[EntityKey, ...]:
        """Return the existing entities of an address; of ROUTER: connectors and listeners."""
        return self._of.get(subject, ())

    def set(self, key: EntityKey, status: str, error: str | None = None) -> bool:
        """Record the status that was read. Return True if it changed."""
        type_, name = key
        rows = self.rows[type_]
        news = rows.get(name) != status
        self.version[type_] += news
        if name not in rows:
            subject = subject_of(key)
            self._of[subject] = (*self._of.get(subject, ()), key)
        rows[name] = sys.intern(status)
        if error and status not in WORKING:
            self.errors[name] = error[:200]
        elif self.errors:
            self.errors.pop(name, None)
        if status in WORKING or status == DIFFERENT:
            self.waiting.discard(key)
        else:
            self.waiting.add(key)
        return news

    def drop(self, key: EntityKey) -> bool:
        """Record that the entity does not exist. Return True if that is a change."""
        self.waiting.discard(key)
        self.errors.pop(key[1], None)
        news = self.rows[key[0]].pop(key[1], None) is not None
        if news:
            subject = subject_of(key)
            if left := tuple(other for other in self._of[subject] if other != key):
                self._of[subject] = left
            else:
                del self._of[subject]
        self.version[key[0]] += news
        return news

    def problem(self, name: AddressName, work: RouterWork, active: Collection[str]) -> str:
        """Return what prevents an address from working, as last read; empty if nothing does. `active`: brokers that are
        to carry it."""
        for key in names_of_address(name, work):
            type_, status = key[0], self.status(key)
            if type_ not in (AUTO_LINK, LINK_ROUTE):
                if status != PRESENT:
                    return f"the address entity is {status or 'missing'}"
                continue
            link = owner(key[1])
            assert link is not None
            if link.broker in active and (text := self._link_problem(key, link.broker)):
                return text
        return ""

    def _link_problem(self, key: EntityKey, broker: str) -> str:
        status, connector = self.status(key), connector_name(broker)
        connected = self.status((CONNECTOR, connector))
        if connected == OUTDATED:
            return f"broker {broker} moved or was started again; the connection to it is looked at"
        if status == ACTIVE:
            return "" if connected in WORKING else f"the connection to broker {broker} is {connected or 'missing'}"
        what = f"the {'auto-link' if key[0] == AUTO_LINK else 'link route'} {key[1]}"
        why = self.errors.get(key[1]) or self.errors.get(connector) or ""
        return f"{what} is {status or 'missing'}{f': {why}' if why else ''}"

    def forget_links(self, connector: EntityName | None) -> list[EntityKey]:
        """Mark the links over this connector to be read again before they count as active. Return these links."""
        prefixes = link_prefixes(connector.broker) if connector is not None and connector.broker else ()
        keys = [
            (type_, name) for type_ in (AUTO_LINK, LINK_ROUTE) for name in self.rows[type_] if name.startswith(prefixes)
        ]
        for key in keys:
            if self.status(key) == ACTIVE:
                self.set(key, CREATED)
        return keys

    def read(self, type_: str, row: Mapping[str, Any], entity: Entity) -> bool:
        """Record an entity as read, compared with the desired one. Return True if that is a change."""
        status = row.get(STATUS[type_]) if type_ in STATUS else None
        if type_ in ADDRESS_TYPES and subject_of((type_, entity.name)) == ROUTER:
            # the presence of the service or broker is reported elsewhere; readiness does not wait for it
            status = PRESENT
        if not same(row, entity):
            status = DIFFERENT
        error = row.get("lastError") or row.get("connectionMsg")
        return self.set((type_, entity.name), str(status or PRESENT).lower(), str(error) if error else None)


def same(row: Mapping[str, Any], entity: Entity) -> bool:
    """Return True if the router reports the desired attributes."""
    compared = COMPARED[entity.type]
    wanted = entity.attributes
    if row.get("management") is True and wanted.get("management") is False:
        return False
    return all(_plain(key, row.get(key)) == _plain(key, wanted.get(key)) for key in compared)


def _plain(key: str, value: Any) -> Any:
    """Normalise a value for comparison. Dispatch reports names without slashes at their ends, which routers ignore."""
    return value.strip("/") if key in ("pattern", "prefix", "address") and value else value or None


def _leads_to(type_: str, row: Mapping[str, Any]) -> str:
    """Return the target of a foreign entity, for users: `host:port`, or an address."""
    if type_ in (CONNECTOR, LISTENER):
        return f"{row.get('host') or '*'}:{row.get('port')}"
    return str(row.get("address") or row.get("prefix") or row.get("pattern") or "")


def _endpoint(row: Mapping[str, Any]) -> Endpoint:
    scram = row.get("access") is not None and str(row.get("saslMechanisms") or "") == SCRAM
    return Endpoint(str(row.get("host") or ""), str(row.get("port")), str(row.get("sslProfile") or ""), scram)


def columns(type_: str, extended: bool = False) -> list[str]:
    """Return the attributes to request in a QUERY. `extended`: the router knows EXTENSIONS."""
    more = [STATUS[type_]] if type_ in STATUS else []
    if type_ in EXTENSIONS:
        more = [name for name in more if name not in EXTENSIONS[type_]] + (list(EXTENSIONS[type_]) if extended else [])
    if type_ == AUTO_LINK:
        more.append("lastError")
    if type_ == CONNECTOR:
        more.append("connectionMsg")
    if type_ == LISTENER:
        more.append("saslMechanisms")
    return ["name", *COMPARED[type_], *more]


def difference(table: OwnEntities, wanted: Iterable[Entity], unwanted: Iterable[EntityKey]) -> list[EntityOperation]:
    """Return the operations that create `wanted` and delete `unwanted`, in an order that can be pipelined: deletions
    first, except for link routes of an address that others replace. So an address is never without a route meanwhile.
    """
    deletes: list[EntityOperation] = []
    wanted = list(wanted)
    replaced = {subject_of((entity.type, entity.name)) for entity in wanted if entity.type == LINK_ROUTE} - {ROUTER}
    creates: list[EntityOperation] = []
    for entity in wanted:
        status = table.status((entity.type, entity.name))
        if status == DIFFERENT:
            deletes.append(EntityOperation(entity.type, entity.name, None))
        if status is None or status == DIFFERENT:
            creates.append(EntityOperation(entity.type, entity.name, entity.attributes))
    old: list[EntityOperation] = []
    for key in unwanted:
        if table.status(key) is not None:
            later = key[0] == LINK_ROUTE and subject_of(key) in replaced
            (old if later else deletes).append(EntityOperation(*key, None))
    deletes.sort(key=lambda operation: _DELETE_ORDER[operation.type])
    creates.sort(key=lambda operation: _CREATE_ORDER[operation.type])
    return deletes + creates + old


class Scan:
    """Scan of all entities of one type, in pages. Afterwards `missing` are the known ones that were not seen.

    Rows move up when others are deleted between two pages, so a missing entity may exist: read it by name. Entities
    that were created or deleted during the scan (`touch`) are left out: the scan may have seen either state.
    """

    def __init__(self, table: OwnEntities, type_: str, expected: Expected) -> None:
        self.table = table
        self.type = type_
        self.offset = 0
        self.changed: set[str] = set()
        """Names whose status changed."""
        self.unwanted: list[EntityKey] = []
        """Entities with our prefix that are not desired."""
        self.different: list[str] = []
        self.pages: list[tuple[int, int]] = []
        """Digest and number of rows of each page, recorded by the reader of the pages."""
        self.foreign: dict[str, str] = {}
        """Entities made by others: name → target."""
        self.inter_router: dict[str, Endpoint] = {}
        """Name → endpoint of the listeners for other routers, which the agent never creates."""
        self._expected = expected
        self._seen: set[str] = set()
        self._touched: set[str] = set()

    def touch(self, name: str) -> None:
        """Note an entity that was created or deleted while the scan runs; the result leaves it out."""
        self._touched.add(name)

    def page(self, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
        """Take the results of one QUERY. Return the number of its rows."""
        count = 0
        at = names.index("name")
        for row in rows:
            count += 1
            name = row[at]
            if not isinstance(name, str):
                continue
            if not name.startswith(PREFIX):
                attributes = dict(zip(names, row, strict=False))
                self.foreign[name] = _leads_to(self.type, attributes)
                if self.type == LISTENER and attributes.get("role") == INTER_ROUTER:
                    self.inter_router[name] = _endpoint(attributes)
                continue
            self._seen.add(name)
            if name in self._touched:
                continue
            entity = self._expected(self.type, name)
            if entity is None:
                self.unwanted.append((self.type, name))
                if self.table.set((self.type, name), PRESENT):
                    self.changed.add(name)
            elif self.table.read(self.type, dict(zip(names, row, strict=False)), entity):
                self.changed.add(name)
            if self.table.rows[self.type].get(name) == DIFFERENT:
                self.different.append(name)
        self.offset += count
        return count

    @property
    def quiet(self) -> bool:
        """Return True if everything read was known and as desired, and nothing was created or deleted meanwhile."""
        return not (self.changed or self.unwanted or self.different or self._touched)

    def missing(self) -> list[str]:
        """Return the names that were known before, and neither seen nor touched."""
        return [n for n in self.table.rows[self.type] if n not in self._seen and n not in self._touched]
