"""Messages from clients: the lane of each name that they send to, and all lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.connection import Connection
from enmasse.amqp.messages.scan import find_to
from enmasse.amqp.session import Session as AmqpSession
from enmasse.bridge.lanes import Counters, Lane, Publisher
from enmasse.bridge.message_routes import REPLIES, Route
from enmasse.model.address_types import TYPES, Traits
from enmasse.model.names import RELAYS_TO_TOPICS
from enmasse.model.topic_map import TopicMap

MAX_ROUTES: Final = 8192
"""Topics whose way is remembered."""
LONGEST: Final = 256
"""Characters of such a topic: what is remembered has several times its bytes."""
MAX_LINKS: Final = 512
"""Links to addresses, and to topics if the router's relay does not reach them; the one unused for longest gives way."""


R = TypeVar("R", bound=Route)


class Way(Generic[R]):
    """A topic's route and its lane."""

    __slots__ = ("lane", "route")

    def __init__(self, route: R, lane: Lane) -> None:
        self.route = route
        self.lane = lane


class Publishing(Generic[R]):
    """Lanes of all topics of one address space that clients publish to, over the connection that there is. `find`
    returns the route of a topic, None: no address takes it. `counters`: those of all spaces."""

    def __init__(
        self,
        topics: TopicMap,
        find: Callable[[str, TopicMap], R | None],
        counters: Counters | None = None,
    ) -> None:
        self._route = find
        self.counters = counters or Counters()
        self._topics = topics
        self._session: AmqpSession | None = None
        self._relays = True
        """The router's anonymous terminus reaches topics: one link is enough for all of them."""
        self._ways: dict[str, Way[R] | None] = {}
        self._relay = self._new_lane(None, TYPES["topic"])
        self._replies = Lane(None, REPLIES, self.counters, topics.space)
        self._lanes: dict[str, Lane] = {}
        self._turn = 0.0

    @property
    def topics(self) -> TopicMap:
        """Topics by which messages find their way."""
        return self._topics

    @property
    def links(self) -> int:
        """Number of attached links."""
        return sum(lane.link is not None for lane in self._all())

    @property
    def waiting(self) -> int:
        """Number of messages that wait in all lanes."""
        return sum(lane.waiting for lane in self._all())

    @property
    def busy(self) -> bool:
        """Something waits, or has no outcome yet."""
        return not all(lane.idle for lane in self._all())

    def _all(self) -> list[Lane]:
        return [self._relay, self._replies, *self._lanes.values()]

    def withdraw(self, who: Publisher) -> None:
        """Drop what a client has waiting, without outcomes; QoS 0 stays. The client sends it again."""
        for lane in self._all():
            lane.withdraw(who)

    def set_topics(self, topics: TopicMap) -> None:
        """Other addresses are configured. Messages whose address has another type by now take the lane of that."""
        self._topics = topics
        self._ways.clear()
        for lane in self._all():
            lane.reroute()

    def _new_lane(self, address: str | None, traits: Traits) -> Lane:
        lane = Lane(address, traits, self.counters, self._topics.space)
        lane.elsewhere = self._lane_of
        return lane

    def _lane_of(self, payload: bytes) -> Lane | None:
        """Return the lane of a message that has waited; None: no address takes it now."""
        to = find_to(payload)
        owner = None if to is None else self._topics.owner(self._topics.topic_of(to.decode()))
        if owner is None:
            return None
        if owner.traits.levels and self._relays:
            return self._relay
        lane = self._lane(owner.wire, owner.traits)
        if not lane.attached:
            self._attach(lane)
        return lane

    def _lane(self, address: str, traits: Traits) -> Lane:
        lane = self._lanes.get(address)
        if lane is None:
            lane = self._new_lane(address, traits)
            if not traits.levels:
                self._lanes[address] = lane
        return lane

    def up(self, connection: Connection) -> None:
        """There is a new connection: attaches what is used."""
        offered = connection.remote_open.offered_capabilities if connection.remote_open is not None else None
        session, relays = connection.begin(), RELAYS_TO_TOPICS in (offered or ())
        self._session = session
        if relays != self._relays:  # another router: what waits keeps its link
            self._relays = relays
            self._ways.clear()
        for lane in self._all():
            if lane in (self._relay, self._replies) or not lane.idle:
                lane.attach(session)

    def way(self, topic: str) -> Way[R] | None:
        """Return the route and lane of a topic; None: no address takes it."""
        try:
            way = self._ways[topic]
        except KeyError:
            way = self._find(topic)
            if len(topic) <= LONGEST:
                if len(self._ways) >= MAX_ROUTES:
                    self._ways.clear()
                self._ways[topic] = way
        if way is not None and way.lane is not self._relay and way.lane is not self._replies:
            lane = way.lane
            self._turn += 1
            lane.used = self._turn
            if not lane.attached:
                self._attach(lane)
        return way

    def _find(self, topic: str) -> Way[R] | None:
        route = self._route(topic, self._topics)
        if route is None:
            return None
        if route.type is None:
            return Way(route, self._replies)
        if route.link is None and self._relays:
            return Way(route, self._relay)
        lane = self._lane(route.wire, route.traits)
        lane.traits = route.traits
        return Way(route, lane)

    def _attach(self, lane: Lane) -> None:
        session = self._session
        if lane.address is not None:
            self._lanes[lane.address] = lane
        if session is None or session.ended or lane.attached:
            return
        open_lanes = [each for each in self._lanes.values() if each.link is not None]
        if len(open_lanes) >= MAX_LINKS:
            spare = min((each for each in open_lanes if each.idle), key=lambda each: each.used, default=None)
            if spare is not None:
                spare.close()
                if spare.traits.levels:
                    self._forget(spare)
        try:
            lane.attach(session)
        except AmqpError:
            return  # no handle is left, or the session ends: the next tick tries again

    def _forget(self, lane: Lane) -> None:
        """There is no end of topics. A way that has this lane attaches it again."""
        if lane.address is not None:
            self._lanes.pop(lane.address, None)

    def tick(self) -> None:
        """Each lanes.TICK."""
        for lane in self._all():
            lane.tick()
            if not lane.attached and (lane in (self._relay, self._replies) or not lane.idle):
                self._attach(lane)
            elif not lane.attached and lane.traits.levels:
                self._forget(lane)
