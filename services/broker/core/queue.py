"""A queue: messages in order, consumers that compete for them, and what happens to a message that comes back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from services.broker.core.choice import SLICE, dispatch_by_choice
from services.broker.core.consumer import Consumer
from services.broker.core.message import DURABLE, PRIORITY_SHIFT, REWRITE, STORED, Message, outgoing
from services.broker.selector import Selector

if TYPE_CHECKING:
    from services.broker.core.address import Address
    from services.broker.core.broker import Broker

_SLICE_BYTES = 2 << 20
_RUN = 50  # messages sent in one go
_by_id = attrgetter("id")


class Queue:
    """Sans-IO. The broker gives it time (`broker.now`, ms), storage and a turn later (`broker.postpone`)."""

    __slots__ = (
        "acknowledged",
        "active",
        "added",
        "address",
        "attempts",
        "auto_created",
        "auto_delete",
        "broker",
        "browsers",
        "bytes",
        "consumers",
        "count",
        "deleted",
        "draining",
        "durable",
        "excluded",
        "exclusive",
        "expired",
        "expiring",
        "filter",
        "id",
        "killed",
        "levels",
        "max_consumers",
        "name",
        "next_expiry",
        "no_local",
        "paused",
        "purge_on_no_consumers",
        "ready",
        "routing_type",
        "scheduled",
        "simple",
        "subscription",
        "temporary",
        "user",
    )

    def __init__(
        self,
        broker: Broker,
        id: int,
        name: str,
        address: Address,
        routing_type: str,
        *,
        durable: bool,
        temporary: bool = False,
        filter: Selector | None = None,
        no_local: str | None = None,
        max_consumers: int = -1,
        purge_on_no_consumers: bool = False,
        exclusive: bool = False,
        auto_created: bool = False,
        auto_delete: bool = False,
        user: str = "",
    ) -> None:
        self.broker = broker
        self.id = id
        self.name = name
        self.address = address
        self.routing_type = routing_type
        self.durable = durable
        self.temporary = temporary
        self.filter = filter
        self.no_local = no_local
        self.max_consumers = max_consumers
        self.purge_on_no_consumers = purge_on_no_consumers
        self.exclusive = exclusive
        self.auto_created = auto_created
        self.auto_delete = auto_delete
        self.user = user
        self.paused = False
        self.deleted = False
        self.subscription: tuple[Any, ...] | None = None  # what a durable subscription was made for (see links)

        self.ready: deque[Message] = deque()  # priority 4, and all there is while `levels` is None
        self.levels: list[deque[Message]] | None = None
        self.scheduled: list[tuple[int, int, Message]] = []  # heap of (due, id, message)
        self.attempts: dict[int, int] = {}  # failed deliveries by message id, where there are any
        self.excluded: dict[int, list[Consumer]] = {}  # "undeliverable here"
        self.expiring = 0  # messages with an expiry, scheduled ones and those being delivered included
        self.next_expiry = 0  # no message expires before this (0 = none does)

        self.consumers: list[Consumer] = []
        self.browsers: list[Any] = []
        self.active: deque[Consumer] = deque()  # those with credit, as far as known, in turn
        self.draining: set[Consumer] = set()
        self.simple = True  # no filter, consumer priority, message priority, exclusion or pause is in play

        self.count = 0  # messages held: ready, scheduled and being delivered
        self.bytes = 0
        self.added = self.acknowledged = self.expired = self.killed = 0

    # -- what is there -------------------------------------------------------------------------------------------------
    @property
    def delivering(self) -> int:
        return sum(len(consumer.unsettled) for consumer in self.consumers)

    def messages(self) -> Iterable[Message]:
        """Those waiting, in the order in which they will be delivered; not those scheduled or being delivered."""
        if self.levels is None:
            yield from self.ready
        else:
            for level in reversed(self.levels):
                yield from level

    # -- in ------------------------------------------------------------------------------------------------------------
    def add(self, message: Message, due: int = 0) -> None:
        """A new message at the end; goes straight to a consumer where one waits."""
        self.count += 1
        self.bytes += message.size
        self.added += 1
        if message.expires:
            self._expects(message.expires)
        if due and due > self.broker.now:
            self._schedule(message, due)
            return
        if self.simple and message.flags >> PRIORITY_SHIFT == 4:
            ready = self.ready
            if not ready:
                active = self.active
                while active:
                    consumer = active[0]
                    if consumer.outlet.credit > 0:
                        if len(active) > 1:
                            active.rotate(-1)
                        self.send(consumer, message)
                        return
                    active.popleft()
                    consumer.active = False
            ready.append(message)
            return
        self._push(message)
        self.dispatch()

    def add_run(self, messages: list[Message], size: int) -> None:
        """`add` of messages without expiry, `size` bytes together."""
        self.count += len(messages)
        self.bytes += size
        self.added += len(messages)
        idle = not self.ready
        if self.simple and messages[0].flags >> PRIORITY_SHIFT == 4:
            self.ready.extend(messages)
            if idle:
                self.dispatch()
            return
        for message in messages:
            self._push(message)
        self.dispatch()

    def _push(self, message: Message) -> None:
        priority = message.flags >> PRIORITY_SHIFT
        if self.levels is None:
            if priority == 4:
                self.ready.append(message)
                return
            self.levels = [deque() for _ in range(10)]
            self.levels[4] = self.ready
            self.simple = False
        self.levels[priority].append(message)

    def restore(self, message: Message, attempts: int, due: int) -> None:
        """A message found in the store at the start."""
        self.count += 1
        self.bytes += message.size
        if message.expires:
            self._expects(message.expires)
        if attempts:
            self.attempts[message.id] = attempts
        if due:
            self._schedule(message, due)
        else:
            self._push(message)

    def _expects(self, expires: int) -> None:
        self.expiring += 1
        if not self.next_expiry or expires < self.next_expiry:
            self.next_expiry = expires
        self.broker.expects(self)

    def _schedule(self, message: Message, due: int) -> None:
        heappush(self.scheduled, (due, message.id, message))
        self.broker.wakes(self, due)

    # -- out -----------------------------------------------------------------------------------------------------------
    def dispatch(self) -> None:
        """Sends what can be sent now; after a slice of work the rest is postponed to a later turn."""
        if self.paused:
            return
        more = self._dispatch_simple() if self.simple else dispatch_by_choice(self)
        if more:
            self.broker.postpone(self)
        elif self.draining:
            self._answer_drains()

    def _dispatch_simple(self) -> bool:
        ready = self.ready
        active = self.active
        left = SLICE
        left_bytes = _SLICE_BYTES
        while ready and active:
            consumer = active[0]
            if consumer.outlet.credit <= 0:
                active.popleft()
                consumer.active = False
                continue
            if left <= 0 or left_bytes <= 0:
                return True
            if len(active) == 1 and self._send_run(consumer):
                left -= _RUN
                continue
            message = ready.popleft()
            if message.expires and message.expires <= self.broker.now:
                self.broker.expire(self, message)
                left -= 1
                continue
            left -= 1
            left_bytes -= message.size
            if len(active) > 1:
                active.rotate(-1)
            self.send(consumer, message)
        return False

    def _send_run(self, consumer: Consumer) -> bool:
        """Sends what is first in line and needs no looking at, up to _RUN messages. False: there is nothing such."""
        if consumer.presettled or self.attempts:
            return False
        ready = self.ready
        messages: list[Message] = []
        payloads: list[bytes] = []
        for message in islice(ready, _RUN):
            payload = message.payload
            if payload is None or message.flags & REWRITE or message.expires:
                break
            messages.append(message)
            payloads.append(payload)
        sent = consumer.outlet.send_run(payloads, messages)
        if sent < len(messages):
            del messages[sent:]
        for _ in messages:
            ready.popleft()
        unsettled = consumer.unsettled
        broker = self.broker
        for message in messages:
            unsettled[message.id] = message
        if broker.resident > broker.memory_limit:
            for message in messages:
                broker.put_out(message)
        return sent > 0

    def deactivate(self, consumer: Consumer) -> None:
        if consumer.active:
            consumer.active = False
            self.active.remove(consumer)

    def send(self, consumer: Consumer, message: Message) -> None:
        payload = message.payload
        if payload is None:
            payload = self.broker.load(message)
            if payload is None:  # lost on disk; said in the log
                self._finish(message)
                return
        if message.flags & REWRITE or self.attempts:
            payload = self._for_sending(message, payload)
        if consumer.presettled:
            consumer.outlet.send(payload, None, settled=True)
            self.acknowledged += 1
            self._finish(message)
            return
        consumer.unsettled[message.id] = message
        consumer.outlet.send(payload, message)
        broker = self.broker
        if broker.resident > broker.memory_limit:
            broker.put_out(message)

    def _for_sending(self, message: Message, payload: bytes) -> bytes:
        attempts = self.attempts.get(message.id, 0)
        if not message.flags & REWRITE and not attempts:
            return payload
        ttl = max(0, message.expires - self.broker.now) if message.expires else -1
        return outgoing(payload, bool(message.flags & DURABLE), message.flags >> PRIORITY_SHIFT, ttl, attempts)

    def _answer_drains(self) -> None:
        for consumer in [c for c in self.draining if not c.blocked()]:
            self.draining.discard(consumer)
            if consumer.outlet.drain:
                consumer.outlet.drained()

    # -- consumers -----------------------------------------------------------------------------------------------------
    def attach(self, consumer: Consumer) -> None:
        consumer.queue = self
        self.consumers.append(consumer)
        if consumer.selector is not None or consumer.priority or self.exclusive:
            self.simple = False

    def flow(self, consumer: Consumer) -> None:
        """Credit or drain has changed for the consumer, or its peer reads again."""
        if not consumer.active and consumer.outlet.credit > 0:
            consumer.active = True
            self.active.append(consumer)
        if consumer.outlet.drain:
            self.draining.add(consumer)
        self.dispatch()

    def detach(self, consumer: Consumer) -> None:
        """The consumer's link is gone: what it had and did not settle comes back, counted as a failed delivery."""
        if consumer not in self.consumers:
            return
        self.consumers.remove(consumer)
        self.draining.discard(consumer)
        self.deactivate(consumer)
        for message_id in [i for i, consumers in self.excluded.items() if consumer in consumers]:
            self.excluded[message_id].remove(consumer)
            if not self.excluded[message_id]:
                del self.excluded[message_id]
        messages = list(consumer.unsettled.values())
        consumer.unsettled.clear()
        consumer.queue = None
        if not self.deleted:
            self.settle_mode()
            self.give_back(messages, failed=True)

    def settle_mode(self) -> None:
        """Whether the short way of dispatching may be taken again, after something that decides about it changed."""
        if self.levels is not None and not any(self.levels[i] for i in range(10) if i != 4):
            self.levels = None
        self.simple = (
            self.levels is None
            and not self.excluded
            and not self.exclusive
            and not self.paused
            and not any(c.selector is not None or c.priority for c in self.consumers)
        )

    # -- outcomes ------------------------------------------------------------------------------------------------------
    def accept(self, consumer: Consumer, messages: list[Message]) -> None:
        """Acknowledged by the consumer: gone for good, once that is recorded."""
        take = consumer.unsettled.pop
        broker = self.broker
        release = broker.release
        stored: list[int] | None = [] if broker.store is not None and self.durable else None
        attempts = self.attempts
        done = size = resident = 0
        gone = gone_size = 0  # messages nobody refers to any more, all of one address
        owner = messages[0].owner if messages else self.address
        for message in messages:
            if take(message.id, None) is None:
                continue
            done += 1
            size += message.size
            if stored is not None and message.flags & STORED:
                stored.append(message.id)
            if message.expires:
                self._unexpect()
            if attempts:
                attempts.pop(message.id, None)
            message.refs = refs = message.refs - 1
            if refs:
                continue
            if message.owner is owner and message.place is None:
                gone += 1
                gone_size += message.size
                if message.payload is not None:
                    resident += message.size
            else:
                release(message)
        owner.count -= gone
        owner.size -= gone_size
        broker.size -= gone_size
        broker.resident -= resident
        if stored and broker.store is not None:
            broker.store.remove_many(stored, self.id)
        self.acknowledged += done
        self.count -= done
        self.bytes -= size
        broker.acknowledged_some()

    def release(self, consumer: Consumer, messages: list[Message]) -> None:
        """Given back untouched: to the head, its count of deliveries unchanged."""
        self.give_back([m for m in messages if consumer.unsettled.pop(m.id, None) is not None], failed=False)

    def modify(self, consumer: Consumer, messages: list[Message], *, failed: bool, elsewhere: bool) -> None:
        """Given back with `delivery-failed` and/or `undeliverable-here`."""
        mine = [m for m in messages if consumer.unsettled.pop(m.id, None) is not None]
        if elsewhere:
            self.simple = False
            for message in mine:
                self.excluded.setdefault(message.id, []).append(consumer)
        self.give_back(mine, failed=failed)

    def reject(self, consumer: Consumer, messages: list[Message]) -> None:
        """Not wanted by anybody: to the dead-letter address at once."""
        for message in messages:
            if consumer.unsettled.pop(message.id, None) is not None:
                self.broker.kill(self, message)
        self.broker.acknowledged_some()

    def give_back(self, messages: list[Message], *, failed: bool) -> None:
        """Back to their places; with `failed` the attempt counts, and may have been the last or delay the next."""
        if not messages:
            self.dispatch()
            return
        kept: list[Message] = []
        settings = self.address.settings
        for message in messages:
            if failed:
                attempts = self.attempts.get(message.id, 0) + 1
                if 0 <= settings.max_delivery_attempts <= attempts:
                    self.broker.kill(self, message)
                    continue
                self.attempts[message.id] = attempts
                delay = settings.redelivery_after(attempts)
                due = self.broker.now + delay if delay else 0
                self.broker.record_attempts(self, message, attempts, due)
                if due:
                    self._schedule(message, due)
                    continue
            kept.append(message)
        if kept:
            self._reinsert(kept)
        self.broker.acknowledged_some()
        self.dispatch()

    def _reinsert(self, messages: list[Message]) -> None:
        messages.sort(key=_by_id)
        lowest = messages[0].id - 1
        for consumer in self.consumers:
            consumer.scanned = min(consumer.scanned, lowest)
        if self.levels is None and all(m.flags >> PRIORITY_SHIFT == 4 for m in messages):
            _merge(self.ready, messages)
            return
        if self.levels is None:
            self.levels = [deque() for _ in range(10)]
            self.levels[4] = self.ready
            self.simple = False
        for priority in range(10):
            some = [m for m in messages if m.flags >> PRIORITY_SHIFT == priority]
            if some:
                _merge(self.levels[priority], some)

    # -- time ----------------------------------------------------------------------------------------------------------
    def wake(self) -> int:
        """Scheduled messages whose time has come become ready. The next due time, 0 = none."""
        due: list[Message] = []
        while self.scheduled and self.scheduled[0][0] <= self.broker.now:
            due.append(heappop(self.scheduled)[2])
        if due:
            self._reinsert(due)
            self.dispatch()
        return self.scheduled[0][0] if self.scheduled else 0

    def expire_due(self) -> None:
        """Takes out what has expired while waiting."""
        now = self.broker.now
        if not self.expiring or self.next_expiry > now:
            return
        gone: list[Message] = []
        nearest = 0
        for level in self.levels or (self.ready,):
            keep: list[Message] = []
            found = False
            for message in level:
                if message.expires and message.expires <= now:
                    gone.append(message)
                    found = True
                    continue
                keep.append(message)
                if message.expires and (not nearest or message.expires < nearest):
                    nearest = message.expires
            if found:
                level.clear()
                level.extend(keep)
        late = [entry for entry in self.scheduled if entry[2].expires and entry[2].expires <= now]
        if late:
            self.scheduled = [entry for entry in self.scheduled if not entry[2].expires or entry[2].expires > now]
            heapify(self.scheduled)
            gone.extend(entry[2] for entry in late)
        for _, _, message in self.scheduled:
            if message.expires and (not nearest or message.expires < nearest):
                nearest = message.expires
        self.next_expiry = nearest or (now + 1000 if self.expiring > len(gone) else 0)
        for message in gone:
            self.broker.expire(self, message)
        self.broker.acknowledged_some()

    def _unexpect(self) -> None:
        self.expiring -= 1
        if not self.expiring:
            self.next_expiry = 0

    # -- the end of messages -------------------------------------------------------------------------------------------
    def take_all(self) -> list[Message]:
        """Everything that waits or is scheduled, taken out of the order (not yet released)."""
        messages = [*self.messages(), *(entry[2] for entry in self.scheduled)]
        self.ready.clear()
        self.levels = None
        self.scheduled.clear()
        self.settle_mode()
        return messages

    def take(self, chosen: Callable[[Message], bool], limit: int = -1) -> list[Message]:
        """Takes out up to `limit` (-1 = all) waiting or scheduled messages that are `chosen`; not yet released."""
        taken: list[Message] = []
        for level in self.levels or (self.ready,):
            keep: list[Message] = []
            for message in level:
                wanted = len(taken) != limit and chosen(message)
                (taken if wanted else keep).append(message)
            level.clear()
            level.extend(keep)
        late = [entry for entry in self.scheduled if len(taken) != limit and chosen(entry[2])]
        if late:
            late = late[: max(0, limit - len(taken))] if limit >= 0 else late
            ids = {entry[1] for entry in late}
            self.scheduled = [entry for entry in self.scheduled if entry[1] not in ids]
            heapify(self.scheduled)
            taken.extend(entry[2] for entry in late)
        return taken

    def purge(self) -> int:
        """Removes everything that waits; what is being delivered stays. The number of messages removed."""
        messages = self.take_all()
        for message in messages:
            self._finish(message)
        self.broker.acknowledged_some()
        return len(messages)

    def _finish(self, message: Message) -> None:
        """This queue's reference is gone, in memory and on disk."""
        self.count -= 1
        self.bytes -= message.size
        if message.expires:
            self._unexpect()
        self.attempts.pop(message.id, None)
        self.excluded.pop(message.id, None)
        if message.flags & STORED and self.durable and self.broker.store is not None:
            self.broker.store.remove(message.id, self.id)
        message.refs -= 1
        if not message.refs:
            self.broker.release(message)

    finish = _finish

    def put_back(self, message: Message) -> None:
        """What `take` took out is there again, at the end."""
        self._push(message)
        self.dispatch()

    def drop_forgotten(self, ids: set[int]) -> None:
        """Takes out messages that the store could not write; nobody was told that they are safe."""
        for message in self.take(lambda message: message.id in ids):
            self._finish(message)


def _merge(level: deque[Message], messages: list[Message]) -> None:
    """Puts messages (sorted by id) back where they belong, which is nearly always the head."""
    highest = messages[-1].id
    while level and level[0].id < highest:
        messages.append(level.popleft())
    messages.sort(key=_by_id)
    level.extendleft(reversed(messages))
