"""One connection and its links: each attach is answered here; the links then work by themselves."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from enmasse.aio.live_follower import LiveLink
from enmasse.amqp.codec import errors as amqp
from enmasse.amqp.codec import performatives
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import Open, Source, Target, TransactionalState
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.connection import Connection
from enmasse.amqp.endpoint import LinkSession
from enmasse.amqp.handler import Handler
from enmasse.amqp.limits import INNER_LIMITS
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.session import Session
from enmasse.amqp.sole_connection import refuse_second, wants_sole
from enmasse.amqp.termini import (
    CLIENT,
    MESSAGE_IDENTITY,
    NAMED_TRANSACTIONS,
    SENDER,
    SPACE,
    capabilities,
    subscription_kind,
)
from enmasse.identity.owned import space_of_queue
from enmasse.identity.processes.peer_check import PeerCheck
from enmasse.identity.processes.roles import Role
from enmasse.identity.senders import SIZE, of_role
from enmasse.live_state import NODE as LIVE
from enmasse.model.names import space_error, space_prefix
from services.broker.consumers import Later, LinkBrowser, LinkConsumer, second
from services.broker.coordinator import CAPABILITIES, Coordinator, OwnTransactions
from services.broker.core import errors
from services.broker.core.broker import Broker
from services.broker.core.connections import ConnectionInfo, Connections, ConsumerInfo, ProducerInfo
from services.broker.core.errors import BrokerError
from services.broker.core.legal_names import ANYCAST, MANAGEMENT, SUBSCRIPTIONS
from services.broker.core.queues.queue import Queue
from services.broker.core.queues.rotation import SHORT_TURN
from services.broker.core.routing.catalogue import Catalogue
from services.broker.core.routing.subscription import identity, queue_name
from services.broker.core.transactions import TransactionUser
from services.broker.filter_conditions import Filters, long_selectors, stated
from services.broker.moves import LinkMover, MovedProducer, agree, order_in, read, refuse_router
from services.broker.nodes import Nodes
from services.broker.producers import AddressProducer, ManagementProducer, RelayProducer
from services.broker.selector import Selector, read_words
from services.broker.termini import TOPIC, address_of, answer, routing_type

ROUTER = "qpid-dispatch-router"
OFFERED = ("DELAYED_DELIVERY", "SHARED-SUBS")
"""Capabilities of every link; `open` offers them too."""
INNER_SILENCE_MS = 8000
"""Milliseconds of silence after which a process of the suite is taken for gone, as on control connections: until then
no other one gets what it has. A busy one may be late by five seconds: its heartbeats are two seconds apart."""


class WaitingAttach:
    """A link whose attach is not answered yet (`Catalogue.hold`)."""

    __slots__ = ("_catalogue",)

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def flow(self) -> None:
        """Do nothing: the link knows its credit."""

    def outcomes(self, tokens: list[Any], state: Any, settled: bool) -> None:
        """Do nothing: nothing was sent."""

    def detached(self, closed: bool) -> None:
        """The peer has left, or attaches elsewhere."""
        self._catalogue.hold_no_more(self)


class BrokerConnection(Handler):
    """One connection of a client or router: answers its attaches and knows its links."""

    def __init__(
        self,
        broker: Broker,
        clients: Connections,
        remote: str,
        admission: PeerCheck | None = None,
        *,
        manage: Callable[[bytes, ConnectionInfo], None],
        followers: set[LiveLink],
        later: Later,
        first: Later | None = None,
        gone: Callable[[BrokerConnection], None],
    ) -> None:
        """`remote`: host:port of the other end. `admission`: what it may do; None: everything. `manage` serves one
        management request of a client (raises AmqpError); `first` is `later`, but before what waits of the address
        space; `gone` is called once the connection is closed."""
        self.broker = broker
        self.clients = clients
        self.connection: Connection | None = None
        self.client = ConnectionInfo(
            id=clients.new_id(),
            remote=remote,
            container="",
            user="",
            created=broker.wall(),
            close=self.close,
        )
        clients.add(self.client)
        self._transactions = OwnTransactions(broker)
        self.nodes = Nodes(broker, self.client, admission)
        self._admission = admission
        self._serve_management = manage
        self._followers = followers
        self._later = later
        self._first = first or later
        self._gone = gone
        if admission is not None:
            admission.close = self._end

    def _end(self, error: AmqpError) -> None:
        if self.connection is not None:
            self.connection.close(error)
            self.connection.wake()

    def close(self, description: str = "") -> None:
        """Close the connection with amqp:connection:forced."""
        if self.connection is not None:
            self.connection.close(AmqpError(amqp.CONNECTION_FORCED, description))

    def _manage(self, payload: bytes) -> None:
        self._serve_management(payload, self.client)

    # -- connection and sessions ---------------------------------------------------------------------------------------
    def on_open(self, c: Connection) -> None:
        opened = c.remote_open
        assert opened is not None
        client = self.client
        client.user = c.user or ""
        try:
            client.router = self._is_router(c, opened)
        except AmqpError as error:
            c.close(error)
            return
        client.container = opened.container_id
        client.octets = lambda: (c.bytes_in, c.bytes_out)
        if client.router or client.role not in ("", Role.OPERATOR):  # tools may send no heartbeats
            c.inner, c.idle_timeout_ms = True, INNER_SILENCE_MS
        if client.router:
            c.limits = INNER_LIMITS
            c.tenant = _stated_space(opened.properties)
            if c.tenant:  # the router has this connection for it
                self.broker.turn = SHORT_TURN
        if wants_sole(opened) and any(
            other.container == client.container for other in self.clients.all.values() if other is not client
        ):
            client.container = ""  # it is not in use by this one
            c.close(refuse_second(c, opened))

    def _is_router(self, c: Connection, opened: Open) -> bool:
        """Return whether the peer is a router: by its role, or without `peers` by what it states. Raises AmqpError if
        it may not connect."""
        if self._admission is not None:
            self.client.role = self._admission.opened(c.user).role
            return self.client.role == Role.ROUTER
        return (opened.properties or {}).get(Symbol("product")) == ROUTER

    def on_begin(self, s: Session) -> None:
        self.client.sessions[self._session_id(s)] = self.broker.wall()

    def on_end(self, s: Session, error: AmqpError | None) -> None:
        self.client.sessions.pop(self._session_id(s), None)

    def on_close(self, c: Connection, error: AmqpError | None) -> None:
        if self._admission is not None:
            self._admission.ended(error)
        if c.own_error is not None:
            self._refused("close" if self.client.container else "connect", c.own_error)
        self.clients.remove(self.client)
        self.client.octets = lambda: (0, 0)  # it referred to the connection
        self.connection = None  # they refer to each other; without the cycle both are freed at once
        self._gone(self)

    def _session_id(self, session: LinkSession) -> str:
        return f"{self.client.id}-{session.channel}"

    # -- links ---------------------------------------------------------------------------------------------------------
    def on_attach(self, link: Link) -> None:
        if isinstance(link, Sender) and (texts := long_selectors(link.remote_source)):
            self._later(partial(self._read_selectors, link, texts), _tenant(link))  # it takes milliseconds to compile
        else:
            self._attach(link)

    def _read_selectors(self, link: Sender, texts: list[str]) -> None:
        """Read one of these texts now, and the others and the attach in later turns."""
        if link.over:
            return
        if texts:
            read_words(texts.pop())
            self._first(partial(self._read_selectors, link, texts), _tenant(link))
        else:
            self._attach(link)

    def _attach(self, link: Link) -> None:
        try:
            if isinstance(link, Sender):
                self._attach_consumer(link)
            else:
                assert isinstance(link, Receiver)
                self._attach_producer(link)
        except BrokerError as error:
            self._refuse(link, AmqpError(error.condition, str(error)))
        except AmqpError as error:
            self._refuse(link, error)

    def on_failed(self, link: Link, error: AmqpError) -> None:
        self._refused("close", error, link)
        link.detach(error)

    def on_fault(self, s: LinkSession, link: Link | None, error: AmqpError) -> None:
        self._refused("close", error, link)

    def _refuse(self, link: Link, error: AmqpError) -> None:
        self._refused("receive" if isinstance(link, Sender) else "send", error, link)
        link.refuse(error)

    def _refused(self, what: str, error: AmqpError, link: Link | None = None) -> None:
        """Note a refusal of a client, or of one behind a router. Processes of the suite log theirs."""
        if self._admission is not None and not self.client.router:
            return
        terminus = None if link is None else link.remote_source if link.is_sender else link.remote_target
        self.client.note_refused(self.broker.refusals, what, error, address_of(terminus), self._behind(link))

    def _behind(self, link: Link | None) -> Sequence[str] | None:
        """Return the client behind a router whose link it is (`termini.CLIENT`), as the router states it."""
        if not self.client.router or link is None or link.remote_attach is None:
            return None
        stated = (link.remote_attach.properties or {}).get(CLIENT)
        if not isinstance(stated, list) or len(stated) not in (0, 3) or not all(isinstance(one, str) for one in stated):
            return None
        return stated

    def on_flow(self, link: Sender) -> None:
        if link.context is not None:
            link.context.flow()

    def on_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
        if link.context is not None:
            link.context.outcomes(tokens, state, settled)

    def on_transactional(
        self, link: Sender, tokens: list[Any], delivery_ids: Sequence[int], state: TransactionalState, settled: bool
    ) -> None:
        if isinstance(link.context, LinkConsumer):
            try:
                link.context.transactional(self._transactions, tokens, delivery_ids, state, settled)
            except BrokerError as error:
                raise AmqpError(error.condition, str(error)) from None

    def on_work_refused(self, session: LinkSession, txn_id: bytes, error: AmqpError) -> None:
        self._transactions.fail(txn_id, error)

    def on_concluded(self, link: Sender, tokens: list[Any], state: Any) -> None:
        """Do nothing: the outcome took effect when it was stated, and the message may be under way again."""

    def on_detach(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        context, link.context = link.context, None
        if context is None:
            return
        if isinstance(link, Sender):
            consumer = self.client.consumers.pop(self._info_id(link), None)
            if consumer is not None:
                container, words = consumer.words
                self.broker.catalogue.user_limits.add_words(container, -words)
        else:
            self.client.producers.pop(self._info_id(link), None)
        context.detached(closed)

    def _accept(
        self, link: Link, source: Source | None = None, target: Target | None = None, *, named: bool = False
    ) -> None:
        """The answer offers those of the desired capabilities that are here: a client behind a router cannot see them
        in the broker's open. `named`: delivery-tags name messages, if that is desired."""
        desired = link.remote_attach.desired_capabilities if link.remote_attach is not None else None
        offered = tuple(c for c in desired or () if c in OFFERED or (named and c == MESSAGE_IDENTITY))
        link.accept(
            source,
            target,
            rcv_settle_mode=int(isinstance(link, Sender) and second(link)),
            offered_capabilities=offered or None,
        )

    def _info_id(self, link: Link) -> str:
        return f"{self._session_id(link.session)}-{link.handle:08x}"

    def _moves(self, link: Link) -> bool:
        """Return whether the link is part of a move from broker to broker. Raises AmqpError if the peer may not."""
        if order_in(link) is None:
            return False
        if self.client.router:
            raise refuse_router()
        self.nodes.check_manage()
        return True

    # -- producers -----------------------------------------------------------------------------------------------------
    def _sender_of(self, link: Receiver) -> bytes | None:
        """Return whose messages come over a link: what a router states, or the role of the process itself. None: the
        delivery-tags say it."""
        if not self.client.router:
            return of_role(self.client.role)
        stated = (link.remote_attach.properties or {}).get(SENDER) if link.remote_attach is not None else None
        if stated is True:
            return None
        return bytes(stated) if isinstance(stated, bytes) and len(stated) == SIZE else b""

    def _prefix_of(self, link: Link) -> str:
        """Return the beginning of the full names in the address space of the client behind a router."""
        if not self.client.router or link.remote_attach is None:
            return ""
        space = _stated_space(link.remote_attach.properties)
        return space_prefix(space) if space else ""

    def _attach_producer(self, link: Receiver) -> None:
        target = link.remote_target
        if isinstance(target, performatives.Coordinator):
            self._coordinate(link)
            return
        wanted = capabilities(target)
        kind = routing_type(wanted, target)
        address = address_of(target)
        temporary: str | None = None
        if target is not None and target.dynamic:
            address = temporary = self._prefix_of(link) + str(uuid.uuid4())
            self.broker.catalogue.create_temporary(address, kind or ANYCAST, self.client.user)
            target = Target(
                address=address,
                dynamic=True,
                dynamic_node_properties=target.dynamic_node_properties,
                expiry_policy=target.expiry_policy,
                capabilities=target.capabilities,
            )
        info = ProducerInfo(self._info_id(link), self._session_id(link.session), address, self.broker.wall())
        if address == MANAGEMENT:
            self.nodes.check_manage()
            manager = link.context = ManagementProducer(self._manage, link, info)
            self.client.producers[info.id] = info
            self._accept(link, target=target)
            manager.start()
            return
        moves = bool(address) and temporary is None and self._moves(link)
        if address:
            if temporary is None:
                self.nodes.check_send(address)
            self.nodes.check_target(address, kind)
        origin = identity(self.client.container, link.name, self.client.router).container
        sender = self._sender_of(link)
        producer: AddressProducer
        if not address:
            prefix = self._prefix_of(link)
            producer = RelayProducer(self.nodes, self._manage, link, origin, info, sender or b"", prefix)
        else:
            make = MovedProducer if moves else AddressProducer
            producer = make(self.broker, link, address, kind, origin, info, sender)
        producer.temporary = temporary
        producer.believed = self._gives_copies(address)
        producer.client, producer.behind = self.client, self._behind(link)
        producer.transactions = None if moves else self._transactions
        link.context = producer
        self.client.producers[info.id] = info
        if moves:
            agree(link)
        self._accept(link, target=target)
        route = self.broker.catalogue.route(address, kind) if address else None
        producer.start(route.owner if route is not None else None)

    def _coordinate(self, link: Receiver) -> None:
        """Attach a link to the coordinator of the connection's transactions."""
        sender = self._sender_of(link) or b"" if self.client.router else self.client.user.encode()
        user = TransactionUser(self._prefix_of(link), sender)
        coordinator = link.context = Coordinator(self._transactions, link, user, names=self.client.router)
        link.accept(
            link.remote_source,
            performatives.Coordinator(capabilities=CAPABILITIES),
            offered_capabilities=(Symbol(NAMED_TRANSACTIONS),) if self.client.router else None,
        )
        coordinator.start()

    def _gives_copies(self, address: str) -> bool:
        """Return whether the peer is the subscription service, which gives subscribers copies of retained messages."""
        if self._admission is not None and self.client.role != Role.SUBSERV:
            return False
        return address.startswith(SUBSCRIPTIONS) and not self.client.router

    # -- consumers -----------------------------------------------------------------------------------------------------
    def _attach_consumer(self, link: Sender) -> None:
        source = link.remote_source
        if source is None:
            self.nodes.check_receive("")
            self._recover_subscription(link)
            return
        filters = Filters(source)
        wanted = capabilities(source)
        kind = routing_type(wanted, source)
        if source.dynamic:
            queue = self.nodes.temporary_queue(kind or ANYCAST, self._prefix_of(link))
            self._consume(link, queue, answer(source, filters.echo, address=queue.name), filters.selector)
            return
        address = address_of(source)
        if not address:
            raise BrokerError("AMQ119011: source address not set", "amqp:invalid-field")
        self.nodes.check_receive(address)
        if address == LIVE:
            self._accept(link, source=answer(source, filters.echo))
            link.context = LiveLink(link, self._followers)
        elif self._moves(link):
            queue = self.nodes.qualified_queue(f"::{address}")
            mover = LinkMover(self._later, link, self.broker, queue, read(order_in(link)))
            agree(link)
            self._accept(link, source=answer(source, filters.echo))
            link.context = mover
            mover.flow()
        elif "::" in address:
            self._consume_queue(link, self.nodes.qualified_queue(address), source, filters)
        elif self.nodes.is_subscription(address, kind):
            self._subscribe(link, address, source, wanted, filters)
        else:
            self._consume_queue(link, self.nodes.queue_of(address), source, filters)

    def _consume_queue(self, link: Sender, queue: Queue, source: Source, filters: Filters) -> None:
        if queue.subscription is None and (wanted := subscription_kind(source)):
            raise BrokerError(
                f"{queue.name} is a queue and has no {wanted} subscriptions: receive from it without, or use a topic",
                str(amqp.NOT_IMPLEMENTED),
            )
        self._consume(link, queue, answer(source, filters.echo_on_queue), filters.selector)

    def _consume(
        self,
        link: Sender,
        queue: Queue,
        source: Source,
        selector: Selector | None = None,
        *,
        durable: bool = False,
        whole: bool = False,
    ) -> None:
        """Attach the link to the queue. `whole`: the selector is the queue's, not the consumer's."""
        browse = source.distribution_mode == "copy" and not whole
        if not browse and 0 <= queue.max_consumers <= len(queue.consumers):
            raise errors.too_many_consumers(queue.address.name, queue.name)
        container = self._container_of(link)
        words = 0 if selector is None else selector.weight
        limits = self.broker.catalogue.user_limits
        limits.check(container, words)
        limits.add_words(container, words)
        self._accept(link, source=source, named=not browse)
        info = ConsumerInfo(
            self._info_id(link),
            self._session_id(link.session),
            queue.name,
            queue.address.name,
            browse,
            selector.text if selector is not None else "",
            self.broker.wall(),
            delivering=lambda: 0,
            words=(container, words),
        )
        self.client.consumers[info.id] = info
        if browse:
            browser = link.context = LinkBrowser(self._later, link, queue, selector)
            browser.flow()
            return
        attach = link.remote_attach
        given = (attach.properties or {}).get(Symbol("priority")) if attach is not None else None
        priority = given if isinstance(given, int) and not isinstance(given, bool) else 0
        relay = self.client.router and not whole and identity(self.client.container, link.name, True).link == link.name
        consumer = link.context = LinkConsumer(
            self.broker,
            link,
            info,
            priority=priority,
            selector=selector,
            durable=durable,
            relay=relay,
            routed=self.client.router,
            container=container,
        )
        consumer.sealed = self._admission is None or self.client.role == Role.SUBSERV
        info.delivering = lambda: len(consumer.unsettled)
        consumer.start(queue)
        if link.credit or link.drain:
            consumer.flow()

    def _container_of(self, link: Link) -> str:
        """Return the container-id of the link's client, also of one behind a router."""
        return identity(self.client.container, link.name, self.client.router).container

    # -- subscriptions -------------------------------------------------------------------------------------------------
    def _subscribe(self, link: Sender, address: str, source: Source, wanted: frozenset[str], filters: Filters) -> None:
        who = identity(self.client.container, link.name, self.client.router)
        durable = bool(source.durable) or source.expiry_policy == "never"
        shared = "shared" in wanted
        everywhere = "global" in wanted
        condition = filters.condition(who.container)
        if not durable and not shared:
            queue = self.nodes.anonymous_subscription(address, condition, who.container)
        else:
            name = queue_name(who, durable=durable, shared=shared, everywhere=everywhere)
            if durable and not self.nodes.has_subscription(name) and self._waits(link, address):
                return
            queue = self.nodes.subscription(
                name, address, condition, durable=durable, shared=shared, client=who.container
            )
        changes: dict[str, Any] = {"distribution_mode": None}
        if durable:
            changes["expiry_policy"] = Symbol("never")
            changes["durable"] = 2
        self._consume(link, queue, answer(source, filters.echo, **changes), durable=durable, whole=True)

    def _waits(self, link: Sender, address: str) -> bool:
        """Return whether the attach waits, because the topic is about to move. A router whose clients attach to it
        elsewhere by then ends the link; otherwise it is answered when the topic stays, or is gone."""
        catalogue = self.broker.catalogue
        waiting = WaitingAttach(catalogue)

        def go_on() -> None:
            if not link.over:
                link.context = None
                self._attach(link)

        def let_go() -> None:
            self._later(go_on, space_of_queue(address))

        if not catalogue.hold(address, waiting, let_go):
            return False
        link.context = waiting
        return True

    def _recover_subscription(self, link: Sender) -> None:
        """Answer a null source: recover the durable subscription of this link name, unchanged."""
        queue = self.nodes.durable_subscription(identity(self.client.container, link.name, self.client.router))
        source = answer(
            None,
            stated(queue.condition),
            address=queue.address.name,
            durable=2,
            expiry_policy=Symbol("never"),
            capabilities=TOPIC,
        )
        self._consume(link, queue, source, durable=True, whole=True)


def _tenant(link: Sender) -> str:
    """Return the address space whose turns the work for an attach takes."""
    source = link.remote_source
    return space_of_queue(str(source.address or "") if source is not None else "")


def _stated_space(properties: Any) -> str:
    """Return the address space that a router states; empty: none."""
    space = (properties or {}).get(SPACE)
    return space if isinstance(space, str) and space_error(space) is None else ""
