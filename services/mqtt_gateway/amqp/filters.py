"""Subscriptions of a session: which subscriptions a message matches, and with which options it goes out. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from enmasse.model.sessions import Subscription
from enmasse.model.topic_map import FilterRefused, FilterTarget, TopicMap
from enmasse.mqtt.packets import NONE, Properties
from enmasse.mqtt.topics import RESERVED, matches, parse_share
from enmasse.name_tries import PatternTrie
from services.mqtt_gateway.address_use import AddressUse, Carried
from services.mqtt_gateway.amqp.mapping import MessageFields

MAX_MATCHES: Final = 256
"""Topics whose subscriptions a session remembers."""
LONGEST: Final = 256
"""Characters of such a topic."""


class Match:
    """Options with which a message of this topic goes to the client. `counts`: sums that it counts in."""

    __slots__ = ("as_published", "counts", "properties", "qos", "topic")

    def __init__(self, topic: str, subscriptions: Iterable[Subscription], counts: tuple[Carried, ...] = ()) -> None:
        self.topic = topic
        self.counts = counts
        self.qos = 0
        self.as_published = False
        ids = []
        for each in subscriptions:
            self.qos = max(self.qos, each.qos)
            self.as_published |= each.retain_as_published
            if each.identifier:
                ids.append(each.identifier)
        self.properties = Properties(subscription_ids=tuple(ids)) if ids else NONE


class SessionFilters:
    """The subscriptions of one session. `client` is its client id, for No Local; `use` counts them, until `close`."""

    __slots__ = (
        "_client",
        "_closed",
        "_matches",
        "_topics",
        "_tree",
        "_use",
        "carried",
        "subscriptions",
        "wants_no_local",
    )

    def __init__(self, client: str, topics: TopicMap, subscriptions: Iterable[Subscription], use: AddressUse) -> None:
        self.subscriptions: dict[str, Subscription] = {}
        self.carried: dict[str, Carried] = {}
        """Messages to the client by each of them."""
        self._use = use
        self._closed = False
        self.wants_no_local = False
        """Some subscription is No Local: its client's messages must name it as their publisher."""
        self._client = client
        self._topics = topics
        self._tree: PatternTrie[str] = PatternTrie(reserved=RESERVED)
        self._matches: dict[tuple[str, ...] | tuple[str, tuple[str, ...]], Match | None] = {}
        for each in subscriptions:
            self.add(each)

    def add(self, subscription: Subscription) -> None:
        """A new one, or one of the same filter with other options."""
        if subscription.filter not in self.carried and not self._closed:
            self._use.subscribed(subscription.filter)
            self.carried[subscription.filter] = Carried()
        self.subscriptions[subscription.filter] = subscription
        if parse_share(subscription.filter) is None:
            self._tree.add(subscription.filter, subscription.filter)
        self._changed()

    def remove(self, filter: str) -> None:
        """Remove the subscription to this filter, if there is one."""
        if self.subscriptions.pop(filter, None) is not None:
            self._tree.remove(filter, filter)
            self._uncount(filter)
        self._changed()

    def close(self) -> None:
        """The client is gone: its subscriptions count no longer."""
        self._closed = True
        for filter in list(self.carried):
            self._uncount(filter)

    def _uncount(self, filter: str) -> None:
        if self.carried.pop(filter, None) is not None:
            self._use.unsubscribed(filter)

    def set_topics(self, topics: TopicMap) -> None:
        """Other addresses are configured."""
        self._topics = topics
        self._matches.clear()

    def _changed(self) -> None:
        self._matches.clear()
        self.wants_no_local = any(each.no_local for each in self.subscriptions.values())

    def match(self, fields: MessageFields, spellings: tuple[str, ...]) -> Match | None:
        """Return the subscriptions that a message to a topic with these spellings matches; None if it matches none of
        them."""
        if fields.publisher == self._client:
            return self._find(spellings, own=True)
        try:
            return self._matches[spellings]
        except KeyError:
            return self._remember(spellings, spellings, self._find(spellings, own=False))

    def _find(self, spellings: tuple[str, ...], own: bool) -> Match | None:
        for topic in spellings:
            full = (
                topic is not spellings[0]
                and self._topics.spells_default(topic)
                and not self._topics.default_is_remarked
            )
            found = [
                self.subscriptions[filter]
                for filter in self._tree.match(topic)
                if not full or self._topics.spells_default(filter)
            ]
            found = [each for each in found if not (own and each.no_local)]
            if found:
                counts = [self.carried[each.filter] for each in found if each.filter in self.carried]
                return Match(topic, found, (self._use.delivered(spellings[0]), *counts))
        return None

    def _remember(
        self, key: tuple[str, ...] | tuple[str, tuple[str, ...]], spellings: tuple[str, ...], match: Match | None
    ) -> Match | None:
        if len(max(spellings, key=len)) <= LONGEST:
            if len(self._matches) >= MAX_MATCHES:
                self._matches.clear()
            self._matches[key] = match
        return match

    def only(self, filter: str, fields: MessageFields, spellings: tuple[str, ...]) -> Match | None:
        """Return the match for a message that is for this subscription only: of a shared subscription, or a retained
        one."""
        subscription = self.subscriptions.get(filter)
        if subscription is None or not spellings:
            return None
        key = filter, spellings
        try:
            return self._matches[key]
        except KeyError:
            return self._remember(key, spellings, self._of_one(subscription, spellings))

    def _of_one(self, subscription: Subscription, spellings: tuple[str, ...]) -> Match:
        filter = subscription.filter
        share = parse_share(filter)
        plain = filter if share is None else share.filter
        topic = next((each for each in spellings if matches(plain, each)), spellings[0])
        counts = [self.carried[filter]] if filter in self.carried else []
        return Match(topic, [subscription], (self._use.delivered(spellings[0]), *counts))

    def addresses(self) -> dict[str, tuple[FilterTarget, str | None]]:
        """Return the addresses from which the session receives without a queue of its own: address → target, and the
        filter of the shared subscription, if it is one."""
        found: dict[str, tuple[FilterTarget, str | None]] = {}
        for filter in self.subscriptions:
            share = parse_share(filter)
            for target in _targets(self._topics, filter if share is None else share.filter):
                if not target.traits.levels and (share is None or target.name not in found):
                    found[target.name] = (target, None if share is None else filter)
        return found

    def most(self, name: str) -> int:
        """The highest QoS of the subscriptions to an address that is no topic."""
        return max(
            (
                each.qos
                for filter, each in self.subscriptions.items()
                if any(target.name == name for target in _targets(self._topics, _plain(filter)))
            ),
            default=0,
        )


def _plain(filter: str) -> str:
    share = parse_share(filter)
    return filter if share is None else share.filter


def _targets(topics: TopicMap, filter: str) -> list[FilterTarget]:
    try:
        return topics.targets(filter)
    except FilterRefused:
        return []
