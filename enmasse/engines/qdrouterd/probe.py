"""Health probe of a Qpid Dispatch router, over its listener for operators."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any, Final

from enmasse.control import ControlConnection, Dispatch
from enmasse.engines.management_probe import TIMEOUT, ManagementProbe
from enmasse.engines.program import ChildHealth
from enmasse.engines.qdrouterd.reached_routers import FIELDS, NODE, routes
from enmasse.identity.processes import operator
from enmasse.process.settings import host_port
from enmasse.text import endpoint

PRODUCT: Final = "Apache Qpid Dispatch"
_LISTENER: Final = "org.apache.qpid.dispatch.listener"
_CONNECTOR: Final = "org.apache.qpid.dispatch.connector"
_NO_MECHANISM: Final = "[mech=none]"
"""In the message of a connector: it has none of the mechanisms that it may use."""
_NO_SCRAM: Final = (
    "it cannot log in at the agent by SCRAM-SHA-256: qdrouterd needs Proton with Cyrus SASL, and its modules (Debian: "
    "libsasl2-modules)"
)


class QdrouterdProbe(ManagementProbe):
    """Probe of one router."""

    def __init__(self, operators: str, run: str) -> None:
        """`operators`: host:port of the listener for operators; `run`: the folder with the operator's secret."""
        secret = operator.read_secret(Path(run).parent)
        super().__init__(operators, None if secret is None else operator.credential(secret))
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
        if any(_NO_MECHANISM in str(row.get("connectionMsg")) for row in await self._connectors()):
            return ChildHealth(False, f"{PRODUCT} {self._version}: {_NO_SCRAM}")
        endpoints = {}
        for row in await self._node.query(_LISTENER, ["name", "host", "port"]):
            at = endpoint(str(row["host"]), str(row["port"]))
            if await self._answers(at):
                endpoints[str(row["name"])] = at
        reached = routes(await self._node.query(NODE, FIELDS))
        neighbours = sorted(id for id, row in reached.items() if row["next"] == id)
        more = f"; neighbours: {', '.join(neighbours)}" if neighbours else ""
        return ChildHealth(True, f"{PRODUCT} {self._version}{more}", endpoints, routes=reached)

    async def _connectors(self) -> list[dict[str, Any]]:
        return await self._node.query(_CONNECTOR, ["name", "connectionMsg"])

    async def _answers(self, at: str) -> bool:
        if at not in self._answering:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(*host_port(at))
                writer.close()
                self._answering.add(at)
        return at in self._answering
