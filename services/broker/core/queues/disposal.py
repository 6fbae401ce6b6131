"""Removal of messages that are not delivered: expiry, the ring, what administrators ask for, the end of a queue."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Generic

from services.broker.core import jobs
from services.broker.core.jobs import MANY, Work
from services.broker.core.limits.broker_address import BrokerAddress
from services.broker.core.limits.space_storage import UNLIMITED
from services.broker.core.messages.stored_message import STORED, StoredMessage
from services.broker.core.queues.backlog import Slice
from services.broker.core.queues.contents import C
from services.broker.core.queues.dispatcher import Dispatcher
from services.broker.core.queues.order import Cursor, anyone
from services.broker.core.queues.queue_host import QueueHost


class Disposal(Generic[C]):
    """Work over many messages of one queue, in portions (see Jobs). `ring`: whether the queue keeps only its newest
    messages: `ring_size` of them (-1 = all), or as many bytes as its address allows."""

    __slots__ = ("_broker", "_dispatcher", "_queue", "ring", "ring_size")

    def __init__(self, queue: C, broker: QueueHost[C], dispatcher: Dispatcher[C], *, ring_size: int) -> None:
        self._queue = queue
        self._broker = broker
        self._dispatcher = dispatcher
        self.ring_size = ring_size
        self.ring = False
        self.settle_ring()

    # -- the ring ------------------------------------------------------------------------------------------------------
    def settle_ring(self) -> None:
        """Find out whether the queue is a ring, after a change of its size or its address."""
        self.ring = self.ring_size >= 0 or self._queue.address.ring_bytes < UNLIMITED

    def keep_ring(self, owner: BrokerAddress) -> None:
        """Drop old messages if those that have come exceed the ring. Bytes count at the address that messages were sent
        to, unless a divert brought them."""
        queue, address = self._queue, self._queue.address
        if 0 <= self.ring_size < queue.count or (queue.bytes > address.ring_bytes and owner is not address.root):
            self.drop_oldest()

    def drop_oldest(self) -> None:
        """Drop the oldest waiting messages, of the lowest priority first, beyond the size of the ring. Messages that
        are scheduled or being delivered stay."""
        if self._drop_some():
            self._broker.jobs.start((self._queue, "ring"), self._drop_rest, self._queue.address.tenant)

    def _drop_rest(self) -> Work[None]:
        while not self._queue.deleted and self._drop_some():
            yield MANY

    def _drop_some(self) -> bool:
        """Return whether more has to go."""
        queue = self._queue
        most, size = self.ring_size, queue.address.ring_bytes
        dropped = 0
        if most >= 0:
            waiting = queue.count - queue.arriving - self._dispatcher.delivering - len(queue.schedule)
            dropped = queue.finish_all(queue.order.take_oldest(min(MANY, waiting - most)))
        while dropped < MANY and queue.bytes > size and (one := queue.finish_all(queue.order.take_oldest(1))):
            dropped += one
        queue.count_replaced(dropped)
        return dropped >= MANY

    # -- expiry --------------------------------------------------------------------------------------------------------
    def expire_due(self, *, at_once: bool = True) -> None:
        """Take out messages that have expired while waiting: now, if they are few and `at_once` is true."""
        if self._queue.expiries.due(self._broker.now) and not self._dispatcher.stalled:
            tenant = self._queue.address.tenant
            self._broker.jobs.start((self._queue, "expiry"), self._expire, tenant, at_once=at_once)

    def _expire(self) -> Work[None]:
        now = self._broker.now
        nearest = 0
        expiries = self._queue.expiries

        def due(expires: int) -> bool:
            nonlocal nearest
            if expires > now:
                nearest = min(nearest or expires, expires)
            return 0 < expires <= now

        expiries.begin(now)
        yield from self.dispose(
            self._broker.dead_letters.expire,
            lambda message: due(message.expires) and message.id not in expiries.handed,
            lambda some: due(some.nearest),
            portion=jobs.PORTION,
        )
        expiries.look_on(0 if self._dispatcher.stalled else nearest, now)

    # -- on request ----------------------------------------------------------------------------------------------------
    def remove(self, chosen: Callable[[StoredMessage], bool], cursor: Cursor | None = None) -> Work[int]:
        """Remove the messages that are chosen from those that wait (behind the cursor), and return their number;
        messages that are being delivered stay."""
        count = 0
        for looked, taken in self._queue.take(MANY if chosen is anyone else jobs.FILTERED, chosen, cursor=cursor):
            count += self._queue.finish_all(taken)
            yield looked
            if self._queue.deleted:
                break
        self._dispatcher.settle_mode()
        return count

    def purge(self) -> None:
        """Remove all waiting messages."""
        work = partial(self.remove, anyone)
        self._broker.jobs.start(
            work, work, self._queue.address.tenant
        )  # beside an earlier one: that does not see what has come since

    def dispose(
        self,
        how: Callable[[C, StoredMessage], bool],
        chosen: Callable[[StoredMessage], bool] = anyone,
        worth: Callable[[Slice], bool] = anyone,
        cursor: Cursor | None = None,
        portion: int = jobs.FILTERED,
    ) -> Work[int]:
        """Take out messages (behind the cursor) and give them to `how`, until one of them cannot be read: that one and
        those behind it stay in the queue. Return the number of those of which `how` was true. Raises what `how` raises,
        after the messages were put back."""
        queue, dispatcher = self._queue, self._dispatcher
        count = 0
        for looked, taken in queue.take(jobs.PORTION if chosen is anyone else portion, chosen, worth, cursor):
            for at, message in enumerate(taken):
                if dispatcher.stalled:
                    dispatcher.reinsert(taken[at:])
                    break
                try:
                    count += how(queue, message)
                except Exception:
                    dispatcher.reinsert([left for left in taken[at:] if left.refs])
                    raise
            self._broker.removed_some()
            if dispatcher.stalled:
                break
            yield looked
            if queue.deleted:
                break
        dispatcher.settle_mode()
        return count

    # -- the end of the queue ------------------------------------------------------------------------------------------
    def free(self, delivering: list[StoredMessage]) -> None:
        """Free, in a job, the memory and the disk of the messages of a queue that is deleted."""
        tenant = self._queue.address.tenant
        self._broker.jobs.start((self._queue, "end"), partial(self._free, delivering), tenant)

    def _free(self, delivering: list[StoredMessage]) -> Work[None]:
        queue, broker = self._queue, self._broker
        store = broker.store if queue.durable else None
        for looked, messages in chain([(len(delivering), delivering)], queue.take(MANY, anyone)):
            for message in messages:
                if store is not None and message.flags & STORED:
                    store.discard(message.id, queue.id)
                broker.payloads.drop(message)
            broker.removed_some()
            yield looked
