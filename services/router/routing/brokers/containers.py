"""Route containers: the connections to brokers, and the links that are configured for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Generic, TypeVar

from enmasse.identity.login import SPACES
from enmasse.model.names import DEFAULT_SPACE
from services.router.routing.configuration import AutoLinkConfig, LinkRouteConfig
from services.router.routing.connection import RouterConnection

T = TypeVar("T")


class Containers:
    """The open connections to route containers, by container-id and by the name of their listener or connector."""

    def __init__(self) -> None:
        self._by_id: dict[str, list[RouterConnection]] = {}
        self._by_name: dict[str, list[RouterConnection]] = {}
        self._spaces: dict[tuple[str | None, str | None], Counter[str]] = {}  # of what is configured for each

    def add(self, connection: RouterConnection) -> None:
        """Add an open connection to a route container."""
        if connection.spaces is not None and connection.carried == DEFAULT_SPACE:
            keys = (connection.container, None), (None, connection.name)
            wanted = [space for key in keys for space in self._spaces.get(key, ())]
            connection.spaces.open(SPACES in connection.offered, wanted)
        self._by_id.setdefault(connection.container, []).append(connection)
        if connection.name:
            self._by_name.setdefault(connection.name, []).append(connection)

    def remove(self, connection: RouterConnection) -> None:
        """Remove a connection, if present."""
        for index, key in ((self._by_id, connection.container), (self._by_name, connection.name)):
            if key and connection in index.get(key, ()):
                index[key].remove(connection)
                if not index[key]:
                    del index[key]

    def find(self, container_id: str | None, name: str | None) -> Sequence[RouterConnection]:
        """Return the connections to this container, or through this listener or connector; none if neither is given."""
        if container_id:
            return self._by_id.get(container_id, ())
        return self._by_name.get(name or "", ())

    def want(self, config: AutoLinkConfig | LinkRouteConfig) -> None:
        """Have connections to this container for the address space of an auto-link or link route."""
        key = config.container_id or None, config.connection or None
        spaces = self._spaces.setdefault(key, Counter())
        spaces[config.space] += 1
        if spaces[config.space] == 1:
            for connection in list(self.find(*key)):
                if connection.spaces is not None:
                    connection.spaces.carry(config.space)

    def unwant(self, config: AutoLinkConfig | LinkRouteConfig) -> None:
        """Undo `want`."""
        key = config.container_id or None, config.connection or None
        spaces = self._spaces[key]
        spaces[config.space] -= 1
        if not spaces[config.space]:
            del spaces[config.space]
            if not spaces:
                del self._spaces[key]
            for connection in list(self.find(*key)):
                if connection.spaces is not None:
                    connection.spaces.leave(config.space)

    def serves(self, connection: RouterConnection, space: str) -> bool:
        """Return whether auto-links or link routes of an address space name this container."""
        return any(
            space in self._spaces.get(key, ()) for key in ((connection.container, None), (None, connection.name))
        )

    def all(self) -> list[RouterConnection]:
        """Return all connections, grouped by container-id."""
        return [connection for each in self._by_id.values() for connection in each]


class ContainerIndex(Generic[T]):
    """Configured auto-links or link routes, by the container or the listener or connector that they name."""

    def __init__(self) -> None:
        self._by_id: dict[str, dict[T, None]] = {}
        self._by_name: dict[str, dict[T, None]] = {}

    def add(self, item: T, container_id: str | None, name: str | None) -> None:
        """Add an item for a container-id or, without one, for the name of a listener or connector."""
        if container_id:
            self._by_id.setdefault(container_id, {})[item] = None
        elif name:
            self._by_name.setdefault(name, {})[item] = None

    def remove(self, item: T, container_id: str | None, name: str | None) -> None:
        """Remove an item, if present. Takes the arguments of `add`."""
        for index, key in ((self._by_id, container_id), (self._by_name, name)):
            if key and item in index.get(key, ()):
                del index[key][item]
                if not index[key]:
                    del index[key]

    def wanted_by(self, connection: RouterConnection) -> list[T]:
        """Return the items for this connection, by its container-id and then by its name."""
        wanted = list(self._by_id.get(connection.container, ()))
        if connection.name:
            wanted += self._by_name.get(connection.name, ())
        return wanted
