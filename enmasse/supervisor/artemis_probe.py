"""Asks an Artemis broker by its management what a service of ours shows in its health: it has no such page."""

from __future__ import annotations

import asyncio

from enmasse.control import Artemis, ControlConnection, ControlError, connect
from enmasse.settings import host_port
from enmasse.supervisor.probe import TIMEOUT, ChildHealth


class ArtemisProbe:
    """Asks one broker over one connection, as long as that lasts. Ready means that AMQP and management answer."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._host, self._port = host_port(address)
        self._connection: ControlConnection | None = None
        self._node: Artemis
        self._product = ""

    async def ask(self) -> ChildHealth:
        """Never raises but for cancellation."""
        try:
            async with asyncio.timeout(TIMEOUT):
                return await self._ask()
        except TimeoutError:
            self.close()
            return ChildHealth(False, f"does not answer its management within {TIMEOUT:g} s")
        except (ControlError, ValueError, OSError) as error:
            started = self._connection is not None
            self.close()
            return ChildHealth(False, f"its management failed: {error}"[:200] if started else "starting")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _ask(self) -> ChildHealth:
        if self._connection is None or self._connection.is_gone:
            self._connection = None
            self._connection = await connect(self._host, self._port, container="supervisor", timeout=TIMEOUT)
            self._node = Artemis(self._connection, timeout=TIMEOUT)
            await self._node.opened()
            self._product = f"Apache ActiveMQ Artemis {await self._node.attribute('broker', 'version')}"
        connections = int(await self._node.attribute("broker", "connectionCount"))
        return ChildHealth(True, self._product, {"amqp": self._address}, {"connections": connections})
