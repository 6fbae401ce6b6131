"""A moment in which a broker can end or be restarted without loss: it holds no message and no producer reaches it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from enmasse.model.names import AddressName
from enmasse.reconcile import NEVER, NOW
from services.storage_controller.removal import BrokerWork, reached_by_producers

LOOK_EVERY, LOOK_SOON = 1.0, 0.05
"""Seconds from one look to the next, and while producers are kept off."""
PATIENCE = 5.0
"""Seconds for which producers are kept off at most."""
AGAIN = 10.0
"""Seconds until it is tried again after that."""


class Quiet:
    """Waits for that moment on one broker, if that is wanted. Nobody else sets or resets the broker's `cut`."""

    def __init__(self, work: BrokerWork) -> None:
        self._placer, self._broker, self._management, self._look, self._news, self._producers_led_away = work
        self._loop = asyncio.get_running_loop()
        self._then: Callable[[], None] | None = None
        self._next = NOW
        self._cut_until = 0.0

    def begin(self) -> None:
        """A conversation begins: producers are let in, until they are kept off again."""
        self._broker.cut = False

    def want(self, then: Callable[[], None] | None) -> list[AddressName]:
        """`then` is called once in that moment; None: it is not wanted any more.

        Gives the addresses whose producers are let in.
        """
        if then is not None and self._then is None:
            self._next = NOW
        given_up = then is None and self._then is not None
        self._then = then
        return self._let_producers_in() if given_up else []

    def end(self) -> list[AddressName]:
        """Lets producers in again, if the broker was to be restarted and then was not. Gives its addresses."""
        return self._let_producers_in() if self._then is None and self._loop.time() > self._cut_until else []

    def _let_producers_in(self) -> list[AddressName]:
        if not self._broker.cut:
            return []
        self._broker.cut = False
        return self._placer.inventory.at_home(self._broker.name)

    def due(self) -> float:
        """When the next round is due."""
        return self._next if self._then is not None else NEVER

    async def round(self) -> None:
        """While it holds nothing, producers are kept off; if it then still holds nothing, the moment has come."""
        broker, now = self._broker, self._loop.time()
        self._next = now + LOOK_EVERY
        await self._look()
        if self._stored() or (broker.cut and now > self._cut_until):
            if broker.cut:
                # Somebody was quicker, or cannot be kept off: let them work, and try again later.
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
        """The addresses that it holds and is to hold."""
        contents = self._broker.contents
        held = contents.held if contents is not None else {}
        return [name for name in held if self._placer.inventory.homes.get(name) == self._broker.name]

    def _stored(self) -> bool:
        contents = self._broker.contents
        return contents is None or bool(contents.stored)
