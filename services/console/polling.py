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
    while True:
        connections = await node.query(f"{PREFIX}.connection", CONNECTION)
        links = await node.query(f"{PREFIX}.router.link", LINK)
        addresses = await node.query(f"{PREFIX}.router.address", ADDRESS)
        take(
            {
                "schema": 1, "component": component, "kind": "router", "run": "", "full": True,
                "connections": {str(row["identity"]): _connection(row) for row in connections},
                "links": {str(row["identity"]): _link(row) for row in links if row.get("linkType") == "endpoint"},
                "addresses": {
                    str(row["name"])[len(CLASS) :]: _address(row)
                    for row in addresses
                    if str(row.get("name", "")).startswith(CLASS)
                },
                "at": time.time(),
            }
        )  # fmt: skip
        await asyncio.sleep(POLL)


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
