"""Permissions of clients for topics."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from enmasse.bridge.publishing import Way
from enmasse.identity.mqtt_permissions import name_of
from enmasse.identity.permissions import Rights
from enmasse.model.names import is_temporary
from enmasse.model.permission_words import Operation
from enmasse.model.topic_map import TopicMap
from services.mqtt_gateway.amqp.mapping import TopicRoute
from services.mqtt_gateway.interfaces import BRIDGE_STATE


class NotAllowed(Exception):
    """The client has no permission to publish to the topic."""


def may_send(rights: Rights, topics: TopicMap, topic: str, route: TopicRoute | None) -> bool:
    """Return whether a client may publish to a topic, by its route (None: no address takes it): `send` on its name on
    AMQP. The state of bridges is ignored, not refused."""
    if route is not None and route.type is None:
        return _may_reply(rights, "send", route)
    ignored = route is None and topic.startswith(BRIDGE_STATE)
    return ignored or rights.allows("send", name_of(topics, topic))


def may_have_replies(rights: Rights, topics: TopicMap, topic: str) -> bool:
    """Return whether a client may state this response topic: `recv` on its name on AMQP, because the client listens
    there; a temporary address needs none."""
    route = TopicRoute.find(topic, topics)
    if route is not None and route.type is None:
        return _may_reply(rights, "recv", route)
    return rights.allows("recv", name_of(topics, topic))


def _may_reply(rights: Rights, operation: Operation, route: TopicRoute) -> bool:
    """Return whether this is allowed on an AMQP client's reply address, which has no topic of its own."""
    return is_temporary(route.to) or rights.allows(operation, route.to)


def ways(
    find: Callable[[str], Way[TopicRoute] | None], topics: Callable[[], TopicMap], rights: Rights | None
) -> Callable[[str], Way[TopicRoute] | None]:
    """Return the function that finds the ways of a client's messages: `find`, which raises NotAllowed for topics that
    `rights` do not allow. `topics()`: those in force."""
    return find if rights is None else partial(_allowed, find, topics, rights)


def _allowed(
    find: Callable[[str], Way[TopicRoute] | None], topics: Callable[[], TopicMap], rights: Rights, topic: str
) -> Way[TopicRoute] | None:
    way = find(topic)
    if way is not None and rights.allows("send", way.route.to):  # for a topic with an address its one name
        return way
    if may_send(rights, topics(), topic, None if way is None else way.route):
        return way
    raise NotAllowed
