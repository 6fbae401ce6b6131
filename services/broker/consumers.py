"""Links that receive from the broker: competing consumers of a queue, subscribers, browsers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from enmasse.amqp.codec import errors
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, Modified, Rejected, Released, TransactionalState
from enmasse.amqp.endpoint import SECOND
from enmasse.amqp.link import Sender
from enmasse.amqp.termini import CONSUMER, MESSAGE_IDENTITY
from services.broker.coordinator import OwnTransactions
from services.broker.core.broker import Broker
from services.broker.core.connections import ConsumerInfo
from services.broker.core.errors import BrokerError
from services.broker.core.messages.dead_letter_reasons import Death, Reason
from services.broker.core.persistence import Committed
from services.broker.core.queues.browser import Browser
from services.broker.core.queues.consumer import Consumer
from services.broker.core.queues.queue import Queue
from services.broker.core.transactions import Retirement
from services.broker.core.turn_shares import LIGHT
from services.broker.selector import Selector


def second(link: Sender) -> bool:
    """Return whether the peer asks for rcv-settle-mode second: our settlement of its outcome is to be a promise
    (2.8.3)."""
    attach = link.remote_attach
    return attach is not None and int(attach.rcv_settle_mode) == SECOND and not link.presettled


def names_messages(link: Sender) -> bool:
    """Return whether delivery-tags are to be the identities of messages."""
    attach = link.remote_attach
    desired = (attach.desired_capabilities if attach is not None else None) or ()
    return (MESSAGE_IDENTITY in desired and not link.presettled) or second(link)


def identity(id: int) -> bytes:
    """Return the identity of a message as a delivery-tag: seven bits in each of eight bytes, because some clients
    take tags for text."""
    high, low = id >> 28, id & 0xFFFFFFF
    return bytes(
        (
            high >> 21 & 127,
            high >> 14 & 127,
            high >> 7 & 127,
            high & 127,
            low >> 21,
            low >> 14 & 127,
            low >> 7 & 127,
            low & 127,
        )
    )


class TaggedOutlet:
    """The delivery-tag names the message (`names_messages`). These 8 bytes are its identity: the same with
    every delivery from this queue, over any link, and of a stored message also after a restart of the broker.

    The answer to a drain states that a message that did not come will never come. So it waits until the removals that
    others have caused are on disk.
    """

    def __init__(self, link: Sender, when_stored: Callable[[Committed], None]) -> None:
        self._link = link
        self._when_stored = when_stored

    @property
    def credit(self) -> int:
        """Credit of the link."""
        return self._link.credit

    @property
    def drain(self) -> bool:
        """True while the receiver drains."""
        return self._link.drain

    def send(self, payload: Any, token: Any = None, *, settled: bool = False) -> Any:
        """Send a message with its identity as the delivery-tag."""
        tag = identity(token.id)
        if not settled and type(payload) is bytes and self._link.pass_on(payload, token, tag):
            return None
        return self._link.send(payload, token, settled=settled, tag=tag)

    def send_run(self, payloads: Sequence[bytes], tokens: Sequence[Any]) -> int:
        """Send messages until credit or room runs out; return how many."""
        count = 0
        pass_on, link = self._link.pass_on, self._link
        for payload, token in zip(payloads, tokens, strict=False):
            if not pass_on(payload, token, identity(token.id)):
                if link.credit <= 0:
                    break
                self.send(payload, token)
            count += 1
        return count

    def drained(self) -> None:
        """Answer a drain once the removals so far are on disk; if these fail, the link is detached."""
        self._when_stored(self._drained)

    def _drained(self, error: OSError | None) -> None:
        if self._link.detached:
            return
        if error is None:
            self._link.drained()
        else:
            self._link.detach(AmqpError(errors.INTERNAL_ERROR, f"what the queue holds could not be stored: {error}"))


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
        routed: bool = False,
        container: str = "",
    ) -> None:
        """`routed`: the connection is a router's. `container`: the container-id of the client."""
        super().__init__(
            info.id,
            TaggedOutlet(link, broker.when_all_stored) if names_messages(link) else link,
            priority=priority,
            selector=selector,
            presettled=link.presettled,
            relay=relay,
            once=names_messages(link),
        )
        self.broker = broker
        self.link = link
        self.info = info
        self.queue: Queue | None = None
        self.routed = routed
        self.container = container
        self.durable = durable  # of a durable subscription: detaching without closing keeps its queue

    def start(self, queue: Queue) -> None:
        """Attach to a queue; messages follow with `flow`."""
        self.queue = queue
        self.link.available = queue.waiting
        self.link.transactional = True
        queue.dispatcher.attach(self)
        queue.touch()

    def flow(self) -> None:
        """Pass a change of credit or drain to the queue."""
        if self.queue is not None:
            self.queue.flow(self)

    def blocked(self) -> bool:
        """Return True if the peer does not read."""
        return self.link.session.connection.blocked

    def outcomes(self, messages: list[Any], state: Any, settled: bool) -> None:
        """Apply an outcome. Without one (the link has ended) the messages return with `detached`."""
        queue = self.queue
        if queue is None or state is None:
            return
        if self._apply(queue, messages, state) and not settled:
            self.broker.when_stored(partial(self._stored, self.link.stated(messages)))

    def _apply(self, queue: Queue, messages: list[Any], state: Any) -> bool:
        """Return False for a state that is no outcome."""
        if state is ACCEPTED:
            queue.outcomes.accept(self, messages)
        elif isinstance(state, Released):
            queue.outcomes.release(self, messages)
        elif isinstance(state, Modified):
            queue.outcomes.modify(
                self,
                messages,
                failed=bool(state.delivery_failed),
                elsewhere=bool(state.undeliverable_here) and self.queue is not None,
                annotations=state.message_annotations,
            )
        elif isinstance(state, Rejected):
            queue.outcomes.reject(self, messages, self._death(state))
        else:
            return False
        return True

    def transactional(
        self,
        own: OwnTransactions,
        messages: list[Any],
        delivery_ids: Sequence[int],
        state: TransactionalState,
        settled: bool,
    ) -> None:
        """Keep an outcome for the end of a transaction (4.4.2). If that has ended already, the deliveries are
        as after a rollback. Raises BrokerError if there was none."""
        queue = self.queue
        if queue is None or not messages:
            return
        outcome = state.outcome
        if outcome is None and settled:
            outcome = self.link.default_outcome
        if outcome is None:
            return
        of = dict(zip((message.id for message in messages), delivery_ids, strict=False))
        link = self.link
        retirement = Retirement(
            queue,
            self,
            messages,
            lambda mine: self._apply(queue, mine, outcome),
            lambda: link.settle_ids(of.values()) if of and not link.over else None,
            lambda message: self.queue is queue and link.holds(of.get(message.id, -1)),
        )
        try:
            self.broker.transactions.retire(own.find(bytes(state.txn_id)), retirement)
        except BrokerError as error:
            retirement.undo()
            if error.condition == errors.TRANSACTION_UNKNOWN_ID:
                raise

    def _death(self, state: Rejected) -> Death:
        """Return what the consumer has stated; behind a router's own link the router adds the consumer."""
        error = state.error
        if error is None:
            return Death(Reason.REJECTED, consumer="" if self.relay else self.container)
        behind = (error.info or {}).get(CONSUMER) if self.relay else self.container
        return Death(
            Reason.REJECTED,
            str(error.condition),
            error.description or "",
            behind if isinstance(behind, str) else "",
        )

    def _stored(self, delivery_ids: list[int], error: OSError | None) -> None:
        """A receiver of rcv-settle-mode second takes our settlement for a promise that the message is not delivered
        again; if it cannot be kept, the link ends with these unsettled."""
        if error is None:
            self.link.settle_ids(delivery_ids)
        else:
            self.link.detach(AmqpError(errors.INTERNAL_ERROR, f"the outcomes could not be stored: {error}"))

    def closed(self, condition: str, description: str) -> None:
        """The queue is gone: detach the link with this error."""
        self.queue = None
        self.link.detach(AmqpError(condition, description))

    @property
    def _was_lost(self) -> bool:
        """Return whether the client was lost, perhaps by a message. A router answers for those behind its own links,
        and states the loss of one whose link it has passed on by the error of a detach; its own loss is no client's."""
        lost_with_router = self.routed and self.link.session.connection.state == "closed"
        return self.link.blames and not self.relay and not lost_with_router

    def detached(self, closed: bool) -> None:
        """The link has ended: return its messages. A durable subscription ends with it if the client closed it."""
        self.info.delivering = lambda: 0  # it referred to this consumer
        queue = self.queue
        if queue is None:
            return
        self.queue = None
        queue.detach(self, lost=self._was_lost)
        if self.durable and closed and not queue.consumers and not queue.deleted:
            self.broker.catalogue.destroy_queue(queue.name, remove_consumers=True)
        else:
            self.broker.catalogue.consumer_left(queue)


Later = Callable[[Callable[[], None], str], object]
"""Calls in one of the next turns, those of an address space."""


class CopyLink(ABC):
    """A receiver that gets copies and is no consumer of its queue: a browser, or a move to another broker. First base
    of the class that makes the copies."""

    link: Sender
    queue: Queue
    _later: Later
    _goes_on = False
    """Whether `again` was called, and not yet what it plans."""

    @abstractmethod
    def _look(self) -> None:
        """Send copies as far as credit goes, for one turn."""

    def flow(self) -> None:
        """Send copies as far as credit goes."""
        if not self.link.detached and not self._goes_on:
            self._look()

    def again(self) -> None:
        """Continue in a later turn."""
        if not self._goes_on:
            self._goes_on = True
            self._later(self._go_on, self.queue.address.tenant)

    def _go_on(self) -> None:
        self._goes_on = False
        if not self.link.detached:
            self._look()

    def closed(self, condition: str, description: str) -> None:
        """The queue is gone: detach the link with this error."""
        self.link.detach(AmqpError(condition, description))

    def detached(self, closed: bool) -> None:
        """The link has ended."""
        if self in self.queue.browsers:
            self.queue.browsers.remove(self)


class LinkBrowser(CopyLink, Browser):
    """A receiver that looks at a queue and takes nothing from it."""

    def __init__(self, later: Later, link: Sender, queue: Queue, selector: Selector | None) -> None:
        Browser.__init__(self, queue, link, selector)
        self._later = later
        self.link = link
        queue.browsers.append(self)

    def flow(self) -> None:
        """Send copies as far as credit goes; in turns of its own if it takes long to find them."""
        if self.selector is not None and self.selector.weight > LIGHT:
            self.again()
        elif not self._goes_on:
            self._look()

    def _look(self) -> None:
        self.look()

    def outcomes(self, messages: list[Any], state: Any, settled: bool) -> None:
        """Settle the copies; their outcomes change nothing."""
        if not settled:
            self.link.settle(messages)
