"""Asks a Qpid Dispatch router by its management what a service of ours shows in its health: it has no such page."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from enmasse.control import ControlConnection, ControlError, Dispatch, connect
from enmasse.settings import host_port
from enmasse.supervisor.probe import TIMEOUT, ChildHealth

PRODUCT: Final = "Apache Qpid Dispatch"
_LISTENER: Final = "org.apache.qpid.dispatch.listener"
_NODE: Final = "org.apache.qpid.dispatch.router.node"


class QdrouterdProbe:
    """Asks one router over one connection to its listener for operators, as long as that lasts."""

    def __init__(self, operators: str) -> None:
        self._host, self._port = host_port(operators)
        self._connection: ControlConnection | None = None
        self._node: Dispatch
        self._answering: set[str] = set()
        """Listeners (host:port) that have taken a connection: Dispatch shows also those whose port it could not get."""

    async def ask(self) -> ChildHealth:
        """Ready if it answers; its endpoints are the listeners that take connections. Never raises but for
        cancellation."""
        try:
            async with asyncio.timeout(TIMEOUT):
                return await self._ask()
        except TimeoutError:
            self.close()
            return ChildHealth(False, f"does not answer its management within {TIMEOUT:g} s")
        except (ControlError, OSError) as error:
            started = self._connection is not None
            self.close()
            return ChildHealth(False, f"its management failed: {error}" if started else "starting")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._answering.clear()

    async def _ask(self) -> ChildHealth:
        if self._connection is None or self._connection.is_gone:
            self._connection = None
            self._connection = await connect(self._host, self._port, container="supervisor", timeout=TIMEOUT)
            self._node = Dispatch(self._connection, timeout=TIMEOUT)
            await self._node.opened()
        endpoints = {}
        for row in await self._node.query(_LISTENER, ["name", "host", "port"]):
            at = f"{row['host']}:{row['port']}"
            if await self._answers(at):
                endpoints[str(row["name"])] = at
        nodes = await self._node.query(_NODE, ["id", "routerLink"])
        neighbours = [str(row["id"]) for row in nodes if _is_neighbour(row)]
        version = self._connection.remote_properties.get("version", "")
        more = f"; neighbours: {', '.join(sorted(neighbours))}" if neighbours else ""
        return ChildHealth(True, f"{PRODUCT} {str(version)[:40]}{more}", endpoints)

    async def _answers(self, at: str) -> bool:
        if at not in self._answering:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(*host_port(at))
                writer.close()
                self._answering.add(at)
        return at in self._answering


def _is_neighbour(row: dict[str, object]) -> bool:
    """A row of a router to which this one has a connection."""
    return row.get("routerLink") is not None
