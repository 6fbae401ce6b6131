"""Health probe of a Qpid Dispatch router, over its listener for operators."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from enmasse.control import ControlConnection, Dispatch
from enmasse.engines.management_probe import TIMEOUT, ManagementProbe
from enmasse.engines.program import ChildHealth
from enmasse.settings import host_port
from enmasse.text import endpoint

PRODUCT: Final = "Apache Qpid Dispatch"
_LISTENER: Final = "org.apache.qpid.dispatch.listener"
_NODE: Final = "org.apache.qpid.dispatch.router.node"


class QdrouterdProbe(ManagementProbe):
    """Probe of one router."""

    def __init__(self, operators: str) -> None:
        super().__init__(operators)
        self._node: Dispatch
        self._version = ""
        self._answering: set[str] = set()
        """Listeners (host:port) that have accepted a connection: Dispatch also lists listeners that failed to bind."""

    async def opened(self, connection: ControlConnection) -> None:
        """Read the version."""
        self._answering.clear()  # the process may have been replaced
        self._version = str(connection.remote_properties.get("version", ""))[:40]
        self._node = Dispatch(connection, timeout=TIMEOUT)
        await self._node.opened()

    async def seen(self) -> ChildHealth:
        """Return the health: ready if the router answers; endpoints are the listeners that accept connections."""
        endpoints = {}
        for row in await self._node.query(_LISTENER, ["name", "host", "port"]):
            at = endpoint(str(row["host"]), str(row["port"]))
            if await self._answers(at):
                endpoints[str(row["name"])] = at
        nodes = await self._node.query(_NODE, ["id", "routerLink"])
        neighbours = [str(row["id"]) for row in nodes if _is_neighbour(row)]
        more = f"; neighbours: {', '.join(sorted(neighbours))}" if neighbours else ""
        return ChildHealth(True, f"{PRODUCT} {self._version}{more}", endpoints)

    async def _answers(self, at: str) -> bool:
        if at not in self._answering:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(*host_port(at))
                writer.close()
                self._answering.add(at)
        return at in self._answering


def _is_neighbour(row: dict[str, object]) -> bool:
    """Return True for the row of a router to which this one has a connection."""
    return row.get("routerLink") is not None
