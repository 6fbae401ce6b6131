"""Links of a move from broker to broker: out of a queue here, and in (docs/contracts.md, "Moves between brokers").

An administrator's process receives from one broker and sends to the other. It passes on copies and their delivery-tags
unchanged, and the outcomes in the other direction.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec

from enmasse.amqp.codec import errors as amqp
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, RELEASED
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.termini import MOVES
from enmasse.model.moves import MoveOrder
from services.broker.consumers import CopyLink, Later
from services.broker.coordinator import rejected
from services.broker.core.broker import Broker
from services.broker.core.errors import BrokerError
from services.broker.core.messages.stored_message import StoredMessage
from services.broker.core.publisher import publish_moved
from services.broker.core.publishing.verdict import ACCEPT, WAIT
from services.broker.core.queues.mover import Mover
from services.broker.core.queues.queue import Queue
from services.broker.management.queue_control import chosen, origin
from services.broker.producers import AddressProducer


def order_in(link: Link) -> Any:
    """Return what a peer states that attaches for a move; None: it is another kind of link."""
    attach = link.remote_attach
    return (attach.properties or {}).get(MOVES) if attach is not None else None


def read(order: Any) -> MoveOrder:
    """Return the messages that a receiver asks for. Raises BrokerError."""
    try:
        return msgspec.json.decode(order, type=MoveOrder)
    except (msgspec.MsgspecError, TypeError) as error:
        raise BrokerError(f"the property {MOVES} of the link: {error}", "amqp:invalid-field") from None


def agree(link: Link) -> None:
    """Have the answer to the attach state that the link is one for a move."""
    link.properties = {Symbol(MOVES): True}


class LinkMover(CopyLink, Mover):
    """A receiver that takes messages out of a queue for another broker."""

    def __init__(
        self, later: Later, link: Sender, broker: Broker, queue: Queue,
        order: MoveOrder,
    ) -> None:  # fmt: skip
        """Raises BrokerError for an invalid filter."""
        takes = chosen(broker, queue, order.filter)

        def wanted(message: StoredMessage) -> bool:
            return (order.source is None or origin(broker, queue, message) == order.source) and takes(message)

        def tag(message: StoredMessage) -> bytes:
            return sha256(f"{broker.identity} {message.id} {queue.name}".encode()).hexdigest()[:32].encode()

        Mover.__init__(
            self, queue, link, ids=order.ids, chosen=wanted, limit=order.limit, tag=tag,
            copy=lambda message, payload: broker.dead_letters.copy(queue, message, payload, {}),
        )  # fmt: skip
        self._later = later
        self._broker = broker
        self.link = link
        queue.browsers.append(self)

    def _look(self) -> None:
        self.look()

    def ended(self, error: BrokerError | None) -> None:
        """Detach the link."""
        self.link.detach(None if error is None else AmqpError(error.condition, str(error)))

    def outcomes(self, messages: list[Any], state: Any, settled: bool) -> None:
        """Finish accepted messages; others stay in the queue."""
        if state is None and not settled:
            return
        if not settled:
            self.link.settle(messages)
        self.settle(messages, accepted=state is ACCEPTED)
        self._broker.ask_commit(True)

    def detached(self, closed: bool) -> None:
        """The link has ended: what it holds stays."""
        super().detached(closed)
        self.leave()


class MovedProducer(AddressProducer):
    """A sender of copies. Their delivery-tags are kept as duplicate ids: a repeated copy is not stored again."""

    def start(self, owner: Any) -> None:
        """The link is attached: credit, unless the address is full."""
        super().start(owner)
        self.link.on_run = None

    def deliver(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        """Publish one copy, and settle it unless it waits for the disk."""
        self.info.sent += 1
        route = self.route
        try:
            if settled or not tag:
                raise BrokerError("a moved message is sent unsettled, with its delivery-tag", "amqp:not-allowed")
            if route is None or route.stale:
                route = self._find_route()
            verdict = publish_moved(self.broker, route, payload, self, delivery_id, bytes(tag))
        except (BrokerError, AmqpError) as error:
            if not settled:
                link.session.settle(delivery_id, rejected(error))
            return
        if verdict is not WAIT:
            link.session.settle(delivery_id, ACCEPTED if verdict is ACCEPT else RELEASED)


def refuse_router() -> AmqpError:
    """Return the error for a router, which may not move messages for its clients."""
    return AmqpError(amqp.NOT_ALLOWED, "messages are moved by an administrator, not through a router")
