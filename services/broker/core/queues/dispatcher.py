"""Dispatcher: which message of a queue is sent to which consumer, and when."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from itertools import islice
from typing import Generic

from enmasse.amqp.codec.errors import AmqpError
from enmasse.logs import log
from services.broker.core.messages.dead_letter_reasons import Death, Reason
from services.broker.core.messages.leading_sections import outgoing
from services.broker.core.messages.stored_message import DURABLE, PRIORITY_SHIFT, REWRITE, StoredMessage
from services.broker.core.queues.consumer import Consumer
from services.broker.core.queues.contents import C
from services.broker.core.queues.order import NORMAL
from services.broker.core.queues.queue_host import QueueHost
from services.broker.core.queues.rotation import TURN, Rotation
from services.broker.core.queues.selection import Selection, UndecidedError
from services.broker.core.turn_shares import LIGHT, LIGHT_SIZE, Spent

_log = log.get()
_TURN_BYTES = 2 << 20
_RUN = 50  # messages sent in one go
_EXPIRY = 10  # messages that could be sent for the work of one that has expired


class ReadFailure(Enum):
    """HELD: the message cannot be read now; it is back in its place and the queue stands still. LOST: it is gone for
    good."""

    HELD = auto()
    LOST = auto()


class Dispatcher(Generic[C]):
    """Consumers of one queue, and the sending of its messages to them. It works in one of two modes: `simple`, the
    first message goes to the consumer whose turn it is; or, where a selector, an exclusion, an exclusive consumer or a
    priority (of a consumer or a message) is in play, each consumer searches for its next message. While `paused` (by an
    administrator) or `stalled` (until its next message can be read) nothing is sent."""

    __slots__ = (
        "_attempts",
        "_broker",
        "_order",
        "_queue",
        "_sending",
        "exclusive",
        "paused",
        "selection",
        "simple",
        "stalled",
        "turns",
    )

    def __init__(self, queue: C, broker: QueueHost[C], *, exclusive: bool) -> None:
        """`exclusive`: only the first consumer gets messages."""
        self._queue = queue
        self._broker = broker
        self._order = queue.order
        self._attempts = queue.attempts
        self._sending = False  # messages that are still first in line are being sent
        self.exclusive = exclusive
        self.paused = False
        self.stalled = False
        self.simple = True
        self.turns = Rotation()
        self.selection = Selection(queue, broker.payloads, broker.to_wall)

    # -- the mode ------------------------------------------------------------------------------------------------------
    def settle_mode(self) -> None:
        """Recompute whether dispatching is `simple`, after a change of a condition for it."""
        self._order.settle()
        self.simple = (
            self._order.levels is None
            and not self._queue.exclusions
            and not self.exclusive
            and not self.paused
            and not self.stalled
            and not self.turns.selective
        )

    def pause(self, paused: bool) -> None:
        """Stop sending (`paused`), or allow it: the next `dispatch` continues."""
        self.paused = paused
        self.settle_mode()

    # -- consumers -----------------------------------------------------------------------------------------------------
    def attach(self, consumer: Consumer) -> None:
        """Enter a consumer; `flow` follows when it has credit."""
        self.turns.join(consumer)
        if self.turns.selective or self.exclusive:
            self.simple = False

    def flow(self, consumer: Consumer) -> None:
        """Handle a change of credit or drain, or a peer that reads again."""
        self.turns.flow(consumer)
        self.dispatch()

    def detach(self, consumer: Consumer) -> bool:
        """Remove a consumer whose link has ended. Return False if it was not there."""
        if not self.turns.leave(consumer):
            return False
        self._queue.exclusions.leave(consumer)
        self.settle_mode()
        return True

    @property
    def delivering(self) -> int:
        """Number of messages that consumers, or another broker, have not settled."""
        return sum(len(consumer.unsettled) for consumer in self.turns.consumers) + len(self._queue.held)

    def exclude(self, consumer: Consumer, messages: list[StoredMessage]) -> list[StoredMessage]:
        """Keep this consumer from getting the messages again; return those that no other may get either."""
        self.simple = False
        for message in messages:
            self._queue.exclusions.add(message.id, consumer)
        spent = self._broker.share()
        return [message for message in messages if not self.has_taker(message, spent)]

    def has_taker(self, message: StoredMessage, spent: Spent) -> bool:
        """Return whether one of the consumers may get the message; True if that is not known when `spent`."""
        consumers = self.turns.consumers
        return self.selection.has_taker(consumers[:1] if self.exclusive else consumers, message, spent)

    # -- in ------------------------------------------------------------------------------------------------------------
    def take_in(self, message: StoredMessage) -> None:
        """Send a new message if a consumer waits for it, or append it."""
        if self.simple and message.flags >> PRIORITY_SHIFT == NORMAL:
            order = self._order
            if not order.ready and order.backlog is None:
                consumer = self.turns.next()
                if consumer is not None:
                    self._send(consumer, message)
                    return
            order.append(message)
        else:
            self.append(message)
            if message.size > LIGHT_SIZE and self.turns.weight:
                self._broker.postpone(self._queue)
            else:
                self.dispatch()

    def take_in_run(self, messages: Sequence[StoredMessage], payloads: Sequence[bytes]) -> None:
        """Take in new messages with consecutive ids, equal flags and no expiry, as `take_in` does each."""
        if self.simple and messages[0].flags >> PRIORITY_SHIFT == NORMAL:
            order, active = self._order, self.turns.active
            idle = order.empty
            sent = self._send_run(active[0], messages, payloads) if idle and len(active) == 1 else 0
            order.extend(messages[sent:] if sent else messages)
            if idle:
                self.dispatch()
        else:
            for message in messages:
                self.append(message)
            self.dispatch()

    def append(self, message: StoredMessage) -> None:
        """Put a message behind all others of its priority; `dispatch` sends it."""
        self._order.append(message)
        if self._order.levels is not None:
            self.simple = False

    def reinsert(self, messages: list[StoredMessage]) -> None:
        """Put messages that were taken out back in their places."""
        lowest = self._order.merge(messages) - 1
        if lowest < 0:
            return
        for consumer in self.turns.consumers:
            consumer.scanned = [min(id, lowest) for id in consumer.scanned]
        if self._order.levels is not None:
            self.simple = False

    def delay(self, message: StoredMessage, due: int) -> None:
        """Schedule a message: it waits from that time on."""
        if self._queue.schedule.add(message, due):
            self._broker.wake_at(self._queue, due)

    # -- out -----------------------------------------------------------------------------------------------------------
    def dispatch(self, *, in_turn: bool = False) -> None:
        """Send what can be sent now; after a share of work the rest is postponed to a later turn. `in_turn`: this is
        such a turn; selectors that make much work are evaluated in these alone."""
        if self.paused or self.stalled or self._sending:
            return
        if self.simple:
            more = self._dispatch_simply()
        elif not in_turn and (self.turns.weight > LIGHT or self._broker.is_postponed(self._queue)):
            more = True
        else:
            more = self._dispatch_selectively()
        if more:
            self._broker.postpone(self._queue)
        elif self.turns.draining:
            self.turns.answer_drains()

    def _dispatch_simply(self) -> bool:
        """Send the first messages to the consumers in turn. True: there is more to do."""
        order = self._order
        ready = order.ready
        active = self.turns.active
        left = self._broker.turn
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
            if message.expires and self._queue.expiries.has_expired(message, self._broker.now):
                if not self._broker.dead_letters.expire(self._queue, message):
                    return False
                left -= _EXPIRY
                continue
            left -= 1
            left_bytes -= message.size
            if len(active) > 1:
                active.append(active.pop(0))
            self._send(consumer, message)
            if self.stalled:
                return False
        return False

    def _dispatch_selectively(self) -> bool:
        """Send by filters, priorities and exclusions: each consumer with credit, highest priority first, searches for
        its next message. True: there is more to do."""
        left = TURN
        spent = self._broker.share()
        waiting = self.turns.by_priority()
        while waiting:
            consumer = waiting.popleft()
            if consumer.outlet.credit <= 0:
                self.turns.deactivate(consumer)
                continue
            if self.exclusive and consumer is not self.turns.consumers[0]:
                continue
            now = self._broker.now
            try:
                message, looked = self.selection.search(consumer, left, now, spent)
            except UndecidedError as undecided:
                self._stand_still(undecided.message, undecided.error)
                return False
            left -= looked
            if message is None:
                pass
            elif message.expires and self._queue.expiries.has_expired(message, now):
                if not self._broker.dead_letters.expire(self._queue, message):
                    return False
                left -= _EXPIRY
                waiting.appendleft(consumer)  # it looks on
            else:
                self._send(consumer, message)
                if self.stalled:
                    return False
                # Equal priorities take turns; a lower one waits until the higher ones want nothing.
                at = len(waiting)
                while at and waiting[at - 1].priority < consumer.priority:
                    at -= 1
                waiting.insert(at, consumer)
                self.turns.pass_on(consumer)
            if left <= 0 or spent():
                return True
        self.settle_mode()
        return False

    def _send_first(self, consumer: Consumer) -> int:
        """Send the first messages that need no check, up to _RUN; return how many."""
        ready = self._order.ready
        messages: list[StoredMessage] = []
        payloads: list[bytes] = []
        for message in islice(ready, _RUN):
            payload = message.payload
            if payload is None or message.flags & REWRITE or message.expires:
                break
            messages.append(message)
            payloads.append(payload)
        self._sending = True  # consumers may ask for more meanwhile, and these messages are still the first
        try:
            sent = self._send_run(consumer, messages, payloads)
        finally:
            self._sending = False
        for _ in range(sent):
            ready.popleft()
        return sent

    def _send_run(self, consumer: Consumer, messages: Sequence[StoredMessage], payloads: Sequence[bytes]) -> int:
        """Send messages that need no check, as far as credit goes; return how many."""
        if consumer.presettled or self._attempts or not messages or messages[0].flags & REWRITE:
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
        if self._broker.ledger.presses:
            for message in messages:
                self._broker.payloads.put_out(message)
        return sent

    def _send(self, consumer: Consumer, message: StoredMessage) -> None:
        payload = message.payload
        if payload is None:
            found = self.read(message)
            if isinstance(found, ReadFailure):
                return
            payload = found
        if self._attempts and self._is_used_up(message):
            self._broker.dead_letters.kill(self._queue, message, Death(Reason.TOO_OFTEN))
            return
        if message.flags & REWRITE or message.id in self._attempts:
            try:
                payload = self._for_sending(message, payload, consumer.sealed)
            except AmqpError as error:
                if self._bury(message, error):
                    return
        if consumer.presettled:
            consumer.outlet.send(payload, None, settled=True)
            self._queue.finish(message, acknowledged=True)
            return
        consumer.unsettled[message.id] = message
        consumer.outlet.send(payload, message)
        ledger = self._broker.ledger
        if ledger.resident > ledger.memory_limit:
            self._broker.payloads.put_out(message)

    def _is_used_up(self, message: StoredMessage) -> bool:
        """Return whether the message has had its last delivery, but could not be moved to the dead letters then."""
        most = self._queue.address.settings.max_delivery_attempts
        return 0 <= most <= self._attempts.get(message.id, -1)

    def _for_sending(self, message: StoredMessage, payload: bytes, sealed: bool) -> bytes:
        ttl = max(0, message.expires - self._broker.now) if message.expires else -1
        attempts = self._attempts.get(message.id, 0)
        durable, priority = bool(message.flags & DURABLE), message.flags >> PRIORITY_SHIFT
        return outgoing(payload, durable, priority, ttl, attempts, sealed=sealed)

    def _bury(self, message: StoredMessage, error: AmqpError) -> bool:
        """Make a message that cannot be decoded a dead letter. False: the address has no dead-letter address, and the
        message is delivered unchanged."""
        queue = self._queue
        dead = queue.address.dead_letter_address is not None
        _log.error(
            "broker.message.malformed",
            queue=queue.name,
            message=message.id,
            dead=dead,
            reason=error.description,
            space=queue.address.tenant,
        )
        if dead:
            death = Death(Reason.UNDELIVERABLE, error.condition, error.description)
            self._broker.dead_letters.kill(queue, message, death)
        return dead

    # -- messages that cannot be read ----------------------------------------------------------------------------------
    def read(self, message: StoredMessage) -> bytes | ReadFailure:
        """Read the payload of a message taken out of the order."""
        try:
            payload = self._broker.payloads.load(message)
        except OSError as error:
            self.reinsert([message])
            self._stand_still(message, error)
            return ReadFailure.HELD
        if payload is None:
            self._broker.lose(self._queue, message)
            return ReadFailure.LOST
        return payload

    def _stand_still(self, message: StoredMessage, error: OSError) -> None:
        """Send nothing until this message, which is back in its place, can be read."""
        self.stalled = True
        self.simple = False
        self._broker.stall(self._queue, self._queue, message, error)

    def resume(self) -> None:
        """Continue after a stall."""
        self.stalled = False
        self.settle_mode()
        self.dispatch()
