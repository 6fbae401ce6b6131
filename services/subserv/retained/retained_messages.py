"""Retained messages: stored from the brokers' feeds, given to new subscribers, listed, cleared."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol

import msgspec

from enmasse.amqp.codec.errors import AmqpError
from enmasse.control import ControlConnection, Outcome
from enmasse.identity import seals, senders
from enmasse.identity.authors import Author
from enmasse.identity.principal import ANONYMOUS, Principal
from enmasse.identity.seals import Seal
from enmasse.identity.space_plans import SpacePlans
from enmasse.logs import log
from enmasse.model.names import space_of
from enmasse.model.topic_map import TopicMap
from enmasse.storage.decoding import unpack
from enmasse.stores import Change, Store, StoreError
from services.subserv import broker_names, records
from services.subserv.records import RetainedRecord
from services.subserv.retained import message_forms
from services.subserv.retained.tree import Retained, RetainedIndex, user_of

MAX_MESSAGE = 1024 * 1024
"""Bytes of a retained message."""
MAX_NAME = 16 * 1024
"""Characters of its name on AMQP."""
MAX_MESSAGES = 200_000
MAX_BYTES = 2 * 1024 * 1024 * 1024
"""Retained messages of all users, who share the room (`SharedRoom`): one user has half of it at most."""
BATCH = 100
"""Copies that are read from the store and sent at a time."""
PORTION, PORTION_BYTES = 200, 8 * 1024 * 1024
"""Messages, and bytes of them, that are deleted at a time: a store takes as long to delete a value as to write it."""

NOBODY = Principal(ANONYMOUS)


class NotRetained(Exception):
    """A new subscriber could not be given the retained messages; the text says why."""


class ArrivalOrder(Protocol):
    """Interface of what knows the order of messages from different brokers. Changes are stored with those of the
    message."""

    def is_stale(self, name: str, broker: str, there: Retained | None) -> bool:
        """Return True if a message from this broker is older than the last change for its name."""

    def put(self, name: str) -> Iterable[Change]:
        """Record that a message was retained."""

    def deleted(self, name: str, broker: str) -> Iterable[Change]:
        """Record that a message from this broker has deleted a retained one."""


class RetainedMessages:
    """The retained messages of all brokers. `order`: set by the owner; None: all messages come from one broker."""

    order: ArrivalOrder | None = None

    def __init__(
        self,
        store: Store,
        plans: SpacePlans | None = None,
        topics: Callable[[str], TopicMap] = lambda name: TopicMap({}),
    ) -> None:
        """`topics`: those of the address space of a name."""
        self._topics = topics
        self._plans = plans or SpacePlans()
        self.index = RetainedIndex()
        self.refused = 0
        """Messages that were not retained, because of the limits or because they cannot be read."""
        self.key = b""
        """Key of the seals that name authors; empty until the store has been read."""
        self._seal: Seal | None = None
        self._store = store
        self._number = 0
        self._turn = asyncio.Lock()
        """Lock for changes of store and index, so that both stay equal."""

    async def load(self) -> None:
        """Read the index from the store, and the key, which is made at the first start. Raises StoreError."""
        key = await self._store.get(records.STATE, "seal")
        if key is None:
            key = seals.new_key()
            await self._store.write([Change(records.STATE, "seal", key)])
        self.key, self._seal = key, None
        async for name, value in self._store.scan(records.RETAINED):
            record = unpack(value, RetainedRecord)
            self._number = max(self._number, record.number)
            size = len(record.message)
            rest = record.since, record.expires, 0, record.author, record.topic
            self.index.put(Retained(name, record.broker, record.number, size, record.qos, *rest))

    async def message(self, name: str) -> bytes | None:
        """Return the retained message of a name on AMQP, encoded; None if it does not exist. Raises StoreError."""
        value = await self._store.get(records.RETAINED, name)
        return None if value is None else unpack(value, RetainedRecord).message

    def duplicate_id(self, text: str) -> str:
        """Return the duplicate id of a message of the service that the text names: the same after a restart."""
        return senders.id_for(NOBODY, senders.keyed(self.key, text))

    async def take(self, broker: str, messages: Sequence[tuple[int, bytes]]) -> None:
        """Store messages of a broker's feed, each with its position there. Returns when they are durable. Raises
        StoreError."""
        now = _now()
        arrivals: list[tuple[int, message_forms.Arrival]] = []
        for position, data in messages:
            try:
                arrival = message_forms.read(data, now, self._sealing)
            except (AmqpError, ValueError, TypeError) as error:
                self._refuse(broker, "", f"it is no AMQP message: {error}")
                continue
            if arrival is None:
                continue
            if len(arrival.name) > MAX_NAME:
                self._refuse(broker, arrival.name, f"its name has more than {MAX_NAME} characters")
                continue
            arrivals.append((position, arrival))
        # If this is cancelled meanwhile, what is stored still has to be in the index.
        await asyncio.shield(self._take_in_turn(broker, arrivals, now))

    async def _take_in_turn(self, broker: str, arrivals: Sequence[tuple[int, message_forms.Arrival]], now: int) -> None:
        async with self._turn:
            await self._take(broker, arrivals, now)

    async def _take(self, broker: str, arrivals: Sequence[tuple[int, message_forms.Arrival]], now: int) -> None:
        changes: dict[tuple[str, str], Change] = {}
        entries: dict[str, Retained | None] = {}

        def change(*several: Change) -> None:
            changes.update(((each.table, each.key), each) for each in several)

        for position, arrival in arrivals:
            name, kept = arrival.name, arrival.message
            there = entries[name] if name in entries else self.index.get(name)
            if self.order is not None and self.order.is_stale(name, broker, there):
                continue
            topics = self._topics(name)
            for other in self.index.of_topic(topics.topic_of(name), topics.space):
                if other.name != name:  # it was published before another address took the topic
                    change(records.remove(records.RETAINED, other.name))
                    entries[other.name] = None
            if kept is not None and (reason := self._limit(name, arrival.author, len(kept), entries)):
                self._refuse(broker, name, reason)
                kept = None  # what was retained before is out of date
            if kept is None or (arrival.expires and arrival.expires <= now):
                change(
                    records.remove(records.RETAINED, name), *(self.order.deleted(name, broker) if self.order else ())
                )
                entries[name] = None
                continue
            self._number += 1
            author, topic = arrival.author, topics.short(name)
            record = RetainedRecord(broker, self._number, now, arrival.expires, arrival.qos, kept, author, topic)
            change(records.put(records.RETAINED, name, record), *(self.order.put(name) if self.order else ()))
            rest = now, arrival.expires, position, author, topic
            entries[name] = Retained(name, broker, self._number, len(kept), arrival.qos, *rest)
        await self._store.write(list(changes.values()))
        for name, entry in entries.items():
            if entry is None:
                self.index.remove(name)
            else:
                self.index.put(entry)

    async def restore(self, name: str, kept: RetainedRecord) -> None:
        """Store a message of a backup, in place of the one that there is. Raises StoreError."""
        await asyncio.shield(self._restore(name, kept))

    async def _restore(self, name: str, kept: RetainedRecord) -> None:
        async with self._turn:
            self._number += 1
            record = msgspec.structs.replace(kept, number=self._number, topic=self._topics(name).short(name))
            order = self.order.put(name) if self.order else ()
            await self._store.write([records.put(records.RETAINED, name, record), *order])
            rest = record.since, record.expires, 0, record.author, record.topic
            self.index.put(Retained(name, record.broker, record.number, len(record.message), record.qos, *rest))

    @property
    def _sealing(self) -> Seal | None:
        if self._seal is None and self.key:
            self._seal = Seal(self.key)
        return self._seal

    def _limit(self, name: str, author: Author | None, size: int, entries: dict[str, Retained | None]) -> str:
        """Return why a message of this size cannot be retained; empty if it can."""
        if size > MAX_MESSAGE:
            return f"it has {size} bytes, a retained message may have {MAX_MESSAGE}"
        index, user, there = self.index, user_of(author), self.index.get(name)
        whose = f"of user {user}" if user else "of clients without a user"
        if there is None and index.room.is_full(user, MAX_MESSAGES, len(entries)):
            return f"there are {index.room.of(user)} retained messages {whose}, others need the rest: clear some"
        if there is None and (limit := self._plans.limits(space := space_of(name)).retained) is not None:
            others = [each for each, entry in entries.items() if space_of(each) == space]
            used = index.room.of_space(space) + sum(
                (entries[each] is not None) - (index.get(each) is not None) for each in others
            )
            if reason := self._plans.full(space, limit, used, "retained messages"):
                return reason
        if (there is None or size > there.size) and index.bytes.is_full(user, MAX_BYTES):
            return f"{index.bytes.of(user)} bytes are retained {whose}, others need the rest: clear some"
        return ""

    def _refuse(self, broker: str, name: str, reason: str) -> None:
        self.refused += 1
        log.get(broker=broker).warning(
            "subserv.message.not-retained", topic=name[:200], reason=reason, space=space_of(name)
        )

    async def expire(self) -> None:
        """Delete expired messages. Raises StoreError."""
        over = self.index.expired(_now())
        try:
            await self.clear(over)
        except StoreError:
            for entry in over:
                if self.index.get(entry.name) is entry:
                    self.index.put(entry)  # expires again next time
            raise

    async def clear(self, entries: Iterable[Retained]) -> int:
        """Delete these retained messages unless they have been replaced. Return how many were deleted. Other requests
        are served between two portions. Raises StoreError: some may be deleted."""
        count = 0
        for some in _portions(entries):
            async with self._turn:
                there = [entry for entry in some if self.index.get(entry.name) is entry]
                await self._store.write([records.remove(records.RETAINED, entry.name) for entry in there])
                for entry in there:
                    self.index.remove(entry.name)
            count += len(there)
        return count

    def topic(self, entry: Retained) -> str:
        """Return the topic of MQTT."""
        return entry.topic or self._topics(entry.name).topic_of(entry.name)

    def present(self, entry: Retained) -> str:
        """Return the name on AMQP that its topic has by the addresses that there are now."""
        topics = self._topics(entry.name)
        if entry.topic or topics.owner_of_wire(entry.name) is None:
            owner = topics.owner(self.topic(entry))
            return entry.name if owner is None or not owner.traits.levels else owner.wire
        return entry.name

    async def give(
        self,
        connection: ControlConnection,
        broker: str,
        id: str,
        entries: Sequence[Retained],
        filter: str,
        number: str,
    ) -> None:
        """Put copies of these into a subscriber's queue, in their order. `number` is that of this giving: when it is
        repeated, the broker recognises what it has already. Raises NotRetained, StoreError, ControlError."""
        sender = connection.sender(broker_names.queue_name(broker, id))
        try:
            await sender.opened()
            for at in range(0, len(entries), BATCH):
                some = entries[at : at + BATCH]
                values = [await self._store.get(records.RETAINED, entry.name) for entry in some]
                now = _now()
                sent: list[asyncio.Future[Outcome]] = []
                for entry, value in zip(some, values, strict=True):
                    record = unpack(value, RetainedRecord) if value is not None else None
                    if record is None or record.number != entry.number or (entry.expires and entry.expires <= now):
                        continue  # replaced or deleted since: the subscriber gets the live message
                    identity = self.duplicate_id(f"{number}:{entry.number}:{filter}")
                    try:
                        name = self.present(entry)
                        data = message_forms.copy_for(record.message, name, filter, identity, entry.expires, now)
                    except (AmqpError, ValueError, TypeError) as error:  # of one publisher: the others' are given
                        log.get(broker=broker, space=space_of(entry.name)).error(
                            "subserv.copy.failed", topic=entry.name[:200], reason=str(error)
                        )
                        continue
                    done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
                    sent.append(done)
                    sender.send(data, partial(_settled, done))
                for outcome in await asyncio.gather(*sent):
                    if not outcome.accepted:
                        raise NotRetained(
                            f"broker {broker} does not take the retained messages of {filter[:100]!r}: "
                            f"{outcome.description or outcome.condition or 'released'}"
                        )
        finally:
            sender.close()


def _portions(entries: Iterable[Retained]) -> Iterator[list[Retained]]:
    some: list[Retained] = []
    size = 0
    for entry in entries:
        if some and (len(some) == PORTION or size + entry.size > PORTION_BYTES):
            yield some
            some, size = [], 0
        some.append(entry)
        size += entry.size
    if some:
        yield some


def _settled(done: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not done.done():
        done.set_result(outcome)


def _now() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // 1_000_000
