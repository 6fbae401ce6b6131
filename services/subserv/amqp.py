"""Subscriptions of AMQP clients: made, changed and ended over `$subctrl`. Durable before it is answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from enmasse.identity.authors import Author
from enmasse.identity.filter_limits import FilterLimits
from enmasse.identity.owned import owner
from enmasse.identity.permissions import Rights
from enmasse.identity.principal import ANONYMOUS
from enmasse.identity.shared_room import SharedRoom
from enmasse.logs import log
from enmasse.model.topic_map import FilterRefused
from enmasse.stores import Change, Store
from services.subserv import broker_names, records
from services.subserv.brokers.binding import Binder, Wanted
from services.subserv.brokers.brokers import Brokers
from services.subserv.records import AmqpRecord
from services.subserv.serial_work import SerialWork
from services.subserv.subscription_placement import Desired, Subscriber
from services.subserv.suite_queues import SuiteIdentity

MAX_SUBSCRIPTIONS = 100_000
"""Subscriptions of all users, who share the room (`SharedRoom`)."""
MAX_FILTERS = 2_000
"""Filters of one subscription, at most."""


class NotMade(NamedTuple):
    """Filters that were not made, with the reason: `refused` ones cannot be, `failed` ones a broker has not made."""

    refused: dict[str, str]
    failed: dict[str, str]


class AmqpSubscription(Subscriber):
    """`filters` are names on AMQP, with the brokers' wildcards."""

    __slots__ = ("record",)

    def __init__(self, id: str, record: AmqpRecord) -> None:
        super().__init__(id, record.created, record.filters, amqp=True, space=owner(record.subscription).space)
        self.record = record


class AmqpSubscriptions:
    """All of them, by id, and by the id that the client gave."""

    def __init__(
        self,
        store: Store,
        identity: SuiteIdentity,
        desired: Desired,
        brokers: Brokers,
        binder: Binder,
        wildcards: FilterLimits,
    ) -> None:
        self.by_id: dict[str, AmqpSubscription] = {}
        self._by_name: dict[str, AmqpSubscription] = {}
        self._identity = identity
        self._store = store
        self._desired = desired
        self._brokers = brokers
        self._binder = binder
        self._wildcards = wildcards
        self._room = SharedRoom()
        self._turns = SerialWork()

    def put(self, record: AmqpRecord) -> AmqpSubscription:
        """Take over this record as the state of its subscription."""
        id = self._identity.local(broker_names.amqp_id(record.subscription), record.created)
        made = AmqpSubscription(id, record)
        before = self._by_name.get(record.subscription)
        known = before.filters if before is not None else frozenset()
        self._wildcards.add(record.subscription, made.filters - known)
        self._wildcards.remove(record.subscription, known - made.filters)
        if before is None:
            self._room.add(_user(record.subscription))
        self.by_id[made.id] = self._by_name[record.subscription] = made
        return made

    def of(self, subscription: str) -> AmqpSubscription | None:
        """Return the subscription by the id that the client gave."""
        return self._by_name.get(subscription)

    async def subscribe(
        self, subscription: str, filters: Mapping[str, str | None], created: int, *, partly: bool
    ) -> NotMade:
        """Subscribe; return the refused topics. Unless `partly`, nothing is changed then. `created`: number of the
        subscription, if it is new. Raises StoreError."""
        async with self._turns.of(subscription):
            old = self.of(subscription)
            before = old.record if old is not None else None
            if before is None:
                await self._identity.make_durable(self._store, created)
            refused = self._refused(subscription, before, filters)
            good = {filter: tag for filter, tag in filters.items() if filter not in refused}
            if not good or (refused and not partly):
                return NotMade(refused, {})
            known = dict(before.filters) if before is not None else {}
            base = before or AmqpRecord(subscription=subscription, created=created, since=time.time())
            record = msgspec.structs.replace(base, filters={**known, **good}, round=base.round + 1)
            subscriber = self.put(record)
            wanted = [
                Wanted(filter, filter, subscriber.id, True, True, subscriber.space)
                for filter in good
                if filter not in known
            ]
            try:
                failed = await self._binder.bind(wanted, f"{subscriber.id}:{base.created}:{base.round}")
                if failed:
                    kept = {} if not partly else {f: tag for f, tag in good.items() if f not in failed}
                    record = msgspec.structs.replace(record, filters={**known, **kept})
                if not record.filters and before is None:
                    self._forget(subscriber)
                else:
                    self.put(record)
                    self._brokers.touch((subscriber.id,) if failed else ())
                    await self._store.write([records.put(records.AMQP, subscription, record)])
            except BaseException:
                if before is not None:
                    self.put(before)
                    self._brokers.touch((subscriber.id,))
                else:
                    self._forget(subscriber)
                raise
            return NotMade(refused, failed)

    def _refused(self, subscription: str, before: AmqpRecord | None, filters: Iterable[str]) -> dict[str, str]:
        refused: dict[str, str] = {}
        room, user = self._wildcards.room(subscription), _user(subscription)
        known = set(before.filters) if before is not None else set()
        for filter in filters:
            try:
                self._desired.targets(filter, amqp=True, space=owner(subscription).space)
            except FilterRefused as error:
                refused[filter] = str(error)
                continue
            if filter not in known and (reason := room.refusal(filter)):
                refused[filter] = reason
                continue
            known.add(filter)
            if len(known) > MAX_FILTERS:
                refused[filter] = f"a subscription may have {MAX_FILTERS} topics"
            elif before is None and self._room.is_full(user, MAX_SUBSCRIPTIONS):
                refused[filter] = (
                    f"user {user} has {self._room.of(user)} subscriptions by $subctrl: close some, others "
                )
                refused[filter] += "need the room that is left"
        return refused

    async def unsubscribe(self, subscription: str, filters: Iterable[str]) -> str:
        """Remove filters of a subscription. The queue stays until it is empty or the subscription is closed. Return the
        reason if a broker has not done it yet. Raises StoreError."""
        async with self._turns.of(subscription):
            subscriber = self.of(subscription)
            if subscriber is None:
                return ""
            gone = set(filters)
            kept = {filter: tag for filter, tag in subscriber.record.filters.items() if filter not in gone}
            record = msgspec.structs.replace(subscriber.record, filters=kept)
            await self._store.write([records.put(records.AMQP, subscription, record)])
            self.put(record)
            return await self._binder.applied(subscriber.id)

    async def close(self, subscription: str) -> bool:
        """End the subscription and its waiting messages. Return False if it does not exist. Raises StoreError."""
        async with self._turns.of(subscription):
            subscriber = self.of(subscription)
            if subscriber is None:
                return False
            await self._store.write([Change(records.AMQP, subscription, None)])
            self._forget(subscriber)
            await self._binder.applied(subscriber.id)
            return True

    async def end_forbidden(
        self, rights_of: Callable[[Author], Rights | None], is_empty: Callable[[str], bool]
    ) -> None:
        """End what users may no longer receive: filters, and subscriptions of which none is left. The anonymous
        user's without an entry stay, and those of a space without users. `rights_of` returns None for an unknown user.
        Raises StoreError."""
        changes: list[Awaitable[object]] = []
        for name, each in list(self._by_name.items()):
            found = owner(name)
            rights = rights_of(Author(found.user, space=found.space))
            if rights is None and (found.user == ANONYMOUS or is_empty(found.space)):
                continue
            filters = each.record.filters
            gone = [filter for filter in filters if rights is None or not rights.covers("recv", filter).allowed]
            if rights is None or (gone and len(gone) == len(filters)):
                changes.append(self.close(name))
            elif gone:
                changes.append(self.unsubscribe(name, gone))
            if gone:
                log.get(client=name, space=found.space).info(
                    "subserv.subscriptions.forbidden", filters=[each[:200] for each in gone[:20]]
                )
        await asyncio.gather(*changes)  # beside each other: each waits a while for a broker that is away

    def _forget(self, subscriber: AmqpSubscription) -> None:
        self.by_id.pop(subscriber.id, None)
        if (known := self._by_name.pop(subscriber.record.subscription, None)) is not None:
            self._wildcards.remove(subscriber.record.subscription, known.filters)
            self._room.add(_user(subscriber.record.subscription), -1)
        self._brokers.touch((subscriber.id,))

    def addresses(self, subscription: str) -> list[str]:
        """Return the addresses to receive from."""
        subscriber = self.of(subscription)
        if subscriber is None:
            return []
        found = self._desired.brokers(subscriber)
        found.update(broker.name for broker in self._brokers if subscriber.id in broker.conversation.held)
        return [broker_names.queue_name(broker, subscriber.id) for broker in sorted(found)]


def _user(subscription: str) -> str:
    return owner(subscription).principal.full_name
