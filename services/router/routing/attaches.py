"""Answers attaches of peers, by an address of the router or a link to a broker."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

from enmasse.amqp.codec.errors import NOT_FOUND, RESOURCE_LIMIT_EXCEEDED, AmqpError
from enmasse.amqp.codec.performatives import Coordinator
from enmasse.amqp.link import FIRST, SECOND, Link, Receiver, Sender
from enmasse.live_state import NODE as LIVE
from enmasse.text import whole_number
from services.router.routing import termini
from services.router.routing.address_text import MOBILE, parse, temporary, temporary_target
from services.router.routing.addresses.address import RoutedAddress
from services.router.routing.anonymous import AnonymousInLink
from services.router.routing.brokers.coordinators import ClientCoordinator
from services.router.routing.brokers.link_routes import NO_ROUTE
from services.router.routing.brokers.routed_attaches import External, hops
from services.router.routing.brokers.routed_link import RoutedLink, survives
from services.router.routing.configuration import BALANCED, MULTICAST
from services.router.routing.connection import MANAGEMENT_ELSEWHERE, RouterConnection
from services.router.routing.links.in_link import InLink
from services.router.routing.links.out_link import OutLink
from services.router.routing.router import Router

SND_SETTLED = 1
MOST_HOPS = 16
"""Most routers that pass on an attach."""


_LIVE = f"{LIVE}/"
"""Live state of a gateway: `$live/<name>`."""


class Attaches:
    """Answers the attaches of a router's peers."""

    def __init__(self, router: Router) -> None:
        self.router = router

    def attach(self, link: Link) -> None:
        """Answer the attach of a peer, or pass it on to a broker that will. Raises AmqpError to refuse it."""
        connection: RouterConnection = link.session.connection.context
        if connection.is_neighbour:
            if not self.router.network.attach(connection, link):
                self._attach_onward(connection, link)
            return
        incoming = isinstance(link, Receiver)
        terminus = link.remote_target if incoming else link.remote_source
        if isinstance(terminus, Coordinator):
            assert isinstance(link, Receiver)
            if link.session in connection.coordinators:
                raise AmqpError(RESOURCE_LIMIT_EXCEEDED, "a session has one link to the coordinator")
            ClientCoordinator(connection, link).start()
            return
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
        """Attach a peer that sends."""
        router = self.router
        target = link.remote_target
        link.streaming = True
        link.max_message_size = connection.max_message_size
        record: InLink
        offered: tuple[str, ...] = (termini.DELAYED_DELIVERY,) if termini.wants_delay(link) else ()
        if dynamic:
            text = "amqp:/" + router.random_name(temporary_target(connection.prefix))
            address = router.addresses.create("M0" + text[6:], MULTICAST if _is_topic(target) else BALANCED)
            target = copy.copy(target)
            target.address = text
            record = InLink(connection, link, address)
            router.temporaries.own(address, record)
        elif text is None:
            record = AnonymousInLink(connection, link, router.addresses, router.link_routes, router.temporaries)
        else:
            phase = _waypoint_phase(target, incoming=True)
            address = router.addresses.for_link(text, incoming=True, phase=phase, prefix=connection.prefix)
            _check_management(connection, address)
            target = self._granted(address, text, target, incoming=True)
            if self._is_transacted(connection, link, address):
                fed = router.addresses.for_link(text, incoming=False, prefix=connection.prefix)
                self._selective(connection, link, fed)
                return
            if offered and not router.addresses.keeps_back(address):
                offered = ()
            record = InLink(connection, link, address)
        link.context = record
        connection.add(record)
        connection.senders += 1
        link.accept(link.remote_source, target, rcv_settle_mode=FIRST, offered_capabilities=offered or None)
        if record.address is None:
            record.open_gate()
        else:
            record.address.add_in(record)

    def _attach_out(self, connection: RouterConnection, link: Sender, text: str | None, dynamic: bool) -> None:
        """Attach a peer that receives."""
        router = self.router
        source = link.remote_source
        if dynamic:
            name = router.random_name(temporary(connection.prefix_of_replies))
            source = copy.copy(source)
            source.address = f"amqp:/_topo/0/{router.id}/{name}"
            address = router.addresses.create("L" + name, MULTICAST if _is_topic(source) else BALANCED)
        elif text is None:
            raise AmqpError(NOT_FOUND, "Node not found: the source states no address")
        else:
            phase = _waypoint_phase(source, incoming=False)
            address = router.addresses.for_link(text, incoming=False, phase=phase, prefix=connection.prefix)
            _check_management(connection, address)
            transacted = self._is_transacted(connection, link, address)
            selective = termini.is_selective(source) and router.addresses.kind_of(address) == termini.QUEUE
            if phase is None and (selective or transacted):
                termini.check(termini.QUEUE, text, source, incoming=False)
                self._selective(connection, link, address)
                return
            source = self._granted(address, text, source, incoming=False)
        record = OutLink(connection, link, address)
        if dynamic:
            router.temporaries.given(record, address.key[1:])
        asked = link.remote_attach
        if asked is not None and asked.snd_settle_mode == SND_SETTLED:
            record.presettle = True
        link.context = record
        connection.add(record)
        connection.receivers += 1
        # Granted as requested (2.7.3): states that a receiver sends without settling are settled by the sender's
        # settlement.
        second = asked is not None and asked.rcv_settle_mode == SECOND and not record.presettle
        link.accept(source, link.remote_target, rcv_settle_mode=SECOND if second else FIRST)
        record.know_limit()
        address.add_out(record)

    def _granted(self, address: RoutedAddress, text: str, terminus: Any, *, incoming: bool) -> Any:
        """Return the terminus for the answer, limited to the address's features. Raises AmqpError for an unsupported
        one."""
        kind = self.router.addresses.kind_of(address)
        if kind is not None:
            try:
                termini.check(kind, text, terminus, incoming=incoming)
            except AmqpError:
                self.router.addresses.tidy(address)
                raise
        return termini.as_it_is(kind, terminus)

    def _attach_onward(self, connection: RouterConnection, link: Link) -> None:
        """Pass on an attach that another router has passed on: a link route covers its address. Raises AmqpError."""
        incoming = isinstance(link, Receiver)
        terminus = link.remote_target if incoming else link.remote_source
        text = None if terminus is None or isinstance(terminus, Coordinator) else terminus.address
        if not text or hops(link) >= MOST_HOPS or not self._routed(connection, link, "in" if incoming else "out", text):
            raise AmqpError(NO_ROUTE, "No route to the destination node")

    # Attaches that are passed on to a broker

    def _routed(self, connection: RouterConnection, link: Link, direction: str, text: str) -> bool:
        """Pass the attach on if a link route covers its address."""
        router = self.router
        parsed = parse(text, router.id, connection.prefix)
        router.temporaries.check(connection, text, parsed, connection.prefix)
        if parsed.kind != MOBILE:
            return False
        connection.check_name(parsed.name)
        if parsed.name.startswith(_LIVE):
            self._pass_on(connection, link, self._live(connection, parsed.name), parsed.name, lambda asked: parsed.name)
            return True
        broker = router.temporaries.broker_of(parsed.name)
        if broker is not None:
            node = router.temporaries.node_of(parsed.name)
            self._pass_on(connection, link, broker, parsed.name, partial(_always, node))
            return True
        found = router.link_routes.find(direction, parsed.name)
        if found is None:
            return False
        route, container = found
        external: External = route.config.external
        if connection.prefix:
            external = partial(_always, external(parsed.name))
        self._pass_on(connection, link, container, parsed.name, external, route.links)
        return True

    def _live(self, connection: RouterConnection, name: str) -> RouterConnection:
        """Return the connection of the gateway whose live state this is. Raises AmqpError."""
        if not connection.management:
            raise AmqpError(*MANAGEMENT_ELSEWHERE)
        wanted = name.removeprefix(_LIVE)
        for each in self.router.containers.all():
            if each.container == wanted and each.usable and each.may_serve(LIVE):
                return each
        raise AmqpError(NO_ROUTE, f"there is no gateway {wanted} that is connected")

    def _made_by_broker(self, connection: RouterConnection, link: Link, terminus: Any) -> bool:
        """Pass on a dynamic terminus for a temporary queue or topic to a broker. Return False if no broker is
        configured, or if there are other routers: they would not know which broker has it, and find the router's own
        temporary addresses."""
        kind = None if self.router.network.is_several else termini.temporary_kind(terminus)
        broker = None if kind is None else self.router.broker_for_temporary(kind, connection.space)
        if broker is None:
            return False
        self._pass_on(connection, link, broker, "")
        return True

    def _selective(self, connection: RouterConnection, link: Link, address: RoutedAddress) -> None:
        """Pass on a link to the queue's broker: a consumer with a filter, one that browses, or a transacted link."""
        found = self.router.addresses.broker_of(address)
        if found is None:
            raise AmqpError(
                NO_ROUTE, f"the broker of {connection.local(address.key[2:])} is not connected at the moment: try again"
            )
        broker, name = found
        self._pass_on(connection, link, broker, address.key[2:], lambda asked: name)

    def _recover(self, connection: RouterConnection, link: Link) -> None:
        """Handle a null source, which looks up a durable subscription by the link's name: ask each broker in turn."""
        left = self.router.brokers(connection.space)
        if not left:
            raise AmqpError(NOT_FOUND, f"there is no subscription {link.name}: no broker is connected")
        passing_on = self.router.passing_on
        pair = passing_on.pair(connection, link, "")

        def ask() -> bool:
            if left:
                passing_on.join(pair, None, left.pop(0), None)
                return True
            if self.router.link_routes.complete:
                return False
            text = f"subscription {link.name} is on no broker that is connected, and not all are: try again"
            pair.give_up(AmqpError(NO_ROUTE, text))
            return True

        pair.elsewhere = ask
        ask()

    def _pass_on(
        self,
        connection: RouterConnection,
        link: Link,
        container: RouterConnection,
        name: str,
        external: External | None = None,
        siblings: set[RoutedLink] | None = None,
    ) -> None:
        """Route the client's link to a container. `external`: returns the container's name for the address. `siblings`:
        the links of the link route by which it is found."""
        terminus = link.remote_target if isinstance(link, Receiver) else link.remote_source
        durable = survives(terminus)
        if durable and not self.router.allow_resumable and (terminus.timeout or terminus.expiry_policy == "never"):
            raise AmqpError("qd:link-expiration", "Requested link expiration not allowed")
        passing_on = self.router.passing_on
        pair = passing_on.pair(connection, link, name, durable)
        if siblings is not None:
            pair.siblings = siblings
            siblings.add(pair)
        coordinator = connection.coordinators.get(link.session)
        if isinstance(coordinator, ClientCoordinator):
            pair.coordinator = coordinator
            coordinator.prepare(container, partial(passing_on.join, pair, external, container, terminus), pair.give_up)
        else:
            passing_on.join(pair, external, container, terminus)

    def _is_transacted(self, connection: RouterConnection, link: Link, address: RoutedAddress) -> bool:
        """Return whether the link may do work of transactions: then it is the broker's."""
        return link.session in connection.coordinators and self.router.addresses.kind_of(address) == termini.QUEUE


def _always(node: str, asked: str) -> str:
    """Return the container's name for an address, however the client has written it."""
    return node


def _check_management(connection: RouterConnection, address: RoutedAddress) -> None:
    """Raise AmqpError for one of the router's own addresses on a connection without management."""
    if address.is_management and not connection.management:
        raise AmqpError(*MANAGEMENT_ELSEWHERE)


def _is_topic(terminus: Any) -> bool:
    return termini.temporary_kind(terminus) == termini.TOPIC


def _waypoint_phase(terminus: Any, *, incoming: bool) -> int | None:
    """Return the phase that the capability `qd.waypoint` or `qd.waypoint.N` of a terminus requests."""
    for capability in (terminus.capabilities or ()) if terminus is not None else ():
        if capability == "qd.waypoint" or capability.startswith("qd.waypoint."):
            digits = capability[12:]
            number = whole_number(digits[:9])
            n = 1 if number is None else number
            return min(n if incoming else n - 1, 9)
    return None
