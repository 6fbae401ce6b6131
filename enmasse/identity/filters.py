"""Filters of MQTT subscriptions and what users may receive. No sockets."""

from __future__ import annotations

from enmasse.identity.permissions import Rights
from enmasse.model.topics import FilterRefused, TopicMap
from enmasse.mqtt.topics import parse_share


def may_receive(rights: Rights, topics: TopicMap, filter: str) -> bool:
    """Return whether a client may subscribe: `recv` on all names on AMQP that the filter matches. A filter that no
    address takes is for the subscription service to refuse."""
    share = parse_share(filter)
    try:
        names = topics.wire_filters(filter if share is None else share.filter)
    except FilterRefused:
        return True
    return all(rights.covers("recv", name).allowed for name in names)
