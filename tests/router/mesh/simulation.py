"""A simulated network of routers: their engines, a virtual clock, and connections that delay, reorder, repeat, break
and fall silent. Everything follows from a seed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from heapq import heappop, heappush
from itertools import count, pairwise

from services.router.mesh.control_messages import Envelope, Treatment
from services.router.mesh.mesh_engine import (
    Action,
    AddressGained,
    AddressLost,
    DropLink,
    MeshEngine,
    MeshEvent,
    MeshNotice,
    RefuseLink,
    SendControl,
)

TICK = 0.25
SLOWEST = 0.05
"""Most seconds that a message takes, usually."""


class Edge:
    """A connection between two routers. `numbers`: what each end calls it. `up`: it carries messages."""

    def __init__(self, ends: tuple[str, str], cost: int) -> None:
        self.ends = ends
        self.cost = cost
        self.up = False
        self.numbers: dict[str, int] = {}
        self.arrives: dict[str, float] = {}

    def other(self, router: str) -> str:
        return self.ends[1] if router == self.ends[0] else self.ends[0]


class Router:
    """A process. `view`: the addresses with receivers elsewhere, as its engine has reported them."""

    def __init__(self, name: str, instance: int, now: float, first: int) -> None:
        self.name = name
        self.engine = MeshEngine(name, instance, now, first)
        self.edges: dict[int, Edge] = {}
        self.view: dict[tuple[str, str], Treatment | None] = {}
        self.local: dict[str, Treatment] = {}


class Network:
    """Routers by name; `edges` are all connections that are meant to be. `encoded`: messages are bytes on the way."""

    def __init__(self, seed: int, *, reorder: float = 0.0, repeat: float = 0.0, encoded: bool = False) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.routers: dict[str, Router] = {}
        self.edges: list[Edge] = []
        self.sent = 0
        self.notices: Counter[MeshEvent] = Counter()
        self._reorder, self._repeat, self._encoded = reorder, repeat, encoded
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order, self._numbers = count(), count(1)

    # Time

    def at(self, time: float, what: Callable[[], None]) -> None:
        heappush(self._events, (time, next(self._order), what))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, what = heappop(self._events)
            what()
        self.now = end

    def run_until_converged(self, most: float) -> float:
        """Run until all routers know what is. Return how many seconds that took."""
        begin = self.now
        while True:
            difference = self.difference()
            if difference is None:
                return self.now - begin
            assert self.now - begin <= most, difference
            self.run(TICK)

    # What happens to the network

    def start(self, name: str, instance: int) -> None:
        """Start a router, with the edges to the routers that run."""
        router = self.routers[name] = Router(name, instance, self.now, self.rng.randrange(1000))
        self._tick(router, self.rng.random() * TICK)
        for edge in self.edges:
            if name in edge.ends and edge.other(name) in self.routers:
                self.connect(edge)

    def _tick(self, router: Router, after: float) -> None:
        def tick() -> None:
            if self.routers.get(router.name) is router:
                self._do(router, router.engine.tick(self.now))
                self._tick(router, TICK)

        self.at(self.now + after, tick)

    def add_edge(self, one: str, other: str, cost: int) -> Edge:
        edge = Edge((one, other), cost)
        self.edges.append(edge)
        return edge

    def connect(self, edge: Edge) -> None:
        """Open a connection, with new numbers, if both routers run."""
        if edge.up or not all(end in self.routers for end in edge.ends):
            return
        edge.up = True
        for end in edge.ends:
            edge.arrives[end] = self.now
            edge.numbers[end] = next(self._numbers)
            self.routers[end].edges[edge.numbers[end]] = edge
        for end in edge.ends:
            router = self.routers[end]
            self._do(router, router.engine.link_opened(edge.numbers[end], edge.cost, self.now))

    def cut(self, edge: Edge) -> None:
        """Close a connection, which both ends notice at once."""
        if edge.up:
            edge.up = False
            for end in edge.ends:
                if end in self.routers:
                    self._closed(self.routers[end], edge)

    def _closed(self, router: Router, edge: Edge) -> None:
        number = edge.numbers.pop(router.name, None)
        if number is not None:
            del router.edges[number]
            self._do(router, router.engine.link_closed(number, self.now))

    def _left(self, router: Router, number: int) -> None:
        """Close a connection that one end takes for silent: the other end notices that only if it carries messages."""
        edge = router.edges.get(number)
        if edge is None or edge.numbers.get(router.name) != number:
            router.edges.pop(number, None)  # the rest of a connection that was lost
        elif edge.up:
            self.at(self.now, partial(self.cut, edge))
            self.at(self.now + 1.0, partial(self.connect, edge))
        else:
            self._closed(router, edge)

    def silence(self, edge: Edge) -> None:
        """Let a connection carry nothing, which neither end notices."""
        edge.up = False

    def speak(self, edge: Edge) -> None:
        """Let a silent connection carry messages again."""
        if all(end in edge.numbers and end in self.routers for end in edge.ends):
            edge.up = True

    def kill(self, name: str, *, silent: bool = False) -> None:
        """End a router's process. `silent`: its neighbours notice only that it says nothing."""
        gone = self.routers.pop(name)
        for number, edge in gone.edges.items():
            if edge.numbers.get(name) != number:
                continue  # the rest of a connection whose other end died silently
            edge.up = False
            del edge.numbers[name]
            neighbour = self.routers.get(edge.other(name))
            if neighbour is not None and not silent:
                self._closed(neighbour, edge)
            elif neighbour is not None:
                self._forget_later(neighbour, edge)

    def _forget_later(self, router: Router, edge: Edge) -> None:
        """Close the rest of a dead connection after an idle time-out."""
        number = edge.numbers.pop(router.name, 0)

        def close() -> None:
            if self.routers.get(router.name) is router and router.edges.pop(number, None) is not None:
                self._do(router, router.engine.link_closed(number, self.now))

        self.at(self.now + 8.0, close)

    def add_address(self, name: str, key: str, treatment: Treatment) -> None:
        router = self.routers[name]
        router.local[key] = treatment
        router.engine.add_address(key, treatment)

    def remove_address(self, name: str, key: str) -> None:
        router = self.routers[name]
        del router.local[key]
        router.engine.remove_address(key)

    # Messages

    def _do(self, router: Router, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, SendControl):
                self._send(router, action.link, action.message)
            elif isinstance(action, AddressGained):
                router.view[action.key, action.router] = action.treatment
            elif isinstance(action, AddressLost):
                del router.view[action.key, action.router]
            elif isinstance(action, RefuseLink):
                edge = router.edges.get(action.link)
                if edge is not None:
                    self.at(self.now, partial(self.cut, edge))
                    self.at(self.now + 1.0, partial(self.connect, edge))
            elif isinstance(action, DropLink):
                self._left(router, action.link)
            elif isinstance(action, MeshNotice):
                self.notices[action.event] += 1

    def _send(self, router: Router, number: int, message: Envelope) -> None:
        edge = router.edges.get(number)
        if edge is None or not edge.up or edge.numbers.get(router.name) != number:
            return
        self.sent += 1
        to = edge.other(router.name)
        payload = message.encode() if self._encoded else b""
        rng = self.rng
        # At its first hop: repeated at each, a message would be twenty at the end of a line of 64 routers.
        for _ in range(2 if len(message.trace) == 1 and rng.random() < self._repeat else 1):
            time = self.now + rng.random() * SLOWEST
            if rng.random() < self._reorder:
                time += rng.random()
            else:
                time = edge.arrives[to] = max(time, edge.arrives[to])
            self.at(time, partial(self._arrive, edge, to, edge.numbers[to], message, payload))

    def _arrive(self, edge: Edge, to: str, number: int, message: Envelope, payload: bytes) -> None:
        router = self.routers.get(to)
        if router is None or not edge.up or edge.numbers.get(to) != number:
            return
        engine = router.engine
        actions = (
            engine.received(number, payload, self.now) if self._encoded else engine.take(number, message, self.now)
        )
        self._do(router, actions)

    # What is true

    def peers(self) -> dict[str, dict[str, int]]:
        """Return the costs of each router's connections that carry messages."""
        near: dict[str, dict[str, int]] = {router: {} for router in self.routers}
        for edge in self.edges:
            if edge.up:
                one, other = edge.ends
                near[one][other] = near[other][one] = edge.cost
        return near

    def component(self, name: str) -> dict[str, int]:
        """Return the routers that can be reached, with the cost of the shortest path; the router itself has 0."""
        near = self.peers()
        costs: dict[str, int] = {}
        waiting = [(0, name)]
        while waiting:
            cost, at = heappop(waiting)
            if at not in costs:
                costs[at] = cost
                for to, more in near[at].items():
                    if to not in costs:
                        heappush(waiting, (cost + more, to))
        return costs

    def difference(self) -> str | None:
        """Return where a router's view differs from what is, None if nowhere."""
        peers = self.peers()
        for name, router in self.routers.items():
            costs = self.component(name)
            del costs[name]
            if dict(router.engine.topology.costs) != costs:
                missing, more = costs.keys() - router.engine.topology.costs, router.engine.topology.costs.keys() - costs
                return f"{self.now}: {name} does not reach {sorted(missing)}, reaches {sorted(more)}, or by a detour"
            states = {known.id: known.peers for known in router.engine.routers if known.id in costs}
            if states != {other: peers[other] for other in costs}:
                return f"{self.now}: {name} has an older link state of another router"
            present = {(key, other): how for other in costs for key, how in self.routers[other].local.items()}
            if router.view != present:
                wrong = set(router.view.items()) ^ set(present.items())
                return f"{self.now}: {name} sees other addresses: {sorted(wrong)[:4]}"
        return None

    def copies(self, origin: str, key: str) -> Counter[str]:
        """Return how many copies of a multicast message each router gets, as all engines forward it now. No trace ends
        a loop here."""
        arrived: Counter[str] = Counter()
        moving = [origin]
        while moving:
            router = self.routers[moving.pop()]
            receivers = [name for each, name in router.view if each == key]
            for hop in router.engine.topology.onward(origin, receivers):
                arrived[hop] += 1
                assert arrived[hop] <= len(self.routers), f"a loop at {hop}"
                moving.append(hop)
        return arrived

    def way(self, origin: str, to: str) -> list[str]:
        """Return the routers that a message to one router passes."""
        way = [origin]
        while way[-1] != to:
            router = self.routers[way[-1]]
            link = router.engine.next_link(to)
            assert link is not None, f"{way[-1]} knows no way to {to}"
            way.append(router.edges[link].other(way[-1]))
            assert len(way) <= len(self.routers), f"a loop: {way}"
        return way


def names(number: int) -> list[str]:
    return [f"r{n}" for n in range(number)]


def build(network: Network, shape: str, number: int) -> None:
    """Add the edges of a topology of `number` routers."""
    rng, routers = network.rng, names(number)
    rng.shuffle(routers)
    for one, other in dict.fromkeys(tuple(sorted(pair)) for pair in _pairs(shape, routers, rng)):
        network.add_edge(one, other, rng.choice((1, 1, 2, 7)))


SHAPES = ("line", "ring", "tree", "star of stars", "grid", "random", "dense islands")


def _pairs(shape: str, routers: list[str], rng: random.Random) -> Iterable[tuple[str, str]]:
    number = len(routers)
    if shape in ("line", "ring"):
        yield from pairwise(routers)
        if shape == "ring":
            yield routers[-1], routers[0]
    elif shape == "tree":
        yield from ((routers[n], routers[rng.randrange(n)]) for n in range(1, number))
    elif shape == "star of stars":
        yield from ((routers[n], routers[n % 8 if n >= 8 else 0]) for n in range(1, number))
    elif shape == "grid":
        width = 8
        yield from ((routers[n], routers[n - 1]) for n in range(number) if n % width)
        yield from ((routers[n], routers[n - width]) for n in range(width, number))
    elif shape == "random":
        yield from ((routers[n], routers[rng.randrange(n)]) for n in range(1, number))
        yield from ((one, other) for one, other in (rng.sample(routers, 2) for _ in range(number)))
    else:  # islands of eight, each a full mesh, in a ring with two bridges between neighbours
        for n in range(0, number, 8):
            island = routers[n : n + 8]
            yield from ((one, other) for m, one in enumerate(island) for other in island[:m])
            for m in (0, 1):
                yield island[m], routers[(n + 8 + m) % number]
