"""One connection: what its attaches ask for is decided here; the links then work by themselves."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from enmasse import log
from enmasse.amqp import errors as amqp
from enmasse.amqp.connection import Connection
from enmasse.amqp.errors import AmqpError
from enmasse.amqp.handler import Handler, Limits
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.performatives import Coordinator, Source, Target
from enmasse.amqp.session import Session
from enmasse.amqp.types import Symbol
from services.broker.consumers import LinkBrowser, LinkConsumer
from services.broker.core import errors
from services.broker.core.clients import Client, ConsumerInfo, ProducerInfo
from services.broker.core.errors import BrokerError
from services.broker.core.queue import Queue
from services.broker.core.subscription import identity, queue_name
from services.broker.core.topology import ANYCAST, MANAGEMENT, MULTICAST
from services.broker.core.wildcards import is_pattern
from services.broker.producers import AddressProducer, ManagementProducer, RelayProducer
from services.broker.termini import TOPIC, Filters, address_of, answer, capabilities, routing_type, subscribing

if TYPE_CHECKING:
    from services.broker.server import Server

_log = log.get()
ROUTER = "qpid-dispatch-router"
ROUTER_LIMITS = Limits(max_links=65536, max_link_state=64 << 20)
"""A router attaches two links for each queue of a broker over one connection."""
_SOLE = Symbol("sole-connection-for-container")
OFFERED = ("DELAYED_DELIVERY", "SHARED-SUBS")
"""Capabilities of every link; `open` offers them too."""


class Peer(Handler):
    def __init__(self, server: Server, remote: str) -> None:
        self.server = server
        self.broker = server.broker
        self.connection: Connection | None = None
        self.client = Client(
            id=server.clients.new_id(),
            remote=remote,
            container="",
            user="",
            created=server.broker.wall(),
            close=self.close,
            close_session=self.close_session,
        )
        server.clients.add(self.client)

    def close(self, description: str = "") -> None:
        if self.connection is not None:
            self.connection.close(AmqpError(amqp.CONNECTION_FORCED, description))

    def close_session(self, id: str) -> bool:
        for session in self.connection.sessions() if self.connection is not None else ():
            if self._session_id(session) == id:
                session.end(AmqpError(amqp.DETACH_FORCED, "the session was closed by management"))
                return True
        return False

    def manage(self, payload: bytes) -> None:
        """One management request."""
        self.server.management.handle(payload, self.client.user)

    # -- connection and sessions ---------------------------------------------------------------------------------------
    def on_open(self, c: Connection) -> None:
        opened = c.remote_open
        assert opened is not None
        client = self.client
        client.container = opened.container_id
        client.user = c.user or ""
        client.router = (opened.properties or {}).get(Symbol("product")) == ROUTER
        if client.router:
            c.limits = ROUTER_LIMITS
        if _SOLE in (opened.desired_capabilities or ()) and any(
            other.container == client.container for other in self.server.clients.all.values() if other is not client
        ):
            properties = dict(c.open_fields.properties or {})
            properties[Symbol("amqp:connection-establishment-failed")] = True
            c.open_fields.properties = properties
            client.container = ""  # it is not in use by this one
            c.close(
                AmqpError(amqp.INVALID_FIELD, "the container-id is in use", {"invalid-field": Symbol("container-id")})
            )

    def on_begin(self, s: Session) -> None:
        self.client.sessions[self._session_id(s)] = self.broker.wall()

    def on_end(self, s: Session, error: AmqpError | None) -> None:
        self.client.sessions.pop(self._session_id(s), None)

    def on_close(self, c: Connection, error: AmqpError | None) -> None:
        self.server.gone(self)

    def _session_id(self, session: Session) -> str:
        return f"{self.client.id}-{session.channel}"

    # -- links ---------------------------------------------------------------------------------------------------------
    def on_attach(self, link: Link) -> None:
        try:
            if isinstance(link, Sender):
                self._attach_consumer(link)
            else:
                assert isinstance(link, Receiver)
                self._attach_producer(link)
        except BrokerError as error:
            link.refuse(AmqpError(error.condition, str(error)))

    def on_flow(self, link: Sender) -> None:
        if link.context is not None:
            link.context.flow()

    def on_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
        if link.context is not None:
            link.context.outcomes(tokens, state, settled)

    def on_detach(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        context, link.context = link.context, None
        if context is None:
            return
        infos: dict[str, Any] = self.client.consumers if isinstance(link, Sender) else self.client.producers
        infos.pop(self._info_id(link), None)
        context.detached(closed)

    def _accept(self, link: Link, source: Source | None = None, target: Target | None = None) -> None:
        """A peer that asks by its attach, because it is not sure of the connection's other end (a router stands
        between), hears which of the capabilities it looks for are here."""
        desired = link.remote_attach.desired_capabilities if link.remote_attach is not None else None
        offered = tuple(c for c in desired or () if c in OFFERED)
        link.accept(source, target, rcv_settle_mode=0, offered_capabilities=offered or None)

    def _info_id(self, link: Link) -> str:
        return f"{self._session_id(link.session)}-{link.handle:08x}"

    # -- producers -----------------------------------------------------------------------------------------------------
    def _attach_producer(self, link: Receiver) -> None:
        target = link.remote_target
        if isinstance(target, Coordinator):
            raise amqp.no_transactions()
        wanted = capabilities(target)
        kind = routing_type(wanted, target)
        address = address_of(target)
        temporary: str | None = None
        if target is not None and target.dynamic:
            address = temporary = str(uuid.uuid4())
            self.broker.create_temporary(address, kind or ANYCAST, self.client.user)
            target = Target(
                address=address,
                dynamic=True,
                dynamic_node_properties=target.dynamic_node_properties,
                expiry_policy=target.expiry_policy,
                capabilities=target.capabilities,
            )
        info = ProducerInfo(self._info_id(link), self._session_id(link.session), address, self.broker.wall())
        origin = identity(self.client.container, link.name, self.client.router).container
        if address == MANAGEMENT:
            manager = link.context = ManagementProducer(self, link, info)
            self.client.producers[info.id] = info
            self._accept(link, target=target)
            manager.start()
            return
        if address:
            self._check_target(address, kind)
        producer: AddressProducer
        if not address:
            producer = RelayProducer(self, link, "", None, origin, info)
        else:
            producer = AddressProducer(self, link, address, kind, origin, info)
        producer.temporary = temporary
        link.context = producer
        self.client.producers[info.id] = info
        self._accept(link, target=target)
        route = self.broker.route(address, kind) if address else None
        producer.start(route.owner if route is not None else None)

    def _check_target(self, address: str, kind: str | None) -> None:
        """Raises BrokerError where messages to `address` have no place."""
        if is_pattern(address.partition("::")[0]):
            raise BrokerError(f"a sender needs an address without wildcards, not {address}", "amqp:invalid-field")
        if "::" in address:
            name, _, queue = address.partition("::")
            known = self.broker.queues.get(queue)
            if known is None or known.address.name != name:
                raise BrokerError(f"AMQ119002: target address {address} does not exist", "amqp:not-found")
            return
        root = self.broker.root_of(address)
        if root is None:
            if not self.auto_create(address, kind):
                raise BrokerError(f"AMQ119002: target address {address} does not exist", "amqp:not-found")
            return
        _check_kind(address, kind, root.routing_types if root.name != address else self._kinds(address))

    def _kinds(self, address: str) -> frozenset[str]:
        return self.broker.addresses[address].routing_types

    def auto_create(self, address: str, kind: str | None) -> bool:
        """Makes an address (and its queue) where settings allow it and the peer is no router. False: it may not."""
        settings = self.broker.settings.get(address)
        kind = kind or settings.default_address_routing_type
        if self.client.router or address.startswith(MANAGEMENT) or not settings.auto_create_addresses:
            return False
        if kind == ANYCAST:
            if not settings.auto_create_queues:
                return False
            self.broker.create_queue(
                address,
                address,
                ANYCAST,
                durable=True,
                auto_created=True,
                auto_delete=settings.auto_delete_queues,
                auto_create_address=True,
                user=self.client.user,
            )
        else:
            self.broker.create_address(address, frozenset({MULTICAST}), auto_created=True)
        return True

    def _temporary(self, kind: str) -> str:
        name = str(uuid.uuid4())
        self.broker.create_queue(name, name, kind, durable=False, temporary=True, auto_create_address=True)
        return name

    # -- consumers -----------------------------------------------------------------------------------------------------
    def _attach_consumer(self, link: Sender) -> None:
        source = link.remote_source
        if source is None:
            self._recover_subscription(link)
            return
        filters = Filters(source)
        wanted = capabilities(source)
        kind = routing_type(wanted, source)
        if source.dynamic:
            name = self._temporary(kind or ANYCAST)
            self._consume(link, self.broker.queues[name], answer(source, filters, address=name), filters)
            return
        address = address_of(source)
        if not address:
            raise BrokerError("AMQ119011: source address not set", "amqp:invalid-field")
        if "::" in address:
            name, _, queue_part = address.partition("::")
            queue = self.broker.queues.get(queue_part)
            if queue is None or (name and queue.address.name != name):
                raise BrokerError(f"AMQ119010: source address does not exist: {address}", "amqp:not-found")
            self._consume_queue(link, queue, source, filters)
            return
        if self._is_subscription(address, kind):
            self._subscribe(link, address, source, wanted, filters)
            return
        self._consume_queue(link, self._queue_of(address), source, filters)

    def _is_subscription(self, address: str, kind: str | None) -> bool:
        """Whether to receive from `address` is to subscribe; makes it where that is allowed. Raises BrokerError."""
        known = self.broker.addresses.get(address)
        root = self.broker.root_of(address)
        if address in self.broker.queues and known is None:
            return False  # a queue by its own name
        if known is not None and known.explicit:
            _check_kind(address, kind, known.routing_types)
            if kind is None:
                return known.routing_types == {MULTICAST}
            return kind == MULTICAST
        if known is not None and any(queue.routing_type == ANYCAST for queue in known.queues.values()):
            return False
        if root is not None:
            _check_kind(address, kind, root.routing_types)
            return True
        if is_pattern(address):
            if self.client.router or kind == ANYCAST or not self.broker.settings.get(address).auto_create_addresses:
                raise BrokerError(f"AMQ119010: source address does not exist: {address}", "amqp:not-found")
            return True
        if not self.auto_create(address, kind):
            raise BrokerError(f"AMQ119010: source address does not exist: {address}", "amqp:not-found")
        return MULTICAST in self._kinds(address)

    def _queue_of(self, address: str) -> Queue:
        queue = self.broker.queues.get(address)
        if queue is not None:
            return queue
        known = self.broker.addresses.get(address)
        for candidate in known.queues.values() if known is not None else ():
            if candidate.routing_type == ANYCAST:
                return candidate
        raise BrokerError(f"AMQ119010: source address does not exist: {address} has no queue", "amqp:not-found")

    def _consume_queue(self, link: Sender, queue: Queue, source: Source, filters: Filters) -> None:
        if queue.subscription is None and (wanted := subscribing(source)):
            raise BrokerError(
                f"{queue.name} is a queue and has no {wanted} subscriptions: receive from it without, or use a topic",
                str(amqp.NOT_IMPLEMENTED),
            )
        filters.forget_no_local()
        self._consume(link, queue, answer(source, filters), filters)

    def _consume(
        self,
        link: Sender,
        queue: Queue,
        source: Source,
        filters: Filters,
        *,
        durable: bool = False,
        whole: bool = False,
    ) -> None:
        """Attaches the link to the queue. `whole`: the selector is the queue's, not the consumer's."""
        browse = source.distribution_mode == "copy" and not whole
        if not browse and 0 <= queue.max_consumers <= len(queue.consumers):
            raise errors.too_many_consumers(queue.address.name, queue.name)
        selector = None if whole else filters.selector
        self._accept(link, source=source)
        info = ConsumerInfo(
            self._info_id(link),
            self._session_id(link.session),
            queue.name,
            queue.address.name,
            browse,
            selector.text if selector is not None else "",
            self.broker.wall(),
            close=lambda: link.detach(AmqpError(amqp.DETACH_FORCED, "the consumer was closed by management")),
            delivering=lambda: 0,
        )
        self.client.consumers[info.id] = info
        if browse:
            browser = link.context = LinkBrowser(self, link, queue, selector)
            browser.flow()
            return
        attach = link.remote_attach
        given = (attach.properties or {}).get(Symbol("priority")) if attach is not None else None
        priority = given if isinstance(given, int) and not isinstance(given, bool) else 0
        relay = self.client.router and not whole and identity(self.client.container, link.name, True).link == link.name
        consumer = link.context = LinkConsumer(
            self, link, info, priority=priority, selector=selector, durable=durable, relay=relay
        )
        info.delivering = lambda: len(consumer.unsettled)
        consumer.start(queue)
        if link.credit or link.drain:
            consumer.flow()

    # -- subscriptions -------------------------------------------------------------------------------------------------
    def _subscribe(self, link: Sender, address: str, source: Source, wanted: frozenset[str], filters: Filters) -> None:
        who = identity(self.client.container, link.name, self.client.router)
        durable = bool(source.durable) or source.expiry_policy == "never"
        shared = "shared" in wanted
        everywhere = "global" in wanted
        no_local = who.container if filters.no_local else None
        selector = filters.selector.text if filters.selector is not None else None
        about = (address, selector, no_local)
        if not durable and not shared:
            queue = self.broker.create_queue(
                address,
                str(uuid.uuid4()),
                MULTICAST,
                durable=False,
                temporary=True,
                filter=selector,
                no_local=no_local,
                user=self.client.user,
            )
        else:
            name = queue_name(who, durable=durable, shared=shared, everywhere=everywhere)
            client = who.container if durable else None
            queue = self._named_subscription(name, about, durable=durable, shared=shared, client=client)
        changes: dict[str, Any] = {"distribution_mode": None}
        if durable:
            changes["expiry_policy"] = Symbol("never")
            changes["durable"] = 2
        self._consume(link, queue, answer(source, filters, **changes), filters, durable=durable, whole=True)

    def _named_subscription(
        self, name: str, about: tuple[Any, ...], *, durable: bool, shared: bool, client: str | None
    ) -> Queue:
        """The queue of a durable or shared subscription: found, made, or made anew where what is asked has changed."""
        address, selector, no_local = about
        queue = self.broker.queues.get(name)
        if queue is not None and queue.subscription is None:
            if queue.address.name != address:
                raise errors.queue_exists(name, queue.address.name)
            return queue
        if queue is not None and not shared:
            # The same subscriber over another connection: its old link has no claim any more.
            for consumer in list(queue.consumers):
                _log.warning(
                    "subscription.stolen", queue=name, client=client, by=self.client.remote, consumer=consumer.id
                )
                queue.detach(consumer)
                consumer.closed(str(amqp.STOLEN), "the subscription is used by a newer link")
        if queue is not None and queue.subscription != about:
            if queue.consumers:
                raise BrokerError(
                    f"AMQ119005: error creating consumer, subscription {name} is in use with another address or filter",
                    "amqp:illegal-state",
                )
            self.broker.destroy_queue(name, remove_consumers=True)
            queue = None
        if queue is None:
            queue = self.broker.create_queue(
                address,
                name,
                MULTICAST,
                durable=durable,
                temporary=not durable,
                filter=selector,
                no_local=no_local,
                user=self.client.user,
                subscription=about,
                client=client,
            )
        return queue

    def _recover_subscription(self, link: Sender) -> None:
        """Null source: the durable subscription of this name as it is, or amqp:not-found (B.3.6)."""
        who = identity(self.client.container, link.name, self.client.router)
        found = [
            queue
            for everywhere in (False, True)
            for shared in (False, True)
            if (queue := self.broker.queues.get(queue_name(who, durable=True, shared=shared, everywhere=everywhere)))
        ]
        if not found:
            raise BrokerError(f"AMQ119010: source address does not exist: no subscription {who.link}", "amqp:not-found")
        queue = found[0]
        if queue.consumers:  # who attaches like this is about to end it: not under those who use it
            raise BrokerError(
                f"subscription {who.link} is in use: close its consumers first", str(amqp.RESOURCE_LOCKED)
            )
        filters = Filters(None)
        if queue.filter is not None:
            filters.echo[Symbol("jms-selector")] = queue.filter.text
        source = answer(
            None,
            filters,
            address=queue.address.name,
            durable=2,
            expiry_policy=Symbol("never"),
            capabilities=TOPIC,
        )
        self._consume(link, queue, source, filters, durable=True, whole=True)


def _check_kind(address: str, kind: str | None, known: frozenset[str]) -> None:
    if kind is not None and kind not in known:
        support = "topic" if kind == MULTICAST else "queue"
        raise BrokerError(f"Address {address} is not configured for {support} support", "amqp:illegal-state")
