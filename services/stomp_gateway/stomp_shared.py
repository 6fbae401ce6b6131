"""State that all clients of a gateway share: its bridge, limits and counters."""

from __future__ import annotations

import asyncio
from typing import Any

from enmasse.bridge.bridge import Bridge
from enmasse.bridge.message_outcomes import MessageOutcome
from enmasse.identity.login import Login
from services.stomp_gateway.stomp_transactions import StompSpace, TransactionBytes


class StompShared:
    """`most`: bytes of a body; `memory`: of all frames that are not complete; `patience`: seconds for a login."""

    bridge: Bridge[StompSpace]

    def __init__(self, most: int, memory: int, patience: float) -> None:
        self.loop = asyncio.get_running_loop()
        self.now = self.loop.time
        self.most = most
        self.memory = memory
        self.patience = patience
        self.outcomes: dict[MessageOutcome, int] = {}
        """Messages from clients, by what became of them."""
        self.errors: dict[str, int] = {}
        """ERROR frames, by their message."""
        self.kept = 0
        """Bytes of frames that are not complete."""
        self.transacted = TransactionBytes()

    async def enter(self, client: Any, headers: dict[str, str]) -> tuple[Login, StompSpace]:
        """Log a client in. Raises StompError."""
        raise NotImplementedError

    def leave(self, client: Any) -> None:
        """Forget a client whose connection has ended."""
        raise NotImplementedError
