"""Link routes: which attaches of clients are passed on to a route container, and the routed links themselves.

A routed link is two engine links, one towards the client, one towards the container, and the router between them keeps
nothing but their pairing: termini, credit, drain, deliveries with their tags, outcomes, detaches pass from end to end.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from enmasse.amqp.errors import NOT_FOUND, AmqpError
from enmasse.amqp.link import Receiver, Sender
from enmasse.amqp.performatives import ACCEPTED, Accepted, Modified, Rejected, Released
from services.router.routing import names
from services.router.routing.configuration import LinkRouteConfig
from services.router.routing.names import strip
from services.router.routing.sizes import limited

if TYPE_CHECKING:
    from enmasse.amqp.delivery import Outgoing
    from enmasse.amqp.receiver import Partial
    from enmasse.amqp.types import Symbol
    from services.router.routing.connections import RouterConnection
    from services.router.routing.core import Router
    from services.router.routing.links import Token

ROUTED_LINK_LOST = "qd:routed-link-lost"
NO_ROUTE = "qd:no-route-to-dest"


class LinkRoute:
    """A configured link route; `connections` are the route containers it can use now."""

    __slots__ = ("config", "connections")

    def __init__(self, config: LinkRouteConfig) -> None:
        self.config = config
        self.connections: tuple[RouterConnection, ...] = ()


class _Pattern:
    """The link routes of one direction that share a pattern: they are used in turn."""

    __slots__ = ("routes", "turn")

    def __init__(self) -> None:
        self.routes: list[LinkRoute] = []
        self.turn = 0


class LinkRoutes:
    """All configured link routes: by name, by identity, by container, and one tree of patterns per direction."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self.by_name: dict[str, LinkRoute] = {}
        self.by_identity: dict[int, LinkRoute] = {}
        self._by_container: dict[str, dict[LinkRoute, None]] = {}
        self._by_connection: dict[str, dict[LinkRoute, None]] = {}
        self._trees: dict[str, names.PatternTree[_Pattern]] = {
            "in": names.PatternTree(),
            "out": names.PatternTree(),
        }

    def add(self, config: LinkRouteConfig) -> LinkRoute:
        """Raises ValueError if the name is taken."""
        if config.name in self.by_name:
            raise ValueError("Name conflicts with an existing entity")
        route = LinkRoute(config)
        self.by_name[config.name] = route
        self.by_identity[config.identity] = route
        tree = self._trees[config.direction or "in"]
        pattern = tree.get(config.matched)
        if pattern is None:
            pattern = _Pattern()
            tree.add(config.matched, pattern)
        pattern.routes.append(route)
        if config.container_id:
            self._by_container.setdefault(config.container_id, {})[route] = None
        elif config.connection:
            self._by_connection.setdefault(config.connection, {})[route] = None
        if config.container_id or config.connection:
            route.connections = tuple(self.router.containers(config.container_id, config.connection))
        return route

    def remove(self, route: LinkRoute) -> None:
        """Links that are routed stay."""
        config = route.config
        del self.by_name[config.name]
        del self.by_identity[config.identity]
        tree = self._trees[config.direction or "in"]
        pattern = tree.get(config.matched)
        if pattern is not None:
            pattern.routes.remove(route)
            if not pattern.routes:
                tree.remove(config.matched)
        for index, key in ((self._by_container, config.container_id), (self._by_connection, config.connection)):
            if key and key in index and route in index[key]:
                del index[key][route]
                if not index[key]:
                    del index[key]

    def connection_opened(self, connection: RouterConnection) -> None:
        for route in self._wanted(connection):
            route.connections += (connection,)

    def connection_closed(self, connection: RouterConnection) -> None:
        for route in self._wanted(connection):
            route.connections = tuple(other for other in route.connections if other is not connection)

    def _wanted(self, connection: RouterConnection) -> list[LinkRoute]:
        wanted = list(self._by_container.get(connection.container, ()))
        if connection.name:
            wanted += self._by_connection.get(connection.name, ())
        return wanted

    def uses(self, connection: RouterConnection) -> bool:
        """Is the container at the other end that of some link route?"""
        return bool(self._wanted(connection))

    @property
    def complete(self) -> bool:
        """Every link route has a container that is connected."""
        return all(route.connections for route in self.by_name.values())

    def find(self, direction: str, address: str) -> tuple[LinkRoute, RouterConnection] | None:
        """Route and container for an attach, in turn; None when no route covers the address.

        Raises AmqpError `qd:no-route-to-dest` when one does and no container is there.
        """
        pattern = self._trees[direction].match(address)
        if pattern is None:
            return None
        choices = [(route, peer) for route in pattern.routes for peer in route.connections if peer.usable]
        if not choices:
            raise AmqpError(NO_ROUTE, "No route to the destination node")
        pattern.turn += 1
        return choices[pattern.turn % len(choices)]


class RoutedHalf:
    """One of the two links of a routed link; what the engine tells of it is passed to the pair."""

    __slots__ = ("connection", "delayed1", "delayed10", "identity", "link", "name", "open", "pair", "slow", "stuck")
    zero_since = None  # the router gives no credit of its own here

    def __init__(self, identity: int, connection: RouterConnection, link: Sender | Receiver, pair: RoutedLink) -> None:
        self.identity = identity
        self.connection = connection
        self.link = link
        self.name = link.name
        self.pair = pair
        self.open = True
        self.delayed1 = self.delayed10 = self.slow = self.stuck = 0
        connection.links[identity] = self
        link.context = self

    @property
    def direction(self) -> str:
        return "in" if isinstance(self.link, Receiver) else "out"


class RoutedLink:
    """The pair. Deliveries come in at `ingress`, go out at `egress`: one is the client's link, one the container's."""

    __slots__ = (
        "accepted",
        "client",
        "container",
        "egress",
        "elsewhere",
        "ingress",
        "modified",
        "name",
        "owning",
        "presettled",
        "queue",
        "rejected",
        "released",
        "rewritten",
        "second",
        "settle",
        "stream",
        "survives",
        "temporary",
        "two_phase",
        "update",
    )

    def __init__(self, name: str, owning: str, survives: bool) -> None:
        self.name = name
        self.owning = owning
        self.survives = survives
        self.client: RoutedHalf
        self.container: RoutedHalf | None = None  # not made yet: it waits for its name
        self.ingress: Receiver
        self.egress: Sender
        self.settle: Any = None
        self.update: Any = None
        self.queue: deque[tuple[Any, int, bool, bytes, int]] = deque()
        self.second: dict[int, Token] | None = None
        self.stream: Any = None
        self.rewritten: tuple[str, str] | None = None  # the address as the client and as the container knows it
        self.temporary: str | None = None  # the temporary queue or topic at the container that lives as long as this
        self.elsewhere: Callable[[], bool] | None = (
            None  # asks another container, where one does not know what is asked for
        )
        self.two_phase = False
        self.accepted = self.rejected = self.released = self.modified = self.presettled = 0

    def join(self, client: RoutedHalf, container: RoutedHalf) -> None:
        """Both links exist: from now on deliveries, credit and outcomes pass."""
        self.client = client
        self.container = container
        first, second = client.link, container.link
        if isinstance(first, Sender):
            first, second = second, first
        assert isinstance(first, Receiver) and isinstance(second, Sender)
        self.ingress, self.egress = first, second
        self.ingress.credit_window = 0
        self.ingress.on_delivery = limited(self.ingress, self.deliver)
        self.settle = self.ingress.session.settle
        self.update = self.ingress.session.update

    # Deliveries

    def deliver(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        egress = self.egress
        if self.queue or self.stream is not None or egress.credit <= 0:
            self.queue.append((payload, delivery_id, settled, tag, message_format))
            self.peer_of(self.ingress).connection.waiting.add(self)
        else:
            self._put(payload, delivery_id, settled, tag, message_format)

    def _put(self, payload: Any, delivery_id: int, settled: bool, tag: bytes, message_format: int) -> None:
        if not isinstance(payload, bytes):
            payload.start(self, None if settled else (self, delivery_id))
        elif settled:
            self.presettled += 1
            self.egress.send(payload, None, settled=True, tag=tag, message_format=message_format)
        else:
            self.egress.send(payload, (self, delivery_id), tag=tag, message_format=message_format)

    def deliver_stream(self, stream: Any) -> None:
        """A delivery that comes in pieces."""
        partial = stream.partial
        self.deliver(self.ingress, partial.delivery_id, partial.settled, stream, partial.tag, partial.message_format)

    def begin_stream(self, token: Token | None, partial: Partial) -> Outgoing:
        return self.egress.begin(token, settled=token is None, tag=partial.tag, message_format=partial.message_format)

    def stream_sent(self, token: Token | None) -> None:
        self.presettled += token is None

    def flow(self) -> None:
        """The receiving end granted credit or asks for a drain: the sending end is told the same."""
        egress, ingress, queue = self.egress, self.ingress, self.queue
        if self.stream is not None:
            self.stream.resume(self)
        while queue and self.stream is None and egress.credit > 0:
            self._put(*queue.popleft())
        if not queue:
            self.peer_of(ingress).connection.waiting.discard(self)
        more = egress.granted - ingress.credit - len(queue) - (self.stream is not None)
        if more > 0:
            ingress.grant(more)
        if egress.drain:
            if ingress.credit > 0:
                ingress.drain_credit()
            elif not queue and self.stream is None:
                egress.drained()
        ingress.session.connection.wake()

    def drained(self) -> None:
        """The sending end has used up or given back its credit."""
        if self.egress.drain and not self.queue and self.stream is None:
            self.egress.drained()
            self.egress.session.connection.wake()

    def outcomes(self, tokens: list[Token], state: Any, settled: bool) -> None:
        if not settled:
            self.two_phase = True
            if self.second is None:
                self.second = {}
            for token in tokens:
                self.second[token[1]] = token
                self.update(token[1], state)
            return
        if state is ACCEPTED:
            self.accepted += len(tokens)
        else:
            self._count(state, len(tokens))
        settle = self.settle
        for _, delivery_id in tokens:
            settle(delivery_id, state)
        if self.second:
            for _, delivery_id in tokens:
                self.second.pop(delivery_id, None)

    def _count(self, state: Any, n: int) -> None:
        kind = type(state)
        if kind is Released:
            self.released += n
        elif kind is Modified:
            self.modified += n
        elif kind is Rejected:
            self.rejected += n
        elif kind is Accepted:
            self.accepted += n

    def sender_settled(self, delivery_ids: Sequence[int]) -> None:
        """The sending end settled: so does the router towards the receiving end."""
        if self.second:
            tokens = [self.second.pop(d) for d in delivery_ids if d in self.second]
            if tokens:
                self.egress.settle(tokens)
                self.egress.session.connection.wake()

    # Life

    def give_up(self, error: AmqpError) -> None:
        """The link to the container is not made: the client's attach is refused."""
        client = self.client
        if client.open:
            client.open = False
            client.link.refuse(error)
            client.link.session.connection.wake()
            client.connection.routed_gone(client)

    def peer_of(self, link: Any) -> RoutedHalf:
        """The half on the other side of `link`."""
        if self.client.link is not link:
            return self.client
        assert self.container is not None
        return self.container

    def attached(self) -> None:
        """The container answered: the client gets its termini. Null termini stand for a refusal; its detach follows."""
        assert self.container is not None
        link = self.container.link
        refused = link.remote_target is None if isinstance(link, Sender) else link.remote_source is None
        if refused:
            return
        source, target = link.remote_source, link.remote_target
        if self.rewritten is not None:
            source, target = self._as_asked(source), self._as_asked(target)
        if isinstance(link, Receiver) and survives(source):  # a subscription that was there: the client did not say it
            self.survives = True
        self._remember(self.container.connection, target if self.client.direction == "in" else source)
        try:
            self.client.link.accept(
                source,
                target,
                snd_settle_mode=link.snd_settle_mode,
                rcv_settle_mode=link.rcv_settle_mode,
                offered_capabilities=self._offered(self.container),
            )
        except AmqpError as error:  # the client's frames are too small for it: no fault of the container's connection
            self.client.link.refuse(error)
            self.client.link.session.connection.wake()
            return
        self.client.link.session.connection.wake()
        self.flow()

    def _remember(self, container: RouterConnection, terminus: Any) -> None:
        """If this is a temporary queue or topic that has been made: everybody reaches it from now on."""
        if terminus is not None and terminus.dynamic and terminus.address:
            name = strip(terminus.address)
            if container.router.temporaries.made(name, container):
                self.temporary = name

    def _offered(self, container: RoutedHalf) -> tuple[Symbol, ...] | None:
        """Capabilities of the link: what the container offers on it, and what was asked for and all its links have."""
        opened, answer = container.connection.amqp.remote_open, container.link.remote_attach
        asked = self.client.link.remote_attach
        everywhere = (opened.offered_capabilities if opened is not None else None) or ()
        offered = list((answer.offered_capabilities if answer is not None else None) or ())
        offered += [c for c in ((asked and asked.desired_capabilities) or ()) if c in everywhere and c not in offered]
        return tuple(offered) or None

    def _as_asked(self, terminus: Any) -> Any:
        """The container's terminus with the address by which the client knows it."""
        assert self.rewritten is not None
        asked, external = self.rewritten
        if terminus is None or getattr(terminus, "address", None) != external:
            return terminus
        terminus = copy.copy(terminus)
        terminus.address = asked
        return terminus

    def detached(self, half: RoutedHalf, error: Any, closed: bool, lost: bool) -> None:
        """One end is gone: the other hears why. `lost`: it went with its connection, and a durable terminus is kept."""
        half.open = False
        other = self.client if half is self.container else self.container
        half.connection.routed_gone(half)
        if other is None:
            return
        if other is self.container and other.open:
            half.connection.leaving.add(other)
        other.connection.waiting.discard(self)
        if self.temporary is not None:
            half.connection.router.temporaries.over(self.temporary)
            self.temporary = None
        if not other.open:
            return
        if self.elsewhere is not None and other is self.client and not other.link.attached:
            unknown = error is not None and error.condition == NOT_FOUND
            if unknown and self.elsewhere():
                return
        other.open = False
        if lost:
            error = AmqpError(ROUTED_LINK_LOST, "Connectivity to the peer container was lost")
            closed = not self.survives
        link = other.link
        if other is self.client and not link.attached:
            link.refuse(error or AmqpError("amqp:not-found", "Node not found"))
        else:
            link.detach(error, closed=closed)
        link.session.connection.wake()

    # Source (for streams)

    def count(self, state: Any) -> None:
        self._count(state, 1)

    def awaits(self, delivery_id: int, sender: Sender, token: Token) -> None:
        if self.second is None:
            self.second = {}
        self.second[delivery_id] = token

    def forget(self, delivery_id: int) -> None:
        if self.second:
            self.second.pop(delivery_id, None)


def survives(terminus: Any) -> bool:
    """Does this terminus outlive its link when the connection is lost (durable subscriptions)?"""
    if terminus is None:
        return False
    return terminus.expiry_policy == "never" or bool(getattr(terminus, "timeout", 0)) or bool(terminus.durable)
