"""Subscriptions of a session: which subscriptions a message matches, and with which options it goes out. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from enmasse.model.sessions import Subscription
from enmasse.model.topic_map import FilterRefused, FilterTarget, TopicMap
from enmasse.mqtt.packets import NONE, Properties
from enmasse.mqtt.topics import RESERVED, parse_share
from enmasse.name_tries import PatternTrie
from services.mqtt_gateway.amqp.mapping import MessageFields

MAX_MATCHES: Final = 256
"""Topics whose subscriptions a session remembers."""
LONGEST: Final = 256
"""Characters of such a topic."""


class Match:
    """Options with which a message of this topic goes to the client."""

    __slots__ = ("as_published", "properties", "qos", "topic")

    def __init__(self, topic: str, subscriptions: Iterable[Subscription]) -> None:
        self.topic = topic
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
    """The subscriptions of one session. `client` is its client id, for No Local."""

    __slots__ = ("_client", "_matches", "_topics", "_tree", "subscriptions", "wants_no_local")

    def __init__(self, client: str, topics: TopicMap, subscriptions: Iterable[Subscription]) -> None:
        self.subscriptions: dict[str, Subscription] = {}
        self.wants_no_local = False
        """Some subscription is No Local: its client's messages must name it as their publisher."""
        self._client = client
        self._topics = topics
        self._tree: PatternTrie[str] = PatternTrie(reserved=RESERVED)
        self._matches: dict[str, Match | None] = {}
        for each in subscriptions:
            self.add(each)

    def add(self, subscription: Subscription) -> None:
        """A new one, or one of the same filter with other options."""
        self.subscriptions[subscription.filter] = subscription
        if parse_share(subscription.filter) is None:
            self._tree.add(subscription.filter, subscription.filter)
        self._changed()

    def remove(self, filter: str) -> None:
        """Remove the subscription to this filter, if there is one."""
        if self.subscriptions.pop(filter, None) is not None:
            self._tree.remove(filter, filter)
        self._changed()

    def set_topics(self, topics: TopicMap) -> None:
        """Other addresses are configured."""
        self._topics = topics
        self._matches.clear()

    def _changed(self) -> None:
        self._matches.clear()
        self.wants_no_local = any(each.no_local for each in self.subscriptions.values())

    def match(self, front: MessageFields, spellings: tuple[str, ...]) -> Match | None:
        """Return the subscriptions that a message to a topic with these spellings matches; None if it matches none of
        them."""
        if front.publisher == self._client:
            return self._find(spellings, own=True)
        topic = spellings[0]
        try:
            return self._matches[topic]
        except KeyError:
            match = self._find(spellings, own=False)
            if len(topic) <= LONGEST:
                if len(self._matches) >= MAX_MATCHES:
                    self._matches.clear()
                self._matches[topic] = match
            return match

    def _find(self, spellings: tuple[str, ...], own: bool) -> Match | None:
        for topic in spellings:
            full = topic is not spellings[0]
            found = [
                self.subscriptions[filter]
                for filter in self._tree.match(topic)
                if not full or self._topics.spells_default(filter)
            ]
            found = [each for each in found if not (own and each.no_local)]
            if found:
                return Match(topic, found)
        return None

    def only(self, filter: str, front: MessageFields, spellings: tuple[str, ...]) -> Match | None:
        """Return the match for a message that is for this subscription only: of a shared subscription, or a retained
        one."""
        subscription = self.subscriptions.get(filter)
        if subscription is None or not spellings:
            return None
        share = parse_share(filter)
        plain = filter if share is None else share.filter
        topic = spellings[-1] if self._topics.spells_default(plain) else spellings[0]
        return Match(topic, [subscription])

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
