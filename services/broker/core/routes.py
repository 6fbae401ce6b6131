"""Where a message sent to a name goes: worked out once per name, kept until a binding changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.broker.core.broker_address import BrokerAddress
from services.broker.core.condition import Condition
from services.broker.core.queue import Queue
from services.broker.selector import Lookup

_OPEN = Condition()
Onward = tuple[Condition, "Route"]
"""The route of another address, for the messages that a divert lets through."""


class Route:
    """Queues for one name and kind ("ANYCAST", "MULTICAST", or both: None).

    One anycast queue in turn and every multicast queue get a message, each once, by however many bindings it comes; so
    do those of the addresses it is diverted to. `owner`: the address whose size it counts to. `stored` are the ids of
    the durable ones among the targets; if `plain`, targets and `stored` are the same for every message; `single`: that
    is one queue.
    """

    __slots__ = (
        "_anycast",
        "_multicast",
        "_onward",
        "_turn",
        "owner",
        "plain",
        "single",
        "stored",
        "targets",
        "version",
    )

    def __init__(
        self,
        owner: BrokerAddress,
        anycast: Sequence[Queue],
        multicast: Mapping[Queue, Sequence[Condition]],
        version: int,
        onward: Sequence[Onward] = (),
    ) -> None:
        self.owner = owner
        self.version = version
        self._anycast = anycast
        self._multicast = [(queue, _simplified(conditions)) for queue, conditions in multicast.items()]
        self._onward = onward
        self._turn = 0
        targets = dict.fromkeys([*anycast[:1], *multicast])
        for _, route in onward:
            targets.update(dict.fromkeys(route.targets))
        self.targets: list[Queue] = list(targets)
        self.stored = [queue.id for queue in self.targets if queue.durable]
        self.plain: bool = (
            len(anycast) <= 1
            and all(queue.condition.open for queue in anycast)
            and all(condition.open for _, conditions in self._multicast for condition in conditions)
            and all(condition.open and route.plain for condition, route in onward)
        )
        self.single = self.targets[0] if self.plain and len(self.targets) == 1 else None

    def choose(self, lookup: Lookup, origin: str) -> tuple[list[Queue], list[int]]:
        """The targets of one message with these properties sent from container `origin`, and the ids of the durable
        ones."""
        chosen = self._choose(lookup, origin)
        return chosen, [queue.id for queue in chosen if queue.durable]

    def _choose(self, lookup: Lookup, origin: str) -> list[Queue]:
        chosen: list[Queue] = []
        for _ in self._anycast:
            queue = self._anycast[self._turn % len(self._anycast)]
            self._turn += 1
            if queue.condition.admits(lookup, origin):
                chosen.append(queue)
                break
        for queue, conditions in self._multicast:
            for condition in conditions:
                if condition.admits(lookup, origin):
                    chosen.append(queue)
                    break
        if self._onward:
            found = dict.fromkeys(chosen)
            for condition, route in self._onward:
                if condition.admits(lookup, origin):
                    found.update(dict.fromkeys(route._choose(lookup, origin)))
            chosen = list(found)
        return chosen


def _simplified(conditions: Sequence[Condition]) -> Sequence[Condition]:
    return (_OPEN,) if any(condition.open for condition in conditions) else conditions
