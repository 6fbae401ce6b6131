"""`brokers` and `routers`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from enmasse.api.types import Broker, Neighbour, Page, Rates, Route, Router
from enmasse.live_state import INTER_ROUTER, Row
from services.console.errors import unknown
from services.console.following.followed_process import Node
from services.console.following.polled import Polled
from services.console.following.traffic import added, is_inside
from services.console.rest.api_operations import Answer, Call, Operation
from services.console.rest.components import Components
from services.console.rest.listing import Listing


def operations(parts: Components) -> list[Operation]:
    """Return the operations."""
    configuration, live = parts.configuration, parts.live

    def broker(name: str) -> Broker | None:
        endpoint = configuration.brokers.get(name)
        if endpoint is None:
            return None
        node = live.brokers.get(name)
        known = node is not None and node.connection is not None
        rates, totals = live.traffic.of_component(name if node is None else node.component)
        about = {} if node is None else node.about
        return Broker(
            name=name,
            host=endpoint.host,
            port=endpoint.port,
            by_hand=endpoint.by_hand,
            connected=known,
            addresses=configuration.placed(name),
            version=str(about.get("version") or ""),
            connections=None if node is None else node.connections,
            messages=None if node is None else node.messages,
            size=about.get("size"),
            capacity=about.get("capacity"),
            disk_used=about.get("diskUsed"),
            disk_free=about.get("diskFree"),
            sync=node.sync if node is not None and known else None,
            message_memory=about.get("messageMemory"),
            memory=about.get("memory"),
            busy=node.busy if node is not None and known else None,
            rates=rates,
            totals=totals,
        )

    async def brokers() -> dict[str, Broker]:
        await live.first_state()
        found = {name: broker(name) for name in configuration.brokers}
        return {name: row for name, row in found.items() if row is not None}

    def neighbours(node: Node) -> list[Neighbour]:
        at = {(endpoint.host, str(endpoint.port)): name for name, endpoint in configuration.brokers.items()}
        found: dict[tuple[str, Literal["broker", "router"]], list[Rates]] = {}
        for row, rates in live.traffic.peers(node.component):
            host, _, port = str(row.get("peer")).rpartition(":")
            if row.get("kind") == INTER_ROUTER:
                found.setdefault((str(row.get("container")), "router"), []).append(rates)
            elif (host.strip("[]"), port) in at:
                found.setdefault((at[host.strip("[]"), port], "broker"), []).append(rates)
        return [
            Neighbour(name=name, kind=kind, rates=added(Rates, rates) if node.asked else None)
            for (name, kind), rates in sorted(found.items())
        ]

    def routes(node: Node) -> list[Route]:
        known = {each.component: each.merged.kinds.get("routers", {}) for each in live.routers}
        return [
            Route(name=name, cost=row.get("cost"), next=str(row["next"]), path=path(known, node.component, name))
            for name, row in sorted(known.get(node.component, {}).items())
        ]

    def router(node: Node) -> Router:
        rows = node.merged.kinds.get("connections", {}).values()
        inside = [row for row in rows if is_inside("router", row)]
        rates, totals = live.traffic.of_component(node.component)
        return Router(
            name=node.component,
            connected=node.connection is not None,
            version=str(node.about.get("version") or ""),
            memory=node.about.get("memory"),
            busy=node.busy if node.connection is not None else None,
            peers=sorted({str(row.get("container")) for row in inside}),
            neighbours=neighbours(node),
            routes=routes(node),
            connections=len(rows) - len(inside),
            links=len(node.merged.kinds.get("links", {})),
            rates=rates,
            totals=totals,
        )

    async def routers() -> dict[str, Router]:
        await live.first_state()
        return {node.component: router(node) for node in live.routers}

    of_brokers: Listing[Broker] = Listing(
        rows=Polled(brokers),
        shown=lambda caller, row: row if parts.gate.oversees(caller) else None,
        filters={"name": lambda row: row.name, "connected": lambda row: row.connected},
        sorts={
            "messages": lambda row: row.messages,
            "size": lambda row: row.size,
            "diskFree": lambda row: row.disk_free,
            "memory": lambda row: row.memory,
            "busy": lambda row: row.busy,
        },
        kinds={"connected": bool},
    )
    of_routers: Listing[Router] = Listing(
        rows=Polled(routers),
        shown=lambda caller, row: row if parts.gate.oversees(caller) else None,
        filters={"name": lambda row: row.name},
        sorts={"memory": lambda row: row.memory, "busy": lambda row: row.busy},
        kinds={},
    )

    async def get_broker(call: Call) -> Answer:
        call.parameters()
        await live.first_state()
        found = broker(call.name()) if parts.gate.oversees(call.caller) else None
        if found is None:
            raise unknown(f"broker {call.name()[:200]!r}")
        return Answer(found)

    return [
        Operation(
            method="GET", path="/brokers", id="listBrokers", text="The brokers, and the addresses on each.",
            handler=parts.lists.of(of_brokers), answer=Page[Broker], parameters=of_brokers.parameters, watched=True,
        ),
        Operation(
            method="GET", path="/brokers/{name}", id="getBroker", text="A broker.", handler=get_broker, answer=Broker,
        ),
        Operation(
            method="GET", path="/routers", id="listRouters", text="The routers, and the processes at each.",
            handler=parts.lists.of(of_routers), answer=Page[Router], parameters=of_routers.parameters, watched=True,
        ),
        Operation(
            method="GET", path="/routers/{name}", id="getRouter", text="A router.",
            handler=of_routers.getter("router"), answer=Router,
        ),
    ]  # fmt: skip


def path(routes: Mapping[str, Mapping[str, Row]], begin: str, end: str) -> list[str]:
    """Return the routers after `begin` on the way to `end`, from the routes of each; empty if one does not know it, or
    while they do not agree."""
    found: list[str] = []
    at = begin
    while at != end:
        row = routes.get(at, {}).get(end)
        if row is None or len(found) > len(routes):
            return []
        at = str(row["next"])
        found.append(at)
    return found
