"""Decides which router dials which: every pair once; absent routers are kept for a while. No sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

KEPT = 60.0
"""Seconds for which a router that has left, or was not seen since the agent started, is expected to return."""
WILDCARDS = ("", "0.0.0.0", "::")  # noqa: S104  compared, not bound


class Endpoint(NamedTuple):
    """Endpoint on which a router listens for other routers, with the TLS profile of this listener ("" without TLS).
    `scram`: an embedded router that knows the processes of the suite by their secrets."""

    host: str
    port: str
    profile: str = ""
    scram: bool = False


class Mesh:
    """Routers that are present or expected to return: of two, the one with the greater id dials the other.

    `clock` gives seconds. An endpoint is what the router's own listener of role `inter-router` shows; if that listens
    on all addresses, its host is the one from which the router has dialled the agent.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()
        self._endpoints: dict[str, Endpoint] = {}
        self._left: dict[str, float] = {}
        """Router that has left → time of that."""
        self._neighbours: dict[str, frozenset[str]] = {}
        """Router → routers to which it reports a connection."""

    def joined(self, router: str, endpoint: Endpoint) -> bool:
        """Record a router's endpoint. Return True if it is new or changed."""
        self._left.pop(router, None)
        news = self._endpoints.get(router) != endpoint
        self._endpoints[router] = endpoint
        return news

    def left(self, router: str) -> None:
        """Record that the agent lost a router: killed, restarted, removed, or only unreachable for the agent."""
        self._neighbours.pop(router, None)
        if router in self._endpoints:
            self._left[router] = self._clock()

    def sees(self, router: str, neighbours: Iterable[str]) -> bool:
        """Record the routers to which a router has a connection. Return True if that changed."""
        found = frozenset(neighbours)
        news = self._neighbours.get(router) != found
        self._neighbours[router] = found
        return news

    def neighbours(self, router: str) -> frozenset[str]:
        """Return the routers to which this router has a connection."""
        return self._neighbours.get(router, frozenset())

    def may_come(self, router: str) -> bool:
        """Return True if connectors to a router stay: it is present, was present recently, or another router is
        connected to it."""
        if router in self._endpoints and router not in self._left:
            return True
        if self._clock() - self._left.get(router, self._began) < KEPT:
            return True
        return any(router in found for found in self._neighbours.values())

    def dials(self, router: str) -> dict[str, Endpoint]:
        """Return the routers that this one dials, with their endpoints."""
        return {
            other: endpoint for other, endpoint in self._endpoints.items() if other < router and self.may_come(other)
        }

    def parted(self, router: str) -> list[str]:
        """Return the present routers to which this one has no connection yet."""
        if router not in self._endpoints:
            return []
        there = self._endpoints.keys() - self._left.keys() - {router}
        return sorted(there - self.neighbours(router))
