"""Live state of a router that does not offer `$live`, Qpid Dispatch: its management is asked every few seconds."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from enmasse.control import ControlConnection, Dispatch
from enmasse.engines.moved import Carried, Moved
from enmasse.engines.qdrouterd import reached_routers
from enmasse.live_state import INTER_ROUTER, NODE, Row

POLL = 3.0
"""Seconds between two looks: those over which rates are taken (rates.py)."""
SHARE = 20
"""A look takes at most a twentieth of the time: with very many links there are fewer looks."""
PAGE, OVERLAP = 500, 50
"""Rows of a request, and how many of them the next one asks for again: rows move up when rows before them go."""
MOST = 50_000
"""Rows of a listing that are read; the last ones are left out."""
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
)
COUNTERS = {
    "count": "deliveryCount", "accepted": "acceptedCount", "rejected": "rejectedCount", "released": "releasedCount",
    "modified": "modifiedCount", "unsettled": "unsettledCount", "credit": "creditAvailable",
}  # fmt: skip
"""Counters of a link: our name → Dispatch's column, whose integers are of AMQP's types."""
LINK = ("identity", "connectionId", "linkName", "linkType", "linkDir", "owningAddr", *COUNTERS.values())
ADDRESS = ("identity", "deliveriesIngress", "deliveriesEgress")
CLASS = "M0"
"""Prefix of mobile addresses, those that clients use."""
GATEWAY = f"F{NODE}/"
"""Prefix of the addresses by which receivers reach gateways: those of their link routes."""


class Tables(NamedTuple):
    """Rows of a router's management at one moment, by identity. `routers`: of its mesh; empty: it has none."""

    connections: Mapping[str, Row]
    links: Mapping[str, Row]
    addresses: Mapping[str, Row]
    routers: Sequence[Row] = ()
    version: str = ""


async def poll_router(
    connection: ControlConnection, name: str, address: str, own: str | None, take: Callable[[Row], None]
) -> None:
    """Ask the management at `address` of the router `name` until the connection is lost. Each answer is a full message
    of live state. `own`: identity of this connection there; None: it is at another router. Raises ControlError."""
    node = await Dispatch(connection, address).opened()
    about = await node.query(f"{PREFIX}.router", ("version",))
    version = str(about[0].get("version") or "") if about else ""
    moved = Moved("in", "out")
    loop = asyncio.get_running_loop()
    try:
        while True:
            began = loop.time()
            take(state(name, await _read(node, version), moved, own))
            await asyncio.sleep(max(POLL, SHARE * (loop.time() - began)))
    finally:
        node.close()


async def _read(node: Dispatch, version: str) -> Tables:
    return Tables(
        connections=await listed(node, "connection", CONNECTION),
        links=await listed(node, "router.link", LINK),
        addresses=await listed(node, "router.address", ADDRESS),
        routers=await node.query(reached_routers.NODE, reached_routers.FIELDS),
        version=version,
    )


async def listed(node: Dispatch, kind: str, attributes: Sequence[str]) -> dict[str, Row]:
    """Return the rows of a type by identity, asked for in pages. Raises ControlError."""
    found: dict[str, Row] = {}
    offset = 0
    while offset < MOST:
        page = await node.query(f"{PREFIX}.{kind}", attributes, count=PAGE, offset=offset)
        found.update((str(row["identity"]), row) for row in page)
        if len(page) < PAGE:
            break
        offset += PAGE - OVERLAP
    return found


def state(name: str, tables: Tables, moved: Moved, own: str | None = None) -> Row:
    """Return the rows of the router `name` as a message of live state; its kinds `routers` and `gateways` have the
    other routers of its mesh, and the names of gateways that are reached through it."""
    carrying = {id: row for id, row in tables.links.items() if row.get("linkType") in ("endpoint", INTER_ROUTER)}
    links = {id: row for id, row in carrying.items() if row["linkType"] == "endpoint"}
    moved.take(map(carried, carrying.values()), tables.connections.keys())
    gateways: dict[str, Row] = {id[len(GATEWAY) :]: {} for id in tables.addresses if id.startswith(GATEWAY)}
    # a gateway's links are no producers and consumers: its clients are
    clients = {
        id for id, row in tables.connections.items() if row.get("dir") == "in" and row.get("container") not in gateways
    }
    attached = Counter(
        (str(row.get("owningAddr")), row.get("linkDir")) for row in links.values() if row.get("connectionId") in clients
    )
    return {
        "schema": 1, "component": name, "kind": "router", "run": "", "started": 0.0, "at": time.time(),
        "full": True, "complete": True,
        "connections": {
            id: _connection(row) | moved.of(id) | ({"role": "console"} if id == own else {})
            for id, row in tables.connections.items()
        },
        "links": {id: _link(row) for id, row in links.items()},
        "addresses": {
            id[len(CLASS) :]: {
                "in": int(row.get("deliveriesIngress") or 0), "out": int(row.get("deliveriesEgress") or 0),
                # not its subscriberCount, which counts the router's own links to brokers, too
                "producers": attached[id, "in"], "consumers": attached[_delivering(id, tables), "out"],
            }
            for id, row in tables.addresses.items() if id.startswith(CLASS)
        },
        "routers": {id: row for id, row in reached_routers.routes(tables.routers).items() if id != name},
        "about": {name: {"version": tables.version}},
        "gateways": gateways,
    }  # fmt: skip


def _delivering(id: str, tables: Tables) -> str:
    """Return the key of the address from which consumers of an address get messages: of a queue its second phase."""
    second = f"M1{id[len(CLASS) :]}"
    return second if second in tables.addresses else id


def carried(row: Row) -> Carried:
    """Return what a link has carried."""
    counters = {row["linkDir"]: int(row.get("deliveryCount") or 0)} if row.get("linkDir") in ("in", "out") else {}
    return str(row["identity"]), str(row.get("connectionId")), counters


def _connection(row: Row) -> Row:
    tls = {"protocol": row.get("sslProto"), "cipher": row.get("sslCipher")} if row.get("isEncrypted") else None
    return {
        "protocol": "amqp", "container": row.get("container"), "user": row.get("user"), "peer": row.get("host"),
        "role": None, "kind": row.get("role"), "dir": row.get("dir"), "tls": tls,
    }  # fmt: skip


def _link(row: Row) -> Row:
    owner = str(row.get("owningAddr") or "")
    return {
        "connection": str(row.get("connectionId")), "name": row.get("linkName"), "dir": row.get("linkDir"),
        "address": owner[len(CLASS) :] if owner.startswith(("M0", "M1")) else None, "stated": None,
        **{name: int(row.get(column) or 0) for name, column in COUNTERS.items()},
    }  # fmt: skip
