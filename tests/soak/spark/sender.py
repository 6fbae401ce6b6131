"""A sender of numbered messages, which knows what was accepted."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

from enmasse.aio.client import connect
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED
from enmasse.amqp.messages.message import Message

RATE = 60.0
BYTES = 300
"""Of a body: a spool has a new segment every few seconds."""


class Sender(threading.Thread):
    """Numbered messages to one address; what was not accepted is sent again, with the same id."""

    def __init__(self, url: str, address: str) -> None:
        super().__init__(daemon=True)
        self.url, self.address = url, address
        self.accepted: set[str] = set()
        self.over = threading.Event()

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        pending: dict[str, Any] = {}
        count = 0
        while pending or not self.over.is_set():
            with contextlib.suppress(OSError, AmqpError, TimeoutError):
                async with connect(self.url, timeout=5) as client:
                    sender = await client.sender(self.address)
                    for name in list(pending):
                        await self._send(sender, name, pending)
                    while not self.over.is_set():
                        name = f"{self.address}-{count}"
                        count += 1
                        pending[name] = None
                        await self._send(sender, name, pending)
                        await asyncio.sleep(1 / RATE)
            await asyncio.sleep(0.3)

    async def _send(self, sender: Any, name: str, pending: dict[str, Any]) -> None:
        body = name.ljust(BYTES).encode()
        outcome = await sender.send(Message(body, message_id=name, durable=True), timeout=10)
        if outcome is ACCEPTED:
            self.accepted.add(name)
            del pending[name]
