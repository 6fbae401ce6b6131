"""Finds a quiet moment, in which a broker can end without loss: it holds no message and no producer reaches it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from enmasse.model.names import AddressName
from enmasse.reconcile import NEVER, NOW
from services.storage_controller.conversation.removal import BrokerWork, reached_by_producers

LOOK_EVERY, LOOK_SOON = 1.0, 0.05
"""Seconds between two looks, and between two while producers are kept away."""
PATIENCE = 5.0
"""Longest time in seconds for which producers are kept away."""
AGAIN = 10.0
"""Seconds until the next attempt after that."""


class IdleCheck:
    """Waits for a quiet moment of one broker on request. Only this class sets and resets the broker's `cut`."""

    def __init__(self, work: BrokerWork) -> None:
        self._placer, self._broker, self._management, self._look, self._news, self._producers_led_away = work
        self._loop = asyncio.get_running_loop()
        self._then: Callable[[], None] | None = None
        self._next = NOW
        self._cut_until = 0.0

    def begin(self) -> None:
        """Start a conversation: producers are admitted until they are kept away again."""
        self._broker.cut = False

    def want(self, then: Callable[[], None] | None) -> list[AddressName]:
        """Call `then` once in a quiet moment; None: cancel the request.

        Return the addresses whose producers are admitted again.
        """
        if then is not None and self._then is None:
            self._next = NOW
        given_up = then is None and self._then is not None
        self._then = then
        return self._let_producers_in() if given_up else []

    def end(self) -> list[AddressName]:
        """Admit producers again if the planned restart did not happen. Return the broker's addresses."""
        return self._let_producers_in() if self._then is None and self._loop.time() > self._cut_until else []

    def _let_producers_in(self) -> list[AddressName]:
        if not self._broker.cut:
            return []
        self._broker.cut = False
        return self._placer.inventory.at_home(self._broker.name)

    def due(self) -> float:
        """Return the time of the next round."""
        return self._next if self._then is not None else NEVER

    async def round(self) -> None:
        """Keep producers away from an empty broker; call `then` if it is still empty once they are."""
        broker, now = self._broker, self._loop.time()
        self._next = now + LOOK_EVERY
        await self._look()
        if self._stored() or (broker.cut and now > self._cut_until):
            if broker.cut:
                # A producer sent a message first, or cannot be kept away: admit producers, and try again later.
                self._next = now + AGAIN
                self._news(self._let_producers_in())
        elif not broker.cut:
            broker.cut = True
            self._cut_until = now + PATIENCE
            self._next = now + LOOK_SOON
            self._news(self._at_home())
        else:
            self._next = now + LOOK_SOON
            if await self._is_cut_off() and not self._stored() and self._then is not None:
                then, self._then = self._then, None
                then()

    async def _is_cut_off(self) -> bool:
        broker = self._broker
        if not all(self._producers_led_away(name, broker.name) for name in self._at_home()):
            return False
        reached = await reached_by_producers(self._management, broker)
        if broker.contents is None or any(name in reached for name in broker.contents.held):
            return False
        await self._look()
        return True

    def _at_home(self) -> list[AddressName]:
        """Return the addresses that the broker holds and is to hold."""
        contents = self._broker.contents
        held = contents.held if contents is not None else {}
        return [name for name in held if self._placer.inventory.homes.get(name) == self._broker.name]

    def _stored(self) -> bool:
        contents = self._broker.contents
        return contents is None or bool(contents.stored)
