"""Ends what removed address spaces have at the subscription service, and tells when nothing of them can be left: until
then no space gets their name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from enmasse.logs import log
from enmasse.model.names import space_prefix
from services.subserv.amqp import AmqpSubscriptions
from services.subserv.brokers.slices import portions
from services.subserv.permits import Permits
from services.subserv.retained.retained_messages import RetainedMessages
from services.subserv.sessions.clients import Clients
from services.subserv.sessions.sessions import Sessions

AGAIN = 2.0
"""Seconds until a broker's feed is read again that could not be."""


class RemovedSpaces:
    """`read_feeds()`: read all that brokers have of retained messages; False: not all can be read now. `failed(task,
    error)`: work that is tried again has failed."""

    def __init__(
        self,
        permits: Permits,
        sessions: Sessions,
        clients: Clients,
        amqp: AmqpSubscriptions,
        retained: RetainedMessages,
        read_feeds: Callable[[], Awaitable[bool]],
        failed: Callable[[str, Exception], None],
    ) -> None:
        self.ended: Mapping[str, str] = {}
        """Removed space → id of the removal of which nothing is left."""
        self._permits = permits
        self._sessions = sessions
        self._clients = clients
        self._amqp = amqp
        self._retained = retained
        self._read_feeds = read_feeds
        self._failed = failed
        self._wake = asyncio.Event()

    def look(self) -> None:
        """Note that other removals may be in force."""
        self.ended = {space: id for space, id in self.ended.items() if self._permits.ending.now.get(space) == id}
        self._wake.set()

    async def run(self) -> None:
        """End removed spaces until cancelled; the store has been read."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                while not await self.finish():
                    await asyncio.sleep(AGAIN)
            except Exception as error:
                self._failed("end removed address spaces", error)
                await asyncio.sleep(AGAIN)
                self._wake.set()

    async def finish(self) -> bool:
        """End the removals that are in force for good. No broker takes messages of them any longer, and no client gets
        anything new: once the feeds have been read there is no way in. Return False if this has to wait for a broker.
        Raises StoreError."""
        ending = dict(self._permits.ending.now)
        if ending == self.ended:
            return True
        if not await self._read_feeds():
            return False
        await self.end()
        self.ended = {space: id for space, id in ending.items() if self._permits.ending.now.get(space) == id}
        return self.ended == self._permits.ending.now

    async def end(self) -> None:
        """End what spaces have that are no longer there, and have no addresses left. Raises StoreError."""
        sessions, amqp, index = self._sessions.by_client, self._amqp.by_id, self._retained.index
        spaces = {*self._sessions.room.of_spaces, *index.room.of_spaces, *(each.space for each in amqp.values())}
        for space in filter(self._permits.space_removed, spaces):
            if self._permits.terminating(space):
                continue
            kept = index.match(f"{space_prefix(space)}#")
            clients = [name for name, each in sessions.items() if each.space == space]
            subscriptions = [each for each in amqp.values() if each.space == space]
            if not kept and not clients and not subscriptions:
                continue
            log.get(space=space).info(
                "subserv.space.removed",
                sessions=len(clients),
                subscriptions=len(subscriptions),
                retained=len(kept),
            )
            await self._retained.clear(kept)
            async for some in portions(clients):
                for client in some:
                    await self._clients.delete(client)
            await asyncio.gather(*(self._amqp.close(each.record.subscription) for each in subscriptions))
