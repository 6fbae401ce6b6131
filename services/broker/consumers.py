"""Links that receive from the broker: competing consumers of a queue, subscribers, browsers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from enmasse.amqp import errors
from enmasse.amqp.errors import AmqpError
from enmasse.amqp.link import Sender
from enmasse.amqp.performatives import ACCEPTED, Modified, Rejected, Released
from services.broker.core.broker import Broker
from services.broker.core.browser import Browser
from services.broker.core.connections import ConsumerInfo
from services.broker.core.consumer import Consumer
from services.broker.core.queue import Queue
from services.broker.selector import Selector


class LinkConsumer(Consumer):
    """One receiver attached to a queue, be it the queue of an address or of a subscription."""

    def __init__(
        self,
        broker: Broker,
        link: Sender,
        info: ConsumerInfo,
        *,
        priority: int,
        selector: Selector | None,
        durable: bool,
        relay: bool,
    ) -> None:
        super().__init__(
            info.id, link, priority=priority, selector=selector, presettled=link.snd_settle_mode == 1, relay=relay
        )
        self.broker = broker
        self.link = link
        self.info = info
        self.queue: Queue | None = None
        self.durable = durable  # of a durable subscription: detaching without closing keeps its queue

    def start(self, queue: Queue) -> None:
        self.queue = queue
        queue.attach(self)

    def flow(self) -> None:
        if self.queue is not None:
            self.queue.flow(self)

    def blocked(self) -> bool:
        return self.link.session.connection.blocked

    def outcomes(self, messages: list[Any], state: Any, settled: bool) -> None:
        """A disposition without a state decides nothing; the message comes back with the end of the link."""
        queue = self.queue
        if queue is None or state is None:
            return
        if state is ACCEPTED:
            queue.accept(self, messages)
        elif isinstance(state, Released):
            queue.release(self, messages)
        elif isinstance(state, Modified):
            queue.modify(self, messages, failed=bool(state.delivery_failed), elsewhere=bool(state.undeliverable_here))
        elif isinstance(state, Rejected):
            queue.reject(self, messages)
        else:
            return
        if not settled:
            self.broker.when_stored(partial(self._stored, messages))

    def _stored(self, messages: list[Any], error: OSError | None) -> None:
        """A receiver of rcv-settle-mode second takes our settlement for a promise that the message does not come again;
        if it cannot be kept, the link ends with these unsettled."""
        if error is None:
            self.link.settle(messages)
        else:
            self.link.detach(AmqpError(errors.INTERNAL_ERROR, f"the outcomes could not be stored: {error}"))

    def closed(self, condition: str, description: str) -> None:
        self.queue = None
        self.link.detach(AmqpError(condition, description))

    def detached(self, closed: bool) -> None:
        self.info.delivering = lambda: 0  # it referred to this consumer
        queue = self.queue
        if queue is None:
            return
        self.queue = None
        queue.detach(self)
        if self.durable and closed and not queue.consumers and not queue.deleted:
            self.broker.catalogue.destroy_queue(queue.name, remove_consumers=True)
        else:
            self.broker.catalogue.consumer_left(queue)


class LinkBrowser(Browser):
    """A receiver that looks at a queue and takes nothing from it."""

    def __init__(
        self, later: Callable[[Callable[[], None]], object], link: Sender, queue: Queue, selector: Selector | None
    ) -> None:
        """`later` calls in the next turn."""
        super().__init__(queue, link, selector)
        self._later = later
        self.link = link
        queue.browsers.append(self)

    def again(self) -> None:
        self._later(self.flow)

    def flow(self) -> None:
        if not self.link.detached:
            super().flow()

    def outcomes(self, messages: list[Any], state: Any, settled: bool) -> None:
        if not settled:
            self.link.settle(messages)

    def closed(self, condition: str, description: str) -> None:
        self.link.detach(AmqpError(condition, description))

    def detached(self, closed: bool) -> None:
        if self in self.queue.browsers:
            self.queue.browsers.remove(self)
