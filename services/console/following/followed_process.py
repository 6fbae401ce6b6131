"""A router, broker or gateway whose live state the console follows."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from enmasse.control import ControlConnection
from enmasse.engines.messages.product import Product
from enmasse.live_state import Merged, Row
from enmasse.model.names import MANAGEMENT
from services.console.errors import RequestError

DIALLING = 5.0
"""Seconds for a process that begins to be followed to be reached: the console dials with its first request."""


class Node:
    """A process that is followed. `connection` None: it is not reached. `title`: of it in texts. `management`: of a
    router the address of its management, at the router that the console is connected to."""

    def __init__(self, name: str, title: str, management: str = MANAGEMENT) -> None:
        self.name = name
        self.title = title
        self.management = management
        self.component = ""
        self.merged = Merged()
        self.task: asyncio.Task[Any] | None = None
        self.product: Product | None = None
        """The product of a broker; None: one that the console does not manage."""
        self.asked = False
        """Whether its management is asked, because it does not offer live state. That counts what connections between
        routers carry."""
        self.complete = asyncio.Event()
        """Set when its state is complete."""
        self.told = asyncio.Event()
        """Set with its first state, of the router when those behind it are known, too; or if it has none."""
        self.ended = False
        """Whether it is no longer followed."""
        self.busy: float | None = None
        """The part of the last seconds in which its event loop had work; None: not known."""
        self.sync: float | None = None
        """Seconds in which a batch was written to disk, the mean of the last ones."""
        self._about: tuple[float, Row] | None = None
        self._connection: ControlConnection | None = None
        self._connected = asyncio.Event()

    @property
    def is_known(self) -> bool:
        """Return whether its state is complete, or it is a broker without any."""
        return self.complete.is_set() or (self.told.is_set() and self.product is None)

    @property
    def connection(self) -> ControlConnection | None:
        """Return the connection; None: it is not reached."""
        return self._connection

    @connection.setter
    def connection(self, connection: ControlConnection | None) -> None:
        self._connection = connection
        if connection is None:
            self._connected.clear()
        else:
            self._connected.set()

    @property
    def about(self) -> Row:
        """Return what it says of itself; nothing while it is not reached."""
        return {} if self._connection is None else self.merged.kinds.get("about", {}).get(self.component, {})

    @property
    def connections(self) -> int | None:
        """Return how many connections it has; None: not known."""
        return None if self._connection is None else len(self.merged.kinds.get("connections", {}))

    @property
    def messages(self) -> int | None:
        """Return how many messages the queues of a broker hold; None: not known, or it has none."""
        queues = {} if self._connection is None else self.merged.kinds.get("queues", {})
        return sum(int(row.get("messages") or 0) for row in queues.values()) if queues else None

    def take_about(self, body: Row) -> None:
        """Take the row about itself from a message, if it has one. Raises ValueError or TypeError for what is no
        number."""
        row = body.get("about", {}).get(self.component)
        if row is None or row.get("busySeconds") is None:
            return
        before, self._about = self._about, (body["at"], row)
        if before is None:
            return
        seconds, busy = body["at"] - before[0], row["busySeconds"] - before[1]["busySeconds"]
        if seconds > 0 and busy >= 0:  # else it is another run
            self.busy = min(1.0, round(busy / seconds, 3))
        syncs = (row.get("syncs") or 0) - (before[1].get("syncs") or 0)
        if syncs > 0:
            self.sync = round((row["syncSeconds"] - before[1]["syncSeconds"]) / syncs, 6)

    async def managed(self) -> Product:
        """Return the product of a broker. Raises RequestError."""
        await self.reached()
        if self.product is None:
            text = f"{self.title} has no management by which messages can be looked at: it is another product"
            raise RequestError("console.change.refused", text)
        return self.product

    async def reached(self) -> ControlConnection:
        """Return the connection, waiting for it at most DIALLING seconds. Raises RequestError."""
        if self.task is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DIALLING):
                    await self._connected.wait()
        if self._connection is None:
            raise RequestError("console.service.unavailable", f"{self.title} is not reached; try again")
        return self._connection
