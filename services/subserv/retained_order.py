"""Order of retained messages that come from several brokers, because their topic moves from one to the other.

A broker that messages of the topic no longer go to never replaces what came from the one that they go to now. A
deletion is remembered for that, until the other brokers' feeds have been read beyond it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from enmasse.control import ControlError
from enmasse.stores import Change, Store
from services.subserv import records
from services.subserv.brokers.brokers import Brokers
from services.subserv.retained.tree import Retained
from services.subserv.subscription_placement import Desired

REVIEW = 2.0
"""Seconds between two looks at deletions that are remembered."""
PATIENCE = 10.0
"""Seconds for which the feed of a broker is waited for, then the others' turn comes."""


MOST = 100_000
"""Deletions that are remembered."""


class RetainedOrder:
    """Decides whether a retained message is older than what came from another broker."""

    def __init__(self, store: Store, desired: Desired, brokers: Brokers) -> None:
        self._store = store
        self._desired = desired
        self._brokers = brokers
        self._deleted: dict[str, str] = {}
        """Name → broker whose message has deleted the retained one, as in the store."""
        self._read: set[str] = set()
        """Brokers whose feed has been read to its end since the start of the service."""

    async def load(self) -> None:
        """Read the deletions that are remembered. Raises StoreError."""
        async for name, broker in self._store.scan(records.DELETED):
            self._deleted[name] = broker.decode()

    def is_stale(self, name: str, broker: str, there: Retained | None) -> bool:
        """Return True if a message from this broker's feed is older than the last change for its name. `there`: the
        retained message of this name."""
        newest = there.broker if there is not None else self._deleted.get(name, broker)
        if newest == broker:
            return False
        active = self._desired.active_of_wire(name)
        return broker not in active and newest in active

    def put(self, name: str) -> Iterable[Change]:
        """Record that a message was retained; yield changes to store with it."""
        if self._deleted.pop(name, None) is not None:
            yield records.remove(records.DELETED, name)

    def deleted(self, name: str, broker: str) -> Iterable[Change]:
        """Record that a message from this broker has deleted a retained one; yield changes to store with
        it."""
        left = set(self._desired.carriers_of_wire(name)) - set(self._desired.active_of_wire(name))
        if (left | ({other.name for other in self._brokers if other.has_feed} - self._read)) - {broker}:
            self._deleted.pop(name, None)
            self._deleted[name] = broker
            yield Change(records.DELETED, name, broker.encode())
            if len(self._deleted) > MOST:  # a broker is away for long: the oldest is the one that matters least
                oldest = next(iter(self._deleted))
                del self._deleted[oldest]
                yield records.remove(records.DELETED, oldest)

    async def review(self) -> None:
        """Forget deletions that no older message can follow, as time goes by. Raises StoreError."""
        while True:
            await asyncio.sleep(REVIEW)
            waiting = [name for name in self._deleted if not self._moves(name)]
            if waiting and await self.read_all():
                waiting = [name for name in waiting if name in self._deleted and not self._moves(name)]
                for name in waiting:  # before the write: meanwhile one of them may be deleted once more
                    del self._deleted[name]
                await self._store.write([records.remove(records.DELETED, name) for name in waiting])

    def _moves(self, name: str) -> bool:
        return self._desired.carriers_of_wire(name) != self._desired.active_of_wire(name)

    async def read_all(self) -> bool:
        """Wait until every broker's feed has been read up to a new marker; return False if one cannot be."""
        for broker in [each for each in self._brokers if each.has_feed]:
            try:
                async with asyncio.timeout(PATIENCE):
                    await broker.conversation.feed.mark()
            except (ControlError, TimeoutError):
                return False
            self._read.add(broker.name)
        return True
