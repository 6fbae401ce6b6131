"""Which router dials which: every pair of routers once, and nobody is given up who may still be there. No sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

KEPT = 60.0
"""Seconds for which a router that has left, or that nobody has seen since the agent began, may come again."""
WILDCARDS = ("", "0.0.0.0", "::")  # noqa: S104  nobody binds here


class Endpoint(NamedTuple):
    """Where a router listens for other routers, and the TLS profile of this listener ("" without TLS)."""

    host: str
    port: str
    profile: str = ""


class Mesh:
    """The routers that are there or may come again: of two, the one with the greater id dials the other.

    `clock` gives seconds. An endpoint is what the router's own listener of role `inter-router` shows; if that listens
    on all addresses, its host is the one from which the router has dialled the agent.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()
        self._endpoints: dict[str, Endpoint] = {}
        self._left: dict[str, float] = {}
        """Routers that have left → when."""
        self._neighbours: dict[str, frozenset[str]] = {}
        """Router → the routers with which it has a connection, as it shows them."""

    def joined(self, router: str, endpoint: Endpoint) -> bool:
        """A router has shown where it listens; True if that is news."""
        self._left.pop(router, None)
        news = self._endpoints.get(router) != endpoint
        self._endpoints[router] = endpoint
        return news

    def left(self, router: str) -> None:
        """The agent has lost a router: killed, restarted, removed, or only out of reach of the agent."""
        self._neighbours.pop(router, None)
        if router in self._endpoints:
            self._left[router] = self._clock()

    def sees(self, router: str, neighbours: Iterable[str]) -> bool:
        """With which others a router has a connection; True if that is news."""
        found = frozenset(neighbours)
        news = self._neighbours.get(router) != found
        self._neighbours[router] = found
        return news

    def neighbours(self, router: str) -> frozenset[str]:
        """Those with which this router has a connection."""
        return self._neighbours.get(router, frozenset())

    def may_come(self, router: str) -> bool:
        """Whether connectors to a router stay: it is there, or was not long ago, or another router is connected with
        it."""
        if router in self._endpoints and router not in self._left:
            return True
        if self._clock() - self._left.get(router, self._began) < KEPT:
            return True
        return any(router in found for found in self._neighbours.values())

    def dials(self, router: str) -> dict[str, Endpoint]:
        """The routers that this one dials."""
        return {
            other: endpoint for other, endpoint in self._endpoints.items() if other < router and self.may_come(other)
        }

    def parted(self, router: str) -> list[str]:
        """The routers that are there and with which this one has no connection yet."""
        if router not in self._endpoints:
            return []
        there = self._endpoints.keys() - self._left.keys() - {router}
        return sorted(there - self.neighbours(router))
