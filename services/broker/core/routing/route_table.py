"""The routes that are known: made when a message is sent to a name first, forgotten when one of the things changes that
it was made of. What is bound elsewhere leaves them alone: clients subscribe by the thousand while others publish."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from enmasse.name_tries import ANY, SEPARATOR, NameTrie, PatternTrie
from services.broker.core.legal_names import ANYCAST, MULTICAST
from services.broker.core.limits.broker_address import BrokerAddress
from services.broker.core.messages.condition import Condition
from services.broker.core.queues.queue import Queue
from services.broker.core.routing.bindings import Binding, Bindings
from services.broker.core.routing.routes import Onward, Route

_MAX_ROUTES = 20_000
_MAX_WEIGHT = 3_000_000  # of all routes together, about 16 bytes each
_LEVEL = 20  # what a level of a name weighs beside a queue that a route leads to
_LOOKED = 1000  # levels of the names of routes that a change looks at; beyond that all routes are dropped
_FREED = 4  # dropped routes that are freed with each one that is made
_LONGEST = 512  # characters of names whose routes are kept; others are found for each message
_KINDS = (None, ANYCAST, MULTICAST)


Key = tuple[str, str | None]
"""Name and kind of a route."""


class RouteTable:
    """Routes by name and kind, each until something changes that it was made of."""

    def __init__(
        self,
        addresses: Mapping[str, BrokerAddress],
        queues: Mapping[str, Queue],
        queues_of: Callable[[BrokerAddress], Mapping[str, Queue]],
        root_of: Callable[[str], BrokerAddress | None],
    ) -> None:
        """`addresses`, `queues`: by name. `queues_of`: an address's queues by name. `root_of`: the configured address
        that covers a name."""
        self.bindings = Bindings()
        self._addresses = addresses
        self._queues = queues
        self._queues_of = queues_of
        self._root_of = root_of
        self._routes: dict[Key, Route] = {}
        self._dropped: dict[Key, Route] = {}  # stale ones; to free them all at once would take long
        self._known = NameTrie()  # the names in _routes and _dropped, without those of queues
        self._of_queues: dict[Key, None] = {}  # keys `address::queue` in _routes
        self._weight = 0

    def route(self, name: str, routing_type: str | None) -> Route | None:
        """Find the queues for messages to `name` (an address, or `address::queue`); None: there is no such address."""
        key = (name, routing_type)
        route = self._routes.get(key)
        if route is None:
            route = self._make(name, routing_type, frozenset())
            if route is not None:
                self._keep(key, route)
        return route

    def _keep(self, key: Key, route: Route) -> None:
        for _ in range(min(_FREED, len(self._dropped))):
            self._unname(self._dropped.popitem()[0][0])
        weight = _weight(key[0], route)
        if len(key[0]) > _LONGEST or weight > _MAX_WEIGHT // 2:
            route.stale = True
            return
        self._weight += weight
        if len(self._routes) >= _MAX_ROUTES or self._weight > _MAX_WEIGHT:
            self.clear()
            self._weight = weight
        self._routes[key] = route
        if "::" in key[0]:
            self._of_queues[key] = None
        else:
            self._known.add(key[0])

    def _make(self, name: str, routing_type: str | None, diverted: frozenset[str]) -> Route | None:
        """Return a new route to an address, None if it does not exist. `diverted`: addresses over which the messages
        have come by diverts; none of them gets the messages again."""
        if "::" in name:
            address_name, _, queue_name = name.partition("::")
            queue = self._queues.get(queue_name)
            if queue is None or queue.address.name != address_name:
                return None
            return Route(name, queue.address.root, [queue], {})
        root = self._root_of(name)
        if root is None:
            return None
        address = self._addresses.get(name)
        anycast: list[Queue] = []
        if address is not None and routing_type != MULTICAST:
            anycast = [queue for queue in self._queues_of(address).values() if queue.routing_type == ANYCAST]
        wanted = routing_type != ANYCAST and MULTICAST in root.routing_types
        topic = root.explicit and MULTICAST in root.routing_types
        conditions: dict[Queue, list[Condition]] = {}
        onward: list[Onward] = []
        is_diverted = always = False
        for binding in self.bindings.match(name):
            if isinstance(binding, Binding):
                if wanted:
                    conditions.setdefault(binding.queue, []).append(binding.condition)
                continue
            target = binding.address
            if not binding.covers(name, topic) or target.name == name or target.name in diverted:
                continue
            is_diverted = True
            always = always or binding.condition.open
            kind = binding.kind(routing_type)
            queue = self._end(target, kind)
            if queue is not None:
                conditions.setdefault(queue, []).append(binding.condition)
            elif (route := self._make(target.name, kind, diverted | {name})) is not None:
                onward.append((binding.condition, route))
        return Route(name, root, anycast, conditions, onward, diverted=is_diverted, always_diverted=always)

    def _end(self, address: BrokerAddress, kind: str | None) -> Queue | None:
        """Return the one queue of an address, if that is where every message to it goes. None: look closer."""
        if MULTICAST in address.routing_types or kind == MULTICAST or self.bindings.is_diverted_by_name(address.name):
            return None
        queues = self._queues_of(address)
        if len(queues) != 1:
            return None
        (queue,) = queues.values()
        return queue if queue.routing_type == ANYCAST and queue.condition.open else None

    # -- what changes --------------------------------------------------------------------------------------------------
    def changed(self, pattern: str) -> None:
        """Drop routes to the addresses that the pattern (or name) covers: they have changed."""
        if not self._routes:
            return
        todo, seen = [pattern], {pattern}
        while todo:
            pattern = todo.pop()
            covered = self._known.covered_within(pattern, _LOOKED)
            if covered is None:
                self.clear()
                return
            for name in covered:
                self._known.remove(name)
                for kind in _KINDS:
                    self._forget((name, kind))
            for address in self._destinations(pattern):
                for divert in self.bindings.diverts_to(address):
                    if divert.pattern not in seen:
                        seen.add(divert.pattern)
                        todo.append(divert.pattern)

    def changed_below(self, name: str) -> None:
        """`changed` of an address and everything below it."""
        self.changed(name)
        self.changed(name + SEPARATOR + ANY)

    def _destinations(self, pattern: str) -> list[BrokerAddress]:
        """Return the addresses to which diverts lead and which a pattern covers. Wildcards cover topics only, which
        are few."""
        address = self._addresses.get(pattern)
        found = [address] if address is not None else []
        covering: PatternTrie[None] = PatternTrie()
        covering.add(pattern, None)
        return found + [topic for topic in self.bindings.topics_diverted_to if covering.match(topic.name)]

    def queue_gone(self) -> None:
        """Routes to queues by their own names may lead to it."""
        for key in list(self._of_queues):
            self._forget(key)

    def clear(self) -> None:
        """Make every route stale."""
        for route in self._routes.values():
            route.stale = True
        self._dropped = {**self._dropped, **self._routes} if self._dropped else self._routes
        self._routes = {}
        self._of_queues.clear()
        self._weight = 0

    def _unname(self, name: str) -> None:
        """Remove the name of a route that is gone, unless there is another one."""
        routes = self._routes
        if (name, None) not in routes and (name, MULTICAST) not in routes and (name, ANYCAST) not in routes:
            self._known.remove(name)

    def _forget(self, key: Key) -> None:
        route = self._routes.pop(key, None)
        if route is not None:
            route.stale = True
            self._weight -= _weight(key[0], route)
            self._of_queues.pop(key, None)


def _weight(name: str, route: Route) -> int:
    return _LEVEL * name.count(SEPARATOR) + len(route.targets)
