"""Health probe over AMQP management, for engines without a health endpoint."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from enmasse.control import ControlConnection, ControlError, connect
from enmasse.engines.program import ChildHealth
from enmasse.identity.processes.credentials import Credential
from enmasse.process.settings import host_port

TIMEOUT = 2.0
"""Seconds for one probe, and for a request."""


class ManagementProbe(ABC):
    """Probes one program over one connection to `address` (host:port), which is kept open. A product's probe derives
    from it. `credential`: the supervisor's, for a product that has SCRAM-SHA-256."""

    def __init__(self, address: str, credential: Credential | None = None) -> None:
        self._host, self._port = host_port(address)
        self._credential = credential
        self._connection: ControlConnection | None = None

    @abstractmethod
    async def opened(self, connection: ControlConnection) -> None:
        """Handle a new connection. Raises ControlError, OSError, ValueError."""

    @abstractmethod
    async def seen(self) -> ChildHealth:
        """Read the health over that connection. Raises ControlError, OSError, ValueError."""

    async def ask(self) -> ChildHealth:
        """Probe once; raises nothing but cancellation."""
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
        """Close the connection, if there is one; the next question opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _ask(self) -> ChildHealth:
        if self._connection is None or self._connection.is_gone:
            self._connection = None
            self._connection = await connect(
                self._host, self._port, container="supervisor", credential=self._credential, timeout=TIMEOUT
            )
            await self.opened(self._connection)
        return await self.seen()
