"""Bindings: which messages go to which queue, and diverts: which also go to another address."""

from __future__ import annotations

from collections.abc import Collection

from enmasse.name_tries import PatternTrie
from services.broker.core.limits.broker_address import BrokerAddress
from services.broker.core.messages.condition import Condition
from services.broker.core.queues.queue import Queue
from services.broker.core.wildcards import is_pattern

ROUTING_TYPES = ("ANYCAST", "MULTICAST", "STRIP", "PASS")
"""How a divert forwards: to the queues of one routing type, to both kinds, or as the message was sent."""


class Binding:
    """Messages to the addresses that `pattern` covers go into a multicast queue of that address, if `condition` lets
    them through. It lasts as long as the queue, and is part of its definition."""

    __slots__ = ("condition", "pattern", "queue")

    def __init__(self, pattern: str, queue: Queue, condition: Condition) -> None:
        self.pattern = pattern
        self.queue = queue
        self.condition = condition


class Divert:
    """Messages to the addresses that `pattern` covers go to where messages to `address` go, too, if `condition` lets
    them through. It lasts as long as `address`. `wide`: the pattern has wildcards. `id`: of its definition in the
    store, 0 = not stored."""

    __slots__ = ("address", "condition", "id", "name", "pattern", "routing_name", "routing_type", "wide")

    def __init__(
        self,
        name: str,
        pattern: str,
        address: BrokerAddress,
        condition: Condition,
        *,
        routing_type: str = "STRIP",
        routing_name: str = "",
        id: int = 0,
    ) -> None:
        self.name = name
        self.pattern = pattern
        self.address = address
        self.condition = condition
        self.routing_type = routing_type
        self.routing_name = routing_name or name
        self.id = id
        self.wide = is_pattern(pattern)

    def covers(self, name: str, topic: bool) -> bool:
        """Return whether the divert covers an address that its pattern matches. Wildcards stand for topics only, and at
        the first level for no name that begins with `$`: queues, dead letters, session queues and management are
        diverted by their own names."""
        return not self.wide or (topic and not (name[0] == "$" and self.pattern[0] in "+#"))

    def kind(self, sent: str | None) -> str | None:
        """The routing type by which it forwards a message that was sent by this one; None: by both."""
        if self.routing_type == "PASS":
            return sent
        return None if self.routing_type == "STRIP" else self.routing_type


class Bindings:
    """All of them. To add, find or remove one costs work for the levels of its pattern, whatever else there is."""

    def __init__(self) -> None:
        self.diverts: dict[str, Divert] = {}
        self.topics_diverted_to: dict[BrokerAddress, None] = {}
        """Topics among the addresses that diverts lead to."""
        self._by_pattern: PatternTrie[Binding | Divert] = PatternTrie()
        self._of_queues: dict[Queue, Binding] = {}
        self._to: dict[BrokerAddress, dict[str, Divert]] = {}
        self._from: dict[str, int] = {}  # how many diverts have a pattern

    def add(self, binding: Binding) -> None:
        """Enter the binding of a queue."""
        self._by_pattern.add(binding.pattern, binding)
        self._of_queues[binding.queue] = binding

    def remove(self, queue: Queue) -> None:
        """Remove the binding of a queue, if it has one."""
        binding = self._of_queues.pop(queue, None)
        if binding is not None:
            self._by_pattern.remove(binding.pattern, binding)

    def add_divert(self, divert: Divert) -> None:
        """Enter a divert."""
        self.diverts[divert.name] = divert
        self._by_pattern.add(divert.pattern, divert)
        self._to.setdefault(divert.address, {})[divert.name] = divert
        self._from[divert.pattern] = self._from.get(divert.pattern, 0) + 1
        if "MULTICAST" in divert.address.routing_types:
            self.topics_diverted_to[divert.address] = None

    def remove_divert(self, divert: Divert) -> None:
        """Remove a divert that was entered."""
        del self.diverts[divert.name]
        self._by_pattern.remove(divert.pattern, divert)
        mine = self._to[divert.address]
        del mine[divert.name]
        if not mine:
            del self._to[divert.address]
            self.topics_diverted_to.pop(divert.address, None)
        left = self._from[divert.pattern] - 1
        if left:
            self._from[divert.pattern] = left
        else:
            del self._from[divert.pattern]

    def diverts_to(self, address: BrokerAddress) -> Collection[Divert]:
        """Return the diverts to an address, in the order in which they were made."""
        return self._to.get(address, {}).values()

    def kinds_changed(self, address: BrokerAddress) -> None:
        """Note that the routing types of an address have changed."""
        if address in self._to and "MULTICAST" in address.routing_types:
            self.topics_diverted_to[address] = None

    def is_diverted_by_name(self, name: str) -> bool:
        """Return whether a divert has just this name as its pattern."""
        return name in self._from

    def match(self, name: str) -> list[Binding | Divert]:
        """Bindings and diverts whose pattern covers the name of an address."""
        return self._by_pattern.match(name)
