"""Routes: the queues of a name, found once and kept until a change of what they depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from enmasse.amqp.messages.scan import may_hold, span_of_to
from services.broker.core.jobs import Work
from services.broker.core.limits.broker_address import BrokerAddress
from services.broker.core.messages.condition import Condition
from services.broker.core.queues.queue import Queue
from services.broker.selector import Lookup

Onward = tuple[Condition, "Route"]
"""The route of another address, for the messages that a divert lets through."""

_MOST_MARKS = 4  # texts that a message is searched for before its properties are decoded
_SHORT_FRONT = 512
PORTION = 1000  # words of selectors that are evaluated before others have their turn


class Route:
    """Queues for one name and kind ("ANYCAST", "MULTICAST", or both: None).

    One anycast queue in turn and every multicast queue get a message, each once, by however many bindings and diverts
    it comes. `owner`: the address whose size it counts to. If `plain`, every message goes to `targets`, and `stored`
    are the ids of the durable ones among them; `single`: that is one queue, and nothing is to be looked at.

    Else it has conditions. But most filters ask for a property that few messages have, and where nothing of it is found
    in the bytes of a message, that one goes to `targets` as well: see `unmarked`, which may be asked if `guarded`;
    `sole`: that is one queue. `weight`: of the selectors of all conditions. `diverted`: messages may come out at
    another address, and are to name the one they were sent to then; `always_diverted`: they do. `stale`: it holds
    now, ask for a new one next time.
    """

    __slots__ = (
        "_anycast",
        "_conditional",
        "_front",
        "_marks",
        "_onward",
        "_open",
        "_to",
        "_turn",
        "always_diverted",
        "diverted",
        "guarded",
        "name",
        "owner",
        "plain",
        "single",
        "sole",
        "stale",
        "stored",
        "targets",
        "weight",
    )

    def __init__(
        self,
        name: str,
        owner: BrokerAddress,
        anycast: Sequence[Queue],
        conditions: Mapping[Queue, Sequence[Condition]],
        onward: Sequence[Onward] = (),
        *,
        diverted: bool = False,
        always_diverted: bool = False,
    ) -> None:
        """`conditions` of each queue that gets every message that one of them lets through."""
        self.name = name
        self.owner = owner
        self.diverted = diverted
        self.always_diverted = always_diverted
        self.stale = False
        self._to = name.encode()
        self._front = b"\xff"  # of a message that named the address in `to`: what came up to there
        self._anycast = anycast
        self._open: list[Queue] = []
        self._conditional: list[tuple[Queue, Sequence[Condition]]] = []
        for queue, some in conditions.items():
            if any(condition.open for condition in some):
                self._open.append(queue)
            else:
                self._conditional.append((queue, some))
        self._onward = onward
        self._turn = 0
        sure = dict.fromkeys(self._open)
        settled = len(anycast) <= 1 and all(queue.condition.open for queue in anycast)
        if settled:
            sure.update(dict.fromkeys(anycast))
        asked = [condition for _, some in self._conditional for condition in some]
        for condition, route in onward:
            if condition.open and route.plain:
                sure.update(dict.fromkeys(route.targets))
            else:
                asked.append(condition)
        self.targets: list[Queue] = list(sure)
        self.stored = [queue.id for queue in self.targets if queue.durable]
        self.plain: bool = settled and not asked
        marks = {mark for condition in asked for mark in condition.marks or (b"",)}
        self._marks = tuple(marks)
        self.guarded = settled and len(marks) <= _MOST_MARKS and b"" not in marks and bool(marks or always_diverted)
        self.weight: int = sum(condition.weight for condition in asked) + sum(route.weight for _, route in onward)
        self.weight += sum(queue.condition.weight for queue in anycast)
        alone = self.targets[0] if len(self.targets) == 1 else None
        self.single = alone if self.plain and not always_diverted else None
        self.sole = alone if self.guarded else None

    def usual(self, payload: bytes) -> bool:
        """Return whether the message goes to `targets` unchanged."""
        return self.unmarked(payload) and (
            not self.always_diverted or payload.startswith(self._front) or self.names_it(payload)
        )

    def unmarked(self, payload: bytes) -> bool:
        """Return whether the message goes to `targets`: no condition can hold. Only if `guarded`."""
        return not may_hold(payload, self._marks)

    def is_unnamed(self, payload: bytes) -> bool:
        """Return whether a message of a `diverted` route may arrive at another address, and does not name this one
        in `to`. Raises AmqpError."""
        maybe = self.always_diverted or not self.guarded or not self.unmarked(payload)
        return maybe and not self.names_it(payload)

    def names_it(self, payload: bytes) -> bool:
        """Return whether `to` is the address. Raises AmqpError (amqp:decode-error)."""
        if payload.startswith(self._front):
            return True
        start, end = span_of_to(payload)
        if payload[start:end] != self._to:
            return False
        if end <= _SHORT_FRONT:
            self._front = payload[:end]  # the next one begins like this, as a rule
        return True

    def choose(self, lookup: Lookup, origin: str) -> tuple[list[Queue], list[int]]:
        """Return the targets of one message with these properties sent from container `origin`, and the ids of the
        durable ones."""
        work = self.choosing(lookup, origin)
        while True:
            try:
                next(work)
            except StopIteration as end:
                return end.value, stored_by(end.value)

    def choosing(self, lookup: Lookup, origin: str) -> Work[list[Queue]]:
        """Find the targets of one message as `choose` does, in portions of PORTION words of selectors."""
        chosen: list[Queue] = []
        left = PORTION
        for _ in self._anycast:
            queue = self._anycast[self._turn % len(self._anycast)]
            self._turn += 1
            left -= queue.condition.weight
            if queue.condition.admits(lookup, origin):
                chosen.append(queue)
                break
        chosen += self._open
        for queue, conditions in self._conditional:
            for condition in conditions:
                left -= condition.weight
                if condition.admits(lookup, origin):
                    chosen.append(queue)
                    break
            if left <= 0:
                yield 1
                left = PORTION
        if self._onward:
            found = dict.fromkeys(chosen)
            for condition, route in self._onward:
                if condition.admits(lookup, origin):
                    found.update(dict.fromkeys((yield from route.choosing(lookup, origin))))
                left -= condition.weight
                if left <= 0:
                    yield 1
                    left = PORTION
            chosen = list(found)
        return chosen


def stored_by(queues: Sequence[Queue]) -> list[int]:
    """Return the ids of the durable ones."""
    return [queue.id for queue in queues if queue.durable]
