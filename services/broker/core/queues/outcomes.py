"""Outcomes that consumers state (AMQP 1.0, 3.4), and the return of messages that no consumer has taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic

from enmasse.amqp.codec.errors import AmqpError
from enmasse.identity.annotations import OF_FACTS
from enmasse.logs import log
from services.broker.core.jobs import AT_ONCE, Work
from services.broker.core.messages.dead_letter_reasons import Death, Reason
from services.broker.core.messages.leading_sections import annotated
from services.broker.core.messages.stored_message import PARTLY, PRIORITY_SHIFT, STORED, StoredMessage
from services.broker.core.queues.consumer import Consumer
from services.broker.core.queues.contents import C
from services.broker.core.queues.dispatcher import Dispatcher
from services.broker.core.queues.queue_host import QueueHost
from services.broker.core.turn_shares import LIGHT

_log = log.get()
_REJECTED = Death(Reason.REJECTED)
_MAX_ANNOTATIONS = 64 << 10  # bytes of a message's annotations that consumers may fill
_WARN_EVERY = 60_000  # milliseconds between two warnings of one queue: a client can cause as many as it likes


class Outcomes(Generic[C]):
    """Settlement of one queue's messages."""

    __slots__ = ("_broker", "_dispatcher", "_not_annotated", "_queue", "_warned")

    def __init__(self, queue: C, broker: QueueHost[C], dispatcher: Dispatcher[C]) -> None:
        self._queue = queue
        self._broker = broker
        self._dispatcher = dispatcher
        self._not_annotated = 0  # since the last warning
        self._warned: int | None = None  # when

    # -- stated by a consumer ------------------------------------------------------------------------------------------
    def accept(self, consumer: Consumer, messages: list[StoredMessage]) -> None:
        """Remove messages that the consumer has acknowledged, in memory and on disk."""
        take = consumer.unsettled.pop
        queue, broker = self._queue, self._broker
        stored: list[int] = []
        plain = not (queue.attempts or queue.expiries.watched or queue.exclusions)
        owner = messages[0].owner if messages else queue.address
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
            queue.forget(message)
            broker.payloads.drop(message)
        if gone:
            broker.ledger.remove(owner, gone, gone_size, gone_resident)
        if stored and broker.store is not None and queue.durable:
            broker.store.remove_many(stored, queue.id)
        queue.count_acknowledged(done + gone, size + gone_size)
        broker.removed_some()

    def release(self, consumer: Consumer, messages: list[StoredMessage]) -> None:
        """Return messages to their places, their delivery counts unchanged."""
        mine = _settled(consumer, messages)
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
        these annotations, as far as a client may state them."""
        mine = _settled(consumer, messages)
        if annotations and (annotations := OF_FACTS.without(annotations)):
            mine = [self._annotate(message, annotations) for message in mine]
        self._keep_handed(consumer, mine)
        left = {message.id for message in self._dispatcher.exclude(consumer, mine)} if elsewhere else set()
        self._give_back([m for m in mine if m.id not in left], failed=failed)
        if elsewhere and self._dispatcher.turns.weight > LIGHT:
            self.rescue()  # what was not known
        if left:
            self._give_up([m for m in mine if m.id in left], failed=failed)

    def reject(self, consumer: Consumer, messages: list[StoredMessage], death: Death = _REJECTED) -> None:
        """Move rejected messages to the dead-letter address at once. `death`: with what the consumer has stated."""
        for message in messages:  # one by one: after an exception the others are still the consumer's
            if consumer.unsettled.pop(message.id, None) is not None:
                self._queue.count_rejected()
                self._broker.dead_letters.kill(self._queue, message, death)
        self._broker.removed_some()

    # -- without a consumer --------------------------------------------------------------------------------------------
    def give_back_unsettled(self, consumer: Consumer, *, lost: bool) -> None:
        """Return the messages of a consumer that has left, their delivery counts unchanged. If it was `lost`, the
        oldest one, which it worked on if it takes them in order, counts as a failed delivery: so a message that kills
        its consumers becomes a dead letter, and those behind it, which it may not have read, do not.
        They are sent in the next turn: a router detaches the links of a lost client one after the other, and a message
        must not go to the next of them, and be counted again."""
        messages = list(consumer.unsettled.values())
        consumer.unsettled.clear()
        self._keep_handed(consumer, messages)
        if lost:
            messages = self._count_failed(messages[:1], at_once=True) + messages[1:]
        if messages:
            self._dispatcher.reinsert(messages)
            self._broker.removed_some()
        self._broker.postpone(self._queue)
        self.rescue()

    def rescue(self) -> None:
        """Give up messages whose last possible consumer has left, while those that refused them are still attached."""
        queue, turns = self._queue, self._dispatcher.turns
        if not queue.exclusions or not turns.consumers:
            return
        if turns.weight > LIGHT:
            self._broker.jobs.start((queue, "rescue"), self._rescue, queue.address.tenant)
        else:
            self._give_up_untakeable(queue.exclusions.ids())

    def _rescue(self) -> Work[None]:
        yield AT_ONCE  # others first
        seen: set[int] = set()
        while ids := self._queue.exclusions.ids() - seen:
            seen |= ids
            for id in sorted(ids):
                if self._queue.deleted:
                    return
                self._give_up_untakeable({id})
                yield 1

    def _give_up_untakeable(self, ids: set[int]) -> None:
        queue = self._queue
        refused = filter(None, map(queue.order.find, sorted(ids)))
        spent = self._broker.share()
        left = [message.id for message in refused if not self._dispatcher.has_taker(message, spent)]
        if left:
            self._give_up(list(filter(None, map(queue.take_one, left))), failed=False)

    def _give_back(self, messages: list[StoredMessage], *, failed: bool) -> None:
        """Return messages to their places; with `failed` the attempt counts, and may be the last or delay the next."""
        if failed:
            messages = self._count_failed(messages)
        if messages:
            self._dispatcher.reinsert(messages)
            self._broker.removed_some()
        self._dispatcher.dispatch()

    def _count_failed(self, messages: list[StoredMessage], *, at_once: bool = False) -> list[StoredMessage]:
        """Count a failed delivery of each; return those that neither become dead letters nor are delayed. `at_once`:
        only a delay that the queue has been given counts, because a client that reconnects cannot keep the broker
        busy."""
        queue = self._queue
        settings = queue.address.settings
        kept: list[StoredMessage] = []
        for message in messages:
            queue.attempts[message.id] = attempts = queue.attempts.get(message.id, 0) + 1
            if 0 <= settings.max_delivery_attempts <= attempts:
                self._broker.dead_letters.kill(queue, message, Death(Reason.TOO_OFTEN))
                continue
            queue.count_redelivered()
            delay = 0 if at_once and settings.redelivery_delay <= 0 else settings.redelivery_after(attempts)
            due = self._broker.now + delay if delay else 0
            self._record_attempts(message, attempts, due)
            if due:
                self._dispatcher.delay(message, due)
            else:
                kept.append(message)
        self._broker.removed_some()
        return kept

    def _give_up(self, messages: list[StoredMessage], *, failed: bool) -> None:
        """Make messages that no attached consumer may get dead letters. Without an address for those they wait for
        other consumers. A router does not report new consumers behind it, so its link gets them again, counted as
        failed deliveries."""
        if self._queue.address.dead_letter_address is not None:
            for message in messages:
                self._broker.dead_letters.kill(self._queue, message, Death(Reason.UNDELIVERABLE))
            self._broker.removed_some()
            return
        again = {message.id for message in messages if self._queue.exclusions.lift_relays(message.id)}
        self._give_back([message for message in messages if message.id in again], failed=True)
        self._give_back([message for message in messages if message.id not in again], failed=failed)

    def _keep_handed(self, consumer: Consumer, messages: list[StoredMessage]) -> None:
        """See `Consumer.once`. Kept in memory: after a restart of the broker they expire."""
        expiries = self._queue.expiries
        if consumer.once and expiries.watched:
            expiries.handed.update((message.id, None) for message in messages if message.expires)

    def _record_attempts(self, message: StoredMessage, attempts: int, due: int) -> None:
        store = self._broker.store
        if store is not None and self._queue.durable and message.flags & STORED:
            store.update(message.id, self._queue.id, delivery_count=attempts, not_before=self._broker.to_wall(due))

    def _annotate(self, message: StoredMessage, annotations: Mapping[str, Any]) -> StoredMessage:
        """Return the message with these annotations (AMQP 1.0, 3.4.5). A message that other queues also hold is
        replaced by one of this queue's own, behind all others."""
        queue, broker = self._queue, self._broker
        payloads = broker.payloads
        try:
            payload = payloads.load(message)
            changed = annotated(payload, annotations, _MAX_ANNOTATIONS) if payload is not None else None
        except (OSError, AmqpError, TypeError, ValueError) as error:
            self._warn(message, error)
            return message
        if changed is None:
            return message  # gone for good, which is dealt with when it is sent
        store = broker.store if message.flags & STORED and queue.durable else None
        expiry = broker.to_wall(message.expires)
        priority = message.flags >> PRIORITY_SHIFT
        queue.count_changed(len(changed) - message.size)
        if message.refs == 1:
            if store is not None:
                store.change(message.id, changed, priority=priority, expiry=expiry)
            payloads.change(message, changed)
            return message
        if store is not None:
            id = store.split(message.id, queue.id, changed, priority=priority, expiry=expiry)
        else:
            id = broker.next_id()
        flags = message.flags & ~(STORED | PARTLY) | (STORED if store is not None else 0)
        own = StoredMessage(id, changed, len(changed), flags, message.expires, message.owner, 1)
        broker.ledger.add(own.owner, 1, own.size)
        payloads.drop(message)
        queue.rename(message.id, id)
        return own

    def _warn(self, message: StoredMessage, error: Exception) -> None:
        """Report messages left without their annotations: the first at once, later ones together."""
        self._not_annotated += 1
        now = self._broker.now
        if self._warned is not None and now < self._warned + _WARN_EVERY:
            return
        _log.warning(
            "broker.message.not-annotated",
            queue=self._queue.name,
            message=message.id,
            count=self._not_annotated,
            reason=str(error),
            space=self._queue.address.tenant,
        )
        self._warned, self._not_annotated = now, 0


def _settled(consumer: Consumer, messages: list[StoredMessage]) -> list[StoredMessage]:
    """Take out of the consumer's unsettled messages and return those that were there."""
    return [message for message in messages if consumer.unsettled.pop(message.id, None) is not None]
