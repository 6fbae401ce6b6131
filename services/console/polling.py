"""Live state of a router that does not offer `$live`, Qpid Dispatch: its management is asked every few seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from enmasse.control import ControlConnection, Dispatch
from enmasse.live import Row

POLL = 5.0
PREFIX = "org.apache.qpid.dispatch"
CONNECTION = (
    "identity",
    "container",
    "user",
    "host",
    "role",
    "dir",
    "isEncrypted",
    "sslProto",
    "sslCipher",
    "properties",
)
LINK = (
    "identity", "connectionId", "linkName", "linkType", "linkDir", "owningAddr", "deliveryCount", "acceptedCount",
    "rejectedCount", "releasedCount", "modifiedCount", "unsettledCount", "creditAvailable",
)  # fmt: skip
ADDRESS = ("name", "deliveriesIngress", "deliveriesEgress", "subscriberCount")
CLASS = "M0"
"""Prefix of mobile addresses, those that clients use."""


async def poll_router(connection: ControlConnection, take: Callable[[Row], None]) -> None:
    """Ask until the connection is lost. Each answer is a full message of live state. Raises ControlError."""
    node = await Dispatch(connection).opened()
    component = str(connection.remote_container or "router")
    moved = Moved()
    while True:
        connections = await node.query(f"{PREFIX}.connection", CONNECTION)
        links = [row for row in await node.query(f"{PREFIX}.router.link", LINK) if row.get("linkType") == "endpoint"]
        moved.take(links, {str(row["identity"]) for row in connections})
        addresses = await node.query(f"{PREFIX}.router.address", ADDRESS)
        take(
            {
                "schema": 1, "component": component, "kind": "router", "run": "", "started": 0.0,
                "full": True, "complete": True,
                "connections": {
                    str(row["identity"]): _connection(row) | moved.of(str(row["identity"])) for row in connections
                },
                "links": {str(row["identity"]): _link(row) for row in links},
                "addresses": {
                    str(row["name"])[len(CLASS) :]: _address(row)
                    for row in addresses
                    if str(row.get("name", "")).startswith(CLASS)
                },
                "at": time.time(),
            }
        )  # fmt: skip
        await asyncio.sleep(POLL)


class Moved:
    """Messages that connections have carried: sums over their links, also over those that are gone."""

    def __init__(self) -> None:
        self._links: dict[str, int] = {}
        self._sums: dict[str, dict[str, int]] = {}

    def take(self, links: list[dict[str, Any]], connections: set[str]) -> None:
        """Add what links have carried since the last call. Links and connections that are not there are forgotten."""
        now = {str(row["identity"]): int(row.get("deliveryCount") or 0) for row in links}
        for row in links:
            id, direction = str(row["identity"]), str(row.get("linkDir"))
            sums = self._sums.setdefault(str(row.get("connectionId")), {"in": 0, "out": 0})
            if direction in sums:
                sums[direction] += max(0, now[id] - self._links.get(id, 0))
        self._links = now
        self._sums = {id: sums for id, sums in self._sums.items() if id in connections}

    def of(self, connection: str) -> Row:
        """Return the counters of a connection."""
        return self._sums.get(connection, {"in": 0, "out": 0})


def _connection(row: dict[str, Any]) -> Row:
    tls = {"protocol": row.get("sslProto"), "cipher": row.get("sslCipher")} if row.get("isEncrypted") else None
    return {
        "protocol": "amqp", "container": row.get("container"), "user": row.get("user"), "peer": row.get("host"),
        "role": None, "kind": row.get("role"), "dir": row.get("dir"), "tls": tls,
    }  # fmt: skip


def _link(row: dict[str, Any]) -> Row:
    owner = str(row.get("owningAddr") or "")
    return {
        "connection": str(row.get("connectionId")), "name": row.get("linkName"), "dir": row.get("linkDir"),
        "address": owner[len(CLASS) :] if owner.startswith(CLASS) else None, "stated": None,
        "count": row.get("deliveryCount"), "accepted": row.get("acceptedCount"), "rejected": row.get("rejectedCount"),
        "released": row.get("releasedCount"), "modified": row.get("modifiedCount"),
        "unsettled": row.get("unsettledCount"), "credit": row.get("creditAvailable"),
    }  # fmt: skip


def _address(row: dict[str, Any]) -> Row:
    return {
        "in": row.get("deliveriesIngress"), "out": row.get("deliveriesEgress"), "consumers": row.get("subscriberCount"),
    }  # fmt: skip
