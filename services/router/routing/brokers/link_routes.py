"""Link routes: attaches of clients that are passed on to a route container."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from enmasse.amqp.codec.errors import AmqpError
from enmasse.name_tries import PatternTrie
from services.router.routing.address_text import SINGLE, tokens
from services.router.routing.brokers.containers import ContainerIndex, Containers
from services.router.routing.configuration import LinkRouteConfig
from services.router.routing.connection import RouterConnection

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
    """The link routes of one direction that share a pattern: they are used in turn."""

    __slots__ = ("routes", "turn")

    def __init__(self) -> None:
        self.routes: list[LinkRoute] = []
        self.turn = 0


class LinkRoutes:
    """All configured link routes: by name, by identity, by container, and one tree of patterns per direction.
    `generation` changes with the configuration, and with the containers that are connected."""

    def __init__(self, containers: Containers) -> None:
        self.by_name: dict[str, LinkRoute] = {}
        self.by_identity: dict[int, LinkRoute] = {}
        self.generation = 0
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
        found = self._containers.find(config.container_id, config.connection)
        route.connections = tuple(connection for connection in found if connection.may_serve(config.matched))
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
            if not pattern.routes:
                tree.remove(config.matched, pattern)
        self._index.remove(route, config.container_id, config.connection)
        return list(route.links) if pattern is not None and pattern.routes else ()

    def connection_opened(self, connection: RouterConnection) -> None:
        """Make the link routes that name this connection lead to it."""
        self.generation += 1
        for route in self._wanted_by(connection):
            route.connections += (connection,)

    def connection_closed(self, connection: RouterConnection) -> None:
        """Take the connection out of the link routes."""
        self.generation += 1
        for route in self._index.wanted_by(connection):
            route.connections = tuple(other for other in route.connections if other is not connection)

    def to_broker(self, connection: RouterConnection) -> bool:
        """Return True if the peer is the container of a link route of an address."""
        return any(_of_address(route) for route in self._wanted_by(connection))

    def _wanted_by(self, connection: RouterConnection) -> list[LinkRoute]:
        """Return the link routes that name this connection, and that its peer may serve."""
        return [route for route in self._index.wanted_by(connection) if connection.may_serve(route.config.matched)]

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
        choices = [(route, peer) for route in pattern.routes for peer in route.connections if peer.usable]
        if not choices:
            raise AmqpError(NO_ROUTE, "No route to the destination node")
        pattern.turn += 1
        return choices[pattern.turn % len(choices)]

    def covering(self, direction: str, address: str) -> str:
        """Return the name of which a link route covers the address and what is below it; without one the address."""
        pattern = self._trees[direction].best(tokens(address))
        if pattern is None:
            return address
        config = pattern.routes[0].config
        return (config.prefix or config.pattern or address).removesuffix("/#")

    def covers(self, address: str) -> bool:
        """Return True if a link route covers the address, in either direction."""
        return any(tree.best(tokens(address)) is not None for tree in self._trees.values())

    def alone(self, direction: str, address: str) -> bool:
        """Return True if `find` returns the same for this address until `generation` changes (one container)."""
        pattern = self._trees[direction].best(tokens(address))
        return pattern is not None and sum(len(route.connections) for route in pattern.routes) == 1


def _of_address(route: LinkRoute) -> bool:
    """Return False for the node of a service, whose name begins with `$`: its container is not a broker."""
    return not route.config.matched.startswith("$")
