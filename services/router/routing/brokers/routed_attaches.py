"""Attaches that are passed on to brokers: which link of which client is one of a container, and who waits for a name.

A client that has left a link may use its handle and name again before the container has answered; the container's link
of that name must be gone before the next one is made.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from enmasse.amqp.codec.errors import RESOURCE_LIMIT_EXCEEDED, STOLEN, AmqpError
from enmasse.amqp.codec.performatives import Source, Target
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.termini import MESSAGE_IDENTITY, stated
from services.router.routing.addresses.temporaries import Temporaries
from services.router.routing.brokers.link_routes import NO_ROUTE
from services.router.routing.brokers.routed_link import RoutedHalf, RoutedLink
from services.router.routing.connection import LinkRecord, RouterConnection
from services.router.routing.termini import ASKED, DELAYED_DELIVERY

LEAVING_LINKS = 512
"""Links at containers that a client may have left at once. The handle of such a link is free for the next attach before
the container has answered: without a bound one client could keep a broker, and all who use it, busy with attaches."""
UNDER_WAY = 8
"""Attaches and detaches that a container has to answer at once for one client; further attaches of the client wait in
the router. All clients share the connection to a container: it is to be free again within milliseconds."""
TAKEN = AmqpError(STOLEN, "attached again elsewhere by the same container-id and link name")
PASSED_ON = frozenset((DELAYED_DELIVERY, "SHARED-SUBS", MESSAGE_IDENTITY))
"""Desired capabilities of clients that containers learn of. By others a container may know links of its own kind, as
Artemis knows mirrors and federation: a client could make such a link with the rights of the router."""
HOPS = Symbol("enmasse.hops")
"""Property of a routed link: how many routers it has passed. Routers that do not agree on a path must not pass it on
indefinitely."""
External = Callable[[str], str]
"""The address as the container knows it."""
Key = tuple[str, str]
"""Direction and name of a link at a container."""


class _Names:
    """The names of links at one container: `routed` are in use; the attach in `waiting` waits for one to be free, with
    what makes its link then."""

    __slots__ = ("routed", "waiting")

    def __init__(self) -> None:
        self.routed: dict[Key, RoutedLink] = {}
        self.waiting: dict[Key, tuple[RoutedLink, Callable[[], None]]] = {}


class _Turns:
    """Links of one client at one container: `unanswered` attaches, links that the client is `leaving` and whose detach
    the container has not answered, and attaches in `waiting`, each with the function that makes its link."""

    __slots__ = ("leaving", "unanswered", "waiting")

    def __init__(self) -> None:
        self.unanswered: set[RoutedHalf] = set()
        self.leaving: set[RoutedHalf] = set()
        self.waiting: dict[RoutedLink, Callable[[], None]] = {}

    @property
    def idle(self) -> bool:
        return not (self.unanswered or self.leaving or self.waiting)

    def proceed(self) -> None:
        """Make the links that waited, as far as they may be made now."""
        while self.waiting and len(self.unanswered) + len(self.leaving) < UNDER_WAY:
            pair = next(iter(self.waiting))
            self.waiting.pop(pair)()


class PassingOn:
    """Makes routed links. `link_over` is called when one of the two links of a pair has ended."""

    def __init__(self, temporaries: Temporaries) -> None:
        self._temporaries = temporaries
        self._names: dict[RouterConnection, _Names] = {}  # by container
        self._turns: dict[RouterConnection, dict[RouterConnection, _Turns]] = {}  # by client and container

    def pair(self, connection: RouterConnection, link: Link, name: str, durable: bool = False) -> RoutedLink:
        """Return a routed link to the address `name` that has only its client's half so far. Raises AmqpError if too
        many links of the connection are still being ended."""
        if sum(len(turns.leaving) for turns in self._turns.get(connection, {}).values()) >= LEAVING_LINKS:
            text = f"{LEAVING_LINKS} links of this connection are still being ended at their brokers: wait a little"
            raise AmqpError(RESOURCE_LIMIT_EXCEEDED, text)
        owning = "M0" + name if name else ""
        pair = RoutedLink(
            link.name if connection.is_neighbour else connection.name_for_broker(link),
            owning,
            durable,
            self._temporaries,
            self._half_over,
            self._answered,
        )
        if isinstance(link, Receiver):
            link.streaming = True
            link.max_message_size = connection.max_message_size
        assert isinstance(link, Sender | Receiver)
        pair.client = RoutedHalf(connection, link, pair)
        return pair

    def join(self, pair: RoutedLink, external: External | None, container: RouterConnection, terminus: Any) -> None:
        """Make the link to the container; if one of its name is still there, end that one and wait until it is gone.

        `terminus` is the client's target or source, as far as it names an address; what goes wrong refuses its attach.
        """
        if not pair.client.open:
            return
        turns = self._turns_of(pair.client.connection, container)
        if len(turns.unanswered) + len(turns.leaving) >= UNDER_WAY:
            turns.waiting[pair] = lambda: self.join(pair, external, container, terminus)
            return
        try:
            if not container.usable:
                raise AmqpError(NO_ROUTE, "No route to the destination node")
            self._make(pair, external, container, terminus)
        except AmqpError as error:
            pair.give_up(error)

    def _make(self, pair: RoutedLink, external: External | None, container: RouterConnection, terminus: Any) -> None:
        link = pair.client.link
        sending = isinstance(link, Receiver)  # the client sends, so we send to the container
        key = ("out" if sending else "in", pair.name)
        names = self._names.setdefault(container, _Names())
        present = names.routed.get(key)
        if present is not None:
            before = names.waiting.get(key)
            if before is not None:  # the newest takes the place of all before it (2.6.1)
                before[0].give_up(TAKEN)
            names.waiting[key] = (pair, lambda: self.join(pair, external, container, terminus))
            self._end(present)
            return
        source, target = link.remote_source, link.remote_target
        asked = None if terminus is None else terminus.address
        if asked and external is not None and external(asked) != asked:
            terminus = copy.copy(terminus)
            terminus.address = external(asked)
            pair.rewritten = (asked, terminus.address)
            source, target = (source, terminus) if sending else (terminus, target)
        source, target = _known(source), _known(target)
        session = container.session_for_links(receiving=not sending)
        other: Sender | Receiver
        if sending:
            other = session.attach_sender(
                pair.name, source, target, **_wanted(link, pair.client.connection, sends=True)
            )
        else:
            other = session.attach_receiver(
                pair.name, source, target, streaming=True, **_wanted(link, pair.client.connection)
            )
        half = RoutedHalf(container, other, pair)
        names.routed[key] = pair
        self._turns_of(pair.client.connection, container).unanswered.add(half)
        pair.join(pair.client, half)
        container.amqp.wake()

    def move(self, pair: RoutedLink, error: AmqpError) -> None:
        """End both links; a durable terminus is kept. An attach that the container has not answered is handled again,
        as if it came now."""
        link, client = pair.client.link, pair.client
        if link.attach_sent or not client.open:
            self._end(pair, error)
            return
        client.open = False
        self._half_over(client)
        self._end(pair)
        link.context = None
        client.connection.amqp.handler.on_attach(link)
        client.connection.amqp.wake()

    def refuse(self, half: RoutedHalf, error: AmqpError) -> None:
        """End a client's link that it may no longer have; a durable terminus is kept."""
        self._end(half.pair, error)

    def _end(self, present: RoutedLink, error: AmqpError = TAKEN) -> None:
        """End both links. By default because another link takes the name of this one."""
        client, container = present.client, present.container
        if container is not None and container.open:
            container.open = False
            container.link.detach(None, closed=not present.survives)
        if client.open:
            client.open = False
            if client.link.attached:
                client.link.detach(error)
            else:
                client.link.refuse(error)
            client.connection.amqp.wake()
            self._half_over(client)
        if container is not None:
            container.connection.amqp.wake()

    def _half_over(self, half: RoutedHalf) -> None:
        """End the other half of a pair of which one has ended, if it is open."""
        half.connection.link_over(half)
        pair = half.pair
        if pair.client is half:
            if pair.siblings is not None:
                pair.siblings.discard(pair)
            for turns in self._turns.get(half.connection, {}).values():
                turns.waiting.pop(pair, None)
            if pair.container is not None and pair.container.open:
                self._leaves(pair.container)
        names = self._names.get(half.connection)
        if pair.container is half and names is not None:
            key = (half.direction, half.name)
            if names.routed.get(key) is pair:
                del names.routed[key]
            waiting = names.waiting.pop(key, None)
            if waiting is not None:
                waiting[1]()
        if pair.container is half:
            self._answered(half)

    def _leaves(self, half: RoutedHalf) -> None:
        """Note that the client has left: the container, whose half this is, must answer before the name is used
        again."""
        turns = self._turns_of(half.pair.client.connection, half.connection)
        turns.unanswered.discard(half)
        turns.leaving.add(half)

    def _turns_of(self, client: RouterConnection, container: RouterConnection) -> _Turns:
        return self._turns.setdefault(client, {}).setdefault(container, _Turns())

    def _answered(self, half: RoutedHalf) -> None:
        """Note that the container has answered the attach or detach of this half, or is lost."""
        client = half.pair.client.connection
        by_container = self._turns.get(client, {})
        turns = by_container.get(half.connection)
        if turns is None:
            return
        turns.unanswered.discard(half)
        if not half.open:
            turns.leaving.discard(half)
        turns.proceed()
        if turns.idle and by_container.get(half.connection) is turns:
            del by_container[half.connection]
            if not by_container:
                self._turns.pop(client, None)

    def link_over(self, record: LinkRecord) -> None:
        """Handle a link that has ended with its connection."""
        if isinstance(record, RoutedHalf) and record.pair.container is record:
            record.open = False
            self._answered(record)

    def connection_closed(self, connection: RouterConnection) -> None:
        """Forget the names of a connection that has closed; attaches that waited for one are refused."""
        self._names.pop(connection, None)
        self._turns.pop(connection, None)
        for by_container in self._turns.values():
            turns = by_container.pop(connection, None)
            for pair in list(turns.waiting) if turns is not None else ():
                pair.give_up(AmqpError(NO_ROUTE, "No route to the destination node"))


def hops(link: Link) -> int:
    """Return how many routers the peer's link has passed."""
    attach = link.remote_attach
    stated_hops = (attach.properties or {}).get(HOPS) if attach is not None else None
    return stated_hops if isinstance(stated_hops, int) else 0


def _known(terminus: Any) -> Any:
    """Return the terminus without capabilities that mean nothing in the suite. A coordinator is unchanged."""
    if not isinstance(terminus, Source | Target) or not terminus.capabilities:
        return terminus
    known = tuple(c for c in terminus.capabilities if str(c).lower() in ASKED)
    if len(known) == len(terminus.capabilities):
        return terminus
    terminus = copy.copy(terminus)
    terminus.capabilities = known or None
    return terminus


def _wanted(link: Link, client: RouterConnection, *, sends: bool = False) -> dict[str, Any]:
    """Return the fields of a client's attach, beside its termini, that the attach to a container repeats. What the
    client states as the sender, or as its space, is replaced by who it is."""
    attach = link.remote_attach
    if attach is None:
        return {}
    properties, sender = attach.properties, client.sender if sends else b""
    if client.is_neighbour:  # the client's own router has stated it
        properties = {**(properties or {}), HOPS: hops(link) + 1}
    else:
        properties = stated(properties or {}, sender, client.space, client.shown_to_brokers)
    return {
        "snd_settle_mode": attach.snd_settle_mode,
        "rcv_settle_mode": attach.rcv_settle_mode,
        "desired_capabilities": tuple(c for c in attach.desired_capabilities or () if c in PASSED_ON) or None,
        "properties": properties,
    }
