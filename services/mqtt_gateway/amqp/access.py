"""Users and their permissions, as the configuration service publishes them, and what they allow an MQTT client.

No sockets. While there are no users a client has no Rights (None), and nothing is asked for a message.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from enmasse.identity.filters import name_of
from enmasse.identity.login import Login
from enmasse.identity.permissions import Permissions, Rights
from enmasse.identity.principal import ANONYMOUS, Principal
from enmasse.identity.quotas import Quotas
from enmasse.model import feeds
from enmasse.model.feeds import GrantedUser
from enmasse.model.names import is_temporary
from enmasse.model.topics import TopicMap
from enmasse.model.users import Operation
from enmasse.mqtt import reasons
from services.mqtt_gateway.amqp.mapping import Route
from services.mqtt_gateway.amqp.publishing import Way
from services.mqtt_gateway.ports import BRIDGE_STATE, Refused

NOBODY: Final = Login(Principal(ANONYMOUS))
"""A client that states no user name."""


class NotAllowed(Exception):
    """The client has no permission to publish to the topic."""


class Access:
    """`enabled` False: users are not followed, every client may do everything. `today`: seconds since 1970."""

    def __init__(self, enabled: bool, today: Callable[[], float] = time.time) -> None:
        self.known = not enabled
        """The permissions are known."""
        self.anonymous = not enabled
        """There are no users: clients need not log in, and everything is allowed."""
        self.refused: Counter[str] = Counter()
        """Number of refusals for want of permission, by operation: publish, subscribe, will, session; connect: for a
        limit."""
        self.dropped = 0
        """Messages of clients of 3.1.1 that were acknowledged and dropped, because they were not allowed."""
        self.today = today
        self._users: Mapping[str, GrantedUser] = {}
        self._permissions = Permissions({}, anonymous=self.anonymous)
        self._quotas = Quotas(time.monotonic)
        self._clients: dict[str, set[str]] = {}
        """User → the client identifiers of its connections."""

    def replace(self, body: feeds.Permissions) -> None:
        """Put other users and permissions in force."""
        self._permissions = Permissions(body.users, anonymous=body.anonymous, earlier=self._permissions)
        self._users, self.anonymous, self.known = body.users, body.anonymous, True

    def rights(self, login: Login) -> Rights | None:
        """Return what a client may do; None: everything. The same object as before if nothing has changed for it."""
        return None if self.anonymous else self._permissions.rights(login.principal)

    def enter(self, login: Login, client_id: str, *, again: bool = False) -> None:
        """Count the connection of a client of this user, which takes the place of one with the same `client_id`.
        `again`: it was counted before it waited for its session. Raises Refused if the user has reached a limit."""
        name, limits = login.principal.name, self._permissions.limits(login.principal)
        clients = self._clients.setdefault(name, set())
        if not again:
            for reason, text in (
                (reasons.QUOTA_EXCEEDED, self._quotas.too_many(name, limits, len(clients) - (client_id in clients))),
                (reasons.CONNECTION_RATE_EXCEEDED, self._quotas.too_often(name, limits)),
            ):
                if text:
                    self.refused["connect"] += 1
                    raise Refused(reason, text)
        clients.add(client_id)

    def leave(self, login: Login, client_id: str) -> None:
        """Note that no client of this user has this `client_id` any longer."""
        name = login.principal.name
        clients = self._clients.get(name, set())
        clients.discard(client_id)
        if not clients:
            self._clients.pop(name, None)

    def by_certificate(self, user: str) -> Login | None:
        """Return the login of a client whose certificate names this user; None if there is no such user."""
        entry = self._users.get(user) if self._permissions.knows(user) else None
        return None if entry is None else Login(Principal(user, entry.groups), certified=True)

    def refusal(self, login: Login) -> str:
        """Return why a client may no longer be connected; empty if it may."""
        if self.anonymous:
            return ""
        name, stated = login.principal.name, login.credentials
        entry = self._users.get(name) if self._permissions.knows(name) else None
        if name == ANONYMOUS:
            return "" if entry is not None else "clients need a user name and password"
        if login.expires is not None and self.today() >= login.expires:
            return "the token has expired"
        if stated is None and not login.certified:
            return ""
        if entry is None:
            return "the user was removed"
        return "" if login.certified or stated == entry.credentials else "the password was changed"


def may_send(rights: Rights, topics: TopicMap, topic: str, route: Route | None) -> bool:
    """Return whether a client may publish to a topic, by its route (None: no address takes it): `send` on its name on
    AMQP. The state of bridges is ignored, not refused."""
    if route is not None and route.type is None:
        return _may_reply(rights, "send", route)
    ignored = route is None and topic.startswith(BRIDGE_STATE)
    return ignored or rights.allows("send", name_of(topics, topic))


def may_have_replies(rights: Rights, topics: TopicMap, topic: str) -> bool:
    """Return whether a client may state this response topic: `recv` on its name on AMQP, because the client listens
    there; a temporary address needs none."""
    route = Route.find(topic, topics)
    if route is not None and route.type is None:
        return _may_reply(rights, "recv", route)
    return rights.allows("recv", name_of(topics, topic))


def _may_reply(rights: Rights, operation: Operation, route: Route) -> bool:
    """Return whether this is allowed on an AMQP client's reply address, which has no topic of its own."""
    return is_temporary(route.to) or rights.allows(operation, route.to)


def ways(
    find: Callable[[str], Way | None], topics: Callable[[], TopicMap], rights: Rights | None
) -> Callable[[str], Way | None]:
    """Return the function that finds the ways of a client's messages: `find`, which raises NotAllowed for topics that
    `rights` do not allow. `topics()`: those in force."""
    return find if rights is None else partial(_allowed, find, topics, rights)


def _allowed(
    find: Callable[[str], Way | None], topics: Callable[[], TopicMap], rights: Rights, topic: str
) -> Way | None:
    way = find(topic)
    if way is not None and rights.allows("send", way.route.to):  # for a topic with an address its one name
        return way
    if may_send(rights, topics(), topic, None if way is None else way.route):
        return way
    raise NotAllowed
