"""Use of the addresses of an address space by connected clients: subscriptions, messages from and to them. Pure.

A message costs two sums; the caller of `changes` pays for the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count
from typing import Final, NamedTuple

from enmasse.identity.mqtt_permissions import names_of
from enmasse.model.names import AddressName
from enmasse.model.topic_map import FilterRefused, TopicMap
from enmasse.mqtt.topics import parse_share

MOST_ADDRESSES: Final = 64
"""Addresses that a client sends to and that are counted separately."""
MOST_DESCRIBED: Final = 10_000
"""Filters whose description is remembered."""
PART: Final = 100
"""Addresses that are looked at in a turn."""
_numbers = count(1)


class Carried:
    """Messages that were carried, and bytes of their payloads. `id` is unique in the process."""

    __slots__ = ("bytes", "id", "messages")

    def __init__(self) -> None:
        self.id = next(_numbers)
        self.messages = 0
        self.bytes = 0


class Attached(NamedTuple):
    """A subscription of a client, or an address that it sends to. `name`: filter or address as the client knows it;
    `address`: full name of the one address, None: there are several, or none; `names`: full names on AMQP, as filters,
    of what may be received or sent; `qos`: granted, None of messages sent."""

    name: str
    address: str | None
    names: list[str]
    carried: Carried
    qos: int | None = None


class ClientsAtAddress(NamedTuple):
    """Clients at an address. `producers`: clients that have sent to it; `consumers`: subscriptions to it;
    `carried`: messages to clients, since the start of the process."""

    producers: int
    consumers: int
    carried: Carried


class AddressUse:
    """`topics`: of the address space."""

    def __init__(self, topics: TopicMap) -> None:
        self._topics = topics
        self._delivered: dict[AddressName, Carried] = {}
        self._shown: dict[AddressName, tuple[int, int, int]] = {}
        self._producers: Counter[AddressName] = Counter()
        self._consumers: Counter[AddressName] = Counter()
        self._filters: Counter[str] = Counter()
        self._counted: dict[str, tuple[int, list[AddressName]]] = {}
        """Filter → how many subscriptions to it are counted in consumers, and at which addresses."""
        self._described: dict[str, tuple[str | None, list[str]]] = {}
        self._changed: set[str] = set()
        """Filters of which that is not up to date."""

    def set_topics(self, topics: TopicMap) -> None:
        """Other addresses are configured."""
        self._topics = topics
        self._described.clear()
        self._changed.update(self._filters, self._counted)
        for name in [each for each in self._delivered if self._owner(topics.local(each)) != each]:
            del self._delivered[name]

    def subscribed(self, filter: str) -> None:
        """Count a subscription of a connected client."""
        self._filters[filter] += 1
        self._changed.add(filter)

    def unsubscribed(self, filter: str) -> None:
        """Count it no longer."""
        self._filters[filter] -= 1
        if not self._filters[filter]:
            del self._filters[filter]
        self._changed.add(filter)

    def sends(self, address: str) -> None:
        """Count a client that sends to an address, by its name in the space."""
        self._producers[self._name(address)] += 1

    def sends_no_more(self, address: str) -> None:
        """Count it no longer."""
        name = self._name(address)
        self._producers[name] -= 1
        if not self._producers[name]:
            del self._producers[name]

    def delivered(self, topic: str) -> Carried:
        """Return the sum of the messages to clients of the address that has this topic."""
        name = self._owner(topic)
        if name is None:
            return Carried()
        return self._delivered.setdefault(name, Carried())

    def subscription(self, filter: str, carried: Carried, qos: int) -> Attached:
        """Return the row of a subscription to this filter."""
        known = self._described.get(filter)
        if known is None:
            if len(self._described) >= MOST_DESCRIBED:
                self._described.clear()
            addresses = self._names(filter)
            names = [self._topics.full(name) for name in names_of(self._topics, filter)]
            known = self._described[filter] = addresses[0] if len(addresses) == 1 else None, names
        return Attached(filter, *known, carried, qos)

    def sender(self, address: str, carried: Carried) -> Attached:
        """Return the row of what a client has sent to an address, by its name in the space."""
        name, owner = self._name(address), self._topics.owner(address)
        below = owner is not None and owner.traits.levels
        return Attached(address, name, [name, f"{name}/#"] if below else [name], carried)

    def changes(self) -> Iterator[tuple[AddressName, ClientsAtAddress | None] | None]:
        """Yield the addresses whose use has changed since the last call; with None: no client uses it, and it
        may be gone. None alone: other work may have its turn."""
        yield from self._count_filters()
        for n, name in enumerate({*self._delivered, *self._producers, *self._consumers, *self._shown}):
            if n % PART == PART - 1:
                yield None
            carried = self._delivered.get(name, _NONE)
            now = self._producers.get(name, 0), self._consumers.get(name, 0), carried.messages
            if now == self._shown.get(name):
                continue
            if any(now):
                self._shown[name] = now
                yield name, ClientsAtAddress(now[0], now[1], carried)
            else:
                self._shown.pop(name, None)
                yield name, None

    def consumers_of_topics(self) -> dict[str, int]:
        """Return topic → subscriptions of connected clients. Clients of other addresses have links, which the router
        counts; those of topics have queues of their sessions."""
        for _ in self._count_filters():
            pass
        return {name: count for name, count in self._consumers.items() if self._is_topic(name)}

    def begin(self) -> None:
        """Let `changes` yield everything again."""
        self._shown.clear()

    def _count_filters(self) -> Iterator[None]:
        changed, self._changed = self._changed, set()
        for filter in changed:
            before, names = self._counted.pop(filter, (0, []))
            self._add(names, -before)
            now = self._filters.get(filter, 0)
            if now:
                names = self._names(filter)
                self._counted[filter] = now, names
                self._add(names, now)
            yield None

    def _add(self, names: list[AddressName], more: int) -> None:
        for name in names:
            self._consumers[name] += more
            if not self._consumers[name]:
                del self._consumers[name]

    def _is_topic(self, name: AddressName) -> bool:
        owner = self._topics.owner_of_wire(name)
        return owner is not None and owner.traits.levels

    def _owner(self, topic: str) -> AddressName | None:
        owner = self._topics.owner(topic)
        return None if owner is None else owner.name

    def _names(self, filter: str) -> list[AddressName]:
        share = parse_share(filter)
        try:
            targets = self._topics.targets(filter if share is None else share.filter)
        except FilterRefused:
            return []
        return list(dict.fromkeys(target.name for target in targets))

    def _name(self, address: str) -> AddressName:
        return AddressName(self._topics.full(address))


_NONE = Carried()
