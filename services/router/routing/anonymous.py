"""The anonymous relay: every delivery is routed by its `to`; nothing else of it is decoded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from enmasse.amqp.codec.errors import NOT_IMPLEMENTED, AmqpError
from enmasse.amqp.codec.performatives import RELEASED
from enmasse.amqp.link import Receiver
from enmasse.amqp.messages.scan import ToSpans, end_of_alike, find_to
from enmasse.amqp.messages.sections import Sections
from enmasse.amqp.receiver import Partial
from enmasse.identity.annotations import DELIVERY_DELAY, DELIVERY_TIME
from enmasse.model.names import space_prefix
from services.router.routing.address_text import MOBILE, parse
from services.router.routing.addresses.address import RoutedAddress
from services.router.routing.addresses.addresses import Addresses
from services.router.routing.addresses.deliveries import NOT_A_MESSAGE, DeliveryCopies, rejected
from services.router.routing.addresses.temporaries import Temporaries
from services.router.routing.brokers.link_routes import NO_ROUTE, LinkRoutes
from services.router.routing.brokers.relay import RelayOut, Relays, relays
from services.router.routing.configuration import MULTICAST
from services.router.routing.connection import MANAGEMENT_ELSEWHERE, RouterConnection
from services.router.routing.links.in_link import InLink
from services.router.routing.links.size_limit import limited
from services.router.routing.links.streaming import MAX_HEAD, Head, begin_or_gather, discard, start

CACHED = 1024
"""Different `to` remembered per link."""
MAX_CACHED = 256
"""Longest `to` that is remembered, in bytes."""

NO_ADDRESS = rejected("amqp:precondition-failed", "Routing failure: no address present")
NO_MANAGEMENT = rejected(*MANAGEMENT_ELSEWHERE)
NO_DELAY = rejected(NOT_IMPLEMENTED, "a delivery delay needs a queue or a topic: this address keeps no message back")
_SHORT_FRONT = 512
"""Bytes up to the end of `to` that are compared with those of the next messages."""
_DELAY = b"x-opt-delivery-"
_DELAYS = (DELIVERY_DELAY, DELIVERY_TIME)


class AnonymousInLink(InLink):
    """The router's end of a sender without a target address. It has credit unless too many messages wait for a
    broker."""

    __slots__ = (
        "_addresses",
        "_cache",
        "_generation",
        "_link_routes",
        "_prefix",
        "_refused_at",
        "_relayed",
        "_relays",
        "_routes_generation",
        "_spans",
        "_temporaries",
    )

    def __init__(
        self,
        connection: RouterConnection,
        link: Receiver,
        addresses: Addresses,
        link_routes: LinkRoutes,
        temporaries: Temporaries,
    ) -> None:
        super().__init__(connection, link, None)
        self._addresses = addresses
        self._link_routes = link_routes
        self._temporaries = temporaries
        self._cache: dict[bytes, str] = {}
        self._generation = -1
        space = connection.space_of(link)
        self._prefix = space_prefix(space) if space else ""  # of the full names of what messages state as `to`
        self._relays = Relays(connection, addresses, self._withhold, self._grant, space)
        self._spans = ToSpans()
        self._relayed: dict[bytes, tuple[RelayOut, str]] = {}  # `to` of messages for brokers → link, parsed name
        self._routes_generation = -1
        self._refused_at = ""
        link.on_delivery = limited(link, self.forward)
        link.on_run = None if link.max_message_size else self.forward_run

    def forward_run(self, link: Receiver, first: int, payloads: list[bytes], settled: bool) -> None:
        """Forward deliveries that arrived together: those that begin alike, up to the `to` of a broker's address, at
        once. Hot path."""
        size = sum(map(len, payloads))
        link.bytes += size
        at, end = 0, len(payloads)
        waits = False
        while at < end:
            alike, relay = self._alike(payloads, at)
            sent = 0
            if relay is not None and relay.direct:
                sent = self.run_to(relay, first + at, alike, settled)
                self._count(relay, sent)
            for n in range(at + sent, at + len(alike)):
                link.on_delivery(link, first + n, settled, payloads[n], b"", 0)
                waits = True  # or an address of the router has it
            at += len(alike)
        self.grant_further(0 if waits else len(payloads), size)

    def _alike(self, payloads: list[bytes], at: int) -> tuple[list[bytes], RelayOut | None]:
        """Return the messages from `at` on that begin as the first of them up to the end of its `to`, and the link to
        the broker of that. Else all the rest, and None: each is to be looked at by itself."""
        payload = payloads[at]
        try:
            start, stop = self._spans.find(payload)
        except AmqpError:
            return payloads[at:], None
        relay = self._known(payload[start:stop])
        if relay is None or stop > _SHORT_FRONT or self.strip(payload) is not payload:
            return payloads[at:], None
        return payloads[at : end_of_alike(payloads, at, payload[:stop])], relay

    def _count(self, relay: RelayOut, count: int) -> None:
        relay.address.relayed += count
        if self.connection.is_container:
            relay.address.ingress_containers += count

    def forward(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        """Forward a delivery to the address in its `to`; reject it if it cannot be decoded, or with the reason if that
        address takes no messages."""
        try:
            start, end = self._spans.find(payload)
        except AmqpError:
            self.refuse(delivery_id, settled, NOT_A_MESSAGE)
            return
        to = payload[start:end]
        relay = self._known(to)
        if relay is not None:
            self._count(relay, 1)
            payload = self.strip(payload)
            if settled:
                self.presettled += 1
                relay.offer(payload, None, message_format)
            elif message_format or not relay.direct or not relay.pass_on(payload, (self, delivery_id)):
                relay.offer(payload, (self, delivery_id), message_format)
            return
        address = self.resolve(to, payload)
        if not isinstance(address, RoutedAddress):
            self.refuse(delivery_id, settled, address)
            return
        payload = self.strip(payload)
        address.relayed += 1
        if self.connection.is_container:
            address.ingress_containers += 1
        if address.subscriber is not None:
            if settled:
                self.presettled += 1
            else:
                self.settle(delivery_id)
            address.subscriber(self.connection, payload)
        elif address.treatment == MULTICAST and len(address.outs) > 1:
            if settled:
                self.presettled += 1
            token = None if settled else (DeliveryCopies(self, delivery_id, len(address.outs)), 0)
            for out in address.outs:
                out.offer(payload, token, message_format)
        else:
            chosen = self.way(address)
            if chosen is None:
                self.refuse(delivery_id, settled)
            elif settled:
                self.presettled += 1
                chosen.offer(payload, None, message_format)
            elif (
                message_format
                or not chosen.direct
                or not chosen.pass_on(payload, (self, delivery_id), chosen.tag(self) if self.sender else None)
            ):
                chosen.offer(payload, (self, delivery_id), message_format)

    def partial(self, delivery: Partial) -> None:
        """Start or continue a delivery in pieces, once its `to` has arrived."""
        begin_or_gather(self, delivery, _begin)

    def sent_to(self) -> Iterator[RoutedAddress]:
        """Yield the addresses of the router that this sender has sent to lately."""
        for key in set(self._cache.values()):
            address = self._addresses.get(key)
            if address is not None:
                yield address

    def look_up_again(self) -> None:
        """Look up the address of each message again, with the rights that the connection has now."""
        self._cache.clear()
        self._relayed.clear()

    def gone(self) -> None:
        """Also end the links to brokers that were made for this sender."""
        super().gone()
        self._relayed.clear()
        self._relays.end()

    def _withhold(self) -> None:
        """Give no further credit, because too many messages wait for a broker."""
        self.link.credit_window = 0

    def _grant(self) -> None:
        """Give credit again."""
        if not self.link.detached:
            self.open_gate()
            self.connection.amqp.wake()

    def resolve(self, to: bytes | None, head: bytes) -> Any:
        """Return the address for a raw `to`, or the state that refuses the message. `head`: the message's bytes so
        far."""
        if not to:
            return NO_ADDRESS
        address = self._find(to)
        if isinstance(address, RoutedAddress) and _DELAY in head and not _keeps(address) and _delayed(head):
            address = NO_DELAY
        if not isinstance(address, RoutedAddress):
            self._refused_at = str(to, "utf-8", "replace")
        return address

    def refuse(self, delivery_id: int, settled: bool, state: Any = RELEASED) -> None:
        """Refuse a delivery as `InLink` does, at the address that was looked up last."""
        super().refuse(delivery_id, settled, state)
        self._refused_at = ""

    @property
    def refused_at(self) -> str:
        """Return the `to` of the message that is being refused; empty without one, or once a broker has the message."""
        return self._refused_at

    def _known(self, to: bytes) -> RelayOut | None:
        """Return the link to a broker on which this `to` was last sent, if nothing that decides about it has
        changed."""
        known = self._relayed.get(to)
        if known is None:
            return None
        if self._routes_generation != self._link_routes.generation:
            self._relayed.clear()
            return None
        out, name = known
        return out if out.usable and self._temporaries.broker_of(name) is None else None

    def _find(self, to: bytes) -> Any:
        addresses = self._addresses
        if self._generation != addresses.generation or len(self._cache) >= CACHED:
            self._cache.clear()
            self._generation = addresses.generation
        key = self._cache.get(to)
        if key is not None:
            address = addresses.get(key)
            if address is not None and not address.unused:
                return address
        try:
            text = str(to, "utf-8")
            rights = self.connection.rights
            if rights is not None:
                try:
                    rights.check_message(text)
                except AmqpError:
                    self.connection.owner.policy.links_denied += 1
                    raise
            found = self._broker(text)
            if found is not None:
                out = self._relays.to(*found)
                self._remember(to, text, out)
                return out.address
            address = addresses.for_message(text, self._prefix)
        except AmqpError as error:
            return rejected(error.condition, error.description)
        except UnicodeDecodeError:
            return NOT_A_MESSAGE
        if address is None or not address.reachable:
            return RELEASED
        if address.is_management and not self.connection.management:
            return NO_MANAGEMENT
        if len(to) <= MAX_CACHED:
            self._cache[to] = address.key
        return address

    def _remember(self, to: bytes, text: str, out: RelayOut) -> None:
        """Remember the link of a `to`, except for temporary queues and topics, which are short-lived."""
        routes = self._link_routes
        if self._routes_generation != routes.generation or len(self._relayed) >= CACHED:
            self._relayed.clear()
            self._routes_generation = routes.generation
        name = parse(text, self._addresses.router_id, self._prefix).name
        if len(to) <= MAX_CACHED and self._temporaries.broker_of(name) is None and routes.alone("in", name):
            self._relayed[to] = (out, name)

    def _broker(self, text: str) -> tuple[RouterConnection, str] | None:
        """Return the broker of an address that is reached by links to a broker, not by an address of the router, and
        the broker's name for it; None for other addresses. Raises AmqpError if the broker is not connected, takes no
        such messages, or is internal."""
        parsed = parse(text, self._addresses.router_id, self._prefix)
        self._temporaries.check(self.connection, text, parsed, self._prefix)
        if parsed.kind != MOBILE:
            return None
        self.connection.check_name(parsed.name)
        broker, name = self._temporaries.broker_of(parsed.name), parsed.name
        found = None
        if broker is not None:
            name = self._temporaries.node_of(parsed.name)
        else:
            found = self._link_routes.find("in", parsed.name)
        if found is not None:
            route, broker = found
            if route.config.external(parsed.name) != parsed.name:
                raise AmqpError(NOT_IMPLEMENTED, f"{text} has another name behind the router: attach a sender to it")
        if broker is None:
            return None
        if broker.is_neighbour:  # it may be that the own connection is lost for a moment
            raise AmqpError(NO_ROUTE, f"this router is not connected to the broker of {text}: attach a sender to it")
        if not relays(broker):
            raise AmqpError(NOT_IMPLEMENTED, f"the broker of {text} takes no anonymous messages: attach a sender to it")
        return broker, name


def _delayed(head: bytes) -> bool:
    """Return True if an annotation in the message's bytes so far delays it."""
    try:
        annotations = Sections(head).annotations
    except AmqpError:
        return False
    return any(name in annotations for name in _DELAYS)


def _keeps(address: RoutedAddress) -> bool:
    """Return True if a broker stores the messages of this address."""
    return bool(address.stores) or any(out.connection.is_container for out in address.outs)


def _begin(source: AnonymousInLink, partial: Partial) -> None:
    head = partial.context
    if head is None:
        head = partial.context = Head()
    head.data += partial.take()
    state: Any
    try:
        to = find_to(head.data)
        if to is None and not partial.done and len(head.data) < MAX_HEAD and _may_follow(head.data):
            return
        state = source.resolve(to, head.data)
    except AmqpError:
        if not partial.done and len(head.data) < MAX_HEAD:
            return  # may only be incomplete
        state = NOT_A_MESSAGE
    if isinstance(state, RoutedAddress):
        state.relayed += 1
        start(source, state, partial, source.strip(head.data))
    else:
        source.refuse(partial.delivery_id, partial.settled, state)
        discard(partial)


def _may_follow(data: bytes) -> bool:
    """Return True if the bytes so far are whole sections before the properties, which may still follow."""
    try:
        return find_to(data + b"\x00\x53\x73\xc0\x05\x03\x40\x40\xa1\x01x") is not None
    except AmqpError:
        return True
