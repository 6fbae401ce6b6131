"""The management node `$management`: takes requests, finds the table, answers every request that has a reply-to.

The protocol is AMQP management as Qpid Dispatch speaks it: operation, type, name and identity in the application
properties, attributes in the body, status in the application properties of the reply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from enmasse.amqp.codec.encoder import encode, encode_string
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.types import Int
from enmasse.amqp.messages.message import Message
from enmasse.amqp.messages.sections import encode_properties
from enmasse.logs import log
from enmasse.text import whole_number
from services.router.management import node_operations
from services.router.management.entity_tables import Table
from services.router.management.requests import Request
from services.router.management.schema import (
    BAD_REQUEST,
    CONNECTOR,
    CREATED,
    INTERNAL,
    LISTENER,
    MANAGEMENT,
    NO_CONTENT,
    NODE,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    OK,
    ROUTER,
    STATUS_TEXT,
    EntityType,
    ManagementError,
    find_type,
)
from services.router.routing.connection import RouterConnection
from services.router.routing.peers import PeerRights
from services.router.routing.router import Router

_log = log.get()
ROWS_PER_TURN = 200
"""Rows of a QUERY that are built in one turn of the loop."""
MAX_TEXT = 1000
"""Characters of a field of an audit event."""
CHANGES = ("CREATE", "UPDATE", "DELETE")
MAX_NAMES = 250
"""Attribute names in one QUERY."""
_STATES = ("operStatus", "connectionStatus", "connectionMsg")
"""Attributes that show whether a port works."""
_VALUE = b"\x00\x53\x77"
"""Descriptor of an amqp-value section."""
_NO_MAP = _VALUE + b"\xc1\x01\x00"
_NULL_BODY = _VALUE + b"\x40"


class ManagementAgent:
    """Answers management requests from the tables."""

    def __init__(self, router: Router, tables: Sequence[Table]) -> None:
        self.router = router
        self.tables = {table.type.name: table for table in tables}
        self.share_clients: Callable[[int, int], dict[str, object]] | None = None
        """Takes the number of routers on the ports and of their clients from the agent."""
        for key in ("M0$management", "L$management"):
            router.addresses.subscribe(key, self.take)

    def take(self, asking: RouterConnection | None, payload: bytes) -> None:
        """Handle a message to `$management`."""
        try:
            request = Request(asking, bytes(payload))
        except (AmqpError, ValueError, RecursionError) as error:
            _log.info("router.management-request.unreadable", reason=str(error))
            return
        if request.reply_to is None:
            return
        try:
            self._answer(request)
        except ManagementError as error:
            self._refuse(request, error)
        except Exception as error:
            _log.exception("router.management-request.failed", operation=request.operation, type=request.type)
            self._refuse(request, ManagementError(INTERNAL, f"{type(error).__name__}: {error}"))

    def _answer(self, request: Request) -> None:
        operation = request.operation
        if operation is None:
            raise ManagementError(BAD_REQUEST, "No 'operation' property")
        if operation in CHANGES:
            self.router.changes += 1
        if operation == "QUERY":
            self._query(request)
        elif operation == "CREATE":
            table = self._table(request)

            def created(entity: Any) -> None:
                self.send(request, CREATED, _VALUE + table.encode(entity))

            self._allowed(table, operation)
            if table.create_slowly is not None:
                table.create_slowly(request, created, lambda error: self._refuse(request, error))
            else:
                created(table.create(request))
        elif operation in ("READ", "UPDATE", "DELETE"):
            self._on_entity(request, operation)
        elif operation == "GET-REVISION":
            self._reply(request, OK, self._revision())
        elif operation == "SHARE-CLIENTS" and self.share_clients is not None and _is_of_process(request):
            sums = request.body if isinstance(request.body, dict) else {}
            routers, clients = _number(sums.get("routers"), 0), _number(sums.get("clients"), 0)
            self._reply(request, OK, self.share_clients(routers, clients))
        else:
            self._on_node(request, operation)

    def _on_entity(self, request: Request, operation: str) -> None:
        """Handle READ, UPDATE and DELETE of one entity."""
        of_node = request.type in (None, MANAGEMENT, "management")
        if of_node and request.identity in (None, "self") and request.name in (None, "self"):
            if operation != "READ":
                raise ManagementError(NOT_IMPLEMENTED, f"Operation '{operation}' not implemented for '{MANAGEMENT}'")
            self._reply(request, OK, {"name": "self", "identity": "self", "type": MANAGEMENT})
            return
        table: Table
        if of_node:
            table, entity = self._find_anywhere(request)
        else:
            table = self._table(request)
            self._allowed(table, operation)
            entity = table.find(request)
        if operation == "READ":
            self.send(request, OK, _VALUE + table.encode(entity))
        elif operation == "UPDATE":
            self._allowed(table, operation)
            self._reply(request, OK, table.update(request, entity))
        else:
            self._allowed(table, operation)
            table.check_delete(entity)

            def deleted() -> None:
                self.send(request, NO_CONTENT, _NO_MAP)

            if table.delete_slowly is not None:
                table.delete_slowly(entity, deleted)
            else:
                table.delete(entity)
                deleted()

    def _find_anywhere(self, request: Request) -> tuple[Table, Any]:
        """Return the table and the entity of a name or identity, of any type."""
        if request.name is None and request.identity is None:
            raise ManagementError(BAD_REQUEST, "No name or identity provided")
        for table in self.tables.values():
            try:
                return table, table.find(request)
            except ManagementError:
                continue
        which = f"name={request.name}" if request.name is not None else f"identity={request.identity}"
        raise ManagementError(NOT_FOUND, f"No entity with {which}")

    def _table(self, request: Request) -> Table:
        if request.type is None:
            raise ManagementError(BAD_REQUEST, "No 'type' attribute in the request")
        kind = find_type(request.type)
        table = None if kind is None else self.tables.get(kind.name)
        if table is None:
            raise ManagementError(BAD_REQUEST, f"No such entity type '{request.type}'")
        return table

    def _allowed(self, table: Table, operation: str) -> None:
        if operation not in table.type.operations:
            if table.type.short in ("router", "connection"):
                raise ManagementError(403)
            raise ManagementError(NOT_IMPLEMENTED, f"Operation '{operation}' not implemented for '{table.type.name}'")

    # QUERY

    def _query(self, request: Request) -> None:
        wanted = request.body.get("attributeNames") if isinstance(request.body, dict) else None
        if wanted is not None and not isinstance(wanted, list | tuple):
            raise ManagementError(BAD_REQUEST, "'attributeNames' must be a list")
        names = [str(name) for name in wanted or ()]
        if len(names) > MAX_NAMES:
            raise ManagementError(BAD_REQUEST, f"more than {MAX_NAMES} attribute names")
        if request.values.get("entityType") is None and request.type in (None, MANAGEMENT, "management"):
            self._query_all(request, names)
            return
        table = self._table(request)
        names = names or table.type.columns
        unknown = [name for name in names if name not in table.getters]
        if unknown and not table.type.core:
            raise ManagementError(NOT_FOUND, f"Unknown attributes {unknown} for type {table.type.name}.")
        getters = [table.getter(name) for name in names]
        rows = list(table.rows())
        if table.type.core:
            offset = _number(request.values.get("offset"), 0)
            rows = rows[offset : offset + _number(request.values.get("count"), len(rows))]
        _Query(self, request, names, getters, rows).go_on()

    def _query_all(self, request: Request, names: list[str]) -> None:
        """Answer a QUERY without a type: the router and all entities outside the core, with the union of their
        attributes."""
        tables = [t for t in self.tables.values() if not t.type.core or t.type is ROUTER]
        if not names:
            names = list(dict.fromkeys(name for table in tables for name in table.type.columns))
        encoded: list[bytes] = []
        for table in tables:
            for entity in table.rows():
                row = [table.getter(name)(entity) for name in names]
                if any(value is not None for value in row):
                    encoded.append(encode(row))
        self.send(request, OK, _query_body(names, encoded))

    # Operations of the node itself

    def _on_node(self, request: Request, operation: str) -> None:
        kinds = [table.type for table in self.tables.values()]
        only = request.values.get("entityType")
        if only is not None:
            kind = find_type(str(only))
            if kind is None:
                raise ManagementError(BAD_REQUEST, f"No such entity type '{only}'")
            kinds = [kind]
        body = node_operations.operate(operation, kinds, (self.router.id, *self.router.network.engine.topology.costs))
        if body is node_operations.UNKNOWN:
            raise ManagementError(
                NOT_IMPLEMENTED, f"Operation '{request.values.get('operation')}' not implemented for '{MANAGEMENT}'"
            )
        self._reply(request, OK, body)

    def _revision(self) -> str:
        """Return a text that is another one whenever a QUERY may show another set of entities, another state of one, or
        other neighbours. Counters of messages do not count."""
        tables = [self.tables[kind.name] for kind in (LISTENER, CONNECTOR) if kind.name in self.tables]
        states = [[table.getter(name)(row) for name in _STATES] for table in tables for row in table.rows()]
        # A neighbour shows when a path leads to it, which is looked for a moment after its HELLO.
        links = sorted((row.id, row.link) for row in self.tables[NODE.name].rows())  # none comes twice
        return f"{self.router.changes}:{hash(str((states, links)))}"

    # Replies

    def _refuse(self, request: Request, error: ManagementError) -> None:
        kind: EntityType | None = find_type(request.type) if request.type else None
        self.send(request, error.status, _NULL_BODY if kind is not None and kind.core else _NO_MAP, error.description)

    def _reply(self, request: Request, status: int, body: Any) -> None:
        self.send(request, status, _VALUE + encode(body))

    def send(self, request: Request, status: int, body: bytes, description: str | None = None) -> None:
        """Send a reply to the request, which has a reply-to; logged and dropped if no receiver takes it."""
        assert request.reply_to is not None
        _audit(request, status)
        front = _fronts.get((status, description))
        if front is None:
            front = Message(
                None,
                application_properties={
                    "statusCode": Int(status),
                    "statusDescription": description if description is not None else STATUS_TEXT[status],
                },
            ).encode()[:-4]
            if description is None:
                _fronts[status, description] = front
        values = (None, None, request.reply_to, None, None, request.correlation_id)
        properties = encode_properties(values + (None,) * 7)
        if not self.router.deliver(request.reply_to, properties + front + body):
            _log.debug("router.reply.dropped", reply_to=request.reply_to)


_fronts: dict[tuple[int, str | None], bytes] = {}


def _audit(request: Request, status: int) -> None:
    """Log a change, unless the router agent orders it, which it does over a connection of the router's.

    Without values of attributes, and without the description of an error, which may quote one: they may be secrets.
    """
    asking = request.asking
    if request.operation not in CHANGES or (
        asking is not None and asking.dir == "out" and asking.role != "inter-router"
    ):
        return
    body = request.body if isinstance(request.body, dict) else {}
    words = [request.operation.lower(), (request.type or "").rpartition(".")[2], request.name or request.identity or ""]
    if body.get("adminStatus") == "deleted":
        words[0] = "close"
    elif request.operation == "UPDATE":
        words.append(",".join(sorted(map(str, body))))  # no values: they may be secrets
    log.audit(
        "audit.router.ordered",
        who=None if asking is None else asking.amqp.user or asking.container,
        role=asking.rights.role if asking is not None and isinstance(asking.rights, PeerRights) else None,
        from_=None if asking is None else asking.host,
        what=" ".join(filter(None, words))[:MAX_TEXT],
        outcome="done" if status < BAD_REQUEST else f"{status} {STATUS_TEXT.get(status, '')}".rstrip(),
    )


def _is_of_process(request: Request) -> bool:
    return request.asking is not None and (request.asking.of_process or not request.asking.is_client)


def _number(value: Any, default: int) -> int:
    """`count` and `offset` may be integers or digits."""
    if isinstance(value, str):
        value = whole_number(value)
    return int(value) if isinstance(value, int) and value >= 0 else default


def _query_body(names: list[str], rows: list[bytes]) -> bytes:
    """Return the amqp-value with attributeNames and results, from encoded rows."""
    results = b"".join(rows)
    results = b"\xd0" + (len(results) + 4).to_bytes(4, "big") + len(rows).to_bytes(4, "big") + results
    content = encode_string("attributeNames") + encode(names) + encode_string("results") + results
    return _VALUE + b"\xd1" + (len(content) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x04" + content


class _Query:
    """A QUERY under way: its rows are built a slice at a time, so that ten thousand of them delay no message."""

    __slots__ = ("agent", "at", "encoded", "getters", "names", "request", "rows")

    def __init__(
        self,
        agent: ManagementAgent,
        request: Request,
        names: list[str],
        getters: list[Callable[[Any], Any]],
        rows: list[Any],
    ) -> None:
        self.agent = agent
        self.request = request
        self.names = names
        self.getters = getters
        self.rows = rows
        self.at = 0
        self.encoded: list[bytes] = []

    def go_on(self) -> None:
        getters = self.getters
        end = self.at + ROWS_PER_TURN
        self.encoded += [encode([get(entity) for get in getters]) for entity in self.rows[self.at : end]]
        self.at = end
        if end < len(self.rows):
            self.agent.router.clock.call_soon(self.go_on)
        else:
            self.agent.send(self.request, OK, _query_body(self.names, self.encoded))
