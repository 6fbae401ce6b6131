"""Messages on their way into queues: durable ones reach them, and consumers, when a commit has stored them.

Until then it is counted by its queues and address, and by nothing else in them. What need not be stored follows behind,
in the order of arrival, if something before it is still on its way to the same queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from enmasse.amqp.codec.errors import AmqpError
from enmasse.logs import log
from services.broker.core.errors import BrokerError
from services.broker.core.limits.usage import BrokerTotals
from services.broker.core.messages.payloads import Payloads
from services.broker.core.messages.stored_message import PARTLY, PRIORITY_SHIFT, STORED, StoredMessage
from services.broker.core.persistence import MessageStore
from services.broker.core.publishing.admission import Admission
from services.broker.core.queues.queue import Queue

_log = log.get()


class Waiting(Protocol):
    """A producer whose deliveries wait for the disk."""

    def stored(self, first: int, count: int) -> None:
        """Settle deliveries with consecutive ids: they are stored."""

    def not_stored(self, first: int, count: int) -> None:
        """Handle a failed write: no consumer has these messages, and they may be sent again."""

    def not_taken(self, delivery_id: int, error: BrokerError | AmqpError | None) -> None:
        """Settle a delivery that was found late to be one that is rejected; None: that no queue can take now."""


class _Grouped:
    """Stands for the producers of a transaction, which is answered as a whole."""

    def stored(self, first: int, count: int) -> None:
        """Do nothing."""

    def not_stored(self, first: int, count: int) -> None:
        """Do nothing."""

    def not_taken(self, delivery_id: int, error: BrokerError | AmqpError | None) -> None:
        """Do nothing."""


GROUPED: Final = _Grouped()
"""Waits with messages of a group of the store: a commit that fails keeps them for the next one, also those that are not
stored, which come with the others."""

Arrival = tuple[Waiting | None, int, int, Sequence[StoredMessage], Sequence[Queue], Sequence[bytes], int, int]
"""The producer that waits (None: none does, then a message is kept whatever the disk does); the id of its first
delivery, and how many there are; their messages (none if it is a copy of one that is on its way); the queues they go
to; their payloads; when they are due (0: at once); bytes."""


class ArrivalsHost(Protocol):
    """The part of the broker that arrivals use."""

    admission: Admission
    ledger: BrokerTotals
    payloads: Payloads
    store: MessageStore | None
    commit_asked: int

    def disk_caught_up(self) -> None:
        """Resume producers and jobs that waited for the disk."""

    def ask_commit(self, urgent: bool) -> None:
        """See `Broker.ask_commit`."""

    def next_id(self, count: int = 1) -> int:
        """Reserve ids of messages that are not stored, and return the first."""

    def to_wall(self, time: int) -> int:
        """Return milliseconds since 1970 for a time of the broker's clock; 0 stays 0."""


class Arrivals:
    """Messages that wait for a commit, with their producers and queues."""

    def __init__(self, broker: ArrivalsHost) -> None:
        self._broker = broker
        self._coming: list[Arrival] = []

    def __len__(self) -> int:
        return len(self._coming)

    def take(self) -> list[Arrival]:
        """Take the arrivals that one commit will store."""
        coming, self._coming = self._coming, []
        return coming

    def add(
        self,
        messages: Sequence[StoredMessage],
        queues: Sequence[Queue],
        payloads: Sequence[bytes],
        size: int,
        waiting: Waiting | None,
        first: int,
        due: int = 0,
    ) -> None:
        """Add messages that are to be stored, or that come behind others which are; `size`: their bytes together.
        Several messages have one queue, which takes them by `Queue.arrive_run`."""
        count = len(messages)
        for queue in queues:
            queue.count_expected(count, size)
        self._coming.append((waiting, first, count, messages, queues, payloads, due, size))
        self._broker.ledger.expect(size)
        if self._broker.commit_asked != 2:
            self._broker.ask_commit(True)

    def withdraw(self, kept: int) -> None:
        """Forget those that came after the first `kept` ones: their group of the store was undone."""
        taken, self._coming = self._coming[kept:], self._coming[:kept]
        self._broker.ledger.committed(sum(arrival[7] for arrival in taken))
        for arrival in taken:
            self._forget(arrival)
        self._broker.admission.check_blocked()

    def add_copy(self, waiting: Waiting, first: int) -> None:
        """Add a delivery whose message is stored already, or will be with the next commit."""
        self._coming.append((waiting, first, 1, (), (), (), 0, 0))
        self._broker.ask_commit(True)

    def committed(self, batch: list[Arrival], error: OSError | None) -> None:
        """Answer the producers of a commit, then deliver its messages, or undo them if it failed."""
        if error is not None and batch:
            _log.error("broker.messages.not-stored", messages=sum(arrival[2] for arrival in batch), reason=str(error))
        caught_up = self._broker.ledger.committed(sum(arrival[7] for arrival in batch))
        self._answer_all(batch, error)  # first: a sender continues while its messages go to consumers
        for arrival in batch:
            try:
                if error is None:
                    self._arrive(arrival)
                else:
                    self._failed(arrival)
            except Exception:  # it is about these messages: others have their turn
                _log.exception("broker.arrival.failed", message=arrival[3][0].id if arrival[3] else 0, count=arrival[2])
        if caught_up:
            self._broker.disk_caught_up()
        if error is not None:
            self._broker.admission.check_blocked()

    def _answer_all(self, batch: list[Arrival], error: OSError | None) -> None:
        whose: Waiting | None = None  # answers to deliveries with consecutive ids are given together
        begin = end = 0
        for waiting, first, count, *_ in batch:
            if waiting is whose and first == end:
                end += count
                continue
            self._answer(whose, begin, end, error)
            whose, begin, end = waiting, first, first + count
        self._answer(whose, begin, end, error)

    def _answer(self, waiting: Waiting | None, first: int, end: int, error: OSError | None) -> None:
        if waiting is None:
            return
        try:
            if error is None:
                waiting.stored(first, end - first)
            else:
                waiting.not_stored(first, end - first)
        except Exception:
            _log.exception("broker.answer.failed", first=first, count=end - first)

    def _arrive(self, arrival: Arrival) -> None:
        _, _, count, messages, queues, payloads, due, _ = arrival
        if count > 1 and not queues[0].deleted:
            queues[0].arrive_run(messages, payloads)
        else:
            for message in messages:
                for queue in queues:
                    if queue.deleted:
                        self._drop(message, queue)
                    else:
                        queue.arrive(message, due)
        if messages and self._broker.payloads.pressed_by(messages[0]):
            self._broker.payloads.make_room(messages)

    def _failed(self, arrival: Arrival) -> None:
        messages = arrival[3]
        if arrival[0] is GROUPED:
            self._coming.append(arrival)
            self._broker.ledger.expect(arrival[7])
            self._broker.ask_commit(False)
        elif messages and not messages[0].flags & STORED:
            self._arrive(arrival)  # the disk has nothing to do with it
        elif arrival[0] is None:
            self._store_again(arrival)
        else:
            self._forget(arrival)

    def _drop(self, message: StoredMessage, queue: Queue) -> None:
        """Drop a message whose queue was destroyed meanwhile."""
        broker = self._broker
        if broker.store is not None and queue.durable and message.flags & STORED:
            broker.store.discard(message.id, queue.id)
        broker.payloads.drop(message)

    def _forget(self, arrival: Arrival) -> None:
        """Forget messages that the store does not have; their sender still has them."""
        _, _, _, messages, queues, *_ = arrival
        for message in messages:
            for queue in queues:
                queue.never_came(message)
            message.refs = 0
            self._broker.payloads.release(message)

    def _store_again(self, arrival: Arrival) -> None:
        """Write messages that only the broker has again, with the next commit."""
        _, _, _, messages, queues, payloads, due, size = arrival
        broker = self._broker
        stored = [queue.id for queue in queues if queue.durable and not queue.deleted]
        for message, payload in zip(messages, payloads, strict=True):
            if not stored or broker.store is None:
                message.id = broker.next_id()
                message.flags &= ~(STORED | PARTLY)
                continue
            message.id = broker.store.add(
                payload,
                stored,
                priority=message.flags >> PRIORITY_SHIFT,
                expiry=broker.to_wall(message.expires),
                not_before=broker.to_wall(due),
            )
        self._coming.append(arrival)
        broker.ledger.expect(size)
        broker.ask_commit(False)
