"""Bindings: which messages go to which queue, or to which other address."""

from __future__ import annotations

from collections.abc import Iterator

from services.broker.core.broker_address import BrokerAddress
from services.broker.core.condition import Condition
from services.broker.core.queue import Queue
from services.broker.core.wildcards import PatternTree

Destination = Queue | BrokerAddress


class Binding:
    """Messages to the addresses that `pattern` covers go to `destination`, if `condition` lets them through: into a
    queue, or to where messages to another address go (a divert). `id`: of its definition in the store, 0 = not stored
    by itself. `direct`: it came with its queue, and is part of the queue's definition."""

    __slots__ = ("condition", "destination", "direct", "id", "pattern")

    def __init__(
        self, pattern: str, destination: Destination, condition: Condition, *, id: int = 0, direct: bool = False
    ) -> None:
        self.pattern = pattern
        self.destination = destination
        self.condition = condition
        self.id = id
        self.direct = direct


class Bindings:
    """All of them. One destination has at most one binding of each pattern. To add, find or remove one costs work for
    the levels of its pattern, whatever else is bound."""

    def __init__(self) -> None:
        self._by_pattern: PatternTree[Binding] = PatternTree()
        self._by_destination: dict[Destination, dict[str, Binding]] = {}

    def add(self, binding: Binding) -> None:
        self._by_pattern.add(binding.pattern, binding)
        self._by_destination.setdefault(binding.destination, {})[binding.pattern] = binding

    def remove(self, binding: Binding) -> None:
        self._by_pattern.remove(binding.pattern, binding)
        mine = self._by_destination[binding.destination]
        del mine[binding.pattern]
        if not mine:
            del self._by_destination[binding.destination]

    def find(self, destination: Destination, pattern: str) -> Binding | None:
        return self._by_destination.get(destination, {}).get(pattern)

    def of(self, destination: Destination) -> Iterator[Binding]:
        """Those of one destination, in the order in which they were added."""
        yield from self._by_destination.get(destination, {}).values()

    def match(self, name: str) -> list[Binding]:
        """Those whose pattern covers the name of an address."""
        return self._by_pattern.match(name)
