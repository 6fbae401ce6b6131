"""Users and their permissions, as the configuration service publishes them, and what they allow an MQTT client.

No sockets. While there are no users a client has no Rights (None), and nothing is asked for a message.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from enmasse.bridge.publishing import Way
from enmasse.identity.allowances import Reservation
from enmasse.identity.enforcer import Enforcer
from enmasse.identity.login import Login
from enmasse.identity.mqtt_permissions import name_of
from enmasse.identity.permissions import Rights
from enmasse.identity.principal import ANONYMOUS, Principal
from enmasse.identity.user_directory import UserDirectory
from enmasse.model.names import is_temporary
from enmasse.model.operations import Operation
from enmasse.model.topic_map import TopicMap
from enmasse.mqtt import reasons
from services.mqtt_gateway.amqp.mapping import TopicRoute
from services.mqtt_gateway.interfaces import BRIDGE_STATE, Refused

NOBODY: Final = Login(Principal(ANONYMOUS))
"""A client that states no user name."""


class NotAllowed(Exception):
    """The client has no permission to publish to the topic."""


class ClientAccess:
    """Users, the live logins of clients by their client identifiers, and what was refused. `enabled` False: users are
    not followed, every client may do everything. `review`: called with the identifier of a client whose login or rights
    may be others now."""

    def __init__(self, enabled: bool, review: Callable[[str], None] = lambda _: None) -> None:
        self.users = UserDirectory(open_to_all=not enabled)
        self.enforcer: Enforcer[str] = Enforcer(self.users, review, _later, time.monotonic)
        self.refused: Counter[str] = Counter()
        """Number of refusals for want of permission, by operation: publish, subscribe, will, session; connect: for a
        limit."""
        self.dropped = 0
        """Messages of clients of 3.1.1 that were acknowledged and dropped, because they were not allowed."""

    def rights(self, login: Login) -> Rights | None:
        """Return what a client may do; None: everything. The same object as before if nothing has changed for it."""
        return self.users.rights(login.principal)

    async def room(self, login: Login) -> None:
        """Wait until it is known whether there is room for a connection of this user, and then call `hold` at once."""
        allowances, principal = self.enforcer.allowances, login.principal
        found: asyncio.Future[Reservation] = asyncio.get_running_loop().create_future()

        def answered() -> None:
            if not found.done():
                found.set_result(allowances.reserve(principal))

        if allowances.wait(principal, answered):
            (await found).release()

    def hold(self, login: Login, client_id: str) -> None:
        """Count the connection of a client before its session is there; it takes the place of one with the same
        `client_id`. Raises Refused if the user has reached a limit."""
        for reason, text in (
            (reasons.QUOTA_EXCEEDED, self.enforcer.too_many(login, client_id)),
            (reasons.CONNECTION_RATE_EXCEEDED, self.enforcer.too_often(login)),
        ):
            if text:
                self.refused["connect"] += 1
                raise Refused(reason, text)
        self.enforcer.hold(client_id, login)


def _later(seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(seconds, call)


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
