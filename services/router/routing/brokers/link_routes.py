"""Link routes: attaches of clients that are passed on to a route container."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from enmasse.amqp.codec.errors import AmqpError
from enmasse.identity.owned import space_of_queue
from enmasse.model.names import space_of
from enmasse.name_tries import PatternTrie
from services.router.routing.address_text import SINGLE, tokens
from services.router.routing.brokers.containers import ContainerIndex, Containers
from services.router.routing.configuration import LinkRouteConfig
from services.router.routing.connection import SUBSCRIBERS, RouterConnection

if TYPE_CHECKING:
    from services.router.routing.brokers.routed_link import RoutedLink

NO_ROUTE = "qd:no-route-to-dest"


class LinkRoute:
    """A configured link route; `connections` are the route containers it can use now, `links` were routed by it."""

    __slots__ = ("config", "connections", "links")

    def __init__(self, config: LinkRouteConfig) -> None:
        self.config = config
        self.links: set[RoutedLink] = set()
        self.connections: tuple[RouterConnection, ...] = ()


class _Pattern:
    """The link routes of one direction that share a pattern: they are used in turn. `remote`: leads to neighbouring
    routers, for as long as no container is connected here."""

    __slots__ = ("remote", "routes", "turn")

    def __init__(self) -> None:
        self.routes: list[LinkRoute] = []
        self.remote: LinkRoute | None = None
        self.turn = 0

    def choices(self) -> list[tuple[LinkRoute, RouterConnection]]:
        """Return what an attach may use now."""
        here = [(route, peer) for route in self.routes for peer in route.connections if peer.usable]
        if here or self.remote is None:
            return here
        return [(self.remote, peer) for peer in self.remote.connections if peer.usable]


class LinkRoutes:
    """All configured link routes: by name, by identity, by container, and one tree of patterns per direction.
    `generation` changes with the configuration, and with the containers that are connected."""

    def __init__(self, containers: Containers) -> None:
        self.by_name: dict[str, LinkRoute] = {}
        self.by_identity: dict[int, LinkRoute] = {}
        self.generation = 0
        self.on_change: Callable[[], None] | None = None
        """Called when other link routes lead to a container than before."""
        self._containers = containers
        self._index: ContainerIndex[LinkRoute] = ContainerIndex()
        self._trees: dict[str, PatternTrie[_Pattern]] = {"in": PatternTrie(SINGLE), "out": PatternTrie(SINGLE)}

    def add(self, config: LinkRouteConfig) -> LinkRoute:
        """Add a link route. Raises ValueError if the name is in use."""
        if config.name in self.by_name:
            raise ValueError("Name conflicts with an existing entity")
        route = LinkRoute(config)
        self.generation += 1
        self.by_name[config.name] = route
        self.by_identity[config.identity] = route
        tree = self._trees[config.direction or "in"]
        pattern = tree.first(config.matched)
        if pattern is None:
            pattern = _Pattern()
            tree.add(config.matched, pattern)
        pattern.routes.append(route)
        self._index.add(route, config.container_id, config.connection)
        self._containers.want(config)
        found = self._containers.find(config.container_id, config.connection)
        route.connections = tuple(connection for connection in found if _leads_to(route, connection))
        self._note_change()
        return route

    def remove(self, route: LinkRoute) -> Collection[RoutedLink]:
        """Remove a link route. Return the links that were routed by it, if another one leads elsewhere: the address has
        moved. Without another one they stay."""
        config = route.config
        self.generation += 1
        del self.by_name[config.name]
        del self.by_identity[config.identity]
        tree = self._trees[config.direction or "in"]
        pattern = tree.first(config.matched)
        if pattern is not None:
            pattern.routes.remove(route)
            if not pattern.routes and pattern.remote is None:
                tree.remove(config.matched, pattern)
        self._index.remove(route, config.container_id, config.connection)
        self._containers.unwant(config)
        self._note_change()
        return list(route.links) if pattern is not None and pattern.routes else ()

    # Other routers

    def active(self) -> set[tuple[str, str]]:
        """Return direction and stated pattern of the link routes with a container that is connected here."""
        return {
            (route.config.direction or "in", route.config.stated)
            for route in self.by_name.values()
            if route.connections
        }

    def set_remote(self, direction: str, matched: str, connections: Collection[RouterConnection]) -> None:
        """Let attaches that a pattern covers go to these neighbouring routers; none: to no router."""
        self.generation += 1
        tree = self._trees[direction]
        pattern = tree.first(matched)
        if connections:
            if pattern is None:
                pattern = _Pattern()
                tree.add(matched, pattern)
            if pattern.remote is None:
                pattern.remote = LinkRoute(LinkRouteConfig(0, "", direction, pattern=matched))
            pattern.remote.connections = tuple(connections)
        elif pattern is not None:
            pattern.remote = None
            if not pattern.routes:
                tree.remove(matched, pattern)

    def _note_change(self) -> None:
        if self.on_change is not None:
            self.on_change()

    # Containers

    def connection_opened(self, connection: RouterConnection) -> None:
        """Make the link routes that name this connection lead to it."""
        self.generation += 1
        for route in self._wanted_by(connection):
            route.connections += (connection,)
        self._note_change()

    def connection_closed(self, connection: RouterConnection) -> None:
        """Take the connection out of the link routes."""
        self.generation += 1
        for route in self._index.wanted_by(connection):
            route.connections = tuple(other for other in route.connections if other is not connection)
        self._note_change()

    def to_broker(self, connection: RouterConnection) -> bool:
        """Return True if the peer is the container of a link route of an address."""
        return any(_of_address(route) for route in self._wanted_by(connection))

    def _wanted_by(self, connection: RouterConnection) -> list[LinkRoute]:
        """Return the link routes that name this connection, and that its peer may serve."""
        return [route for route in self._index.wanted_by(connection) if _leads_to(route, connection)]

    @property
    def any_broker(self) -> bool:
        """True if an address has a link route, connected or not."""
        return any(_of_address(route) for route in self.by_name.values())

    @property
    def complete(self) -> bool:
        """True if the container of every link route of an address is connected."""
        return all(route.connections for route in self.by_name.values() if _of_address(route))

    def find(self, direction: str, address: str) -> tuple[LinkRoute, RouterConnection] | None:
        """Return route and container for an attach, in turn; None if no route covers the address.

        Raises AmqpError `qd:no-route-to-dest` if one does and no container is connected.
        """
        pattern = self._trees[direction].best(tokens(address))
        if pattern is None:
            return None
        space = space_of_queue(address) if address.startswith(SUBSCRIBERS) else space_of(address)
        choices = [(route, peer) for route, peer in pattern.choices() if peer.carries(space)]
        if not choices:
            raise AmqpError(NO_ROUTE, "No route to the destination node")
        pattern.turn += 1
        return choices[pattern.turn % len(choices)]

    def covering(self, direction: str, address: str) -> str:
        """Return the name of which a link route covers the address and what is below it; without one the address."""
        pattern = self._trees[direction].best(tokens(address))
        if pattern is None:
            return address
        found = pattern.routes[0] if pattern.routes else pattern.remote
        if found is None:
            return address
        config = found.config
        return (config.prefix or config.pattern or address).removesuffix("/#")

    def covers(self, address: str) -> bool:
        """Return True if a link route covers the address, in either direction."""
        return any(tree.best(tokens(address)) is not None for tree in self._trees.values())

    def alone(self, direction: str, address: str) -> bool:
        """Return True if `find` returns the same for this address until `generation` changes (one container)."""
        pattern = self._trees[direction].best(tokens(address))
        return pattern is not None and sum(len(route.connections) for route in pattern.routes) == 1


def _leads_to(route: LinkRoute, connection: RouterConnection) -> bool:
    """Return whether a route to this container uses this connection. Nodes of a broker are not of one space: `find`
    chooses for each link."""
    served = connection.may_serve(route.config.matched)
    return served and (not _of_address(route) or connection.carries(route.config.space))


def _of_address(route: LinkRoute) -> bool:
    """Return False for the node of a service, whose name begins with `$`: its container is not a broker."""
    return not route.config.matched.startswith("$")
