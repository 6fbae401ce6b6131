"""`brokers` and `routers`."""

from __future__ import annotations

from enmasse.api.types import Broker, Page, Router
from services.console.errors import unknown
from services.console.operations import Answer, Call, Operation
from services.console.parts import Parts


def operations(parts: Parts) -> list[Operation]:
    """Return the operations."""
    configuration, live = parts.configuration, parts.live

    def broker(name: str) -> Broker | None:
        endpoint = configuration.brokers.get(name)
        if endpoint is None:
            return None
        node = live.brokers.get(name)
        queues = {} if node is None else node.merged.kinds.get("queues", {})
        known = node is not None and node.connection is not None
        return Broker(
            name=name,
            host=endpoint.host,
            port=endpoint.port,
            by_hand=endpoint.by_hand,
            connected=known,
            addresses=configuration.placed(name),
            messages=sum(int(row.get("messages") or 0) for row in queues.values()) if known and queues else None,
        )

    def routers() -> list[Router]:
        node = live.router
        if not node.component:
            return []
        rows = node.merged.kinds.get("connections", {}).values()
        peers = sorted({str(row.get("container")) for row in rows if row.get("role") or row.get("dir") == "out"})
        return [
            Router(
                name=node.component,
                connected=node.connection is not None,
                peers=peers,
                connections=sum(1 for row in rows if not row.get("role") and row.get("dir") != "out"),
                links=len(node.merged.kinds.get("links", {})),
            )
        ]

    async def list_brokers(call: Call) -> Answer:
        call.parameters()
        found = [broker(name) for name in sorted(configuration.brokers)] if call.caller.viewer else []
        rows = [row for row in found if row is not None]
        return Answer(Page(items=rows, total=len(rows)))

    async def get_broker(call: Call) -> Answer:
        call.parameters()
        found = broker(call.name()) if call.caller.viewer else None
        if found is None:
            raise unknown(f"broker {call.name()[:200]!r}")
        return Answer(found)

    async def list_routers(call: Call) -> Answer:
        call.parameters()
        rows = routers() if call.caller.viewer else []
        return Answer(Page(items=rows, total=len(rows)))

    return [
        Operation(
            method="GET", path="/brokers", id="listBrokers", text="The brokers, and the addresses on each.",
            handler=list_brokers, answer=Page[Broker],
        ),
        Operation(
            method="GET", path="/brokers/{name}", id="getBroker", text="A broker.", handler=get_broker, answer=Broker,
        ),
        Operation(
            method="GET", path="/routers", id="listRouters", text="The routers, and the processes at each.",
            handler=list_routers, answer=Page[Router],
        ),
    ]  # fmt: skip
