"""Health probe of an Artemis broker: ready means that AMQP and management answer."""

from __future__ import annotations

from pathlib import Path

from enmasse.control import Artemis, ControlConnection
from enmasse.engines.management_probe import TIMEOUT, ManagementProbe
from enmasse.engines.program import ChildHealth
from enmasse.identity.processes import operator


class ArtemisProbe(ManagementProbe):
    """Probe of one broker."""

    def __init__(self, address: str, run: str | None = None) -> None:
        """`run`: the folder with the operator's secret, for a broker that authenticates; None: it does not."""
        secret = None if run is None else operator.read_secret(Path(run).parent)
        super().__init__(address, None if secret is None else operator.credential(secret))
        self._address = address
        self._node: Artemis
        self._product = ""

    async def opened(self, connection: ControlConnection) -> None:
        """Read the version."""
        self._node = Artemis(connection, timeout=TIMEOUT)
        await self._node.opened()
        self._product = f"Apache ActiveMQ Artemis {await self._node.attribute('broker', 'version')}"

    async def seen(self) -> ChildHealth:
        """Return the health, with the number of connections."""
        connections = int(await self._node.attribute("broker", "connectionCount"))
        return ChildHealth(True, self._product, {"amqp": self._address}, {"connections": connections})
