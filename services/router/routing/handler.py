"""What the engine tells of connections and links, and what the router does about it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from enmasse.amqp.connection import Connection
from enmasse.amqp.errors import RESOURCE_LIMIT_EXCEEDED, AmqpError, no_transactions
from enmasse.amqp.handler import Handler
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.performatives import Coordinator
from enmasse.amqp.receiver import Partial
from enmasse.amqp.session import Session
from enmasse.amqp.sole import refuse_second, wants_sole
from services.router.routing import termini
from services.router.routing.address import MANAGEMENT_ELSEWHERE, Address
from services.router.routing.anonymous import AnonymousInLink
from services.router.routing.configuration import BALANCED, MULTICAST
from services.router.routing.connections import LEAVING_LINKS, RouterConnection
from services.router.routing.core import Router
from services.router.routing.linkroutes import RoutedHalf, RoutedLink, survives
from services.router.routing.links import FAILED, InLink, OutLink
from services.router.routing.names import parse
from services.router.routing.sizes import refuse_size
from services.router.routing.streaming import on_partial

SND_SETTLED = 1
FIRST = 0
STOLEN = AmqpError("amqp:link:stolen", "attached again elsewhere by the same container-id and link name")


class RouterHandler(Handler):
    """One for all connections; a connection's context is its RouterConnection, a link's its record."""

    def __init__(self, router: Router) -> None:
        self.router = router

    # Connections

    def on_open(self, c: Connection) -> None:
        connection: RouterConnection = c.context
        remote = c.remote_open
        assert remote is not None
        connection.container = remote.container_id
        connection.properties = dict(remote.properties or {})
        if c.sasl is not None:
            connection.mechanism = c.sasl.mechanism
            connection.authenticated = c.sasl.done
        if connection.dir == "in":
            try:
                if connection.denied:
                    raise AmqpError("amqp:resource-limit-exceeded", "connection disallowed by local policy")
                hostname = connection.policy_vhost or remote.hostname or ""
                admit = self.router.policy.admit
                connection.rights = admit(connection.identity, connection.host, hostname, c.user or "")
                if wants_sole(remote) and self.router.is_known(connection.container):
                    raise refuse_second(c, remote)
            except AmqpError as error:
                c.close(error)
                return
        self.router.add_connection(connection)
        # Links of ours must not overtake our own open.
        self.router.clock.call_soon(lambda: self._opened(connection))

    def _opened(self, connection: RouterConnection) -> None:
        if not connection.closed:
            if connection.on_opened is not None:
                connection.on_opened()
            self.router.connection_opened(connection)
            connection.amqp.wake()

    def on_close(self, c: Connection, error: AmqpError | None) -> None:
        connection: RouterConnection = c.context
        if not connection.closed:
            self.router.connection_closed(connection)
            if connection.dir == "in" and not connection.denied:
                self.router.policy.socket_closed()
            if connection.on_closed is not None:
                connection.on_closed()
        c.context = None  # they refer to each other

    def on_end(self, s: Session, error: AmqpError | None) -> None:
        """Its links have been told."""

    # Attaches of peers

    def on_attach(self, link: Link) -> None:
        try:
            self._attach(link)
        except AmqpError as error:
            link.refuse(error)

    def _attach(self, link: Link) -> None:
        connection: RouterConnection = link.session.connection.context
        if connection.role == "inter-router":
            raise AmqpError("qd:connection-role", "Link attach forbidden on inter-router connection")
        incoming = isinstance(link, Receiver)
        terminus = link.remote_target if incoming else link.remote_source
        if isinstance(terminus, Coordinator):  # it names no address, so nobody knows whose broker is meant
            raise no_transactions()
        text: str | None = None if terminus is None else terminus.address or None
        dynamic = terminus is not None and bool(terminus.dynamic)
        if connection.rights is not None:
            try:
                waypoint = _waypoint_phase(terminus, incoming=incoming) is not None
                links = connection.senders if incoming else connection.receivers
                connection.rights.check_attach(
                    links, incoming=incoming, address=text, dynamic=dynamic, waypoint=waypoint
                )
            except AmqpError:
                self.router.policy.links_denied += 1
                raise
        direction = "in" if incoming else "out"
        if dynamic:
            if self._made_by_broker(connection, link, terminus):
                return
        elif text is not None:
            if self._routed(connection, link, direction, text):
                return
        elif terminus is None and not incoming:
            self._recover(connection, link)
            return
        if isinstance(link, Receiver):
            self._attach_in(connection, link, text, dynamic)
        else:
            assert isinstance(link, Sender)
            self._attach_out(connection, link, text, dynamic)

    def _attach_in(self, connection: RouterConnection, link: Receiver, text: str | None, dynamic: bool) -> None:
        """A peer that sends."""
        router = self.router
        target = link.remote_target
        link.streaming = True
        link.max_message_size = connection.max_message_size
        record: InLink
        offered: tuple[str, ...] = (termini.DELAYED_DELIVERY,) if termini.wants_delay(link) else ()
        if dynamic:
            text = "amqp:/" + router.random_name("_$temp.")
            address = router.create_address("M0" + text[6:], MULTICAST if _is_topic(target) else BALANCED)
            target = copy.copy(target)
            target.address = text
            record = InLink(router.next_identity(), connection, link, address)
            router.temporaries.own(address, record)
        elif text is None:
            record = AnonymousInLink(router.next_identity(), connection, link)
        else:
            phase = _waypoint_phase(target, incoming=True)
            address = router.address_for_link(text, incoming=True, phase=phase)
            _check_management(connection, address)
            target = self._granted(address, text, target, incoming=True)
            if offered and not router.keeps_back(address):
                offered = ()
            record = InLink(router.next_identity(), connection, link, address)
        link.context = record
        connection.links[record.identity] = record
        connection.senders += 1
        link.accept(link.remote_source, target, rcv_settle_mode=FIRST, offered_capabilities=offered or None)
        if record.address is None:
            record.open_gate()
        else:
            record.address.add_in(record)

    def _attach_out(self, connection: RouterConnection, link: Sender, text: str | None, dynamic: bool) -> None:
        """A peer that receives."""
        router = self.router
        source = link.remote_source
        if dynamic:
            name = router.random_name("temp.")
            source = copy.copy(source)
            source.address = f"amqp:/_topo/0/{router.id}/{name}"
            address = router.create_address("L" + name, MULTICAST if _is_topic(source) else BALANCED)
        elif text is None:
            raise AmqpError("amqp:not-found", "Node not found")
        else:
            phase = _waypoint_phase(source, incoming=False)
            address = router.address_for_link(text, incoming=False, phase=phase)
            _check_management(connection, address)
            if phase is None and termini.wants_choice(source) and router.kind_of(address) == termini.QUEUE:
                termini.check(termini.QUEUE, text, source, incoming=False)
                self._choosing(connection, link, address)
                return
            source = self._granted(address, text, source, incoming=False)
        record = OutLink(router.next_identity(), connection, link, address)
        if link.remote_attach is not None and link.remote_attach.snd_settle_mode == SND_SETTLED:
            record.presettle = True
        link.context = record
        connection.links[record.identity] = record
        connection.receivers += 1
        link.accept(source, link.remote_target, rcv_settle_mode=FIRST)
        record.know_limit()
        address.add_out(record)

    def _granted(self, address: Address, text: str, terminus: Any, *, incoming: bool) -> Any:
        """The terminus for the answer, as what the address has. Raises AmqpError for what it has not."""
        kind = self.router.kind_of(address)
        if kind is not None:
            try:
                termini.check(kind, text, terminus, incoming=incoming)
            except AmqpError:
                self.router.tidy(address)
                raise
        return termini.as_it_is(kind, terminus)

    # Attaches that are passed on to a broker

    def _routed(self, connection: RouterConnection, link: Link, direction: str, text: str) -> bool:
        """Pass the attach on where a link route covers its address."""
        router = self.router
        parsed = parse(text, router.id)
        if parsed.kind != "M":
            return False
        broker = router.temporaries.broker_of(parsed.name)
        if broker is not None:
            self._pass_on(connection, link, broker, parsed.name, lambda asked: parsed.name)
            return True
        found = router.link_routes.find(direction, parsed.name)
        if found is None:
            return False
        route, container = found
        self._pass_on(connection, link, container, parsed.name, route.config.external)
        return True

    def _made_by_broker(self, connection: RouterConnection, link: Link, terminus: Any) -> bool:
        """A dynamic terminus that is to be a temporary queue or topic: a broker makes it. False: none is configured."""
        kind = termini.temporary_kind(terminus)
        broker = None if kind is None else self.router.temporaries.maker(self.router.brokers(), kind)
        if broker is None:
            return False
        self._pass_on(connection, link, broker, "")
        return True

    def _choosing(self, connection: RouterConnection, link: Link, address: Address) -> None:
        """A consumer of a queue that brings a filter or browses: its link is one to the queue's broker."""
        found = self.router.broker_of(address)
        if found is None:
            raise AmqpError(
                "qd:no-route-to-dest", f"the broker of {address.key[2:]} is not connected at the moment: try again"
            )
        broker, name = found
        self._pass_on(connection, link, broker, address.key[2:], lambda asked: name)

    def _recover(self, connection: RouterConnection, link: Link) -> None:
        """A null source: a durable subscription is looked for by the link's name, so each broker is asked in turn."""
        left = self.router.brokers()
        if not left:
            raise AmqpError("amqp:not-found", f"there is no subscription {link.name}: no broker is connected")
        pair = self._pair(connection, link, "")

        def ask() -> bool:
            if left:
                self._join(pair, None, left.pop(0), None)
                return True
            if self.router.link_routes.complete:
                return False
            text = f"subscription {link.name} is on no broker that is connected, and not all are: try again"
            pair.give_up(AmqpError("qd:no-route-to-dest", text))
            return True

        pair.elsewhere = ask
        ask()

    def _pass_on(
        self,
        connection: RouterConnection,
        link: Link,
        container: RouterConnection,
        name: str,
        external: Callable[[str], str] | None = None,
    ) -> None:
        """Make of the client's link one to a container. `external`: gives the address by which that knows it."""
        terminus = link.remote_target if isinstance(link, Receiver) else link.remote_source
        durable = survives(terminus)
        if durable and not self.router.allow_resumable and (terminus.timeout or terminus.expiry_policy == "never"):
            raise AmqpError("qd:link-expiration", "Requested link expiration not allowed")
        self._join(self._pair(connection, link, name, durable), external, container, terminus)

    def _pair(self, connection: RouterConnection, link: Link, name: str, durable: bool = False) -> RoutedLink:
        if len(connection.leaving) >= LEAVING_LINKS:
            text = f"{LEAVING_LINKS} links of this connection are still being ended at their brokers: wait a little"
            raise AmqpError(RESOURCE_LIMIT_EXCEEDED, text)
        pair = RoutedLink(f"{link.name}@{connection.container}", "M0" + name if name else "", durable)
        if isinstance(link, Receiver):
            link.streaming = True
            link.max_message_size = connection.max_message_size
        assert isinstance(link, Sender | Receiver)
        pair.client = RoutedHalf(self.router.next_identity(), connection, link, pair)
        return pair

    def _join(self, pair: RoutedLink, external: Any, container: RouterConnection, terminus: Any) -> None:
        """Make the link to the container; if one of its name is still there, end that one and wait until it is gone."""
        if not pair.client.open:
            return
        try:
            if not container.usable:
                raise AmqpError("qd:no-route-to-dest", "No route to the destination node")
            self._make(pair, external, container, terminus)
        except AmqpError as error:
            pair.give_up(error)

    def _make(self, pair: RoutedLink, external: Any, container: RouterConnection, terminus: Any) -> None:
        client = pair.client
        link = client.link
        sending = isinstance(link, Receiver)  # the client sends, so we send to the container
        key = ("out" if sending else "in", pair.name)
        present = container.routed.get(key)
        if present is not None:
            before = container.routes_waiting.get(key)
            if before is not None:  # the newest takes the place of all before it (2.6.1)
                before[0].give_up(STOLEN)
            container.routes_waiting[key] = (pair, lambda: self._join(pair, external, container, terminus))
            if present.client.open:
                present.client.open = False
                present.client.link.detach(STOLEN)
                present.client.link.session.connection.wake()
                present.client.connection.routed_gone(present.client)
            if present.container is not None and present.container.open:
                present.container.open = False
                present.container.link.detach(None, closed=not present.survives)
            container.amqp.wake()
            return
        source, target = link.remote_source, link.remote_target
        asked = None if terminus is None else terminus.address
        if asked and external is not None and external(asked) != asked:
            terminus = copy.copy(terminus)
            terminus.address = external(asked)
            pair.rewritten = (asked, terminus.address)
            source, target = (source, terminus) if sending else (terminus, target)
        session = container.session_for_links(receiving=not sending)
        other: Sender | Receiver
        if sending:
            other = session.attach_sender(pair.name, source, target, **_wanted(link))
        else:
            other = session.attach_receiver(pair.name, source, target, streaming=True, **_wanted(link))
        half = RoutedHalf(self.router.next_identity(), container, other, pair)
        container.routed[key] = pair
        pair.join(client, half)
        container.amqp.wake()

    # Links

    def on_attached(self, link: Link) -> None:
        record = link.context
        if isinstance(record, RoutedHalf):
            record.pair.attached()
        elif record is not None and record.auto is not None:
            record.auto.attached()

    def on_flow(self, link: Sender) -> None:
        record = link.context
        if isinstance(record, OutLink):
            record.flow()
        elif isinstance(record, RoutedHalf) and record.pair.container is not None:
            record.pair.flow()

    def on_writable(self, c: Connection) -> None:
        connection: RouterConnection = c.context
        for waiting in list(connection.waiting):
            waiting.flow()
        super().on_writable(c)

    def on_drained(self, link: Receiver) -> None:
        record = link.context
        if isinstance(record, RoutedHalf):
            record.pair.drained()
        elif record is not None:
            record.drained()

    def on_partial(self, link: Receiver, delivery: Partial) -> None:
        record = link.context
        limit = link.max_message_size
        if limit and delivery.size > limit and not delivery.aborted:
            refuse_size(link, delivery.delivery_id, delivery.settled)
            return
        on_partial(record.pair if isinstance(record, RoutedHalf) else record, delivery)

    def on_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
        record = link.context
        if record is None:
            return
        if state is None and (link.detached or record.identity not in record.connection.links):
            state = FAILED  # it was on its way when the link was lost
        if isinstance(record, RoutedHalf):
            record.pair.outcomes(tokens, state, settled)
        else:
            record.outcomes(tokens, state, settled)

    def on_settled(self, link: Receiver, delivery_ids: Sequence[int]) -> None:
        record = link.context
        if isinstance(record, RoutedHalf):
            record.pair.sender_settled(delivery_ids)
        elif record is not None:
            record.sender_settled(delivery_ids)

    def on_detach(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        record = link.context
        link.context = None
        if record is None:
            return
        connection = link.session.connection
        if isinstance(record, RoutedHalf):
            lost = link.session.ended or connection.state == "closed"
            record.pair.detached(record, error, closed, lost)
            return
        auto = record.auto
        self.router.link_gone(record)
        if auto is not None:
            auto.detached(error)


def _check_management(connection: RouterConnection, address: Address) -> None:
    """Raises AmqpError for an address of the router's own on a connection that carries no management."""
    if address.subscriber is not None and not connection.management:
        raise AmqpError(*MANAGEMENT_ELSEWHERE)


def _wanted(link: Link) -> dict[str, Any]:
    """What a client's attach says beside its termini, for the attach to a container."""
    attach = link.remote_attach
    if attach is None:
        return {}
    return {
        "snd_settle_mode": attach.snd_settle_mode,
        "rcv_settle_mode": attach.rcv_settle_mode,
        "desired_capabilities": attach.desired_capabilities,
        "properties": attach.properties,
    }


def _is_topic(terminus: Any) -> bool:
    return termini.temporary_kind(terminus) == termini.TOPIC


def _waypoint_phase(terminus: Any, *, incoming: bool) -> int | None:
    """The phase that the capability `qd.waypoint` or `qd.waypoint.N` of a terminus asks for."""
    for capability in (terminus.capabilities or ()) if terminus is not None else ():
        if capability == "qd.waypoint" or capability.startswith("qd.waypoint."):
            digits = capability[12:]
            n = int(digits[:9]) if digits.isdigit() else 1
            return min(n if incoming else n - 1, 9)
    return None
