"""The messages of one queue, wherever they are, and what the queue notes of each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from services.broker.core.jobs import PORTION
from services.broker.core.limits.broker_address import BrokerAddress
from services.broker.core.limits.usage import QueueTotals
from services.broker.core.messages.stored_message import STORED, StoredMessage
from services.broker.core.queues.backlog import Slice
from services.broker.core.queues.exclusions import Exclusions
from services.broker.core.queues.expiries import Expiries
from services.broker.core.queues.order import Cursor, MessageOrder, anyone
from services.broker.core.queues.queue_host import ContentsHost
from services.broker.core.queues.schedule import Schedule


class Contents(QueueTotals, ABC):
    """A message is in one of these places: `order` (it waits), `schedule` (its time has not come), `unsettled` of a
    consumer (it is being delivered), `held` for another broker (see Mover); or it is still on its way to the disk, and
    only counted. `attempts`: failed deliveries by message id, if there were any."""

    __slots__ = (
        "address",
        "attempts",
        "broker",
        "deleted",
        "durable",
        "exclusions",
        "expiries",
        "held",
        "id",
        "name",
        "order",
        "routing_type",
        "schedule",
    )

    def __init__(
        self, broker: ContentsHost, id: int, name: str, address: BrokerAddress, routing_type: str, *, durable: bool
    ) -> None:
        super().__init__(broker.ledger.touched)
        self.broker = broker
        self.id = id
        self.name = name
        self.address = address
        self.routing_type = routing_type
        self.durable = durable
        self.deleted = False
        self.order = MessageOrder(broker.payloads, durable)
        self.schedule = Schedule()
        self.expiries = Expiries()
        self.attempts: dict[int, int] = {}
        self.held: dict[int, StoredMessage] = {}
        self.exclusions = Exclusions()

    @abstractmethod
    def resume(self) -> None:
        """Continue after a stall (`Standing`)."""

    # -- looking -------------------------------------------------------------------------------------------------------
    def parts(self) -> Iterator[Iterable[StoredMessage] | Slice]:
        """Yield the waiting messages in the order of their delivery; not those scheduled or being delivered."""
        return self.order.parts()

    def messages(self) -> Iterator[StoredMessage]:
        """Yield the waiting messages one by one. Objects of the backlog's messages are temporary, not to be kept."""
        return self.order.messages()

    def look(self, count: int = PORTION) -> Iterator[list[StoredMessage]]:
        """Yield the messages that wait now, up to `count` at a time. Between two portions anything may happen to the
        queue."""
        cursor = self.order.start()
        while portion := self.order.look(cursor, count):
            yield portion

    # -- taking out ----------------------------------------------------------------------------------------------------
    def take(
        self,
        count: int,
        chosen: Callable[[StoredMessage], bool],
        worth: Callable[[Slice], bool] = anyone,
        cursor: Cursor | None = None,
    ) -> Iterator[tuple[int, list[StoredMessage]]]:
        """Take out the waiting and scheduled messages that are chosen. Yield, of up to `count` at a time, how many were
        looked at and those taken out: the caller ends these, or puts them back, before the next portion. `worth`: of a
        slice of the backlog, whether it may hold such messages. `cursor`: only waiting ones behind it."""
        ids = self.schedule.ids() if cursor is None else []
        cursor = cursor or self.order.start()
        while portion := self.order.look(cursor, count, worth):
            yield len(portion), self.order.take([message for message in portion if chosen(message)])
        for start in range(0, len(ids), count):
            portion = [m for m in map(self.schedule.find, ids[start : start + count]) if m is not None and chosen(m)]
            self.schedule.take(portion)
            yield len(ids[start : start + count]), portion

    def take_one(self, id: int) -> StoredMessage | None:
        """Take out a waiting or scheduled message and return it; None: it is not there."""
        message = self.order.find(id)
        if message is not None:
            return self.order.take([message])[0]
        message = self.schedule.find(id)
        if message is not None:
            self.schedule.take([message])
        return message

    # -- the end of messages -------------------------------------------------------------------------------------------
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
        self.forget(message)
        if not recorded and message.flags & STORED and self.durable and self.broker.store is not None:
            self.broker.store.remove(message.id, self.id)
        self.broker.payloads.drop(message)

    def forget(self, message: StoredMessage) -> None:
        """Forget attempts, exclusions and expiry of a message that leaves the queue."""
        if message.expires:
            self.expiries.remove(message)
        self.attempts.pop(message.id, None)
        self.exclusions.forget(message.id)

    def rename(self, message: int, new: int) -> None:
        """Note that the message has another id from now on."""
        if message in self.attempts:
            self.attempts[new] = self.attempts.pop(message)
        self.exclusions.rename(message, new)
        self.expiries.rename(message, new)


C = TypeVar("C", bound=Contents)
"""The queue, for its parts: they know it as its contents, and hand it to the broker."""
