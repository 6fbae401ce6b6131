"""Removes addresses from a broker: when they are empty and no producer reaches them, or at once if forced."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, NamedTuple

from enmasse.control.listings import QueueRow
from enmasse.logs import log
from enmasse.model.names import AddressName, space_of, wire_name
from enmasse.network.backoff import LOOK, Backoff
from enmasse.reconcile import NEVER, NOW
from services.storage_controller import policies
from services.storage_controller.brokers.broker import ManagedBroker
from services.storage_controller.brokers.broker_contents import Holding, root_of
from services.storage_controller.management import GONE, BrokerManagement, all_done
from services.storage_controller.placement import Placer

BATCH = 500
SECOND_ROUND = 0.05
"""Seconds from a round that has found an address empty to the next one."""
TOPIC_GRACE = 5.0
"""Seconds until an empty topic is removed that has an attached publisher (removing a link route keeps live links), or
has moved to another broker."""


class BrokerWork(NamedTuple):
    """Dependencies of the work on one broker. `look()` lists its contents; `news(addresses)` reconciles these again;
    `producers_led_away(address, broker)`: the accepted placements route no producer there."""

    placer: Placer
    broker: ManagedBroker
    management: BrokerManagement
    look: Callable[[], Awaitable[list[QueueRow]]]
    news: Callable[[Iterable[AddressName]], None]
    producers_led_away: Callable[[AddressName, str], bool]


class Removal:
    """Addresses to remove from one broker."""

    def __init__(self, work: BrokerWork) -> None:
        self._placer, self._broker, self._management, self._look, self._news, self._producers_led_away = work
        self._loop = asyncio.get_running_loop()
        self._log = log.get(broker=self._broker.name)
        self._retiring: dict[AddressName, float] = {}
        """Address → time since which no producer is routed there (0: not yet)."""
        self._empty: set[AddressName] = set()
        """Addresses that were empty and without producers in the last round."""
        self._next = NOW
        self._backoff = Backoff(LOOK)

    def has(self, name: AddressName) -> bool:
        """Return True if the address is to be removed."""
        return name in self._retiring

    def keep(self, name: AddressName) -> None:
        """Cancel the removal of the address."""
        self._retiring.pop(name, None)

    def retire(self, name: AddressName) -> None:
        """Start the removal of the address."""
        self._retiring.setdefault(name, 0.0)
        self._hurry()

    def _hurry(self) -> None:
        self._next = NOW
        self._backoff.reset()

    def due(self) -> float:
        """Return the time of the next round."""
        return self._next if self._retiring else NEVER

    def unknown(self) -> list[AddressName]:
        """Return the topics whose mark has not been read yet."""
        broker = self._broker
        return [
            name
            for name in self._retiring
            if name not in broker.marked
            and name not in broker.foreign
            and (held := broker.holding(name)) is not None
            and held.kind == "topic"
        ]

    async def round(self) -> None:
        """Delete addresses that are empty and without producers in two consecutive rounds, or forced."""
        broker = self._broker
        now = self._loop.time()
        self._next = now + self._backoff.wait()
        for name in list(self._retiring):
            if broker.name not in self._placer.decide(name).retire:
                del self._retiring[name]  # the decision has changed meanwhile
        await self._look_up_marks()
        forced = [name for name in self._retiring if name in self._placer.desired.forced]
        waiting = []
        for name, since in self._retiring.items():
            if self._producers_led_away(name, broker.name):
                if not since:
                    self._retiring[name] = now
                waiting.append(name)
        found: list[QueueRow] = []
        reached = await reached_by_producers(self._management, broker) if waiting else set()
        if waiting or forced:
            # Listed after the producers: an address without producers then and empty now received nothing in between.
            found = await self._look()
        empty = {name for name in waiting if self._is_empty(name, reached, now)}
        gone = [name for name in forced if broker.holding(name) is not None]
        gone += [name for name in empty if name in self._empty and name not in gone]
        self._empty = empty
        if gone:
            await self._delete(gone, found)
            self._hurry()
        elif empty:
            self._next = now + SECOND_ROUND
        for name in list(self._retiring):
            if broker.holding(name) is None:
                del self._retiring[name]

    def _is_empty(self, name: AddressName, reached: set[AddressName], now: float) -> bool:
        held = self._broker.holding(name)
        if held is None or held.messages:
            return False
        if name in self._broker.held:  # attaches wait here for routers that do not know the new placement yet
            return now - (self._retiring.get(name) or now) >= TOPIC_GRACE
        return name not in reached or (held.kind == "topic" and self._may_go(name, held, now))

    def _may_go(self, name: AddressName, held: Holding, now: float) -> bool:
        since = self._retiring.get(name) or now
        return not held.subscriptions or now - since >= TOPIC_GRACE

    async def _look_up_marks(self) -> None:
        """Read the marks of topics that are not desired: only marked ones may be removed."""
        broker, unknown = self._broker, self.unknown()
        for start in range(0, len(unknown), BATCH):
            names = unknown[start : start + BATCH]
            found = await asyncio.gather(*(self._management.settings(name) for name in names))
            for name, read in zip(names, found, strict=True):
                broker.looked_up(name, ours=read.get(policies.MARK_KEY) == policies.MARK)
        for name in unknown:
            if name in broker.foreign:
                self._retiring.pop(name, None)
        if unknown:
            self._news(unknown)

    async def _delete(self, names: list[AddressName], found: list[QueueRow]) -> None:
        management, broker = self._management, self._broker
        topics: dict[AddressName, object] = {}
        work: list[tuple[AddressName, Awaitable[Any]]] = []
        for name in names:
            held = broker.holding(name)
            if held is None:
                continue
            if held.kind == "queue":
                work.append((name, management.destroy_queue(wire_name(name))))
            else:
                topics[name] = None
        for row in found:
            # Subscriptions to levels have addresses of their own; those to the topic itself are deleted with it.
            if row.routingType == "MULTICAST" and row.address not in topics:
                root = root_of(row.address, topics)
                if root is not None:
                    work.append((root, management.destroy_queue(row.name)))
        for name in topics:
            work.append((name, management.delete_address(name)))
            work += [(name, management.remove_settings(match)) for match in reversed(policies.matches(name))]
        for name in names:
            if name not in topics and await self._has_settings(name):
                work.append((name, management.remove_settings(policies.matches(name)[0])))
        refused = await all_done(work, GONE)
        if topics and not broker.engine.levels_exist:
            refused |= await self._delete_levels(topics)
        for name in names:
            broker.deleted(name)
        for name, reason in refused.items():
            self._log.warning("controller.address.deletion-failed", address=name, reason=reason, space=space_of(name))
        await self._look()

    async def _delete_levels(self, topics: Collection[AddressName]) -> dict[AddressName, str]:
        """Delete the levels of these topics. They cannot be created again: the settings for that are deleted."""
        found = [(root_of(name, topics), name) for name in await self._management.address_names()]
        work = [(root, self._management.delete_address(name)) for root, name in found if root is not None]
        return await all_done(work, GONE)

    async def _has_settings(self, name: AddressName) -> bool:
        settled = self._broker.settled.get(name)
        if settled is not None:
            return bool(policies.address_settings(name, settled, self._broker.engine))
        return (await self._management.settings(name)).get(policies.MARK_KEY) == policies.MARK


async def reached_by_producers(management: BrokerManagement, broker: ManagedBroker) -> set[AddressName]:
    """Return the addresses that have a producer on this broker; topics also if one of their levels has."""
    names = await management.producers()
    contents = broker.contents
    topics = {name for name, held in contents.held.items() if held.kind == "topic"} if contents is not None else set()
    return names | {root for name in names if (root := root_of(name, topics)) is not None}
