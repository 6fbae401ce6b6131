"""Links that send to the broker: to an address, to the anonymous relay, to management."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, RELEASED, Modified, TransactionalState
from enmasse.amqp.link import Receiver
from enmasse.amqp.messages.scan import ToSpans
from enmasse.identity.senders import SIZE
from services.broker.coordinator import OwnTransactions, rejected
from services.broker.core import errors
from services.broker.core.broker import Broker
from services.broker.core.connections import ConnectionInfo, ProducerInfo
from services.broker.core.legal_names import ANYCAST, MANAGEMENT, MULTICAST
from services.broker.core.limits.broker_address import BrokerAddress
from services.broker.core.limits.space_storage import UNLIMITED
from services.broker.core.messages.leading_sections import destination_type, sections_of
from services.broker.core.publisher import Posted, publish, publish_run
from services.broker.core.publishing.verdict import ACCEPT, WAIT
from services.broker.core.routing.routes import Route
from services.broker.nodes import Nodes

CREDIT = 1000  # deliveries; topped up when half of it is settled
_MIN_CREDIT = 10
_FAILED = Modified(delivery_failed=True)
_MOST_KNOWN = 1000  # routes that a link to the anonymous relay remembers
_SHORT_FRONT = 512  # bytes
_BEGINS = 4  # different beginnings of messages that are remembered
_UNKNOWN_SIZE = 100 << 10  # bytes that the first message of an address may well have


def _sender_in(tag: bytes) -> bytes:
    """Return for whom the duplicate id of a delivery with this tag counts."""
    return tag[-SIZE:] if len(tag) > SIZE else b""


class AddressProducer:
    """A sender to one address (or `address::queue`)."""

    def __init__(
        self,
        broker: Broker,
        link: Receiver,
        name: str,
        routing_type: str | None,
        origin: str,
        info: ProducerInfo,
        sender: bytes | None = b"",
    ) -> None:
        """`origin`: the container-id of the client, for no-local. `sender`: for whom duplicate ids count; None: the
        delivery-tags end with it."""
        self.broker = broker
        self.link = link
        self.name = name
        self.routing_type = routing_type
        self.origin = origin
        self.info = info
        self.sender = sender
        self.owner: BrokerAddress | None = None
        self.route: Route | None = None
        self.transactions: OwnTransactions | None = None  # of the connection; None: refused on this link
        self.client: ConnectionInfo | None = None  # for the log of refusals
        self.behind: Sequence[str] | None = None  # the client behind that router, see `ConnectionInfo.note_refused`
        self.temporary: str | None = None  # the address of a dynamic target, which goes with the link
        self.believed = False  # messages keep annotations that only brokers and the subscription service may state

    def start(self, owner: BrokerAddress | None) -> None:
        """The link is attached: credit, unless the address is full."""
        self.owner = owner
        self.link.on_delivery = self.deliver
        self.link.on_run = self.deliver_run
        if self.transactions is not None:
            self.link.on_transactional = self.post
        self.link.keeps_tags = self.sender is None
        if owner is not None:
            owner.producers[self] = None
            owner.touch()
            if owner.blocked:
                return
        self.link.credit_window = self._window()

    def _window(self) -> int:
        """Less credit if there is little room left: what is granted may come after the address, or the broker, is
        full."""
        owner, broker = self.owner, self.broker
        if owner is None or not self._bounded:
            return CREDIT
        room = min(owner.limit - owner.size, broker.ledger.capacity - broker.ledger.size)
        average = max(1024, owner.size // owner.count) if owner.count else _UNKNOWN_SIZE
        return max(_MIN_CREDIT, min(CREDIT, max(0, room) // average // max(1, len(owner.producers))))

    @property
    def _bounded(self) -> bool:
        owner = self.owner
        return owner is not None and (owner.settings.max_size_bytes >= 0 or self.broker.ledger.capacity < UNLIMITED)

    def deliver(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        """Publish one message, and settle it unless it waits for the disk."""
        self.info.sent += 1
        broker = self.broker
        route = self.route
        try:
            if route is None or route.stale:
                route = self._find_route()
            if message_format:
                raise errors.BrokerError(f"message-format {message_format} is not known", "amqp:not-implemented")
            sender = self.sender if self.sender is not None else _sender_in(tag)
            waiting = None if settled else self
            verdict = publish(broker, route, payload, waiting, delivery_id, self.origin, sender, self.believed)
        except (errors.BrokerError, AmqpError) as error:
            self._reject(delivery_id, settled, error)
            return
        if verdict is WAIT or settled:
            return
        if verdict is ACCEPT:
            link.session.settle(delivery_id, ACCEPTED)
        else:
            link.session.settle(delivery_id, RELEASED)

    def _reject(self, delivery_id: int, settled: bool, error: errors.BrokerError | AmqpError) -> None:
        self._note(error, settled)
        if not settled:
            self.link.session.settle(delivery_id, rejected(error))

    def _note(self, error: errors.BrokerError | AmqpError, settled: bool) -> None:
        if self.client is not None:
            known = error if isinstance(error, AmqpError) else AmqpError(error.condition, str(error))
            of = None if settled and not self.behind else self.behind  # of a settled message a process learns nothing
            self.client.note_refused(self.broker.refusals, "message", known, self.name, of)

    def deliver_run(self, link: Receiver, first: int, payloads: list[bytes], settled: bool) -> None:
        """Publish messages that came together; the ids of their deliveries are consecutive."""
        done = 0
        if len(payloads) > 1:
            broker = self.broker
            route = self.route
            try:
                if route is None or route.stale:
                    route = self._find_route()
                done = publish_run(broker, route, payloads, None if settled else self, first)
            except (errors.BrokerError, AmqpError):
                pass  # each is answered by itself below
            self.info.sent += done
        if done == len(payloads):
            return
        tags = link.tags_of_run() if self.sender is None else ()
        for n in range(done, len(payloads)):
            self.deliver(link, first + n, settled, payloads[n], tags[n] if tags else b"", 0)

    def post(
        self,
        link: Receiver,
        delivery_id: int,
        settled: bool,
        payload: bytes,
        tag: bytes,
        message_format: int,
        state: TransactionalState,
    ) -> None:
        """Add one message to a transaction (4.4.1). A refused one lets the transaction end by a rollback only."""
        self.info.sent += 1
        own = self.transactions
        assert own is not None
        id = bytes(state.txn_id)
        transaction = None
        try:
            transaction = own.find(id)
            if message_format:
                raise errors.BrokerError(f"message-format {message_format} is not known", "amqp:not-implemented")
            sender = self.sender if self.sender is not None else _sender_in(tag)
            posted = Posted(self.broker, self._route_for(payload), payload, self.origin, sender, self.believed)
            self.broker.transactions.post(transaction, posted)
        except (errors.BrokerError, AmqpError) as error:
            if transaction is not None:
                transaction.fail(error)
            self._note(error, settled)
            if not settled:
                link.session.settle(delivery_id, TransactionalState(txn_id=id, outcome=rejected(error)))
            return
        if not settled:
            link.session.settle(delivery_id, transaction.taken)

    def _route_for(self, payload: bytes) -> Route:
        """Return where a message goes. Raises BrokerError, AmqpError."""
        route = self.route
        return self._find_route() if route is None or route.stale else route

    def _find_route(self) -> Route:
        route = self.route = self.broker.catalogue.route(self.name, self.routing_type)
        if route is None:
            raise errors.BrokerError(f"AMQ119002: target address {self.name} does not exist", "amqp:not-found")
        return route

    def stored(self, first: int, count: int) -> None:
        """Accept deliveries whose messages are on disk."""
        self.link.settle_run(first, count)
        if self._bounded and self.owner is not None and not self.owner.blocked:
            window = self._window()
            if window != self.link.credit_window:
                self.link.credit_window = window

    def not_stored(self, first: int, count: int) -> None:
        """Return deliveries whose messages could not be written, as modified (delivery-failed)."""
        for delivery_id in range(first, first + count):
            self.link.session.settle(delivery_id, _FAILED)

    def not_taken(self, delivery_id: int, error: errors.BrokerError | AmqpError | None) -> None:
        """Reject a delivery whose queues were chosen late; None: release it."""
        if error is None:
            self.link.session.settle(delivery_id, RELEASED)
        else:
            self._reject(delivery_id, False, error)

    def block(self) -> None:
        """Grant no more credit: the address is full."""
        self.link.credit_window = 0

    def unblock(self) -> None:
        """Grant credit again."""
        self.link.credit_window = self._window()

    def closed(self, condition: str, description: str) -> None:
        """The address is gone: detach the link with this error."""
        self.link.detach(AmqpError(condition, description))

    def flow(self) -> None:
        """Do nothing: flows of a sending peer ask for nothing."""

    def detached(self, closed: bool) -> None:
        """The link has ended; a temporary address ends with it."""
        if self.owner is not None:
            self.owner.producers.pop(self, None)
            self.owner.touch()
        if self.temporary is not None and self.temporary in self.broker.catalogue.addresses:
            self.broker.catalogue.delete_address(self.temporary, force=True)


class RelayProducer(AddressProducer):
    """The anonymous relay: each message names its address in `to`."""

    def __init__(
        self,
        nodes: Nodes,
        manage: Callable[[bytes], None],
        link: Receiver,
        origin: str,
        info: ProducerInfo,
        sender: bytes = b"",
        prefix: str = "",
    ) -> None:
        """`manage` serves a request to the management address. `prefix`: of the address space of the client, whose
        names the messages state."""
        super().__init__(nodes.broker, link, "", None, origin, info, sender)
        self._nodes = nodes
        self._manage = manage
        self._prefix = prefix
        self._known: dict[bytes, Route] = {}  # by what messages state as `to`
        self._spans = ToSpans()
        self._begin = b"\xff"  # of the last message, up to its `to`: one that begins so goes the same way
        self._kindless: tuple[bytes, ...] = ()  # how messages begin that state no kind, up to their properties

    def deliver(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        """Publish one message to the address in its `to`, or serve it as a request to management."""
        route = self.route
        if route is None or route.stale or not payload.startswith(self._begin):
            try:
                self.route = self._route_of(payload)
            except (errors.BrokerError, AmqpError) as error:
                self.route = None
                self._reject(delivery_id, settled, error)
                return
        if self.route is not None:
            super().deliver(link, delivery_id, settled, payload, tag, message_format)
            return
        self.info.sent += 1
        if not settled:
            link.session.settle(delivery_id, ACCEPTED)

    def deliver_run(self, link: Receiver, first: int, payloads: list[bytes], settled: bool) -> None:
        """Deliver messages to one address together."""
        at, end = 0, len(payloads)
        while at < end:
            self.deliver(link, first + at, settled, payloads[at], b"", 0)
            at += 1
            route = self.route
            if route is None or route.stale:
                continue
            stop = at
            while stop < end and payloads[stop].startswith(self._begin):
                stop += 1
            if stop > at:
                super().deliver_run(link, first + at, payloads[at:stop], settled)
                at = stop

    def _route_of(self, payload: bytes) -> Route | None:
        """None: it was a request to management, and is served. Raises BrokerError, AmqpError."""
        start, end = self._spans.find(payload)
        if not end:
            raise errors.BrokerError("AMQ119016: a message to the anonymous relay needs `to`", "amqp:invalid-field")
        stated = payload[start:end]
        self._begin = payload[:end] if end <= _SHORT_FRONT else b"\xff"
        kind = None if payload.startswith(self._kindless) else self._stated_kind(payload)
        route = self._known.get(stated) if kind is None else None
        if route is not None and not route.stale:
            self.name, self.routing_type = route.name, None
            return route
        to = sections_of(payload).to
        if self._prefix and to is not None:
            to = self._prefix + to
        if to == MANAGEMENT:
            self._nodes.check_manage()
            self._manage(payload)
            return None
        if to is not None and to != self.name:
            self._nodes.check_send(to)
            self._nodes.check_name(to)
        if to is None or (self.broker.catalogue.route(to, None) is None and not self._nodes.auto_create(to, kind)):
            raise errors.BrokerError(f"AMQ119002: target address {to} does not exist", "amqp:not-found")
        self.name, self.routing_type = to, kind
        route = self._find_route()
        if kind is None and not route.stale:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[stated] = route
        return route

    def _route_for(self, payload: bytes) -> Route:
        if sections_of(payload).to == MANAGEMENT:
            raise errors.BrokerError("a request to management is no part of a transaction", "amqp:not-allowed")
        route = self._route_of(payload)
        assert route is not None
        self.route = None
        return route

    def _stated_kind(self, payload: bytes) -> str | None:
        """Return the routing type that a JMS client asks for by an annotation."""
        stated = destination_type(payload)
        if stated is not None:
            return ANYCAST if stated in (0, 2) else MULTICAST
        if payload.startswith(self._spans.begin):
            self._kindless = (self._spans.begin, *self._kindless[: _BEGINS - 1])
        return None


class ManagementProducer:
    """Requests to `activemq.management`, served one after the other, also when every address is full."""

    def __init__(self, manage: Callable[[bytes], None], link: Receiver, info: ProducerInfo) -> None:
        self._manage = manage
        self.link = link
        self.info = info

    def start(self) -> None:
        """Grant credit."""
        self.link.on_delivery = self.deliver
        self.link.credit_window = CREDIT

    def deliver(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        """Serve one request; it is accepted once it is taken on."""
        self.info.sent += 1
        try:
            self._manage(payload)
        except AmqpError as error:
            if not settled:
                link.session.settle(delivery_id, rejected(error))
            return
        if not settled:
            link.session.settle(delivery_id, ACCEPTED)

    def flow(self) -> None:
        """Do nothing: flows of a sending peer ask for nothing."""

    def detached(self, closed: bool) -> None:
        """Do nothing: requests are served to their end."""
