"""Auto-links: links that the router opens to route containers, so that a broker's queue takes part in an address.

An auto-link has links on every matching connection (broker_links.py); without a connection it is inactive.
"""

from __future__ import annotations

from services.router.routing.addresses.addresses import Addresses
from services.router.routing.brokers.broker_links import LiveAutoLink
from services.router.routing.brokers.containers import ContainerIndex, Containers
from services.router.routing.configuration import AutoLinkConfig
from services.router.routing.connection import RouterConnection


class AutoLink:
    """A configured auto-link with its links on each matching connection."""

    __slots__ = ("config", "deleted", "live")

    def __init__(self, config: AutoLinkConfig) -> None:
        self.config = config
        self.live: dict[RouterConnection, LiveAutoLink] = {}
        self.deleted = False

    @property
    def status(self) -> str:
        """State of the best of its links: active, attaching or failed; inactive without a connection, quiescing if
        deleted."""
        if self.deleted:
            return "quiescing"
        states = [live.status for live in self.live.values()]
        return next((s for s in ("active", "attaching", "failed") if s in states), "inactive")

    @property
    def last_error(self) -> str | None:
        """Reason of the first link that failed, or None."""
        return next((live.error for live in self.live.values() if live.error is not None), None)

    @property
    def link_ref(self) -> str | None:
        """The identity of a link."""
        return next((str(live.record.identity) for live in self.live.values() if live.record is not None), None)


class AutoLinks:
    """All configured auto-links, found by name, by identity and by their connection."""

    def __init__(self, addresses: Addresses, containers: Containers) -> None:
        self.by_name: dict[str, AutoLink] = {}
        self.by_identity: dict[int, AutoLink] = {}
        self._addresses = addresses
        self._containers = containers
        self._index: ContainerIndex[AutoLink] = ContainerIndex()
        self._on: dict[RouterConnection, dict[AutoLink, None]] = {}

    def add(self, config: AutoLinkConfig) -> AutoLink:
        """Add an auto-link. Raises ValueError if the name is in use."""
        if config.name in self.by_name:
            raise ValueError("Name conflicts with an existing entity")
        auto_link = AutoLink(config)
        self.by_name[config.name] = auto_link
        self.by_identity[config.identity] = auto_link
        self._addresses.for_auto_link(config).pins += 1
        self._index.add(auto_link, config.container_id, config.connection)
        self._containers.want(config)
        for connection in self._containers.find(config.container_id, config.connection):
            self._activate(auto_link, connection)
        return auto_link

    def remove(self, auto_link: AutoLink) -> None:
        """Remove a configured auto-link and end its links; its address goes with it if unused."""
        config = auto_link.config
        del self.by_name[config.name]
        del self.by_identity[config.identity]
        auto_link.deleted = True
        self._index.remove(auto_link, config.container_id, config.connection)
        self._containers.unwant(config)
        for connection, live in auto_link.live.items():
            self._on[connection].pop(auto_link, None)
            live.end()
        auto_link.live = {}
        address = self._addresses.for_auto_link(config)
        address.pins -= 1
        self._addresses.tidy(address)

    def use(self, connection: RouterConnection) -> bool:
        """Return True if an auto-link has links on this connection."""
        return bool(self._on.get(connection))

    def connection_opened(self, connection: RouterConnection) -> None:
        """Open the links of the auto-links that match this new connection to a route container."""
        for auto_link in self._index.wanted_by(connection):
            self._activate(auto_link, connection)

    def connection_closed(self, connection: RouterConnection) -> None:
        """Forget the links on a connection that has closed."""
        for auto_link in self._on.pop(connection, ()):
            auto_link.live.pop(connection).connection_closed()
        connection.extras.clear()

    def _activate(self, auto_link: AutoLink, connection: RouterConnection) -> None:
        config = auto_link.config
        if not connection.may_serve(config.address) or not connection.carries(config.space):
            return
        live = LiveAutoLink(config, connection, lambda: self._addresses.for_auto_link(config))
        auto_link.live[connection] = live
        self._on.setdefault(connection, {})[auto_link] = None
        live.attach()
