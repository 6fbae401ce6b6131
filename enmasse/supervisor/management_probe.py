"""Asks a program of others by its AMQP management what a service of ours shows in its health: it has no such page."""

from __future__ import annotations

import asyncio
from typing import Protocol

from enmasse.control import ControlConnection, ControlError, connect
from enmasse.settings import host_port
from enmasse.supervisor.probe import TIMEOUT, ChildHealth


class Product(Protocol):
    """What one product is asked over a connection. Both raise ControlError, OSError, ValueError."""

    async def opened(self, connection: ControlConnection) -> None:
        """There is a new connection."""

    async def seen(self) -> ChildHealth:
        """What it answers over that."""


class ManagementProbe:
    """Asks one program over one connection to `address` (host:port), as long as that lasts."""

    def __init__(self, address: str, product: Product) -> None:
        self._host, self._port = host_port(address)
        self._product = product
        self._connection: ControlConnection | None = None

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
            await self._product.opened(self._connection)
        return await self._product.seen()
