"""Placement of subscriptions: filters over the addresses, and the brokers that carry these. Pure.

A `Subscriber` is the owner of a queue: an MQTT session, a shared subscription, a subscription of an AMQP
client. Its filters together say which patterns lead to its queue on each broker.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from enmasse.model.addresses import Address
from enmasse.model.feeds import Addresses, Placement, Placements
from enmasse.model.names import DEFAULT_SPACE, SPACE, AddressName, LocalName, router_form, split_name
from enmasse.model.topic_map import FilterRefused, FilterTarget, TopicMap, TopicMaps
from enmasse.reconcile import Sources

MAX_CACHED = 100_000
REMEMBERED = 50
"""Changes of the feeds that are remembered: a subscriber that was looked at before is computed as a whole."""
FEW = 50
"""Addresses in a change; more concern all subscribers."""
LEAVE_BOUND = 10.0
"""Seconds for which a queue stays bound to names that its filters no longer cover because the addresses are others by
now: a gateway that learns of it later still sends there."""
LONGEST_CACHED = 256
"""Characters of a filter whose targets are kept."""


class Subscriber:
    """`created`: a number that no other subscriber of this id has or had. `amqp`: the filters are names on AMQP with
    the brokers' wildcards, else MQTT's. `filters` is replaced, not changed; they are names in `space`."""

    __slots__ = ("amqp", "created", "filters", "id", "placed", "space")

    def __init__(
        self,
        id: str,
        created: int,
        filters: Iterable[str] = (),
        *,
        amqp: bool = False,
        space: str = DEFAULT_SPACE,
    ) -> None:
        self.id = id
        self.space = space
        self.created = created
        self.amqp = amqp
        self.filters = frozenset(filters)
        self.placed: Placed | None = None
        """Last result of `Desired`."""


class _Change(NamedTuple):
    """A change of the feeds, which led to this state. `names`: levels of the names of the addresses that it concerns,
    in their written form and in the form of routers; None: all."""

    state: int
    names: list[list[str]] | None


class Placed(NamedTuple):
    """Broker → patterns of these filters, as of a state of the feeds."""

    state: int
    filters: frozenset[str]
    patterns: dict[str, set[str]]
    former: Mapping[str, set[str]] = MappingProxyType({})
    """Patterns of before the addresses have changed, bound until this `end`."""
    end: float = 0.0


class Desired:
    """The feeds, and what follows from them. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.sources = Sources(("addresses", "placements"))
        self.topics = TopicMaps({})
        self._addresses: Mapping[AddressName, Address] = {}
        self.placements = Placements(brokers={}, addresses={})
        self._unasked: frozenset[str] = frozenset()
        """Brokers that cannot keep subscriptions."""
        self._state = 0
        """Grows with each change of the feeds."""
        self._changes: deque[_Change] = deque(maxlen=REMEMBERED)
        self._leaving: frozenset[AddressName] = frozenset()
        """Names that are no topic addresses, while a broker is being emptied of a topic of this name."""
        self._bindable = self.topics
        """As `topics`, with those that are leaving: what is bound stays bound while a broker has them."""
        self._prepared = False
        """There is a prepared placement."""
        self._opened: set[tuple[AddressName, str]] = set()
        """Prepared placements to which new subscriptions are bound before they are confirmed."""
        self._names: dict[str, list[LocalName]] = {}
        """Address space → its topic addresses."""
        self._defaults: list[AddressName] = []
        """Addresses that take what no other of their space does."""
        self._cached: dict[tuple[str, str, bool], list[FilterTarget] | FilterRefused] = {}

    def set_addresses(self, body: Addresses) -> None:
        """Take the addresses of a feed. Raises ValueError if they cannot be read."""
        self.topics = TopicMaps(body.addresses, body.leaving or None)
        differing = _differing(self._addresses, body.addresses)
        self._addresses = body.addresses
        differing |= self._look_leaving()
        topics = sorted(name for name, address in body.addresses.items() if address.traits.levels)
        self._names = {}
        for name in topics:
            space, local = split_name(name)
            self._names.setdefault(space, []).append(local)
        before, self._defaults = self._defaults, [name for name in topics if body.addresses[name].mqtt_default]
        self._cached.clear()
        self._changed(differing if before == self._defaults else None)
        self.sources.deliver("addresses")

    def set_placements(self, body: Placements) -> None:
        """Take the newest placements; subscribers of addresses that have moved are reported as changed."""
        differing = _differing(self.placements.addresses, body.addresses)
        self.placements = body
        prepared = {(n, p.broker) for n, places in body.addresses.items() for p in places if p.state == "prepared"}
        self._opened &= prepared
        self._prepared = bool(prepared)
        self._changed(differing | self._look_leaving())
        self.sources.deliver("placements")

    def _look_leaving(self) -> set[AddressName]:
        """Find out which topics are leaving. Return those that have begun or ceased to."""
        addresses, before = self._addresses, self._leaving
        self._leaving = frozenset(
            name
            for name, places in self.placements.addresses.items()
            if (name not in addresses or not addresses[name].traits.levels) and any(p.type == "topic" for p in places)
        )
        self._bindable = self.topics
        if self._leaving:
            self._bindable = TopicMaps({**addresses, **dict.fromkeys(self._leaving, Address(type="topic"))})
        return set(before ^ self._leaving)

    def open(self, name: AddressName, broker: str) -> None:
        """From now on a subscription is confirmed only when it is bound at this prepared placement too."""
        self._opened.add((name, broker))

    def set_unasked(self, brokers: Iterable[str]) -> None:
        """Set the brokers of products with another management: they cannot keep anything for a subscriber."""
        unasked = frozenset(brokers)
        if unasked != self._unasked:
            self._unasked = unasked
            self._changed(None)

    def _changed(self, names: set[AddressName] | None) -> None:
        self._state += 1
        levels = None
        if names is not None and len(names) <= FEW:
            levels = [form.split("/") for name in names for form in {str(name), router_form(name)}]
        self._changes.append(_Change(self._state, levels))

    def topic_names(self, space: str) -> list[str]:
        """Return the names of the topic addresses of an address space, as its clients know them."""
        return list(self._names.get(space, ()))

    def targets(self, filter: str, *, amqp: bool = False, space: str = DEFAULT_SPACE) -> list[FilterTarget]:
        """Return the targets of a filter. Raises FilterRefused."""
        key = space, filter, amqp
        found = self._cached.get(key)
        if found is None:
            try:
                found = self._targets(filter, self.topics.of(space), amqp=amqp)
            except FilterRefused as refused:
                found = FilterRefused(str(refused))  # without its traceback
            if len(filter) <= LONGEST_CACHED:
                if len(self._cached) >= MAX_CACHED:
                    self._cached.clear()
                self._cached[key] = found
        if isinstance(found, FilterRefused):
            raise FilterRefused(str(found))
        return found

    def _targets(self, name: str, topics: TopicMap, *, amqp: bool) -> list[FilterTarget]:
        if not amqp:
            return topics.targets(name)
        levels = name.split("/")
        first = next((at for at, level in enumerate(levels) if level in ("+", "#")), len(levels))
        owner = topics.owner_of_wire("/".join(levels[:first])) if first and not name.startswith(SPACE) else None
        if owner is None or not owner.traits.levels:
            raise FilterRefused(
                f"there is no topic address for {name[:100]!r}: begin with the name of one; wildcards (+ #) may follow"
            )
        return [FilterTarget(owner.name, owner.type, topics.full(name))]

    def where(self, filter: str, *, amqp: bool = False, space: str = DEFAULT_SPACE) -> dict[str, set[str]]:
        """Return broker → patterns, for the topic addresses that a filter covers and to which messages may go there: a
        subscription is confirmed when it is bound at all of these."""
        return self._where(
            filter, amqp, space, lambda name, place: place.state != "prepared" or self._is_open(name, place)
        )

    def source(self, filter: str, broker: str, *, amqp: bool = False, space: str = DEFAULT_SPACE) -> set[str]:
        """Return the patterns of the topic addresses that a filter covers and of which a new subscriber gets retained
        messages by its queue on this broker: by one of several."""
        return self._where(filter, amqp, space, lambda name, place: place == self._main(name)).get(broker, set())

    def _where(
        self, filter: str, amqp: bool, space: str, counts: Callable[[AddressName, Placement], bool]
    ) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        try:
            targets = self.targets(filter, amqp=amqp, space=space)
        except FilterRefused:
            return found
        for target in targets:
            for place in self._places(target.name) if target.traits.levels else ():
                if place.broker not in self._unasked and counts(target.name, place):
                    found.setdefault(place.broker, set()).add(target.pattern)
        return found

    def _places(self, name: AddressName) -> Sequence[Placement]:
        """Return where a topic is; under its name a queue may be left."""
        return [place for place in self.placements.addresses.get(name, ()) if place.type != "queue"]

    def main(self, wire: str) -> str | None:
        """Return the broker by which new subscribers get retained messages of a name on AMQP."""
        owner = self.topics.of_name(wire).owner_of_wire(wire)
        place = None if owner is None else self._main(owner.name)
        return None if place is None else place.broker

    def _is_open(self, name: AddressName, place: Placement) -> bool:
        return (name, place.broker) in self._opened

    def _main(self, name: AddressName) -> Placement | None:
        order = {"active": 0, "draining": 1, "prepared": 2}
        return min(self._places(name), key=lambda place: order[place.state], default=None)

    def nowhere(self, filter: str, *, amqp: bool = False, space: str = DEFAULT_SPACE) -> str:
        """Return why `where` has found no broker."""
        for target in self.targets(filter, amqp=amqp, space=space):
            for broker in self.carriers(target.name):
                if broker in self._unasked:
                    name = split_name(target.name).local
                    return f"broker {broker} of {name!r} keeps no subscriptions of MQTT clients: it is no Artemis"
        return f"no broker carries an address of {filter[:100]!r} yet"

    def carriers(self, name: AddressName) -> list[str]:
        """Return the brokers that carry an address, those that are being emptied of it included."""
        return [each.broker for each in self.placements.addresses.get(name, ()) if each.state != "prepared"]

    def active(self, name: AddressName) -> list[str]:
        """Return the brokers to which messages of an address go."""
        return [each.broker for each in self.placements.addresses.get(name, ()) if each.active]

    def default(self, space: str) -> AddressName | None:
        """Return the address that takes what no other of its space does."""
        return next((name for name in self._defaults if split_name(name).space == space), None)

    def active_of_wire(self, to: str) -> list[str]:
        """Return the brokers to which messages with this `to` go."""
        owner = self._bindable.of_name(to).owner_of_wire(to)
        return self.active(owner.name) if owner is not None else []

    def carriers_of_wire(self, to: str) -> list[str]:
        """Return the brokers that have messages with this `to`."""
        owner = self._bindable.of_name(to).owner_of_wire(to)
        return self.carriers(owner.name) if owner is not None else []

    def patterns(self, broker: str, subscriber: Subscriber, *, held: bool) -> set[str]:
        """Return the patterns that lead to its queue on this broker. `held`: the queue exists, so it stays bound to
        topics that are leaving, and for a while to names that its filters covered before the addresses have changed."""
        found = set(self._placed(subscriber).get(broker, ()))
        if not held:
            return found
        found.update(self._former(broker, subscriber))
        if not self._leaving:
            return found
        for filter in subscriber.filters:
            try:
                targets = self._targets(filter, self._bindable.of(subscriber.space), amqp=subscriber.amqp)
            except FilterRefused:
                continue
            for target in targets:
                if target.name in self._leaving and any(p.broker == broker for p in self._places(target.name)):
                    found.add(target.pattern)
        return found

    def _covered_before(self, last: Placed | None, filters: frozenset[str]) -> tuple[Mapping[str, set[str]], float]:
        """Return the patterns of before a change of the feeds, and until when a queue stays bound to them."""
        if last is None or not last.filters <= filters:
            return {}, 0.0
        now = self._clock()
        found = {broker: set(patterns) for broker, patterns in last.patterns.items()}
        for broker, patterns in last.former.items() if now < last.end else ():
            found.setdefault(broker, set()).update(patterns)
        return found, now + LEAVE_BOUND

    def _former(self, broker: str, subscriber: Subscriber) -> Iterable[str]:
        placed = subscriber.placed
        if placed is None or not placed.former:
            return ()
        if self._clock() >= placed.end:
            subscriber.placed = placed._replace(former={})
            return ()
        return [each for each in placed.former.get(broker, ()) if broker in self.carriers_of_wire(each)]

    def brokers(self, subscriber: Subscriber) -> set[str]:
        """Return the brokers on which a subscriber is to have a queue, without those that are only prepared."""
        if not self._prepared:
            return set(self._placed(subscriber))
        found: set[str] = set()
        for filter in subscriber.filters:
            found.update(
                self._where(filter, subscriber.amqp, subscriber.space, lambda name, place: place.state != "prepared")
            )
        return found

    def is_bound(self, broker: str, subscriber: Subscriber) -> bool:
        """Return True if a subscriber is to have a queue on this broker."""
        return broker in self._placed(subscriber)

    def _placed(self, subscriber: Subscriber) -> dict[str, set[str]]:
        """Return broker → patterns. One more filter costs work for one; a change of addresses for those it concerns."""
        last, filters = subscriber.placed, subscriber.filters
        if last is not None and last.filters <= filters and self._is_valid(last, subscriber.space):
            new, patterns = filters - last.filters, last.patterns
            if not new:
                if last.state != self._state:
                    subscriber.placed = last._replace(state=self._state)
                return patterns
            former, end = last.former, last.end
        else:
            new, patterns = filters, {}
            former, end = self._covered_before(last, filters)
        for filter in new:
            found_at = self._where(filter, subscriber.amqp, subscriber.space, lambda name, place: True)
            for broker, found in found_at.items():
                patterns.setdefault(broker, set()).update(found)
        subscriber.placed = Placed(self._state, filters, patterns, former, end)
        return patterns

    def _is_valid(self, placed: Placed, space: str) -> bool:
        """Return True if no change since then concerns these filters."""
        if placed.state == self._state:
            return True
        if not self._changes or placed.state + 1 < self._changes[0].state:
            return False
        topics = self.topics.of(space)
        for change in reversed(self._changes):
            if change.state <= placed.state:
                return True
            if change.names is None or any(_concerns(topics, change.names, filter) for filter in placed.filters):
                return False
        return True


def _concerns(topics: TopicMap, names: list[list[str]], filter: str) -> bool:
    """Return True if what a filter covers may differ when addresses of these names come, go or move. `topics`: those of
    the filter's address space."""
    spellings, default = [topics.full(filter)], topics.default
    if default is not None:
        # Another spelling of a topic of the default: without the default's name an address may take it.
        if _overlap(filter.split("/"), default.split("/")):
            return True
        # A topic that the default takes: it moves with the default, and an address below the default may take it.
        spellings.append(topics.full(f"{default}/{filter}"))
    for spelling in spellings:
        for form in (spelling, router_form(spelling)) if "." in spelling else (spelling,):
            levels = form.split("/")
            if any(_overlap(levels, name) for name in names):
                return True
    return False


def _overlap(filter: list[str], name: list[str]) -> bool:
    """Return True if a filter and a name can be equal level by level, as far as both go."""
    for level, other in zip(filter, name, strict=False):
        if level == "#":
            return True
        if level not in ("+", other):
            return False
    return True


def _differing(before: Mapping[AddressName, Any], after: Mapping[AddressName, Any]) -> set[AddressName]:
    changed = {name for name, value in after.items() if before.get(name) != value}
    changed.update(before.keys() - after.keys())
    return changed
