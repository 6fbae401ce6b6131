"""The one rule by which things of MQTT ask for permissions, which are of names on AMQP. No sockets.

A topic (of a message, a will, a retained message, a response) asks for `name_of`, a filter (of a subscription, alone or
shared) for `names_of`, a session for those of all its filters. An event about one of them, a row and a count need
the right to view these names. What no address takes counts as written, so that the answer to a client without
permission does not show which addresses there are.
"""

from __future__ import annotations

from collections.abc import Iterable

from enmasse.identity.permissions import Decision, Rights
from enmasse.model.permission_words import Operation
from enmasse.model.topic_map import FilterRefused, TopicMap, wire_form
from enmasse.mqtt.topics import parse_share

MOST_NAMES = 3
"""Names on AMQP in the text of an event."""


def name_of(topics: TopicMap, topic: str) -> str:
    """Return the name on AMQP of a topic."""
    owner = topics.owner(topic)
    return wire_form(topic) if owner is None else owner.to


def names_of(topics: TopicMap, filter: str) -> list[str]:
    """Return the names on AMQP that a filter matches, as filters."""
    share = parse_share(filter)
    plain = filter if share is None else share.filter
    if "+" not in plain and "#" not in plain:
        return [name_of(topics, plain)]
    try:
        return topics.wire_filters(plain)
    except FilterRefused:
        return [wire_form(plain)]


def names_of_all(topics: TopicMap, filters: Iterable[str]) -> list[str]:
    """Return the names of several filters, each once."""
    return list(dict.fromkeys(name for filter in filters for name in names_of(topics, filter)))


def without_permission(topics: TopicMap, what: str, topic: str) -> str:
    """Return the text for a client without permission to do `what` with a topic or filter. It has the names that it
    may have in permissions, as an address takes it or none does: a client does not learn which there are."""
    text = f"no permission to {what} {topic[:100]!r}"
    share = parse_share(topic)
    plain = topic if share is None else share.filter
    if topics.default is None or plain.startswith("$") or plain.split("/")[0] == topics.default:
        return text
    name = f"{topics.default}/{wire_form(plain)}"
    return f"{text}. Permissions have this name if an address takes it, else {name[:100]!r}: `enmasse events` shows it"


def denied(what: str, topic: str, names: Iterable[str]) -> str:
    """Return the text of an event about a topic or filter for which a client had no permission. It has the `names` on
    AMQP, by which permissions are given, if they differ; those who see the event may view them."""
    text, found = f"no permission to {what} {topic[:100]!r}", list(names)[:MOST_NAMES]
    if found == [topic]:
        return text
    return f"{text}, in permissions {', '.join(repr(name[:100]) for name in found)}"


def may_subscribe(rights: Rights, topics: TopicMap, filter: str) -> bool:
    """Return whether a client may subscribe: `recv` on all names that the filter matches."""
    return all(rights.covers("recv", name).allowed for name in names_of(topics, filter))


def may_keep(rights: Rights, topics: TopicMap, filter: str) -> bool:
    """Return whether a subscription that there is may stay: one that no address takes at the moment may."""
    share = parse_share(filter)
    try:
        topics.targets(filter if share is None else share.filter)
    except FilterRefused:
        return True
    return may_subscribe(rights, topics, filter)


def decided(rights: Rights, topics: TopicMap, operation: Operation, name: str) -> tuple[Decision, str]:
    """Return the decision about a name that clients of any protocol use, or about a filter; and the name on AMQP that
    it is about, of several the one that decides. What is no address on AMQP may be a topic of the default one."""
    found, about = Decision(False), name
    for about in _meant(topics, name):
        found = rights.covers(operation, about)
        if not found.allowed:
            break
    return found, about


def _meant(topics: TopicMap, name: str) -> list[str]:
    """Return the names on AMQP that a name means, which is one of AMQP or a topic, or a filter."""
    share = parse_share(name)
    plain = name if share is None else share.filter
    if plain.startswith("$") or topics.owner_of_wire(plain) is not None:
        return [plain]
    if not {"+", "#"}.isdisjoint(plain.split("/")):
        try:
            return topics.wire_filters(plain)
        except FilterRefused:
            return [plain]
    owner = None if {"+", "#"} & set(plain) else topics.owner(plain)
    return [plain if owner is None else owner.to]
