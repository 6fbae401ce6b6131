"""The router's part in a network of routers: its connections to others, and the engine of the mesh on these.

Addresses get a destination (Hop) for each neighbour that is the next on the way to receivers. A router that never had a
connection to another makes nothing of all this.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final

from enmasse.amqp.codec.errors import NOT_ALLOWED, RESOURCE_DELETED, AmqpError
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.clock import Clock
from services.router.mesh.control_messages import Treatment
from services.router.mesh.mesh_engine import (
    Action,
    AddressGained,
    AddressLost,
    DropLink,
    MeshEngine,
    MeshEvent,
    MeshNotice,
    RefuseLink,
    RoutesChanged,
    SendControl,
)
from services.router.routing.address_text import LOCAL, MOBILE, OWN_TEMPORARY, ROUTER, canonical, parse, strip
from services.router.routing.addresses.address import RoutedAddress
from services.router.routing.addresses.addresses import Addresses
from services.router.routing.brokers.link_routes import LinkRoutes
from services.router.routing.configuration import BALANCED, CLOSEST, MULTICAST
from services.router.routing.connection import RouterConnection
from services.router.routing.neighbours.control_links import CONTROL, ControlIn, ControlOut, has_capability, termini
from services.router.routing.neighbours.data_links import DATA, PRIORITIES, DataIn, DataOut, OnwardHop
from services.router.routing.neighbours.hop_annotations import StatedWay
from services.router.routing.neighbours.hops import Hop

TICK: Final = 0.25
"""Seconds between two looks at what is due."""
COST: Final = "qd.inter-router-cost"
"""Property of an Open: the cost of the connection. The greater one of both sides counts."""
MAX_COST: Final = 2**31 - 1
MAX_NODES: Final = 1024
"""Most nodes of other routers (`_topo/0/ROUTER/NODE`) that are remembered without a link."""
_ROUTER_NODES: Final = "_topo/0/"
_TREATMENTS: Final = {
    MULTICAST: Treatment.MULTICAST_ONCE,
    CLOSEST: Treatment.CLOSEST,
    BALANCED: Treatment.BALANCED,
}
_STATED: Final = {
    Treatment.MULTICAST_ONCE: MULTICAST,
    Treatment.MULTICAST_FLOOD: MULTICAST,
    Treatment.CLOSEST: CLOSEST,
}


_parse: Final = lru_cache(maxsize=4096)(parse)

_ROUTE_CLASSES: Final = {"C": ("in", True), "D": ("out", True), "E": ("in", False), "F": ("out", False)}
"""Classes of link routes: the direction of the client's link, and whether the key has a prefix or a pattern."""


def is_route_key(key: str) -> bool:
    """Return whether a key is that of a link route."""
    return key[:1] in _ROUTE_CLASSES


def route_key(direction: str, stated: str) -> str:
    """Return the key of a link route, as Dispatch announces it: with the separators of the configuration."""
    stated = stated.strip("./")
    name = stated.removesuffix("#").rstrip("./")
    if stated[len(name) :] in ("/#", ".#") and not set(name) & {"*", "#"}:
        return ("C" if direction == "in" else "D") + name
    return ("E" if direction == "in" else "F") + stated


class NeighbourConnection:
    """A connection to another router. It counts as open once both of its control links are. `outs`: links on which
    messages go, by priority; `ins`: the number of those on which they come."""

    __slots__ = ("_bytes", "connection", "control_in", "control_out", "cost", "ins", "open", "outs")

    def __init__(self, connection: RouterConnection) -> None:
        self.connection = connection
        stated = connection.properties.get(COST)
        theirs = stated if isinstance(stated, int) and not isinstance(stated, bool) and 0 < stated <= MAX_COST else 1
        self.cost = max(connection.cost, theirs)
        self.control_in: ControlIn | None = None
        self.control_out: ControlOut | None = None
        self.outs: list[DataOut] = []
        self.ins = 0
        self.open = False
        self._bytes = 0

    def has_received(self) -> bool:
        """Return True if something has arrived since the last call, or may have: while it is not read."""
        amqp = self.connection.amqp
        before, self._bytes = self._bytes, amqp.bytes_in
        return amqp.bytes_in != before or amqp.reading_paused


class Network:
    """`instance`: time of the router's start in whole seconds. `on_notice` gets what operators should know."""

    def __init__(
        self, router_id: str, clock: Clock, instance: int, addresses: Addresses, link_routes: LinkRoutes
    ) -> None:
        self.engine = MeshEngine(router_id, instance, clock.time(), secrets.randbelow(1 << 30))
        self.on_notice: Callable[[MeshEvent, str, str], None] = lambda event, router, text: None
        self.remotes: dict[str, dict[str, Treatment | None]] = {}
        """Key of an address → the reachable routers with receivers of it."""
        self._spellings: dict[tuple[str, str], set[str]] = {}
        """Direction and pattern of link routes → their keys in `remotes`."""
        self._own = router_id
        self._clock = clock
        self._addresses = addresses
        self._link_routes = link_routes
        self._routes: set[str] = set()
        self._links: dict[int, NeighbourConnection] = {}
        self._hops: dict[str, dict[int, Hop]] = {}
        """Key of an address → its destinations by the number of the connection."""
        self._nodes: dict[str, RoutedAddress] = {}
        self._onward: dict[tuple[str, str], list[OnwardHop]] = {}
        self._announced: dict[str, Treatment] = {}
        self._ticking = self._due = False

    @property
    def is_several(self) -> bool:
        """Return True if a path leads to another router."""
        return bool(self.engine.topology.costs)

    # Connections

    def connection_opened(self, connection: RouterConnection) -> None:
        """Handle an open connection to another router. The side that dials attaches the links."""
        links = self._neighbour(connection)
        if connection.dir == "out":
            session = connection.amqp.begin()
            source, target = termini(CONTROL)
            self._control(links, session.attach_receiver(None, source, target))
            self._control(links, session.attach_sender(None, source, target))
            source, target = termini(DATA)
            for _ in range(PRIORITIES):
                session = connection.amqp.begin()
                self._data_in(links, session.attach_receiver(None, source, target, streaming=True))
                self._data_out(links, session.attach_sender(None, source, target))
            connection.amqp.wake()

    def _neighbour(self, connection: RouterConnection) -> NeighbourConnection:
        """Return the record of a connection; its first attaches may come together with the Open, before it is open."""
        links = self._links.get(connection.identity)
        if links is None:
            self._begin()
            links = self._links[connection.identity] = NeighbourConnection(connection)
        return links

    def connection_closed(self, connection: RouterConnection) -> None:
        """Handle the end of a connection: a neighbour is lost with it at once."""
        links = self._links.pop(connection.identity, None)
        if links is not None and links.open:
            in_order = not connection.amqp.broken and connection.amqp.own_error is None
            self._do(self.engine.link_closed(connection.identity, self._clock.time(), in_order=in_order))
            self._sync_all()

    def attach(self, connection: RouterConnection, link: Link) -> bool:
        """Answer the attach of another router. Return False for a link that it passes on. Raises AmqpError."""
        links = self._neighbour(connection)
        if links.control_in is None and not has_capability(link, CONTROL):
            raise AmqpError("qd:connection-role", "Link attach forbidden on inter-router connection")
        if not (has_capability(link, CONTROL) or has_capability(link, DATA)):
            return False
        if has_capability(link, CONTROL):
            if connection.dir == "out" or (links.control_in if isinstance(link, Receiver) else links.control_out):
                raise AmqpError(NOT_ALLOWED, "this connection has its control links")
            self._control(links, link)
            link.accept()
            self._opened(links)
        elif links.control_in is None or links.control_out is None:
            raise AmqpError(NOT_ALLOWED, "this connection has no control links")
        elif isinstance(link, Receiver):
            self._data_in(links, link)
            link.accept()
        elif len(links.outs) < PRIORITIES:
            assert isinstance(link, Sender)
            record = self._data_out(links, link)
            link.accept()
            record.attached()
            if len(links.outs) == PRIORITIES:
                self._sync_all()
        else:
            raise AmqpError(NOT_ALLOWED, "this connection has its data links")
        return True

    def _control(self, links: NeighbourConnection, link: Link) -> None:
        connection = links.connection

        def lost() -> None:
            self._refuse(connection, "a control link has ended")

        record: ControlIn | ControlOut
        if isinstance(link, Receiver):
            record = links.control_in = ControlIn(connection, link, lambda: self._opened(links), lost)
            record.receive(lambda payload: self._received(links, payload))
        else:
            assert isinstance(link, Sender)
            record = links.control_out = ControlOut(connection, link, lambda: self._opened(links), lost)
        link.context = record
        link.session.precedence = PRIORITIES
        connection.add(record)

    def _data_in(self, links: NeighbourConnection, link: Receiver) -> None:
        record = link.context = DataIn(links.connection, link, self)
        record.priority, links.ins = links.ins, links.ins + 1
        links.connection.add(record)
        record.begin()

    def _data_out(self, links: NeighbourConnection, link: Sender) -> DataOut:
        connection = links.connection
        address = self._addresses.new(f"R{link.name}", BALANCED)
        record = link.context = DataOut(connection, link, address)
        record.priority = link.session.precedence = len(links.outs)
        record.ended = lambda: self._refuse(connection, "a data link has ended")
        links.outs.append(record)
        connection.add(record)
        return record

    def _opened(self, links: NeighbourConnection) -> None:
        """Begin to exchange control messages, once both links are open."""
        both = (links.control_in, links.control_out)
        if links.open or not all(each is not None and each.link.attached for each in both):
            return
        links.open = True
        self._do(self.engine.link_opened(links.connection.identity, links.cost, self._clock.time()))
        if not self._ticking:
            self._ticking = True
            self._clock.call_later(TICK, self._tick)

    def _refuse(self, connection: RouterConnection, reason: str) -> None:
        if connection.usable:
            connection.amqp.close(AmqpError(NOT_ALLOWED, reason))
            connection.amqp.wake()

    # The engine

    def _received(self, links: NeighbourConnection, payload: bytes) -> None:
        if links.open:
            self._do(self.engine.received(links.connection.identity, payload, self._clock.time()))

    def _tick(self) -> None:
        now = self._clock.time()
        for number, links in self._links.items():
            if links.has_received():
                self.engine.arrived(number, now)
        self._do(self.engine.tick(now))
        if self._links or len(self.engine.routers):
            self._clock.call_later(TICK, self._tick)
        else:
            self._ticking = False

    def _do(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, SendControl):
                links = self._links.get(action.link)
                if links is not None and links.control_out is not None:
                    links.control_out.send(action.message.encode())
            elif isinstance(action, AddressGained):
                self.remotes.setdefault(action.key, {})[action.router] = action.treatment
                self._sync_key(action.key)
            elif isinstance(action, AddressLost):
                routers = self.remotes.get(action.key, {})
                routers.pop(action.router, None)
                self._sync_key(action.key)
                if not routers:
                    self.remotes.pop(action.key, None)
            elif isinstance(action, RoutesChanged):
                self._sync_all()
            elif isinstance(action, RefuseLink):
                links = self._links.get(action.link)
                if links is not None:
                    self._refuse(links.connection, action.reason)
            elif isinstance(action, DropLink):
                links = self._links.get(action.link)
                if links is not None:
                    links.connection.drop(action.reason)
            elif isinstance(action, MeshNotice):
                self.on_notice(action.event, action.router, action.text)

    # Receivers here

    def _begin(self) -> None:
        """Follow the addresses of this router, with the first connection to another one."""
        if self._addresses.on_change is not None:
            return
        self._addresses.of_router = self.node_of
        self._addresses.on_change = self._changed
        for address in list(self._addresses.by_key.values()):
            address.on_change = self._changed
            self._changed(address)
        self._link_routes.on_change = self._soon
        self._soon()

    def _changed(self, address: RoutedAddress) -> None:
        """Announce an address that has receivers here, or withdraw it. Consumers of a queue are not announced where a
        link from its broker is: other routers have their own."""
        key = address.key
        if key[0] != MOBILE:
            return
        treatment = None
        if address.local.outs and not address.feeds:
            treatment = _TREATMENTS.get(address.treatment, Treatment.BALANCED)
        if treatment is not self._announced.get(key):
            if treatment is None:
                del self._announced[key]
                self.engine.remove_address(key)
            else:
                self._announced[key] = treatment
                self.engine.add_address(key, treatment)
            self._soon()
        if key in self.remotes:
            self._sync(address, self.remotes[key])

    def _soon(self) -> None:
        if not self._due:
            self._due = True
            self._clock.call_soon(self._announce)

    def _announce(self) -> None:
        """Announce what has changed: addresses, and link routes with a container here."""
        self._due = False
        routes = {route_key(*each) for each in self._link_routes.active()}
        for key in routes - self._routes:
            self.engine.add_address(key, Treatment.LINK_BALANCED)
        for key in self._routes - routes:
            self.engine.remove_address(key)
        self._routes = routes
        self._do(self.engine.tick(self._clock.time()))

    # Receivers elsewhere

    def _sync_all(self) -> None:
        for key in list(self.remotes):
            self._sync_key(key)
        for address in list(self._nodes.values()):
            self._sync_node(address)
        self._onward.clear()

    def _sync_key(self, key: str) -> None:
        """Bring the destinations of an address in line with the routers that have receivers."""
        if key[0] in _ROUTE_CLASSES:
            self._sync_route(key)
        if key[0] != MOBILE or not key[1:2].isdigit():
            return
        routers = self.remotes.get(key, {})
        address = self._addresses.get(key)
        if address is None and routers:
            address = self._make(key, routers)
        if address is not None:
            self._sync(address, routers)
            if key[2:].startswith(OWN_TEMPORARY):
                self._note_temporary(address, there=bool(routers))
            self._addresses.tidy(address)

    def _note_temporary(self, address: RoutedAddress, *, there: bool) -> None:
        """Let clients here use the temporary address of a client at another router as long as that one is there."""
        address.temporary = there
        if not there:
            for producer in list(address.ins):
                producer.detach(AmqpError(RESOURCE_DELETED, "the client that made this address has gone"))

    def _make(self, key: str, routers: Mapping[str, Treatment | None]) -> RoutedAddress:
        """Make an address that only other routers have receivers of. Without a configuration here it is treated as they
        state."""
        config = self._addresses.configured.match(key[2:])
        stated = next((each for each in routers.values() if each is not None), Treatment.BALANCED)
        treatment = config.treatment if config is not None else _STATED.get(stated, BALANCED)
        return self._addresses.create(key, treatment, -1 if config is None else config.priority)

    def _sync(self, address: RoutedAddress, routers: Iterable[str]) -> None:
        """As `_sync_key`. What brokers store that are connected here goes to these."""
        topology = self.engine.topology
        costs = {} if address.stores else {each: topology.costs[each] for each in routers if each in topology.costs}
        if costs and address.treatment == CLOSEST:
            least = min(costs.values())
            costs = {router: cost for router, cost in costs.items() if cost == least}
        wanted: dict[int, int] = {}
        for router, cost in costs.items():
            link = self.engine.next_link(router)
            links = None if link is None else self._links.get(link)
            if link is not None and links is not None and links.outs:
                wanted[link] = min(cost, wanted.get(link, cost))
        hops = self._hops.setdefault(address.key, {})
        for link in hops.keys() - wanted.keys():
            address.remove_out(hops.pop(link))
        for link, cost in wanted.items():
            if link in hops:
                hops[link].cost = cost
                continue
            links = self._links[link]
            node = address.key[0] == ROUTER
            to = _ROUTER_NODES + address.key[1:] if node else address.key[2:]
            phase = 0 if node else int(address.key[1])
            hop = hops[link] = Hop(links.connection, address, links.outs, self._own, to, phase, cost)
            address.add_neighbour(hop)
        if not hops:
            del self._hops[address.key]
        self._onward.clear()

    def _sync_route(self, key: str) -> None:
        """Let attaches go to the nearest routers with a container of a link route, however they spell its pattern."""
        direction, prefix = _ROUTE_CLASSES[key[0]]
        try:
            matched = canonical(f"{key[1:]}/#" if prefix else key[1:])
        except ValueError:
            return
        keys = self._spellings.setdefault((direction, matched), set())
        if self.remotes.get(key):
            keys.add(key)
        else:
            keys.discard(key)
        if not keys:
            del self._spellings[direction, matched]
        topology = self.engine.topology
        routers = {router for each in keys for router in self.remotes[each]}
        costs = {each: topology.costs[each] for each in routers if each in topology.costs}
        least = min(costs.values(), default=0)
        numbers = {self.engine.next_link(router) for router, cost in costs.items() if cost == least}
        found = [self._links[number] for number in numbers if number is not None and number in self._links]
        self._link_routes.set_remote(direction, matched, [links.connection for links in found])

    # Nodes of other routers

    def node_of(self, text: str) -> RoutedAddress | None:
        """Return the address of another router's node, `_topo/0/ROUTER/NODE`; None if too many are in use."""
        text = strip(text)
        address = self._nodes.get(text)
        if address is None:
            if len(self._nodes) >= MAX_NODES:
                for name in [name for name, each in self._nodes.items() if not each.ins]:
                    self._drop_node(name)
                if len(self._nodes) >= MAX_NODES:
                    return None
            address = self._nodes[text] = self._addresses.new(ROUTER + text.removeprefix(_ROUTER_NODES), BALANCED)
            self._sync_node(address)
        return address

    def _sync_node(self, address: RoutedAddress) -> None:
        self._sync(address, (address.key[1:].partition("/")[0],))

    def _drop_node(self, name: str) -> None:
        address = self._nodes.pop(name)
        self._sync(address, ())

    # Messages of other routers

    def find(self, arrival: StatedWay) -> RoutedAddress | None:
        """Return the address of a message; None if it is unknown, or if the message has been here before."""
        if arrival.to is None or self._own in arrival.trace:
            return None
        parsed = _parse(arrival.to, self._own)
        if parsed.kind == ROUTER:
            return self.node_of(arrival.to)
        if parsed.kind in (MOBILE, LOCAL):
            return self._addresses.get(parsed.key(str(arrival.phase)))
        return None

    def is_double(self, connection: RouterConnection, arrival: StatedWay) -> bool:
        """Return True for a copy of a multicast message that does not come from where this router gets the messages of
        its origin: Dispatch sends such copies in rings."""
        before = self.engine.topology.before(arrival.ingress)
        return before is not None and before != self.engine.neighbours.router_of(connection.identity)

    def onward(self, address: RoutedAddress, arrival: StatedWay) -> list[OnwardHop]:
        """Return the neighbours that are the next on the way of a message to receivers of the address."""
        hops = self._hops.get(address.key)
        if not hops:
            return []
        memo = (address.key, arrival.ingress)
        found = self._onward.get(memo)
        if found is None:
            neighbours = self.engine.neighbours
            if address.key[0] == ROUTER:
                found = list(hops.values())
            else:
                routers = self.engine.topology.onward(arrival.ingress, self.remotes.get(address.key, {}))
                links = [neighbours.link_of(router) for router in sorted(routers)]
                found = [hops[link] for link in links if link is not None and link in hops]
            self._onward[memo] = found
        if len(arrival.trace) < 2 or not found:
            return found
        neighbours = self.engine.neighbours
        return [hop for hop in found if neighbours.router_of(hop.connection.identity) not in arrival.trace]
