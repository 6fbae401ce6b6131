"""State of an address space: its addresses, the routes of their names, and the lanes of messages from clients."""

from __future__ import annotations

import asyncio

from enmasse.amqp.connection import Connection
from enmasse.amqp.session import Session
from enmasse.bridge.lanes import Counters
from enmasse.bridge.message_routes import Route, link_of
from enmasse.bridge.publishing import Publishing
from enmasse.model.names import SPACE, is_temporary, plain_name
from enmasse.model.topic_map import TopicMap


def route_of(name: str, topics: TopicMap) -> Route | None:
    """Return the route of an address, or of a name below a topic address; None: it does not exist. Names are
    those of AMQP, in the address space. Reply addresses of AMQP clients have routes too."""
    if name.startswith(("$", SPACE)):
        return None
    if is_temporary(name):
        return Route(name, None, None, plain_name(name))
    owner = topics.owner_of_wire(name)
    if owner is None:
        return None
    return Route(topics.local(owner.name), owner.type, link_of(owner), owner.to, owner.wire)


class SpaceLanes:
    """As bridge.GatewaySpace."""

    def __init__(self, space: str, counters: Counters) -> None:
        self.space = space
        self.topics = TopicMap({}, space=space)
        self.publishing: Publishing[Route] = Publishing(self.topics, route_of, counters)
        self.receiving: Session | None = None
        """On which links to clients are attached; None: there is no connection."""
        self.reached = asyncio.Event()

    def up(self, connection: Connection) -> None:
        """As GatewaySpace."""
        self.publishing.up(connection)
        self.receiving = connection.begin()
        self.reached.set()

    def set_topics(self, topics: TopicMap) -> None:
        """As GatewaySpace."""
        self.topics = topics
        self.publishing.set_topics(topics)
