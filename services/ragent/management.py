"""Typed operations of a router's management (`$management` of Qpid Dispatch) that the agent uses."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from enmasse.control import ControlConnection, ControlError, Dispatch, Reply
from services.ragent.entities import ADDRESS_TYPES, AUTO_LINK, EXTENSIONS, LISTENER, EntityKey
from services.ragent.table import EntityOperation, columns

REQUEST_TIMEOUT = 10.0
ROUTER_NODE = "org.apache.qpid.dispatch.router.node"
ROUTER_ADDRESS = "org.apache.qpid.dispatch.router.address"
ROUTER_LINK = "org.apache.qpid.dispatch.router.link"
CONNECTION = "org.apache.qpid.dispatch.connection"


class RouterLink(NamedTuple):
    """A link of the router: its id, its connection's id, `in` or `out`, and the address with class and phase."""

    identity: str
    connection: str
    direction: str
    address: str


class RouterManagement:
    """One router's management. Every method raises ControlError if the router does not answer or its answer is
    invalid."""

    def __init__(self, connection: ControlConnection) -> None:
        self.extended: bool | None = None
        """True if the router knows `EXTENSIONS`; None until it was asked."""
        self._connection = connection
        self._node: Dispatch

    async def open(self) -> None:
        """Attach the links, also again after a failure."""
        self._node = Dispatch(self._connection, timeout=REQUEST_TIMEOUT)
        await self._node.opened()
        if self.extended is None:
            self.extended = await self._knows_extensions()

    def close(self) -> None:
        """Detach the links: a connection has few of them."""
        self._node.close()

    async def _knows_extensions(self) -> bool:
        """Return True if listeners have the attribute `management`, which Qpid Dispatch lacks."""
        reply = await self._node.request({"operation": "GET-ATTRIBUTES", "entityType": LISTENER}, {})
        found = reply.body.get(LISTENER) if isinstance(reply.body, dict) else None
        return isinstance(found, list) and "management" in found

    async def query(self, type_: str, offset: int, count: int) -> Reply:
        """Return a page of the entities of a type; a router without paging returns all."""
        properties: dict[str, Any] = {"operation": "QUERY", "entityType": type_}
        if type_ in ADDRESS_TYPES:
            properties |= {"offset": offset, "count": count}
        return await self._node.operation(properties, {"attributeNames": columns(type_, bool(self.extended))})

    async def revision(self) -> str | None:
        """Return a text that is another one after each change of the router's entities, their states, and the receivers
        of an address; None if the router does not know that."""
        if not self.extended:
            return None
        reply = await self._node.request({"operation": "GET-REVISION"}, {})
        return reply.body if isinstance(reply.body, str) and reply.properties.get("statusCode") == 200 else None

    async def share_clients(self, routers: int, clients: int) -> tuple[int, bool]:
        """State how many routers share their ports, and how many clients these have. Return how many this one has, and
        whether it leaves."""
        reply = await self._node.operation({"operation": "SHARE-CLIENTS"}, {"routers": routers, "clients": clients})
        found = reply.body if isinstance(reply.body, dict) else {}
        number = found.get("clients")
        return number if isinstance(number, int) else 0, found.get("leaving") is True

    async def query_consumers(self, offset: int, count: int) -> Reply:
        """Return a page of the addresses and their subscribers on this router."""
        properties = {"operation": "QUERY", "entityType": ROUTER_ADDRESS, "offset": offset, "count": count}
        return await self._node.operation(properties, {"attributeNames": ["key", "subscriberCount"]})

    async def neighbours(self) -> list[str]:
        """Return the ids of the routers to which this one has a connection."""
        rows = await self._node.query(ROUTER_NODE, ["id", "routerLink"])
        return [str(row["id"]) for row in rows if row.get("routerLink") is not None]

    @property
    def peer(self) -> str:
        """The router's id."""
        return self._connection.remote_container

    async def links(self) -> list[RouterLink]:
        """Return all links of the router that have an address."""
        rows = await self._node.query(ROUTER_LINK, ["identity", "connectionId", "linkDir", "owningAddr"])
        return [
            RouterLink(str(row["identity"]), str(row["connectionId"]), str(row["linkDir"]), str(row["owningAddr"]))
            for row in rows
            if row.get("owningAddr")
        ]

    async def links_of(self, auto_links: Collection[str]) -> set[str]:
        """Return the ids of the links that these auto-links report."""
        rows = await self._node.query(AUTO_LINK, ["name", "linkRef"])
        return {str(row["linkRef"]) for row in rows if row.get("linkRef") and row.get("name") in auto_links}

    async def end_connection(self, identity: str) -> None:
        """Close a connection of the router, unless it has ended already or may not be closed."""
        properties = {"operation": "UPDATE", "type": CONNECTION, "identity": identity}
        await self._node.request(properties, {"adminStatus": "deleted"})

    async def read(self, keys: Iterable[EntityKey]) -> list[tuple[EntityKey, dict[str, Any] | None]]:
        """Return each entity with its attributes; None if the router does not have it. Raises ControlError."""
        asked = [
            (key, self._node.request({"operation": "READ", "type": key[0], "name": key[1]}, {})) for key in list(keys)
        ]
        found: list[tuple[EntityKey, dict[str, Any] | None]] = []
        for key, future in asked:
            reply = await future
            status = reply.properties.get("statusCode")
            if status == 404:
                found.append((key, None))
            elif status == 200 and isinstance(reply.body, dict):
                found.append((key, reply.body))
            else:
                raise ControlError(str(status), f"READ {key[1]}: {reply.properties.get('statusDescription')}")
        return found

    async def carry_out(
        self, operations: Sequence[EntityOperation]
    ) -> tuple[list[tuple[EntityOperation, str | None]], BaseException | None]:
        """Run the operations. Return those that were answered, with the reason of a refusal, and the error of the one
        that was not."""
        under_way = [self._send(operation) for operation in operations]
        if under_way:
            await asyncio.wait(under_way)
        answered: list[tuple[EntityOperation, str | None]] = []
        lost: BaseException | None = None
        for operation, future in zip(operations, under_way, strict=True):
            error = future.exception()
            if error is not None:
                lost = lost or error
            else:
                answered.append((operation, _refusal(operation, future.result())))
        return answered, lost

    def _send(self, operation: EntityOperation) -> asyncio.Future[Reply]:
        type_, name, attributes = operation
        body = dict(attributes or {})
        if not self.extended:
            for extension in EXTENSIONS.get(type_, ()):
                body.pop(extension, None)
        verb = "DELETE" if attributes is None else "CREATE"
        return self._node.request({"operation": verb, "type": type_, "name": name}, body)


def _refusal(operation: EntityOperation, reply: Reply) -> str | None:
    status = reply.properties.get("statusCode")
    if isinstance(status, int) and (200 <= status < 300 or (status == 404 and operation.attributes is None)):
        return None
    verb = "delete" if operation.attributes is None else "create"
    what = f"{operation.type.rpartition('.')[2]} {operation.name}"
    return f"cannot {verb} {what}: {reply.properties.get('statusDescription')}"[:300]
