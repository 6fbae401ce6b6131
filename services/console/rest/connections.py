"""`connections` and their links, `events`, and traffic of an address."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from enmasse.api.types import Connection, Event, Link, Page
from enmasse.identity.owned import owner
from enmasse.logs import log
from services.console.door.access import Caller
from services.console.errors import RequestError
from services.console.following.closing import close_connection
from services.console.rest import writing
from services.console.rest.api_operations import Answer, Answered, Call, Operation, Parameter
from services.console.rest.components import Components
from services.console.rest.listing import Listing


def operations(parts: Components) -> list[Operation]:
    """Return the operations."""
    live, traffic = parts.live, parts.live.traffic

    def owns(caller: Caller, row: Connection) -> bool:
        # A process, or a user whom a broker itself knows, may have the name of one of the suite's users.
        if row.inside or not caller.owns(row.user):
            return False
        return all(row.component != broker.component for broker in live.brokers.values())

    def shown(caller: Caller, row: Connection) -> Connection | None:
        if row.inside:  # its links are those of all address spaces
            return row if parts.gate.oversees(caller) else None
        if caller.viewer or owns(caller, row):
            return row
        links = [each for each in map(traffic.links.get, traffic.addresses_of.get(row.id, ())) if views(caller, each)]
        if not links:
            return None
        # Its counters would reveal traffic of links, also of ended ones, that the caller may not view.
        return msgspec.structs.replace(row, links=len(links), mqtt=None, rates=_NO_RATES, totals=_NO_TOTALS)

    def shown_link(caller: Caller, row: Link) -> Link | None:
        return row if traffic.of_client(row) and views(caller, row) else None

    def shown_event(caller: Caller, row: Event) -> Event | None:
        return row if caller.covers("view", row.names) or caller.owns(live.events.owner(row)) else None

    connections: Listing[Connection] = Listing(
        rows=parts.connections,
        shown=shown,
        filters={
            "user": lambda row: row.user,
            "protocol": lambda row: row.protocol,
            "component": lambda row: row.component,
            "container": lambda row: row.container,
            "peer": lambda row: _host_and_port(row.peer),
            "tls": lambda row: row.tls is not None,
            "inside": lambda row: row.inside,
        },
        sorts={
            "user": lambda row: row.user,
            "container": lambda row: row.container,
            "since": lambda row: row.since,
            "in": lambda row: row.rates.in_,
            "out": lambda row: row.rates.out,
            "links": lambda row: row.links,
        },
        kinds={"tls": bool, "inside": bool},
        unless={"inside": False},
    )
    links: Listing[Link] = Listing(
        rows=parts.links,
        shown=shown_link,
        filters={
            "connection": lambda row: row.connection,
            "address": lambda row: row.address,
            "direction": lambda row: row.direction,
        },
        sorts={"address": lambda row: row.address, "unsettled": lambda row: row.unsettled},
        kinds={},
    )
    events: Listing[Event] = Listing(
        rows=parts.events,
        shown=shown_event,
        filters={
            "kind": lambda row: row.kind,
            "condition": lambda row: row.condition,
            "address": lambda row: [*row.names, row.address or ""],
            "user": lambda row: row.user,
            "client": lambda row: names_of_client(row.client),
            "peer": lambda row: _host_and_port(row.peer),
            "component": lambda row: row.component,
        },
        sorts={"time": lambda row: row.time},
        kinds={},
    )
    events_of_all = replace(
        events, rows=live.events.rows, shown=lambda caller, row: row if caller.is_operator else None
    )

    async def seen(call: Call) -> Connection:
        return await connections.one(call.caller, call.name("id"), "connection")

    async def get_connection(call: Call) -> Answer:
        call.parameters()
        return Answer(await seen(call))

    async def links_of(call: Call) -> Answer:
        given = call.parameters()
        of = await seen(call)
        found = (traffic.links.get(key) for key in sorted(traffic.addresses_of.get(of.id, {})))
        rows = [row for row in found if row is not None and (of.inside or shown_link(call.caller, row) is not None)]
        limit = given.get("limit", len(rows))
        return Answer(Page(items=rows[:limit], next=None, total=len(rows)))

    async def close(call: Call) -> Answer:
        call.parameters()
        row = await seen(call)
        if not owns(call.caller, row):
            writing.administers(call.caller)
        await close_connection(live, parts.subscribers, row, call.caller.title)
        log.audit(
            "audit.connection.closed",
            who=call.caller.title, role=call.caller.role, from_=call.host,
            what=f"connection {row.id} of {row.user} at {row.peer}",
            outcome="closed", space=call.caller.space,
        )  # fmt: skip
        return Answer(status=204)

    async def list_events(call: Call) -> Answered:
        if not call.parameters().get("allSpaces"):
            return await parts.lists.answer(events, call)
        if not call.caller.is_operator:
            text = "events of all address spaces are the operator's: leave `allSpaces` out"
            raise RequestError("console.permission.denied", text)
        return await parts.lists.answer(events_of_all, call)

    def listed(
        path: str, id: str, text: str, handler: Any, listing: Listing[Any], kind: Any, *more: Parameter
    ) -> Operation:
        return Operation(
            method="GET", path=path, id=id, tag="connections", text=text, handler=handler, answer=Page[kind],
            parameters=(*listing.parameters, *more), watched=True,
        )  # fmt: skip

    return [
        listed(
            "/connections", "listConnections", "Connections of clients, or (inside=true) of processes of the suite.",
            parts.lists.of(connections), connections, Connection,
        ),
        listed("/links", "listLinks", "Links of clients.", parts.lists.of(links), links, Link),
        listed(
            "/events", "listEvents", "Refusals and closed connections.", list_events, events, Event,
            Parameter("allSpaces", "those of all address spaces, for the operator", bool),
        ),
        Operation(
            method="GET", path="/links/{id}", id="getLink", tag="connections", text="A link.",
            handler=links.getter("link", "id"), answer=Link,
        ),
        Operation(
            method="GET", path="/events/{id}", id="getEvent", tag="connections",
            text="A refusal or closed connection.", handler=events.getter("event", "id"), answer=Event,
        ),
        Operation(
            method="GET", path="/connections/{id}", id="getConnection", tag="connections", text="A connection.",
            handler=get_connection, answer=Connection,
        ),
        Operation(
            method="GET", path="/connections/{id}/links", id="listLinksOfConnection", tag="connections",
            text="The links of a connection.", handler=links_of, answer=Page[Link],
        ),
        Operation(
            method="DELETE", path="/connections/{id}", id="closeConnection", tag="connections",
            text="Close a connection.", handler=close, status=204, errors=(422, 502),
        ),
    ]  # fmt: skip


def views(caller: Caller, link: Link | None) -> bool:
    """Return whether a caller may view everything that a link covers."""
    if link is None:
        return False
    return caller.covers("view", link.names) if link.names else caller.views(link.address)


_NOTHING = Connection(id="", component="", protocol="")
_NO_RATES, _NO_TOTALS = _NOTHING.rates, _NOTHING.totals


def names_of_client(client: str) -> tuple[str, str]:
    """Return the texts by which a filter finds a client: its name with its user, and its identifier alone."""
    return client, owner(client).client


def _host_and_port(peer: str) -> tuple[str, str]:
    """Return the texts by which a filter finds the peer: host:port, and the host."""
    return peer, peer.rpartition(":")[0].strip("[]")
