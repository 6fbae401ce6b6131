"""Neighbours: routers at the other end of a connection, found by HELLO."""

from __future__ import annotations

from typing import Final

from services.router.mesh.control_messages import Hello

HELLO_SECONDS: Final = 1.0
"""Interval of HELLOs."""
NEIGHBOUR_SECONDS: Final = 3.0
"""A neighbour without a HELLO for longer is lost."""


class NeighbourRefused(Exception):
    """Raised for a router that cannot be a neighbour on its connection; the text is for its operator."""


class DuplicateRouter(NeighbourRefused):
    """Raised for a second router with the id of this one, or of a neighbour."""


class _Link:
    """A connection to a router, with the control link open. `received`, `confirmed`: times of the last HELLO, and
    of the last one that lists this router as seen."""

    __slots__ = ("confirmed", "cost", "instance", "received", "router")

    def __init__(self, cost: int) -> None:
        self.cost = cost
        self.router = ""
        self.instance = 0
        self.received = self.confirmed = float("-inf")


class Neighbours:
    """Connections to other routers by number, and which of them lead to neighbours."""

    def __init__(self, own: str, instance: int) -> None:
        self._own = own
        self._instance = instance
        self._links: dict[int, _Link] = {}
        self._used: dict[str, int] = {}

    def add(self, link: int, cost: int) -> None:
        """Add a connection whose control link is open."""
        self._links[link] = _Link(cost)

    def remove(self, link: int) -> None:
        """Remove a lost connection. The neighbour is lost with it unless there is another connection to it."""
        lost = self._links.pop(link, None)
        if lost is not None and self._used.get(lost.router) == link:
            self._replace(lost.router, lost.received)

    def links(self) -> list[int]:
        """Return all connections."""
        return list(self._links)

    def link_of(self, router: str) -> int | None:
        """Return the connection to a neighbour, None if the router is no neighbour."""
        return self._used.get(router)

    def router_of(self, link: int) -> str:
        """Return the router at the other end, empty before its first HELLO."""
        return self._links[link].router if link in self._links else ""

    def routers(self) -> list[str]:
        """Return the ids of the neighbours."""
        return list(self._used)

    def costs(self) -> dict[str, int]:
        """Return the cost of the connection to each neighbour."""
        return {router: self._links[link].cost for router, link in self._used.items()}

    def seen(self, link: int, now: float) -> tuple[str, ...]:
        """Return the routers of which HELLOs arrive by this connection: none, or one."""
        peer = self._links[link]
        return (peer.router,) if now - peer.received <= NEIGHBOUR_SECONDS else ()

    def hello(self, link: int, message: Hello, now: float) -> bool:
        """Handle a HELLO. Return True if the router that sent it is a neighbour by this connection. Raises
        NeighbourRefused."""
        peer = self._links.get(link)
        if peer is None:
            return False
        self._check(link, peer, message, now)
        peer.router, peer.instance, peer.received = message.router, message.instance, now
        if self._own not in message.seen:
            return False
        peer.confirmed = now
        return self._used.setdefault(message.router, link) == link

    def _check(self, link: int, peer: _Link, message: Hello, now: float) -> None:
        router = message.router
        if router == self._own:
            if message.instance == self._instance:
                raise NeighbourRefused(f"router {router} is connected to itself")
            raise DuplicateRouter(f"there is another router with the id {router}: give each router an id of its own")
        if peer.router and (router, message.instance) != (peer.router, peer.instance):
            raise NeighbourRefused(f"router {peer.router} states another id or start on an open connection: {router}")
        for number, other in self._links.items():
            if number == link or other.router != router or now - other.received > NEIGHBOUR_SECONDS:
                continue
            if other.instance != message.instance:
                raise DuplicateRouter(
                    f"router {router} is connected already, by another process: give each router an id of its own"
                )

    def expire(self, now: float) -> None:
        """Remove neighbours that are silent for too long; their connections stay."""
        for router, link in list(self._used.items()):
            if now - self._links[link].confirmed > NEIGHBOUR_SECONDS:
                self._replace(router, now)

    def _replace(self, router: str, now: float) -> None:
        """Use another connection to a neighbour, if there is one."""
        del self._used[router]
        for number, link in self._links.items():
            if link.router == router and now - link.confirmed <= NEIGHBOUR_SECONDS:
                self._used[router] = number
                return
