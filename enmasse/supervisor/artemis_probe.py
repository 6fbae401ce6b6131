"""Health probe of an Artemis broker: ready means that AMQP and management answer."""

from __future__ import annotations

from enmasse.control import Artemis, ControlConnection
from enmasse.supervisor.management_probe import ManagementProbe
from enmasse.supervisor.probe import TIMEOUT, ChildHealth


class ArtemisProbe(ManagementProbe):
    """Probe of one broker."""

    def __init__(self, address: str) -> None:
        super().__init__(address, _Broker(address))


class _Broker:
    def __init__(self, address: str) -> None:
        self._address = address
        self._node: Artemis
        self._product = ""

    async def opened(self, connection: ControlConnection) -> None:
        self._node = Artemis(connection, timeout=TIMEOUT)
        await self._node.opened()
        self._product = f"Apache ActiveMQ Artemis {await self._node.attribute('broker', 'version')}"

    async def seen(self) -> ChildHealth:
        connections = int(await self._node.attribute("broker", "connectionCount"))
        return ChildHealth(True, self._product, {"amqp": self._address}, {"connections": connections})
