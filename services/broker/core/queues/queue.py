"""Queue: messages in order, and consumers that compete for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from services.broker.core.jobs import MANY, Work
from services.broker.core.limits.broker_address import BrokerAddress
from services.broker.core.messages.condition import Condition
from services.broker.core.messages.stored_message import StoredMessage
from services.broker.core.queues.backlog import Slice
from services.broker.core.queues.consumer import Consumer
from services.broker.core.queues.contents import Contents
from services.broker.core.queues.dispatcher import Dispatcher
from services.broker.core.queues.disposal import Disposal
from services.broker.core.queues.outcomes import Outcomes
from services.broker.core.queues.queue_host import QueueHost
from services.broker.selector import Selector


class Queue(Contents):
    """Sans-IO. The contents of a queue, what it was defined as, and its parts: the `dispatcher` sends messages to
    consumers, `outcomes` takes what these answer, `disposal` removes messages that are not delivered."""

    broker: QueueHost[Queue]

    __slots__ = (
        "auto_created",
        "auto_delete",
        "browsers",
        "client",
        "condition",
        "dispatcher",
        "disposal",
        "identity",
        "max_consumers",
        "outcomes",
        "purge_on_no_consumers",
        "subscription",
        "temporary",
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
        super().__init__(broker, id, name, address, routing_type, durable=durable)
        self.temporary = temporary
        self.condition = condition or Condition()  # of the messages to its address
        self.max_consumers = max_consumers
        self.purge_on_no_consumers = purge_on_no_consumers
        self.auto_created = auto_created
        self.auto_delete = auto_delete
        self.user = user
        self.client = client  # the container whose durable subscription it is
        self.subscription: tuple[Any, ...] | None = None  # what a durable subscription was made for (see nodes)
        self.identity = ""  # of a subscription with an owner: `subscription.queue_name`, as a rule its name
        self.browsers: list[Any] = []  # and movers: links that are no consumers, and end with the queue
        self.dispatcher = Dispatcher(self, broker, exclusive=exclusive)
        self.outcomes = Outcomes(self, broker, self.dispatcher)
        self.disposal = Disposal(self, broker, self.dispatcher, ring_size=ring_size)

    @property
    def filter(self) -> Selector | None:
        """Filter on the messages to its address."""
        return self.condition.filter

    @property
    def consumers(self) -> list[Consumer]:
        """Consumers in the order in which they attached."""
        return self.dispatcher.turns.consumers

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
            self.dispatcher.delay(message, due)
            return
        self.dispatcher.take_in(message)
        if self.disposal.ring:
            self.disposal.keep_ring(message.owner)

    def _place_run(self, messages: Sequence[StoredMessage], payloads: Sequence[bytes]) -> None:
        self.dispatcher.take_in_run(messages, payloads)
        if self.disposal.ring:
            self.disposal.keep_ring(messages[0].owner)

    def restore(self, message: StoredMessage, attempts: int, due: int) -> None:
        """Enter a message found in the store at the start."""
        self.count_restored(1, message.size)
        if message.expires:
            self._watch(message)
        if attempts:
            self.attempts[message.id] = attempts
        if due:
            self.dispatcher.delay(message, due)
        else:
            self.dispatcher.append(message)

    def restore_packed(self, some: Slice, size: int) -> None:
        """`restore` of usual messages of `size` bytes together."""
        self.count_restored(some.count, size)
        self.order.restore(some)

    def _watch(self, message: StoredMessage) -> None:
        self.expiries.add(message.expires)
        self.broker.watch_expiries(self)

    # -- consumers -----------------------------------------------------------------------------------------------------
    def waiting(self) -> int:
        """Return the number of messages that are neither being delivered nor scheduled for later."""
        return max(0, self.count - self.dispatcher.delivering - len(self.schedule))

    def flow(self, consumer: Consumer) -> None:
        """Handle a change of credit or drain, or a peer that reads again."""
        self.touch()
        self.dispatcher.flow(consumer)
        if consumer.relay and self.exclusions:
            self.outcomes.rescue()  # perhaps it has no consumers left

    def detach(self, consumer: Consumer, *, lost: bool = False) -> None:
        """Remove a consumer whose link has ended: its unsettled messages return. `lost`: it may have died of one."""
        self.touch()
        if self.dispatcher.detach(consumer):
            self.outcomes.give_back_unsettled(consumer, lost=lost)

    def resume(self) -> None:
        """Continue after a stall (`Standing`)."""
        self.dispatcher.resume()
        self.outcomes.rescue()

    # -- time, and the end ---------------------------------------------------------------------------------------------
    def wake(self, *, at_once: bool = True) -> None:
        """Scheduled messages whose time has come become ready: now, if they are few and `at_once` is true."""
        self.broker.jobs.start((self, "wake"), self._wake, self.address.tenant, at_once=at_once)

    def _wake(self) -> Work[None]:
        while not self.deleted and (due := self.schedule.take_due(self.broker.now, MANY)):
            self.dispatcher.reinsert(due)
            self.dispatcher.dispatch()
            self.outcomes.rescue()
            yield len(due)
        if self.schedule.next and not self.deleted:
            self.broker.wake_at(self, self.schedule.next)

    def delete(self, reason: str) -> None:
        """End the queue and its consumers; a job frees its messages. The store no longer has its definition."""
        self.deleted = True
        self.broker.forget_queue(self)
        consumers = self.dispatcher.turns.clear()
        delivering = [message for consumer in consumers for message in consumer.unsettled.values()]
        delivering += self.held.values()
        self.held.clear()
        self.clear()
        for consumer in consumers:
            consumer.unsettled.clear()
            consumer.closed("amqp:resource-deleted", reason)
        for browser in list(self.browsers):
            browser.closed("amqp:resource-deleted", reason)
        self.disposal.free(delivering)
