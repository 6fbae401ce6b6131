"""The consumers of a queue, and whose turn it is."""

from __future__ import annotations

from collections import deque

from services.broker.core.queues.consumer import Consumer

TURN = 500  # messages sent, or looked at in search of a match, in one go; then other queues have their turn
SHORT_TURN = 100  # messages sent, once there are address spaces


class Rotation:
    """`active`: the consumers that have credit, as far as known, in turn. `selective`: how many have a selector or a
    priority of their own; `weight`: of all their selectors. `draining`: those that wait for the answer to a drain."""

    __slots__ = ("active", "consumers", "draining", "selective", "weight")

    def __init__(self) -> None:
        self.consumers: list[Consumer] = []
        self.active: list[Consumer] = []  # a list: there are thousands of queues, and an empty deque has 760 bytes
        self.draining: dict[Consumer, None] = {}  # a dict: an empty set is three times as large
        self.selective = 0
        self.weight = 0

    def join(self, consumer: Consumer) -> None:
        """Enter a consumer; it takes turns from `flow` on."""
        self.consumers.append(consumer)
        self.selective += consumer.selective
        self.weight += consumer.weight

    def leave(self, consumer: Consumer) -> bool:
        """False: it was not there."""
        if consumer not in self.consumers:
            return False
        self.consumers.remove(consumer)
        self.selective -= consumer.selective
        self.weight -= consumer.weight
        self.draining.pop(consumer, None)
        self.deactivate(consumer)
        return True

    def flow(self, consumer: Consumer) -> None:
        """Credit or drain has changed."""
        if not consumer.active and consumer.outlet.credit > 0:
            consumer.active = True
            self.active.append(consumer)
        if consumer.outlet.drain:
            self.draining[consumer] = None

    def deactivate(self, consumer: Consumer) -> None:
        """Skip a consumer until its next `flow`."""
        if consumer.active:
            consumer.active = False
            self.active.remove(consumer)

    def next(self) -> Consumer | None:
        """Return the consumer whose turn it is, and pass the turn on."""
        active = self.active
        while active:
            consumer = active[0]
            if consumer.outlet.credit > 0:
                if len(active) > 1:
                    active.append(active.pop(0))
                return consumer
            del active[0]
            consumer.active = False
        return None

    def by_priority(self) -> deque[Consumer]:
        """Return the active ones, highest priority first; those of equal priority in turn."""
        return deque(sorted(self.active, key=lambda consumer: -consumer.priority))

    def pass_on(self, consumer: Consumer) -> None:
        """Pass the turn of a consumer on."""
        if consumer.active and len(self.active) > 1:
            self.active.remove(consumer)
            self.active.append(consumer)

    def answer_drains(self) -> None:
        """There is nothing for those that drain."""
        for consumer in [c for c in self.draining if not c.blocked()]:
            self.draining.pop(consumer, None)
            if consumer.outlet.drain:
                consumer.outlet.drained()

    def clear(self) -> list[Consumer]:
        """Remove all consumers, and return those that were there."""
        consumers = self.consumers
        self.consumers = []
        self.active.clear()
        self.draining.clear()
        self.selective = self.weight = 0
        return consumers
