"""Storage of address spaces: the limits of their plans, split among brokers by what each holds and wants."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from enmasse.model.tenants.plans import SpaceLimits
from enmasse.model.tenants.shares import Sharer, Use, split, used_in_all
from enmasse.process import runner
from services.storage_controller.brokers.storage_shares import Given, Held, Shares
from services.storage_controller.management import ERRORS

INTERVAL: Final = 1.0
"""Seconds between two looks at what brokers hold."""
_ROUNDS: Final = 3
"""Rounds of a look: a larger share is given once another broker has taken its smaller one."""


Ask = Callable[[Shares | None], Awaitable[dict[str, Held] | None]]
"""Gives a broker its shares, None: leaves them, and returns what it holds; None: it cannot share."""


class _Space:
    """Storage of one space. `short`: broker → bytes of the message that did not fit there, as last reported: since then
    it knows for which ones there is no room anywhere."""

    def __init__(self) -> None:
        self.parts: dict[str, Sharer] = {}
        self.short: dict[str, int] = {}

    def report(self, broker: str, held: Held) -> None:
        """Take what a broker holds, after it was given its share."""
        use = Use(held.used, held.wanted, held.share)
        part = self.parts.get(broker)
        if part is None:
            if not held.present:
                return
            part = self.parts[broker] = Sharer(use)
        part.use = use
        part.given = part.believed = held.share
        if held.wanted:
            self.short[broker] = held.wanted

    def split(self, limit: int) -> bool:
        """Split what is free among the brokers that want it: all of it, or while it is little, what their messages
        need. Return whether a share is another one."""
        free = limit - used_in_all(self.parts.values())
        enough = free >= sum(part.use.wanted for part in self.parts.values())
        left = free
        for part in self.parts.values():
            wanted = part.use.wanted
            if wanted and enough:
                part.use = Use(part.use.used, limit, part.use.share)
            elif wanted > left:
                part.use = Use(part.use.used, 0, part.use.share)
            left -= wanted if wanted <= left else 0
        return bool(split(limit, list(self.parts.values())))

    def given(self, broker: str, limit: int) -> Given:
        """Return the share of a broker; one that has no part gets none until it needs one."""
        part, short = self.parts.get(broker), self.short.get(broker, 0)
        free = max(0, limit - used_in_all(self.parts.values()))
        return Given(0 if part is None else part.given, limit, free + 1 if free < short else 0)


class StorageLimits:
    """Limits of all spaces. `brokers()`: broker → how it is asked, of those that are connected; `known()`: all."""

    def __init__(self, brokers: Callable[[], Mapping[str, Ask]], known: Callable[[], set[str]]) -> None:
        self.limits: Mapping[str, SpaceLimits] = {}
        """Limits of the spaces that have some of what brokers store."""
        self._wake = asyncio.Event()
        self._brokers = brokers
        self._known = known
        self._spaces: dict[str, _Space] = {}
        self._heard: set[str] = set()
        """Brokers whose uses and shares are known."""
        self._told = False
        """A broker may have shares."""

    def shares_of(self, broker: str) -> Shares:
        """Return the shares of a broker, for one that has not been given any since it was connected."""
        return self._shares(broker, self._storage())

    def look(self) -> None:
        """Share soon: a broker has got its first addresses of a space."""
        self._wake.set()

    def uses(self) -> dict[str, Mapping[str, int]]:
        """Return what is used: name of the limit → space → bytes at all brokers."""
        return {"storage": {space: used_in_all(each.parts.values()) for space, each in self._spaces.items()}}

    def configure(self, limits: Mapping[str, SpaceLimits]) -> None:
        """Take other limits, and share at once."""
        if limits != self.limits:
            self.limits = limits
            self._wake.set()

    async def run(self) -> None:
        """Share until cancelled."""
        while True:
            await runner.woken(self._wake, INTERVAL)
            for _ in range(_ROUNDS):
                if not (self.limits or self._told) or not await self.round():
                    break

    async def round(self) -> bool:
        """Ask each broker once, giving it its shares, and split the limits by the answers. Return whether a share is
        another one now."""
        limits = self._storage()
        for space in self._spaces.keys() - limits.keys():
            del self._spaces[space]
        for each in self._spaces.values():
            for gone in each.parts.keys() - self._known():
                del each.parts[gone]
                each.short.pop(gone, None)
        self._heard &= self._known()
        brokers = self._brokers()
        asked = {
            name: ask(self._shares(name, limits) if name in self._heard else None) for name, ask in brokers.items()
        }
        answers = await asyncio.gather(*asked.values(), return_exceptions=True)
        for name, answer in zip(asked, answers, strict=True):
            if isinstance(answer, BaseException):
                if not isinstance(answer, ERRORS):  # of the broker's: its conversation reports them
                    raise answer
                continue
            self._heard.add(name)
            for space, held in (answer or {}).items():
                if space in limits:
                    self._spaces.setdefault(space, _Space()).report(name, held)
        if any(name not in self._heard for name in brokers):
            return False  # shares of a broker that has not answered are not known
        self._told = bool(limits) or any(isinstance(each, BaseException) for each in answers)
        changed = [space for space, each in self._spaces.items() if each.split(limits[space])]
        return bool(changed)

    def _storage(self) -> dict[str, int]:
        return {space: each.storage for space, each in self.limits.items() if each.storage is not None}

    def _shares(self, broker: str, limits: Mapping[str, int]) -> Shares:
        none = _Space()
        return {space: self._spaces.get(space, none).given(broker, limit) for space, limit in limits.items()}
