"""Neighbours: routers at the other end of a connection, found by HELLO."""

from __future__ import annotations

from typing import Final

from services.router.mesh.control_messages import Hello

HELLO_SECONDS: Final = 0.5
"""Interval of HELLOs. Dispatch sends one each second, and takes them at any interval."""
LEAST_SILENCE: Final = 1.5
MOST_SILENCE: Final = 3.0
"""Seconds of silence after which a neighbour is lost: twice its longest pause, within these bounds. Clients must not
wait for more than two seconds; Dispatch takes a neighbour for lost after three."""
SHRINKING: Final = 0.05
"""Seconds by which the longest pause shrinks in each second."""
_NEVER: Final = float("-inf")


class NeighbourRefused(Exception):
    """Raised for a router that cannot be a neighbour on its connection; the text is for its operator."""


class DuplicateRouter(NeighbourRefused):
    """Raised for a second router with the id of this one, or of a neighbour."""


class _Link:
    """A connection to a router, with the control link open. `seen`: its last HELLO lists this router as seen.
    `received`, `confirmed`: times of the last sign of life, and of the last one while `seen`. `pause`: the longest one
    between two signs."""

    __slots__ = ("confirmed", "cost", "instance", "pause", "received", "router", "seen")

    def __init__(self, cost: int) -> None:
        self.cost = cost
        self.router = ""
        self.instance = 0
        self.seen = False
        self.received = self.confirmed = _NEVER
        self.pause = MOST_SILENCE / 2

    def note(self, now: float) -> None:
        """Note a sign of life."""
        if self.received != _NEVER:
            pause = now - self.received
            self.pause = max(pause, self.pause - SHRINKING * pause)
        self.received = now
        if self.seen:
            self.confirmed = now

    def is_recent(self, time: float, now: float) -> bool:
        """Return True if the silence since then is no longer than usual."""
        return now - time < min(MOST_SILENCE, max(LEAST_SILENCE, 2 * self.pause))


class Neighbours:
    """Connections to other routers by number, and which of them lead to neighbours. Times are those of a clock that
    stands still while this router does not look at its connections."""

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
            self._replace(lost.router)

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
        return (peer.router,) if peer.is_recent(peer.received, now) else ()

    def hello(self, link: int, message: Hello, now: float) -> bool:
        """Handle a HELLO. Return True if the router that sent it is a neighbour by this connection. Raises
        NeighbourRefused."""
        peer = self._links.get(link)
        if peer is None:
            return False
        self._check(link, peer, message, now)
        peer.router, peer.instance, peer.seen = message.router, message.instance, self._own in message.seen
        peer.note(now)
        return peer.seen and self._used.setdefault(message.router, link) == link

    def arrived(self, link: int, now: float) -> None:
        """Note that something has arrived on a connection: HELLOs may wait behind it."""
        peer = self._links.get(link)
        if peer is not None and peer.router:
            peer.note(now)

    def _check(self, link: int, peer: _Link, message: Hello, now: float) -> None:
        router = message.router
        if router == self._own:
            if message.instance == self._instance:
                raise NeighbourRefused(f"router {router} is connected to itself")
            raise DuplicateRouter(f"there is another router with the id {router}: give each router an id of its own")
        if peer.router and (router, message.instance) != (peer.router, peer.instance):
            raise NeighbourRefused(f"router {peer.router} states another id or start on an open connection: {router}")
        for number, other in self._links.items():
            if number == link or other.router != router or not other.is_recent(other.received, now):
                continue
            if other.instance != message.instance:
                raise DuplicateRouter(
                    f"router {router} is connected already, by another process: give each router an id of its own"
                )

    def expire(self, now: float) -> list[tuple[int, str]]:
        """Remove the connections to neighbours that are silent, or no longer list this router as seen. Return them with
        the ids of these."""
        silent = [
            (number, link.router)
            for number, link in self._links.items()
            if link.confirmed != _NEVER and not link.is_recent(link.confirmed, now)
        ]
        for number, _ in silent:
            self.remove(number)
        return silent

    def _replace(self, router: str) -> None:
        """Use another connection to a neighbour, if there is one."""
        del self._used[router]
        for number, link in self._links.items():
            if link.router == router and link.seen:
                self._used[router] = number
                return
