"""A queue: messages in order, consumers that compete for them, and what happens to a message that comes back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from heapq import heappop, heappush
from itertools import chain, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from enmasse import log
from enmasse.amqp.errors import AmqpError
from services.broker.core import backlog
from services.broker.core.backlog import Backlog, Slice
from services.broker.core.choice import SLICE, dispatch_by_choice
from services.broker.core.condition import Condition
from services.broker.core.consumer import Consumer
from services.broker.core.exclusions import Exclusions, has_taker
from services.broker.core.front import outgoing
from services.broker.core.ledger import QueueTotals
from services.broker.core.properties import property_lookup
from services.broker.core.stored_message import DURABLE, PRIORITY_SHIFT, REWRITE, STORED, StoredMessage
from services.broker.core.taking import anyone, finish_all, take, take_ids
from services.broker.selector import Lookup, Selector

if TYPE_CHECKING:
    from services.broker.core.broker import Broker
    from services.broker.core.broker_address import BrokerAddress

_log = log.get()
_SLICE_BYTES = 2 << 20
_RUN = 50  # messages sent in one go
_by_id = attrgetter("id")


class Unreadable(Enum):
    """HELD: the message cannot be read now; it is back in its place and the queue stands still. LOST: it is gone for
    good."""

    HELD = auto()
    LOST = auto()


class Queue(QueueTotals):
    """Sans-IO. The broker gives it time (`broker.now`, ms), storage and a turn later (`broker.postpone`)."""

    __slots__ = (
        "active",
        "address",
        "attempts",
        "auto_created",
        "auto_delete",
        "backlog",
        "broker",
        "browsers",
        "choosy",
        "client",
        "condition",
        "consumers",
        "deleted",
        "draining",
        "durable",
        "exclusions",
        "exclusive",
        "expiring",
        "id",
        "levels",
        "max_consumers",
        "name",
        "next_expiry",
        "paused",
        "purge_on_no_consumers",
        "ready",
        "routing_type",
        "scheduled",
        "simple",
        "stalled",
        "subscription",
        "temporary",
        "user",
    )

    def __init__(
        self,
        broker: Broker,
        id: int,
        name: str,
        address: BrokerAddress,
        routing_type: str,
        *,
        durable: bool,
        temporary: bool = False,
        condition: Condition | None = None,
        max_consumers: int = -1,
        purge_on_no_consumers: bool = False,
        exclusive: bool = False,
        auto_created: bool = False,
        auto_delete: bool = False,
        user: str = "",
        client: str | None = None,
    ) -> None:
        super().__init__()
        self.broker = broker
        self.id = id
        self.name = name
        self.address = address
        self.routing_type = routing_type
        self.durable = durable
        self.temporary = temporary
        self.condition = condition or Condition()  # of the messages to its address
        self.max_consumers = max_consumers
        self.purge_on_no_consumers = purge_on_no_consumers
        self.exclusive = exclusive
        self.auto_created = auto_created
        self.auto_delete = auto_delete
        self.user = user
        self.client = client  # the container whose durable subscription it is
        self.paused = False
        self.stalled = False  # stands still until its next message can be read
        self.deleted = False
        self.subscription: tuple[Any, ...] | None = None  # what a durable subscription was made for (see links)

        self.ready: deque[StoredMessage] = deque()  # priority 4, and all there is while `levels` is None
        self.backlog: Backlog | None = None  # what is behind `ready`, which may be empty before it
        self.levels: list[deque[StoredMessage]] | None = None
        self.scheduled: list[tuple[int, int, StoredMessage]] = []  # heap of (due, id, message)
        self.attempts: dict[int, int] = {}  # failed deliveries by message id, where there are any
        self.exclusions = Exclusions()
        self.expiring = 0  # messages with an expiry, scheduled ones and those being delivered included
        self.next_expiry = 0  # no message expires before this (0 = none does)

        self.consumers: list[Consumer] = []
        self.browsers: list[Any] = []
        self.active: deque[Consumer] = deque()  # those with credit, as far as known, in turn
        self.draining: set[Consumer] = set()
        self.choosy = 0  # consumers with a selector or a priority of their own
        self.simple = True  # no filter, consumer priority, message priority, exclusion or pause is in play

    # -- what is there -------------------------------------------------------------------------------------------------
    @property
    def filter(self) -> Selector | None:
        """Of the messages to the address it lies on."""
        return self.condition.filter

    @property
    def delivering(self) -> int:
        return sum(len(consumer.unsettled) for consumer in self.consumers)

    def parts(self) -> Iterator[Iterable[StoredMessage] | Slice]:
        """Those waiting, in the order in which they will be delivered; not those scheduled or being delivered."""
        for level in (self.ready,) if self.levels is None else reversed(self.levels):
            yield level
            if level is self.ready and self.backlog is not None:
                yield from self.backlog.parts()

    def messages(self) -> Iterator[StoredMessage]:
        """The same one by one. Those of the backlog are made for the occasion: to be looked at, and not kept."""
        return chain.from_iterable(part.messages() if isinstance(part, Slice) else part for part in self.parts())

    def lookup(self, payload: bytes, message: StoredMessage) -> Lookup:
        """What a selector sees of a message of this queue."""
        return property_lookup(payload, message, self.broker.to_wall, self.attempts.get(message.id, 0))

    # -- in ------------------------------------------------------------------------------------------------------------
    def add(self, message: StoredMessage, due: int = 0) -> None:
        """A new message at the end; goes straight to a consumer where one waits."""
        self.count_added(1, message.size)
        self._place(message, due)

    def add_run(self, messages: Sequence[StoredMessage], payloads: Sequence[bytes], size: int) -> None:
        """`add` of messages with consecutive ids and the same flags, without expiry, `size` bytes together."""
        self.count_added(len(messages), size)
        self._place_run(messages, payloads)

    def arrive(self, message: StoredMessage, due: int) -> None:
        """One that was expected."""
        self.count_arrived(1)
        self._place(message, due)

    def arrive_run(self, messages: Sequence[StoredMessage], payloads: Sequence[bytes]) -> None:
        """Those that were expected, such as `add_run` takes."""
        self.count_arrived(len(messages))
        self._place_run(messages, payloads)

    def never_came(self, message: StoredMessage) -> None:
        """One that was expected."""
        if not self.deleted:
            self.count_missing(1, message.size)

    def _place(self, message: StoredMessage, due: int) -> None:
        if message.expires:
            self._expects(message.expires)
        if due and due > self.broker.now:
            self._schedule(message, due)
            return
        if self.simple and message.flags >> PRIORITY_SHIFT == 4:
            ready = self.ready
            if not ready and self.backlog is None:
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
            self._push(message)
            return
        self._push(message)
        self.dispatch()

    def _place_run(self, messages: Sequence[StoredMessage], payloads: Sequence[bytes]) -> None:
        idle = not self.ready and self.backlog is None
        if self.simple and messages[0].flags >> PRIORITY_SHIFT == 4:
            sent = self._send_run(self.active[0], messages, payloads) if idle and len(self.active) == 1 else 0
            self._line_up(messages[sent:] if sent else messages)
            if idle:
                self.dispatch()
            return
        for message in messages:
            self._push(message)
        self.dispatch()

    def _line_up(self, messages: Sequence[StoredMessage]) -> None:
        """At the end, messages of priority 4."""
        if self.backlog is None:
            if len(self.ready) + len(messages) <= backlog.HEAD:
                self.ready.extend(messages)
                return
            self.backlog = Backlog(self)
        self.backlog.extend(messages)

    def _push(self, message: StoredMessage) -> None:
        priority = message.flags >> PRIORITY_SHIFT
        if priority == 4:
            if self.backlog is None and len(self.ready) < backlog.HEAD:
                self.ready.append(message)
            else:
                self._line_up([message])
            return
        if self.levels is None:
            self.levels = [deque() for _ in range(10)]
            self.levels[4] = self.ready
            self.simple = False
        self.levels[priority].append(message)

    def restore(self, message: StoredMessage, attempts: int, due: int) -> None:
        """A message found in the store at the start."""
        self.count_restored(1, message.size)
        if message.expires:
            self._expects(message.expires)
        if attempts:
            self.attempts[message.id] = attempts
        if due:
            self._schedule(message, due)
        else:
            self._push(message)

    def restore_packed(self, some: Slice, size: int) -> None:
        """`restore` of usual messages of `size` bytes together."""
        self.count_restored(some.count, size)
        if self.backlog is None:
            self.backlog = Backlog(self)
        self.backlog.restore(some)

    def _expects(self, expires: int) -> None:
        self.expiring += 1
        if not self.next_expiry or expires < self.next_expiry:
            self.next_expiry = expires
        self.broker.expects(self)

    def _schedule(self, message: StoredMessage, due: int) -> None:
        heappush(self.scheduled, (due, message.id, message))
        self.broker.wakes(self, due)

    # -- out -----------------------------------------------------------------------------------------------------------
    def dispatch(self) -> None:
        """Sends what can be sent now; after a slice of work the rest is postponed to a later turn."""
        if self.paused or self.stalled:
            return
        more = self._dispatch_simple() if self.simple else dispatch_by_choice(self)
        if more:
            self.broker.postpone(self)
        elif self.draining:
            self._answer_drains()

    def advance(self) -> bool:
        """What is first in the backlog comes to the end of `ready`. False: there is none."""
        while self.backlog is not None:
            messages = self.backlog.shift()
            self.ready.extend(messages)
            if not self.backlog:
                self.backlog = None
            if messages:
                return True
        return False

    def _dispatch_simple(self) -> bool:
        ready = self.ready
        active = self.active
        left = SLICE
        left_bytes = _SLICE_BYTES
        while active and (ready or self.advance()):
            consumer = active[0]
            if consumer.outlet.credit <= 0:
                active.popleft()
                consumer.active = False
                continue
            if left <= 0 or left_bytes <= 0:
                return True
            if len(active) == 1 and self._send_first(consumer):
                left -= _RUN
                continue
            message = ready.popleft()
            if message.expires and message.expires <= self.broker.now:
                if not self.broker.dead_letters.expire(self, message):
                    return False
                left -= 1
                continue
            left -= 1
            left_bytes -= message.size
            if len(active) > 1:
                active.rotate(-1)
            self.send(consumer, message)
            if self.stalled:
                return False
        return False

    def _send_first(self, consumer: Consumer) -> int:
        """Sends those first in line that need no looking at, up to _RUN; how many."""
        ready = self.ready
        messages: list[StoredMessage] = []
        payloads: list[bytes] = []
        for message in islice(ready, _RUN):
            payload = message.payload
            if payload is None or message.flags & REWRITE or message.expires:
                break
            messages.append(message)
            payloads.append(payload)
        sent = self._send_run(consumer, messages, payloads)
        for _ in range(sent):
            ready.popleft()
        return sent

    def _send_run(self, consumer: Consumer, messages: Sequence[StoredMessage], payloads: Sequence[bytes]) -> int:
        """Sends messages that need no looking at, as far as credit goes; how many."""
        if consumer.presettled or self.attempts or not messages or messages[0].flags & REWRITE:
            return 0
        send_run = consumer.outlet.send_run
        sent = more = send_run(payloads, messages)
        while more and sent < len(messages) and sent < SLICE and consumer.outlet.credit > 0:
            more = send_run(payloads[sent:], messages[sent:])
            sent += more
        messages = messages[:sent]
        unsettled = consumer.unsettled
        for message in messages:
            unsettled[message.id] = message
        broker = self.broker
        if broker.ledger.presses:
            for message in messages:
                broker.payloads.put_out(message)
        return sent

    def deactivate(self, consumer: Consumer) -> None:
        if consumer.active:
            consumer.active = False
            self.active.remove(consumer)

    def send(self, consumer: Consumer, message: StoredMessage) -> None:
        payload = message.payload
        if payload is None:
            found = self.read(message)
            if isinstance(found, Unreadable):
                return
            payload = found
        if self.attempts and self._is_used_up(message):
            self.broker.dead_letters.kill(self, message)
            return
        if message.flags & REWRITE or self.attempts:
            try:
                payload = self._for_sending(message, payload)
            except AmqpError as error:
                if self._bury(message, error):
                    return
        if consumer.presettled:
            consumer.outlet.send(payload, None, settled=True)
            self.finish(message, acknowledged=True)
            return
        consumer.unsettled[message.id] = message
        consumer.outlet.send(payload, message)
        broker = self.broker
        if broker.ledger.presses:
            broker.payloads.put_out(message)

    def _is_used_up(self, message: StoredMessage) -> bool:
        """Whether it had its last delivery, and could not be brought to the dead letters then."""
        return 0 <= self.address.settings.max_delivery_attempts <= self.attempts.get(message.id, -1)

    def read(self, message: StoredMessage) -> bytes | Unreadable:
        """The payload of a message taken out of the order."""
        try:
            payload = self.broker.payloads.load(message)
        except OSError as error:
            self.hold(message, error)
            return Unreadable.HELD
        if payload is None:
            self.broker.lose(self, message)
            return Unreadable.LOST
        return payload

    def hold(self, message: StoredMessage, error: OSError) -> None:
        """A message taken out of the order cannot be read now: it is back in its place, and nothing is sent before it
        can be."""
        self.reinsert([message])
        self.stand_still(message, error)

    def stand_still(self, message: StoredMessage, error: OSError) -> None:
        self.stalled = True
        self.simple = False
        self.broker.stall(self, self, message, error)

    def resume(self) -> None:
        """See `Standing`."""
        self.stalled = False
        self.settle_mode()
        self.dispatch()
        self._rescue()

    def _for_sending(self, message: StoredMessage, payload: bytes) -> bytes:
        attempts = self.attempts.get(message.id, 0)
        if not message.flags & REWRITE and not attempts:
            return payload
        ttl = max(0, message.expires - self.broker.now) if message.expires else -1
        return outgoing(payload, bool(message.flags & DURABLE), message.flags >> PRIORITY_SHIFT, ttl, attempts)

    def _bury(self, message: StoredMessage, error: AmqpError) -> bool:
        """A message about to be sent cannot be read: it becomes a dead letter. False: there is no place for those, and
        it is delivered as it came."""
        dead = self.address.dead_letter_address is not None
        _log.error("message.malformed", queue=self.name, message=message.id, dead=dead, reason=error.description)
        if dead:
            self.broker.dead_letters.kill(self, message)
        return dead

    def _answer_drains(self) -> None:
        for consumer in [c for c in self.draining if not c.blocked()]:
            self.draining.discard(consumer)
            if consumer.outlet.drain:
                consumer.outlet.drained()

    # -- consumers -----------------------------------------------------------------------------------------------------
    def attach(self, consumer: Consumer) -> None:
        consumer.queue = self
        self.consumers.append(consumer)
        if consumer.selective:
            self.choosy += 1
        if self.choosy or self.exclusive:
            self.simple = False

    def flow(self, consumer: Consumer) -> None:
        """Credit or drain has changed for the consumer, or its peer reads again."""
        if not consumer.active and consumer.outlet.credit > 0:
            consumer.active = True
            self.active.append(consumer)
        if consumer.outlet.drain:
            self.draining.add(consumer)
        self.dispatch()
        if consumer.relay and self.exclusions:
            self._rescue()  # it may have no consumers any more

    def detach(self, consumer: Consumer) -> None:
        """The consumer's link is gone: what it had and did not settle comes back, counted as a failed delivery."""
        if consumer not in self.consumers:
            return
        self.consumers.remove(consumer)
        if consumer.selective:
            self.choosy -= 1
        self.draining.discard(consumer)
        self.deactivate(consumer)
        self.exclusions.leave(consumer)
        messages = list(consumer.unsettled.values())
        consumer.unsettled.clear()
        consumer.queue = None
        if not self.deleted:
            self.settle_mode()
            self.give_back(messages, failed=True)
            self._rescue()

    def settle_mode(self) -> None:
        """Whether the short way of dispatching may be taken again, after something that decides about it changed."""
        if self.levels is not None and not any(self.levels[i] for i in range(10) if i != 4):
            self.levels = None
        self.simple = (
            self.levels is None
            and not self.exclusions
            and not self.exclusive
            and not self.paused
            and not self.stalled
            and not self.choosy
        )

    # -- outcomes ------------------------------------------------------------------------------------------------------
    def accept(self, consumer: Consumer, messages: list[StoredMessage]) -> None:
        """Acknowledged by the consumer: gone for good, once that is recorded."""
        take = consumer.unsettled.pop
        broker = self.broker
        stored: list[int] = []
        plain = not (self.attempts or self.expiring or self.exclusions)
        owner = messages[0].owner if messages else self.address
        done = size = 0
        gone = gone_size = gone_resident = 0  # nobody refers to them any more, and they are all of this owner
        for message in messages:
            id = message.id
            if take(id, None) is None:
                continue
            if message.flags & STORED:
                stored.append(id)
            if plain and message.refs == 1 and message.owner is owner and message.place is None:
                message.refs = 0
                gone += 1
                gone_size += message.size
                if message.payload is not None:
                    gone_resident += message.size
                continue
            done += 1
            size += message.size
            if message.expires:
                self._unexpect()
            self.attempts.pop(id, None)
            self.exclusions.forget(id)
            broker.payloads.drop(message)
        if gone:
            broker.ledger.remove(owner, gone, gone_size, gone_resident)
        if stored and broker.store is not None and self.durable:
            broker.store.remove_many(stored, self.id)
        self.count_acknowledged(done + gone, size + gone_size)
        broker.acknowledged_some()

    def release(self, consumer: Consumer, messages: list[StoredMessage]) -> None:
        """Given back untouched: to the head, its count of deliveries unchanged."""
        self.give_back([m for m in messages if consumer.unsettled.pop(m.id, None) is not None], failed=False)

    def modify(self, consumer: Consumer, messages: list[StoredMessage], *, failed: bool, elsewhere: bool) -> None:
        """Given back with `delivery-failed` and/or `undeliverable-here`: then it goes to another consumer."""
        mine = [m for m in messages if consumer.unsettled.pop(m.id, None) is not None]
        if elsewhere:
            self.simple = False
            for message in mine:
                self.exclusions.add(message.id, consumer)
        left = {m.id for m in mine if not has_taker(self, m)} if elsewhere else set()
        self.give_back([m for m in mine if m.id not in left], failed=failed)
        if left:
            self._give_up([m for m in mine if m.id in left], failed=failed)

    def _give_up(self, messages: list[StoredMessage], *, failed: bool) -> None:
        """No consumer is left that may have these messages: they are dead letters. Without an address for those they
        wait for other consumers. But nobody is told of new consumers behind a router, so its link gets them again,
        counted as failed deliveries."""
        if self.address.dead_letter_address is not None:
            for message in messages:
                self.broker.dead_letters.kill(self, message)
            self.broker.acknowledged_some()
            return
        again = {message.id for message in messages if self.exclusions.lift_relays(message.id)}
        self.give_back([message for message in messages if message.id in again], failed=True)
        self.give_back([message for message in messages if message.id not in again], failed=failed)

    def _rescue(self) -> None:
        """Messages whose last possible consumer has gone, while those who refused them are still there."""
        if not self.exclusions or not self.consumers:
            return
        left = {message.id for message in self.exclusions.waiting(self) if not has_taker(self, message)}
        if left:
            self._give_up(list(take_ids(self, left)), failed=False)

    def reject(self, consumer: Consumer, messages: list[StoredMessage]) -> None:
        """Not wanted by anybody: to the dead-letter address at once."""
        for message in messages:
            if consumer.unsettled.pop(message.id, None) is not None:
                self.broker.dead_letters.kill(self, message)
        self.broker.acknowledged_some()

    def give_back(self, messages: list[StoredMessage], *, failed: bool) -> None:
        """Back to their places; with `failed` the attempt counts, and may have been the last or delay the next."""
        if not messages:
            self.dispatch()
            return
        kept: list[StoredMessage] = []
        settings = self.address.settings
        for message in messages:
            if failed:
                self.attempts[message.id] = attempts = self.attempts.get(message.id, 0) + 1
                if 0 <= settings.max_delivery_attempts <= attempts:
                    self.broker.dead_letters.kill(self, message)
                    continue
                delay = settings.redelivery_after(attempts)
                due = self.broker.now + delay if delay else 0
                self.broker.record_attempts(self, message, attempts, due)
                if due:
                    self._schedule(message, due)
                    continue
            kept.append(message)
        if kept:
            self.reinsert(kept)
        self.broker.acknowledged_some()
        self.dispatch()

    def reinsert(self, messages: list[StoredMessage]) -> None:
        """Messages taken out are back in their places."""
        if not messages:
            return
        messages.sort(key=_by_id)
        if self.backlog is not None:
            messages = self.backlog.merge(messages)
            if not messages:
                return
        lowest = messages[0].id - 1
        for consumer in self.consumers:
            consumer.scanned = [min(id, lowest) for id in consumer.scanned]
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
        due: list[StoredMessage] = []
        while self.scheduled and self.scheduled[0][0] <= self.broker.now:
            due.append(heappop(self.scheduled)[2])
        if due:
            self.reinsert(due)
            self.dispatch()
            self._rescue()
        return self.scheduled[0][0] if self.scheduled else 0

    def _unexpect(self) -> None:
        self.expiring -= 1
        if not self.expiring:
            self.next_expiry = 0

    # -- the end of messages -------------------------------------------------------------------------------------------
    def take_all(self) -> Iterator[StoredMessage]:
        """Everything that waits or is scheduled, taken out of the order (not yet released); to be run to its end."""
        yield from take(self, anyone)
        self.settle_mode()

    def purge(self) -> int:
        """Removes everything that waits; what is being delivered stays. The number of messages removed."""
        count = finish_all(self, self.take_all())
        self.broker.acknowledged_some()
        return count

    def end(self, reason: str) -> None:
        """The queue is deleted, and everything in it. The definition is no longer in the store."""
        self.deleted = True
        broker = self.broker
        broker.forget_queue(self)
        store = broker.store if self.durable else None
        consumers = list(self.consumers)
        delivering = [message for consumer in consumers for message in consumer.unsettled.values()]
        for message in chain(self.take_all(), delivering):
            if store is not None and message.flags & STORED:
                store.discard(message.id, self.id)
            broker.payloads.drop(message)
        for consumer in consumers:
            consumer.unsettled.clear()
        self.clear()
        self.consumers.clear()
        self.active.clear()
        for consumer in consumers:
            consumer.closed("amqp:resource-deleted", reason)
        for browser in list(self.browsers):
            browser.closed("amqp:resource-deleted", reason)
        broker.acknowledged_some()

    def finish(self, message: StoredMessage, *, acknowledged: bool = False, recorded: bool = False) -> None:
        """This queue's reference is gone, in memory and on disk; `recorded`: the caller sees to the disk."""
        if acknowledged:
            self.count_acknowledged(1, message.size)
        else:
            self.count_removed(1, message.size)
        if message.expires:
            self._unexpect()
        self.attempts.pop(message.id, None)
        self.exclusions.forget(message.id)
        if not recorded and message.flags & STORED and self.durable and self.broker.store is not None:
            self.broker.store.remove(message.id, self.id)
        self.broker.payloads.drop(message)


def _merge(level: deque[StoredMessage], messages: list[StoredMessage]) -> None:
    """Puts messages (sorted by id) back where they belong, which is nearly always the head."""
    highest = messages[-1].id
    while level and level[0].id < highest:
        messages.append(level.popleft())
    messages.sort(key=_by_id)
    level.extendleft(reversed(messages))
