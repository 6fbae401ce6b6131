"""Topics that are about to be carried by a broker: no message goes there before every binder has reported. Pure.

A topic is made on a broker only after that. So one that a broker holds when this controller starts has been bound
there, and nothing has to be remembered (docs/decisions/0046).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from itertools import count
from typing import NamedTuple

from enmasse.model.feeds import BoundChanges, Placement
from enmasse.model.names import AddressName
from services.storage_controller import naming
from services.storage_controller.brokers.broker import ManagedBroker

NOWHERE = ""
LINGER = 5.0
"""Seconds for which a topic stays bound at a broker managed by hand that it leaves: routers still send there."""


class _Preparation(NamedTuple):
    broker: str
    epoch: int


class Preparations:
    """The broker that carries each topic now, and the one that is prepared for it.

    `to_look`: brokers that have to be listed once more before these topics may leave them, while no client can make a
    durable subscription there.
    """

    def __init__(self) -> None:
        self.binders: Collection[str] = ()
        """Roles for which preparations wait."""
        self.to_look: dict[str, set[AddressName]] = {}
        self._carriers: dict[AddressName, str] = {}
        """Topic → broker that messages go to; NOWHERE: to none, and none may be taken for it because it has the
        topic."""
        self._under_way: dict[AddressName, _Preparation] = {}
        self._bound: dict[AddressName, dict[str, int]] = {}
        self._epochs = count(time.time_ns() // 1000)
        self._left: dict[AddressName, tuple[str, float]] = {}
        """Topic → broker managed by hand that it has left, and the time until which it stays bound there."""

    def take(self, body: BoundChanges) -> set[AddressName]:
        """Take what is bound. Return the addresses that this concerns: all that wait, if it was not known for whom."""
        before, self.binders = self.binders, body.binders
        changed = {*body.addresses, *body.removed}
        if self.binders != before:
            changed.update(self._under_way)
        if body.full:
            changed.update(self._bound)
            self._bound.clear()
        for name in body.removed:
            self._bound.pop(name, None)
        self._bound.update(body.addresses)
        return changed & self._under_way.keys()

    def hint(self, name: AddressName, entries: Iterable[Placement]) -> None:
        """Take the placements of a topic from an earlier report."""
        self._carriers.setdefault(name, next((each.broker for each in entries if each.active), NOWHERE))

    def carrier(self, name: AddressName) -> str | None:
        """Return the broker to which messages of the topic go; NOWHERE: to none; None: it is not known yet."""
        return self._carriers.get(name)

    def carry(self, name: AddressName, broker: str) -> None:
        """Record that messages of the topic go to this broker from now on."""
        before = self._carriers.get(name, NOWHERE)
        if before != broker and naming.is_by_hand(before):
            self._left[name] = before, time.monotonic() + LINGER
        self._carriers[name] = broker
        self._under_way.pop(name, None)

    def left(self, name: AddressName) -> str:
        """Return the broker managed by hand that the topic has left a moment ago; NOWHERE if there was
        no such broker. Its publishers are unknown."""
        return self._left.get(name, (NOWHERE, 0.0))[0]

    def end_lingering(self, is_unknown: Callable[[AddressName], bool]) -> list[AddressName]:
        """Return the topics that have left such a broker for good. `is_unknown(name)`: the placement of this topic has
        not reached configserv yet, so no router can have left the broker: its time begins when it has."""
        now, ended = time.monotonic(), []
        for name, (broker, until) in list(self._left.items()):
            if is_unknown(name):
                self._left[name] = broker, now + LINGER
            elif until <= now:
                del self._left[name]
                ended.append(name)
        return ended

    def close(self, name: AddressName, *, is_gone: bool) -> None:
        """Record that no message of the topic goes anywhere. `is_gone`: no broker has it."""
        self._under_way.pop(name, None)
        if is_gone:
            self._carriers.pop(name, None)
        else:
            self._carriers[name] = NOWHERE

    def begin(self, name: AddressName, broker: str) -> int:
        """Prepare this broker for the topic, unless that is under way. Return the epoch of the preparation."""
        found = self._under_way.get(name)
        if found is None or found.broker != broker:
            found = self._under_way[name] = _Preparation(broker, next(self._epochs))
        return found.epoch

    def stop(self, name: AddressName) -> None:
        """End the preparation of the topic, if one is under way."""
        self._under_way.pop(name, None)

    def is_done(self, name: AddressName, others: Iterable[ManagedBroker]) -> bool:
        """Return True if everything is bound at the prepared broker, and each of the others that have the topic was
        listed after new durable subscriptions began to wait there: one that was made meanwhile keeps the topic."""
        found = self._under_way[name]
        if self._bound.get(name, {}).get(found.broker) != found.epoch:
            return False
        others = list(others)
        for each in others:
            if name not in each.held:
                self.to_look.setdefault(each.name, set()).add(name)
        return all(each.has_looked(name) for each in others)
