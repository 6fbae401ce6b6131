"""The brokers of the placements, each with a conversation that is kept up."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from enmasse.control import Artemis, ControlConnection, ControlError, keep_connected
from enmasse.identity.processes.credentials import AnyCredential
from enmasse.model.feeds import Placements
from services.subserv.broker_names import id_of
from services.subserv.brokers.conversation import BrokerConversation, Owner
from services.subserv.brokers.retained_feed import RetainedFeed, Store

CONTAINER = "subserv"


class Endpoint(NamedTuple):
    """Address of a broker, and whether it takes SCRAM-SHA-256: as the placements say, not as the broker offers."""

    host: str
    port: int
    scram: bool


class Broker:
    """A broker and the conversation with it. `learned()`: `is_unasked` has changed."""

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        owner: Owner,
        feed: RetainedFeed,
        learned: Callable[[], None],
        credential: AnyCredential | None,
    ) -> None:
        self.name = name
        self.endpoint = endpoint
        self.by_hand = False
        self.is_unasked = False
        """True for a broker of another product, without this management."""
        self.connection: ControlConnection | None = None
        self.conversation = BrokerConversation(name, owner, feed)
        self._learned = learned
        host, port, scram = endpoint
        work = keep_connected(host, port, self._session, container=CONTAINER, credential=credential if scram else None)
        self._task = asyncio.ensure_future(work)

    @property
    def heard(self) -> int:
        """Frames from it over the connection there is: it lives if this changes."""
        return self.connection.frames.received if self.connection is not None else 0

    async def _session(self, connection: ControlConnection) -> None:
        self.connection = connection
        other = not Artemis.is_at(connection)
        if other != self.is_unasked:
            self.is_unasked = other
            self._learned()
        if other:
            await asyncio.Event().wait()  # until the connection is lost
        await self.conversation.session(connection)

    @property
    def has_feed(self) -> bool:
        """True if retained messages may come from it."""
        return not self.is_unasked and (self.conversation.carries_topics or self.conversation.feed.attached)

    @property
    def is_awaited(self) -> bool:
        """True if subscribers have, or are to have, anything there."""
        return not self.is_unasked and (self.conversation.carries_topics or bool(self.conversation.held))

    def close(self) -> None:
        """End the conversation."""
        self._task.cancel()
        self.conversation.close()


class Brokers:
    """All of them, by name."""

    def __init__(
        self, owner: Owner, store: Store, unasked: Callable[[Iterable[str]], None], credential: AnyCredential | None
    ) -> None:
        """`unasked(names)`: these cannot be asked to keep subscriptions. `credential`: that of this process."""
        self._owner = owner
        self._store = store
        self._positions = itertools.count()
        self._unasked = unasked
        self._credential = credential
        self._brokers: dict[str, Broker] = {}

    def follow(self, placements: Placements) -> None:
        """Take the brokers of the placements; those whose host and port are unknown stay unchanged."""
        invalid = placements.invalid if isinstance(placements.invalid, list) else []
        with_topics = {
            each.broker for places in placements.addresses.values() for each in places if each.type != "queue"
        }
        wanted = {name: Endpoint(broker.host, broker.port, broker.scram) for name, broker in placements.brokers.items()}
        for name in list(self._brokers):
            if name not in invalid and self._brokers[name].endpoint != wanted.get(name):
                self._brokers.pop(name).close()
        for name, endpoint in wanted.items():
            if name not in self._brokers:
                feed = RetainedFeed(name, self._store, self._positions)
                self._brokers[name] = Broker(name, endpoint, self._owner, feed, self._learned, self._credential)
            self._brokers[name].by_hand = by_hand = placements.brokers[name].by_hand
            self._brokers[name].conversation.carry_topics(not by_hand or name in with_topics)
        self._learned()

    def _learned(self) -> None:
        self._unasked(broker.name for broker in self if broker.is_unasked)

    async def depth(self, source: str) -> int:
        """Return the number of messages in a subscriber's queue; 0 without a queue. Raises ControlError, ValueError
        or OSError if it is not known."""
        for broker in self:
            id = id_of(broker.name, source)
            if id is not None:
                return await broker.conversation.depth(id)
        return 0

    async def depth_of_address(self, broker: str, address: str) -> int:
        """Return the number of messages in a queue address on a broker, those under way to consumers included.

        Raises ControlError, ValueError, OSError: the number is not known.
        """
        found = self._brokers.get(broker)
        if found is None:
            raise ControlError("amqp:not-found", f"no connection to broker {broker}")
        return await found.conversation.depth_of_address(address)

    def get(self, name: str) -> Broker | None:
        """Return the broker of this name, or None."""
        return self._brokers.get(name)

    def __iter__(self) -> Iterator[Broker]:
        return iter(self._brokers.values())

    def __len__(self) -> int:
        return len(self._brokers)

    def touch(self, ids: Iterable[str]) -> None:
        """Note that the desired state of these subscribers may have changed, on any broker."""
        ids = list(ids)
        for broker in self:
            broker.conversation.touch(ids)

    def close(self) -> None:
        """End all conversations."""
        for broker in self:
            broker.close()
        self._brokers.clear()
