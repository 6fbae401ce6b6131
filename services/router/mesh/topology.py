"""Shortest paths between routers, as every router of the mesh computes them from the same link states."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from heapq import heappop, heappush
from typing import Final

LinkCosts = Mapping[str, Mapping[str, int]]
"""Router → the costs of the links to its peers."""


class _Tree:
    """Shortest paths from one router. `previous` has the routers in the order of their distance."""

    __slots__ = ("costs", "hops", "previous")

    def __init__(self, root: str, links: LinkCosts) -> None:
        self.costs: dict[str, int] = {}
        self.hops: dict[str, int] = {}
        self.previous: dict[str, str] = {}
        costs, by = {root: 0}, {root: root}
        done: set[str] = set()
        waiting = [(0, root)]  # routers at one distance are taken in the order of their ids, as Dispatch does
        while waiting:
            cost, router = heappop(waiting)
            if router in done:
                continue
            done.add(router)
            if router != root:
                before = by[router]
                self.costs[router] = cost
                self.hops[router] = self.hops.get(before, 0) + 1
                self.previous[router] = before
            for peer, more in links.get(router, _NO_LINKS).items():
                further = cost + more
                if peer not in done and (peer not in costs or further < costs[peer]):
                    costs[peer], by[peer] = further, router
                    heappush(waiting, (further, peer))


_NO_LINKS: Final[Mapping[str, int]] = {}


class Topology:
    """Paths of one moment, from the router `own`. `costs` and `next_hops` have the reachable routers only; `radius` is
    the number of hops to the most distant one."""

    def __init__(self, own: str, links: LinkCosts) -> None:
        self.own = own
        known = dict(links)
        for router, peers in links.items():
            for peer in peers:
                # A router that only its peers know is asked for its link state, and must be able to answer.
                if peer not in known:
                    known[peer] = {router: 1}
        self._links = known
        self._through: dict[str, frozenset[str]] = {}
        self._before: dict[str, str] = {}
        tree = _Tree(own, known)
        self.costs: Mapping[str, int] = tree.costs
        self.radius = max(tree.hops.values(), default=0)
        hops: dict[str, str] = {}
        for router, before in tree.previous.items():
            hops[router] = router if before == own else hops[before]
        self.next_hops: Mapping[str, str] = hops

    def routes(self) -> dict[str, dict[str, object]]:
        """Return the reachable routers as rows of live state: the cost, and the neighbour on the way."""
        return {router: {"cost": cost, "next": self.next_hops[router]} for router, cost in self.costs.items()}

    def through(self, origin: str) -> frozenset[str]:
        """Return the routers which messages from `origin` reach by way of this router."""
        found = self._through.get(origin)
        if found is None:
            found = self._through[origin] = self._beyond(origin)
        return found

    def _beyond(self, origin: str) -> frozenset[str]:
        if origin == self.own:
            return frozenset(self.next_hops)
        beyond: set[str] = set()
        previous = _Tree(origin, self._links).previous
        if self.own in previous:
            self._before[origin] = previous[self.own]
        for router, before in previous.items():
            if before == self.own or before in beyond:
                beyond.add(router)
        return frozenset(beyond)

    def before(self, origin: str) -> str | None:
        """Return the neighbour from which messages of `origin` reach this router; None if none do."""
        self.through(origin)
        return self._before.get(origin)

    def valid_origins(self, router: str) -> list[str]:
        """Return the other routers whose messages to `router` pass this one."""
        return [origin for origin in self.next_hops if router in self.through(origin)]

    def onward(self, origin: str, receivers: Collection[str] | None = None) -> set[str]:
        """Return the neighbours that get a copy of a multicast message of `origin` from this router, so that it reaches
        each of `receivers` (None: all routers) once."""
        beyond = self.through(origin)
        to = beyond if receivers is None else beyond.intersection(receivers)
        return {self.next_hops[router] for router in to if router in self.next_hops}
