"""Queue: messages in order, consumers that compete for them, and the handling of returned messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from itertools import chain, islice
from typing import Any

from enmasse import log
from enmasse.amqp.errors import AmqpError
from services.broker.core.backlog import Slice
from services.broker.core.broker_address import BrokerAddress
from services.broker.core.condition import Condition
from services.broker.core.consumer import Consumer
from services.broker.core.front import annotated, outgoing
from services.broker.core.jobs import Work
from services.broker.core.ledger import UNLIMITED, QueueTotals
from services.broker.core.order import NORMAL, MessageOrder, anyone
from services.broker.core.queue_host import QueueHost
from services.broker.core.selection import Selection, UndecidedError
from services.broker.core.stored_message import DURABLE, PARTLY, PRIORITY_SHIFT, REWRITE, STORED, StoredMessage
from services.broker.core.times import Expiries, Schedule
from services.broker.core.turns import TURN, Turns
from services.broker.selector import Selector

_log = log.get()
_TURN_BYTES = 2 << 20
_RUN = 50  # messages sent in one go
PORTION = 50  # messages that a job reads, or moves, before others have their turn
_MANY = 1000  # and those that it only removes, or puts back in their places
_MAX_ANNOTATIONS = 64 << 10  # bytes of a message's annotations that consumers may fill
_EXPIRY = 10  # messages that could be sent for the work of one that has expired


class Unreadable(Enum):
    """HELD: the message cannot be read now; it is back in its place and the queue stands still. LOST: it is gone for
    good."""

    HELD = auto()
    LOST = auto()


class Queue(QueueTotals):
    """Sans-IO. A message is in one of these places: `order` (it waits), `schedule` (its time has not come), `unsettled`
    of a consumer (it is being delivered); or it is still on its way to the disk, and only counted."""

    __slots__ = (
        "address",
        "attempts",
        "auto_created",
        "auto_delete",
        "broker",
        "browsers",
        "client",
        "condition",
        "deleted",
        "durable",
        "exclusive",
        "expiries",
        "id",
        "max_consumers",
        "name",
        "order",
        "paused",
        "purge_on_no_consumers",
        "ring",
        "ring_size",
        "routing_type",
        "schedule",
        "selection",
        "sending",
        "simple",
        "stalled",
        "subscription",
        "temporary",
        "turns",
        "user",
    )

    def __init__(
        self,
        broker: QueueHost[Queue],
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
        ring_size: int = -1,
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
        self.ring_size = ring_size  # messages it keeps, the newest; -1 = all
        self.ring = False
        self.settle_ring()
        self.client = client  # the container whose durable subscription it is
        self.paused = False
        self.stalled = False  # stands still until its next message can be read
        self.sending = False  # messages that are still first in line are being sent
        self.deleted = False
        self.subscription: tuple[Any, ...] | None = None  # what a durable subscription was made for (see nodes)

        self.order = MessageOrder(broker.payloads, durable)
        self.schedule = Schedule()
        self.expiries = Expiries()
        self.attempts: dict[int, int] = {}  # failed deliveries by message id, if there were any
        self.selection = Selection(self.order, broker.payloads, self.attempts, self.expiries.handed, broker.to_wall)
        self.turns = Turns()
        self.browsers: list[Any] = []
        self.simple = True  # no selector, consumer priority, message priority, exclusion or pause is in play

    # -- contents ------------------------------------------------------------------------------------------------------
    @property
    def filter(self) -> Selector | None:
        """Filter on the messages to its address."""
        return self.condition.filter

    @property
    def consumers(self) -> list[Consumer]:
        return self.turns.consumers

    @property
    def delivering(self) -> int:
        return sum(len(consumer.unsettled) for consumer in self.turns.consumers)

    def parts(self) -> Iterator[Iterable[StoredMessage] | Slice]:
        """Yield the waiting messages in the order of their delivery; not those scheduled or being delivered."""
        return self.order.parts()

    def messages(self) -> Iterator[StoredMessage]:
        """Yield the waiting messages one by one. Objects of the backlog's messages are temporary, not to be kept."""
        return self.order.messages()

    # -- in ------------------------------------------------------------------------------------------------------------
    def add(self, message: StoredMessage, due: int = 0) -> None:
        """Append a new message, or send it directly if a consumer waits."""
        self.count_added(1, message.size)
        self._place(message, due)

    def add_run(self, messages: Sequence[StoredMessage], payloads: Sequence[bytes], size: int) -> None:
        """`add` of messages with consecutive ids and the same flags, without expiry, `size` bytes together."""
        self.count_added(len(messages), size)
        self._place_run(messages, payloads)

    def arrive(self, message: StoredMessage, due: int) -> None:
        """`add` of an expected message (`count_expected`) that is stored now."""
        self.count_arrived(1)
        self._place(message, due)

    def arrive_run(self, messages: Sequence[StoredMessage], payloads: Sequence[bytes]) -> None:
        """`add_run` of expected messages that are stored now."""
        self.count_arrived(len(messages))
        self._place_run(messages, payloads)

    def never_came(self, message: StoredMessage) -> None:
        """Forget an expected message that could not be stored."""
        if not self.deleted:
            self.count_missing(1, message.size)

    def _place(self, message: StoredMessage, due: int) -> None:
        if message.expires:
            self._watch(message)
        if due and due > self.broker.now:
            self._delay(message, due)
            return
        if self.simple and message.flags >> PRIORITY_SHIFT == NORMAL:
            order = self.order
            if not order.ready and order.backlog is None:
                consumer = self.turns.next()
                if consumer is not None:
                    self.send(consumer, message)
                    return
            order.append(message)
        else:
            self._append(message)
            self.dispatch()
        if self.ring:
            self._keep_ring(message.owner)

    def _place_run(self, messages: Sequence[StoredMessage], payloads: Sequence[bytes]) -> None:
        if self.simple and messages[0].flags >> PRIORITY_SHIFT == NORMAL:
            order, active = self.order, self.turns.active
            idle = order.empty
            sent = self._send_run(active[0], messages, payloads) if idle and len(active) == 1 else 0
            order.extend(messages[sent:] if sent else messages)
            if idle:
                self.dispatch()
        else:
            for message in messages:
                self._append(message)
            self.dispatch()
        if self.ring:
            self._keep_ring(messages[0].owner)

    def settle_ring(self) -> None:
        """Find out whether the queue is a ring, after a change of its size or its address."""
        self.ring = self.ring_size >= 0 or self.address.ring_bytes < UNLIMITED

    def _keep_ring(self, owner: BrokerAddress) -> None:
        """Drop old messages if those that have come exceed the ring. Bytes count at the address that messages were sent
        to, unless a divert brought them."""
        address = self.address
        if 0 <= self.ring_size < self.count or (self.bytes > address.ring_bytes and owner is not address.root):
            self.drop_oldest()

    def _append(self, message: StoredMessage) -> None:
        self.order.append(message)
        if self.order.levels is not None:
            self.simple = False

    def restore(self, message: StoredMessage, attempts: int, due: int) -> None:
        """Enter a message found in the store at the start."""
        self.count_restored(1, message.size)
        if message.expires:
            self._watch(message)
        if attempts:
            self.attempts[message.id] = attempts
        if due:
            self._delay(message, due)
        else:
            self._append(message)

    def restore_packed(self, some: Slice, size: int) -> None:
        """`restore` of usual messages of `size` bytes together."""
        self.count_restored(some.count, size)
        self.order.restore(some)

    def _watch(self, message: StoredMessage) -> None:
        self.expiries.add(message.expires)
        self.broker.watch_expiries(self)

    def _delay(self, message: StoredMessage, due: int) -> None:
        if self.schedule.add(message, due):
            self.broker.wake_at(self, due)

    # -- out -----------------------------------------------------------------------------------------------------------
    def dispatch(self) -> None:
        """Send what can be sent now; after a slice of work the rest is postponed to a later turn."""
        if self.paused or self.stalled or self.sending:
            return
        more = self._dispatch_simply() if self.simple else self._dispatch_selectively()
        if more:
            self.broker.postpone(self)
        elif self.turns.draining:
            self.turns.answer_drains()

    def _dispatch_simply(self) -> bool:
        """Send the first messages to the consumers in turn. True: there is more to do."""
        order = self.order
        ready = order.ready
        active = self.turns.active
        left = TURN
        left_bytes = _TURN_BYTES
        while active and (ready or order.advance()):
            consumer = active[0]
            if consumer.outlet.credit <= 0:
                del active[0]
                consumer.active = False
                continue
            if left <= 0 or left_bytes <= 0:
                return True
            if len(active) == 1 and self._send_first(consumer):
                left -= _RUN
                continue
            message = ready.popleft()
            if message.expires and message.expires <= self.broker.now and message.id not in self.expiries.handed:
                if not self.broker.dead_letters.expire(self, message):
                    return False
                left -= _EXPIRY
                continue
            left -= 1
            left_bytes -= message.size
            if len(active) > 1:
                active.append(active.pop(0))
            self.send(consumer, message)
            if self.stalled:
                return False
        return False

    def _send_first(self, consumer: Consumer) -> int:
        """Send the first messages that need no check, up to _RUN; return how many."""
        ready = self.order.ready
        messages: list[StoredMessage] = []
        payloads: list[bytes] = []
        for message in islice(ready, _RUN):
            payload = message.payload
            if payload is None or message.flags & REWRITE or message.expires:
                break
            messages.append(message)
            payloads.append(payload)
        self.sending = True  # consumers may ask for more meanwhile, and these messages are still the first
        try:
            sent = self._send_run(consumer, messages, payloads)
        finally:
            self.sending = False
        for _ in range(sent):
            ready.popleft()
        return sent

    def _send_run(self, consumer: Consumer, messages: Sequence[StoredMessage], payloads: Sequence[bytes]) -> int:
        """Send messages that need no check, as far as credit goes; return how many."""
        if consumer.presettled or self.attempts or not messages or messages[0].flags & REWRITE:
            return 0
        send_run = consumer.outlet.send_run
        sent = more = send_run(payloads, messages)
        while more and sent < len(messages) and sent < TURN and consumer.outlet.credit > 0:
            more = send_run(payloads[sent:], messages[sent:])
            sent += more
        messages = messages[:sent]
        unsettled = consumer.unsettled
        for message in messages:
            unsettled[message.id] = message
        if self.broker.ledger.presses:
            for message in messages:
                self.broker.payloads.put_out(message)
        return sent

    def _dispatch_selectively(self) -> bool:
        """Send by filters, priorities and exclusions: each consumer with credit, highest priority first, searches for
        its next message. True: there is more to do."""
        left = TURN
        waiting = self.turns.by_priority()
        while waiting:
            consumer = waiting.popleft()
            if consumer.outlet.credit <= 0:
                self.turns.deactivate(consumer)
                continue
            if self.exclusive and consumer is not self.consumers[0]:
                continue
            now = self.broker.now
            try:
                message, looked = self.selection.search(consumer, left, now)
            except UndecidedError as undecided:
                self._stand_still(undecided.message, undecided.error)
                return False
            left -= looked
            if message is None:
                pass
            elif message.expires and message.expires <= now and message.id not in self.expiries.handed:
                if not self.broker.dead_letters.expire(self, message):
                    return False
                left -= _EXPIRY
                waiting.appendleft(consumer)  # it looks on
            else:
                self.send(consumer, message)
                if self.stalled:
                    return False
                # Equal priorities take turns; a lower one waits until the higher ones want nothing.
                at = len(waiting)
                while at and waiting[at - 1].priority < consumer.priority:
                    at -= 1
                waiting.insert(at, consumer)
                self.turns.pass_on(consumer)
            if left <= 0:
                return True
        self.settle_mode()
        return False

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
        ledger = self.broker.ledger
        if ledger.resident > ledger.memory_limit:
            self.broker.payloads.put_out(message)

    def _is_used_up(self, message: StoredMessage) -> bool:
        """Whether it had its last delivery, and could not be moved to the dead letters then."""
        return 0 <= self.address.settings.max_delivery_attempts <= self.attempts.get(message.id, -1)

    def _for_sending(self, message: StoredMessage, payload: bytes) -> bytes:
        attempts = self.attempts.get(message.id, 0)
        if not message.flags & REWRITE and not attempts:
            return payload
        ttl = max(0, message.expires - self.broker.now) if message.expires else -1
        return outgoing(payload, bool(message.flags & DURABLE), message.flags >> PRIORITY_SHIFT, ttl, attempts)

    def _bury(self, message: StoredMessage, error: AmqpError) -> bool:
        """Make a message that cannot be decoded a dead letter. False: the address has no dead-letter address, and the
        message is delivered unchanged."""
        dead = self.address.dead_letter_address is not None
        _log.error("broker.message.malformed", queue=self.name, message=message.id, dead=dead, reason=error.description)
        if dead:
            self.broker.dead_letters.kill(self, message)
        return dead

    # -- what cannot be read -------------------------------------------------------------------------------------------
    def read(self, message: StoredMessage) -> bytes | Unreadable:
        """Read the payload of a message taken out of the order."""
        try:
            payload = self.broker.payloads.load(message)
        except OSError as error:
            self.reinsert([message])
            self._stand_still(message, error)
            return Unreadable.HELD
        if payload is None:
            self.broker.lose(self, message)
            return Unreadable.LOST
        return payload

    def _stand_still(self, message: StoredMessage, error: OSError) -> None:
        """Stall: send nothing before this message, which is in its place again, can be read."""
        self.stalled = True
        self.simple = False
        self.broker.stall(self, self, message, error)

    def resume(self) -> None:
        """Continue after a stall (`Standing`)."""
        self.stalled = False
        self.settle_mode()
        self.dispatch()
        self._rescue()

    # -- consumers -----------------------------------------------------------------------------------------------------
    def attach(self, consumer: Consumer) -> None:
        self.turns.join(consumer)
        if self.turns.selective or self.exclusive:
            self.simple = False

    def flow(self, consumer: Consumer) -> None:
        """Handle a change of credit or drain, or a peer that reads again."""
        self.turns.flow(consumer)
        self.dispatch()
        if consumer.relay and self.selection.exclusions:
            self._rescue()  # perhaps it has no consumers left

    def detach(self, consumer: Consumer) -> None:
        """Remove a consumer whose link has ended: its unsettled messages return, counted as failed deliveries."""
        if not self.turns.leave(consumer):
            return
        self.selection.exclusions.leave(consumer)
        messages = list(consumer.unsettled.values())
        consumer.unsettled.clear()
        if not self.deleted:
            self._keep_handed(consumer, messages)
            self.settle_mode()
            self._give_back(messages, failed=True, lost=True)
            self._rescue()

    def settle_mode(self) -> None:
        """Find out whether simple dispatching is possible, after a change of what decides about it."""
        self.order.settle()
        self.simple = (
            self.order.levels is None
            and not self.selection.exclusions
            and not self.exclusive
            and not self.paused
            and not self.stalled
            and not self.turns.selective
        )

    # -- outcomes ------------------------------------------------------------------------------------------------------
    def accept(self, consumer: Consumer, messages: list[StoredMessage]) -> None:
        """Remove messages that the consumer has acknowledged, in memory and on disk."""
        take = consumer.unsettled.pop
        broker = self.broker
        stored: list[int] = []
        plain = not (self.attempts or self.expiries.watched or self.selection.exclusions)
        owner = messages[0].owner if messages else self.address
        done = size = 0
        gone = gone_size = gone_resident = 0  # messages that no other queue refers to, all of this owner
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
            self._forget(message)
            broker.payloads.drop(message)
        if gone:
            broker.ledger.remove(owner, gone, gone_size, gone_resident)
        if stored and broker.store is not None and self.durable:
            broker.store.remove_many(stored, self.id)
        self.count_acknowledged(done + gone, size + gone_size)
        broker.removed_some()

    def release(self, consumer: Consumer, messages: list[StoredMessage]) -> None:
        """Return messages to their places, their delivery counts unchanged."""
        mine = [m for m in messages if consumer.unsettled.pop(m.id, None) is not None]
        self._keep_handed(consumer, mine)
        self._give_back(mine, failed=False)

    def modify(
        self,
        consumer: Consumer,
        messages: list[StoredMessage],
        *,
        failed: bool,
        elsewhere: bool,
        annotations: Mapping[str, Any] | None = None,
    ) -> None:
        """Return messages with `delivery-failed` and/or `undeliverable-here` (they go to another consumer), and with
        these annotations."""
        mine = [m for m in messages if consumer.unsettled.pop(m.id, None) is not None]
        if annotations:
            mine = [self._annotate(message, annotations) for message in mine]
        self._keep_handed(consumer, mine)
        if elsewhere:
            self.simple = False
            for message in mine:
                self.selection.exclusions.add(message.id, consumer)
        left = {m.id for m in mine if not self._has_taker(m)} if elsewhere else set()
        self._give_back([m for m in mine if m.id not in left], failed=failed)
        if left:
            self._give_up([m for m in mine if m.id in left], failed=failed)

    def _annotate(self, message: StoredMessage, annotations: Mapping[str, Any]) -> StoredMessage:
        """The message with these annotations (AMQP 1.0, 3.4.5). A message that other queues hold as well is replaced by
        one of this queue's own, behind all others."""
        payloads = self.broker.payloads
        try:
            payload = payloads.load(message)
            changed = annotated(payload, annotations, _MAX_ANNOTATIONS) if payload is not None else None
        except (OSError, AmqpError, TypeError, ValueError) as error:
            _log.warning("broker.message.not-annotated", queue=self.name, message=message.id, reason=str(error))
            return message
        if changed is None:
            return message  # gone for good, which is dealt with when it is sent
        store = self.broker.store if message.flags & STORED and self.durable else None
        expiry = self.broker.to_wall(message.expires)
        priority = message.flags >> PRIORITY_SHIFT
        self.count_changed(len(changed) - message.size)
        if message.refs == 1:
            if store is not None:
                store.change(message.id, changed, priority=priority, expiry=expiry)
            payloads.change(message, changed)
            return message
        if store is not None:
            id = store.split(message.id, self.id, changed, priority=priority, expiry=expiry)
        else:
            id = self.broker.next_id()
        flags = message.flags & ~(STORED | PARTLY) | (STORED if store is not None else 0)
        own = StoredMessage(id, changed, len(changed), flags, message.expires, message.owner, 1)
        self.broker.ledger.add(own.owner, 1, own.size)
        payloads.drop(message)
        if message.id in self.attempts:
            self.attempts[id] = self.attempts.pop(message.id)
        self.selection.exclusions.rename(message.id, id)
        self.expiries.rename(message.id, id)
        return own

    def reject(self, consumer: Consumer, messages: list[StoredMessage]) -> None:
        """Move rejected messages to the dead-letter address at once."""
        for message in messages:
            if consumer.unsettled.pop(message.id, None) is not None:
                self.broker.dead_letters.kill(self, message)
        self.broker.removed_some()

    # -- returned messages ---------------------------------------------------------------------------------------------
    def _give_back(self, messages: list[StoredMessage], *, failed: bool, lost: bool = False) -> None:
        """Return messages to their places; with `failed` the attempt counts, and may be the last or delay the next.
        `lost`: the consumer has left. Without a delay of its own the next attempt follows at once and in order: a
        client that reconnects cannot keep the broker busy."""
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
                delay = 0 if lost and settings.redelivery_delay <= 0 else settings.redelivery_after(attempts)
                due = self.broker.now + delay if delay else 0
                self._record_attempts(message, attempts, due)
                if due:
                    self._delay(message, due)
                    continue
            kept.append(message)
        if kept:
            self.reinsert(kept)
        self.broker.removed_some()
        self.dispatch()

    def _keep_handed(self, consumer: Consumer, messages: list[StoredMessage]) -> None:
        """See `Consumer.once`. Kept in memory: after a restart of the broker they expire."""
        if consumer.once and self.expiries.watched:
            self.expiries.handed.update((message.id, None) for message in messages if message.expires)

    def _record_attempts(self, message: StoredMessage, attempts: int, due: int) -> None:
        store = self.broker.store
        if store is not None and self.durable and message.flags & STORED:
            store.update(message.id, self.id, delivery_count=attempts, not_before=self.broker.to_wall(due))

    def reinsert(self, messages: list[StoredMessage]) -> None:
        """Put messages that were taken out back in their places."""
        lowest = self.order.merge(messages) - 1
        if lowest < 0:
            return
        for consumer in self.consumers:
            consumer.scanned = [min(id, lowest) for id in consumer.scanned]
        if self.order.levels is not None:
            self.simple = False

    def _has_taker(self, message: StoredMessage) -> bool:
        """Whether one of the consumers may get the message."""
        return self.selection.has_taker(self.consumers[:1] if self.exclusive else self.consumers, message)

    def _give_up(self, messages: list[StoredMessage], *, failed: bool) -> None:
        """Make messages that no attached consumer may get dead letters. Without an address for those they wait for
        other consumers. A router does not report new consumers behind it, so its link gets them again, counted as
        failed deliveries."""
        if self.address.dead_letter_address is not None:
            for message in messages:
                self.broker.dead_letters.kill(self, message)
            self.broker.removed_some()
            return
        again = {message.id for message in messages if self.selection.exclusions.lift_relays(message.id)}
        self._give_back([message for message in messages if message.id in again], failed=True)
        self._give_back([message for message in messages if message.id not in again], failed=failed)

    def _rescue(self) -> None:
        """Give up messages whose last possible consumer has left, while those that refused them are still attached."""
        if not self.selection.exclusions or not self.consumers:
            return
        refused = filter(None, map(self.order.find, sorted(self.selection.exclusions.ids())))
        left = [message.id for message in refused if not self._has_taker(message)]
        if left:
            self._give_up(list(filter(None, map(self.take_one, left))), failed=False)

    # -- time ----------------------------------------------------------------------------------------------------------
    def wake(self) -> None:
        """Scheduled messages whose time has come become ready."""
        self.broker.jobs.start((self, "wake"), self._wake)

    def _wake(self) -> Work[None]:
        while not self.deleted and (due := self.schedule.take_due(self.broker.now, _MANY)):
            self.reinsert(due)
            self.dispatch()
            self._rescue()
            yield len(due)
        if self.schedule.next and not self.deleted:
            self.broker.wake_at(self, self.schedule.next)

    def expire_due(self) -> None:
        """Takes out what has expired while waiting."""
        if self.expiries.due(self.broker.now) and not self.stalled:
            self.broker.jobs.start((self, "expiry"), self._expire)

    def _expire(self) -> Work[None]:
        now = self.broker.now
        nearest = 0
        handed = self.expiries.handed

        def due(expires: int) -> bool:
            nonlocal nearest
            if expires > now:
                nearest = min(nearest or expires, expires)
            return 0 < expires <= now

        self.expiries.begin(now)
        yield from self.dispose(
            self.broker.dead_letters.expire,
            lambda message: due(message.expires) and message.id not in handed,
            lambda some: due(some.nearest),
        )
        self.expiries.look_on(0 if self.stalled else nearest, now)

    # -- work over all messages, in portions ---------------------------------------------------------------------------
    def look(self, count: int = PORTION) -> Iterator[list[StoredMessage]]:
        """The messages that wait now, up to `count` at a time. Between two portions anything may happen to the
        queue."""
        cursor = self.order.start()
        while portion := self.order.look(cursor, count):
            yield portion

    def _take(
        self, count: int, chosen: Callable[[StoredMessage], bool], worth: Callable[[Slice], bool] = anyone
    ) -> Iterator[tuple[int, list[StoredMessage]]]:
        """Takes out the waiting and scheduled messages that are chosen: of up to `count` at a time, how many they are
        and those taken out. The caller ends these, or puts them back, before the next portion. `worth`: of a slice of
        the backlog, whether it may hold such messages."""
        cursor, ids = self.order.start(), self.schedule.ids()
        while portion := self.order.look(cursor, count, worth):
            yield len(portion), self.order.take([message for message in portion if chosen(message)])
        for start in range(0, len(ids), count):
            portion = [m for m in map(self.schedule.find, ids[start : start + count]) if m is not None and chosen(m)]
            self.schedule.take(portion)
            yield len(ids[start : start + count]), portion
        self.settle_mode()

    def take_one(self, id: int) -> StoredMessage | None:
        """Takes out a waiting or scheduled message; None: it is not there."""
        message = self.order.find(id)
        if message is not None:
            return self.order.take([message])[0]
        message = self.schedule.find(id)
        if message is not None:
            self.schedule.take([message])
        return message

    def remove(self, chosen: Callable[[StoredMessage], bool]) -> Work[int]:
        """Removes the messages that are chosen from those that wait; what is being delivered stays. The number of
        messages removed."""
        count = 0
        for looked, taken in self._take(_MANY if chosen is anyone else PORTION, chosen):
            count += self.finish_all(taken)
            yield looked
            if self.deleted:
                break
        return count

    def purge(self) -> None:
        """Remove all waiting messages."""
        work = partial(self.remove, anyone)
        self.broker.jobs.start(work, work)  # beside an earlier one: that does not see what has come since

    def dispose(
        self,
        how: Callable[[Queue, StoredMessage], bool],
        chosen: Callable[[StoredMessage], bool] = anyone,
        worth: Callable[[Slice], bool] = anyone,
    ) -> Work[int]:
        """Takes out messages and gives them to `how`, until one of them cannot be read: that one and those behind it
        stay in the queue. The number of those of which `how` was true. Raises what `how` raises, after the messages
        were put back."""
        count = 0
        for looked, taken in self._take(PORTION, chosen, worth):
            for at, message in enumerate(taken):
                if self.stalled:
                    self.reinsert(taken[at:])
                    break
                try:
                    count += how(self, message)
                except Exception:
                    self.reinsert([left for left in taken[at:] if left.refs])
                    raise
            self.broker.removed_some()
            if self.stalled:
                break
            yield looked
            if self.deleted:
                break
        return count

    # -- the end of messages -------------------------------------------------------------------------------------------
    def drop_oldest(self) -> None:
        """Drop the oldest waiting messages, of the lowest priority first, beyond the size of the ring. Messages that
        are scheduled or being delivered stay."""
        if self._drop_some():
            self.broker.jobs.start((self, "ring"), self._drop_rest)

    def _drop_rest(self) -> Work[None]:
        while not self.deleted and self._drop_some():
            yield _MANY

    def _drop_some(self) -> bool:
        """Whether more has to go."""
        most, size = self.ring_size, self.address.ring_bytes
        dropped = 0
        if most >= 0:
            waiting = self.count - self.arriving - self.delivering - len(self.schedule)
            dropped = self.finish_all(self.order.take_oldest(min(_MANY, waiting - most)))
        while dropped < _MANY and self.bytes > size and (one := self.finish_all(self.order.take_oldest(1))):
            dropped += one
        self.count_replaced(dropped)
        return dropped >= _MANY

    def finish_all(self, messages: Iterable[StoredMessage]) -> int:
        """Finish messages that were taken out, up to about a thousand; return their number."""
        count = 0
        gone: list[int] = []
        for message in messages:
            count += 1
            if message.flags & STORED:
                gone.append(message.id)
            self.finish(message, recorded=True)
        if gone and self.durable and self.broker.store is not None:
            self.broker.store.remove_many(gone, self.id)
        self.broker.removed_some()
        return count

    def finish(self, message: StoredMessage, *, acknowledged: bool = False, recorded: bool = False) -> None:
        """Remove this queue's reference, in memory and on disk; with `recorded` the caller removes it from the disk."""
        if acknowledged:
            self.count_acknowledged(1, message.size)
        else:
            self.count_removed(1, message.size)
        self._forget(message)
        if not recorded and message.flags & STORED and self.durable and self.broker.store is not None:
            self.broker.store.remove(message.id, self.id)
        self.broker.payloads.drop(message)

    def _forget(self, message: StoredMessage) -> None:
        if message.expires:
            self.expiries.remove(message)
        self.attempts.pop(message.id, None)
        self.selection.exclusions.forget(message.id)

    def delete(self, reason: str) -> None:
        """End the queue and its consumers; a job frees its messages. The store no longer has its definition."""
        self.deleted = True
        self.broker.forget_queue(self)
        consumers = self.turns.clear()
        delivering = [message for consumer in consumers for message in consumer.unsettled.values()]
        self.clear()
        for consumer in consumers:
            consumer.unsettled.clear()
            consumer.closed("amqp:resource-deleted", reason)
        for browser in list(self.browsers):
            browser.closed("amqp:resource-deleted", reason)
        self.broker.jobs.start((self, "end"), partial(self._free, delivering))

    def _free(self, delivering: list[StoredMessage]) -> Work[None]:
        """Free the memory and the disk of the messages of a deleted queue."""
        store = self.broker.store if self.durable else None
        for looked, messages in chain([(len(delivering), delivering)], self._take(_MANY, anyone)):
            for message in messages:
                if store is not None and message.flags & STORED:
                    store.discard(message.id, self.id)
                self.broker.payloads.drop(message)
            self.broker.removed_some()
            yield looked
