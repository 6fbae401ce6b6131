"""Users of the listeners with `saslPlugin`: their connections, and their rights by the permissions that the
configuration service publishes.

Rights are asked when a link is attached, and for the address of a message without a link of its own before that address
is remembered. A change visits the connections of the users that it concerns, and no others.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from enmasse.amqp.codec.errors import RESOURCE_LIMIT_EXCEEDED, UNAUTHORIZED_ACCESS, AmqpError
from enmasse.amqp.link import Receiver
from enmasse.amqp.sasl.layer import EXTERNAL
from enmasse.identity.audit import LoginAudit
from enmasse.identity.login import LONGEST_WAIT, Login
from enmasse.identity.owned import queue_prefix
from enmasse.identity.permissions import Permissions, Rights
from enmasse.identity.principal import ANONYMOUS, Principal
from enmasse.identity.quotas import Quotas
from enmasse.identity.senders import of_user
from enmasse.model.users import GROUP, Operation
from services.router.routing.anonymous import AnonymousInLink
from services.router.routing.brokers.routed_link import RoutedHalf
from services.router.routing.connection import RouterConnection
from services.router.routing.names import LOCAL, MOBILE, parse, strip, tokens

if TYPE_CHECKING:
    from enmasse.model import feeds
    from services.router.routing.connection import LinkRecord
    from services.router.routing.router import Router

_WORDS: dict[Operation, str] = {"send": "send to", "recv": "receive from", "manage": "manage", "view": "view"}
_SUBSCRIPTIONS = "$sub/"
_ID = re.compile(r"[A-Za-z0-9_/~%@-]+")
"""Ids in the names of subscriptions' queues: neither wildcards nor `::`."""
NO_CREDENTIALS = Principal(ANONYMOUS)


class _Member:
    """A connection of a user. `credentials` None: no password was proved. `known`: there was an entry of the user."""

    __slots__ = ("connection", "credentials", "expires", "known", "principal", "timer")

    def __init__(self, connection: RouterConnection, login: Login, credentials: str | None, known: bool) -> None:
        self.connection = connection
        self.principal = login.principal
        self.credentials = credentials
        self.expires = login.expires
        self.known = known
        self.timer: Any = None


class Users:
    """Users as the configuration service publishes them, and their open connections."""

    def __init__(self, router: Router, today: Callable[[], float]) -> None:
        """`today`: seconds since 1970, for tokens."""
        self.router = router
        self.known = False
        """The configuration service has delivered them."""
        self.anonymous = False
        """There are no users: clients need no credentials, and everything is allowed."""
        self.audit = LoginAudit(router.now)
        self._today = today
        self._entries: dict[str, feeds.GrantedUser] = {}
        self._permissions = Permissions({})
        self._quotas = Quotas(router.now)
        self._members: dict[str, dict[RouterConnection, _Member]] = {}

    def admit(self, connection: RouterConnection, login: Login) -> UserRights | None:
        """Return the rights of an authenticated connection that opens; None: there are no users. Raises AmqpError if
        the user is no longer there, or has reached one of its limits."""
        principal = login.principal
        name = principal.name
        entry = self._entries.get(name) if self._permissions.knows(name) else None
        credentials = login.credentials
        if credentials is None and not login.certified:
            credentials = "" if entry is None else entry.credentials
        member = _Member(connection, login, credentials, entry is not None or bool(credentials))
        reason = self._reason_to_end(member)
        if reason is not None:
            raise AmqpError(UNAUTHORIZED_ACCESS, reason)
        self._check_limits(connection, principal)
        connection.principal = principal
        self._members.setdefault(name, {})[connection] = member
        self._await_expiry(member)
        return None if self.anonymous else self._rights(member)

    def _check_limits(self, connection: RouterConnection, principal: Principal) -> None:
        """Raise AmqpError if the user has too many connections here, or connects too often."""
        name, limits = principal.name, self._permissions.limits(principal)
        reason = self._quotas.too_many(name, limits, len(self._members.get(name, ())))
        reason = reason or self._quotas.too_often(name, limits)
        if reason:
            raise AmqpError(RESOURCE_LIMIT_EXCEEDED, reason)

    def by_certificate(self, name: str, asked: str, peer: str) -> Login | None:
        """Return the login of a client that has presented a certificate with this name, and wants to be the user
        `asked` (empty: whoever it is); None: it is refused. `peer`: its address."""
        entry = self._entries.get(name) if self._permissions.knows(name) and asked in ("", name) else None
        self.audit.note(name, peer, EXTERNAL, accepted=entry is not None)
        return None if entry is None else Login(Principal(name, entry.groups), certified=True)

    def left(self, connection: RouterConnection) -> None:
        """Forget a connection that has ended."""
        name = connection.principal.name
        members = self._members.get(name, {})
        member = members.pop(connection, None)
        if member is not None and member.timer is not None:
            member.timer.cancel()
        if not members:
            self._members.pop(name, None)

    def replace(self, body: feeds.Permissions) -> None:
        """Put other permissions in force, on open connections too."""
        old, new = self._entries, body.users
        changed = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
        groups = {name.removeprefix(GROUP) for name in changed if name.startswith(GROUP)}
        everyone = not self.known or body.anonymous != self.anonymous
        self._entries, self.anonymous, self.known = new, body.anonymous, True
        self._permissions = Permissions(new, anonymous=body.anonymous, earlier=self._permissions)
        for name, members in list(self._members.items()):
            for member in list(members.values()):
                if everyone or name in changed or (groups and not groups.isdisjoint(self._groups(member))):
                    self._visit(member)

    def _await_expiry(self, member: _Member) -> None:
        if member.expires is None:
            return
        left = member.expires - self._today()
        if left > 0:
            wait = min(left, LONGEST_WAIT)
            member.timer = self.router.clock.call_later(wait, lambda: self._await_expiry(member))
        else:
            member.timer = None
            self._visit(member)

    def _groups(self, member: _Member) -> tuple[str, ...]:
        entry = self._entries.get(member.principal.name)
        return member.principal.groups if entry is None else entry.groups

    def _reason_to_end(self, member: _Member) -> str | None:
        """Return why this connection must not be open; None if it may."""
        name = member.principal.name
        if self.anonymous:
            return None
        if member.expires is not None and self._today() >= member.expires:
            return f"the token of {name} has expired"
        if not self._permissions.knows(name):
            if name == ANONYMOUS:
                return "clients without credentials are not allowed"
            return f"the user {name} was removed" if member.known else None
        if name != ANONYMOUS and member.credentials not in (None, self._entries[name].credentials):
            return f"the password of {name} has changed"
        return None

    def _rights(self, member: _Member) -> UserRights:
        return UserRights(self, member.connection, member.principal, self._permissions.rights(member.principal))

    def _visit(self, member: _Member) -> None:
        connection = member.connection
        reason = self._reason_to_end(member)
        if reason is not None:
            connection.amqp.close(AmqpError(UNAUTHORIZED_ACCESS, reason))
            connection.amqp.wake()
            return
        rights = connection.rights = self._rights(member)
        for record in list(connection.links.values()):
            try:
                rights.check_link(record)
            except AmqpError as error:
                if isinstance(record, RoutedHalf):
                    self.router.passing_on.refuse(record, error)
                else:
                    record.detach(error)


class UserRights:
    """Rights of one connection of a user."""

    """Management itself is a right."""

    of_process = False

    def __init__(self, users: Users, connection: RouterConnection, principal: Principal, rights: Rights) -> None:
        self.max_message_size = users.router.policy.config.max_message_size
        self.sender = of_user(principal)
        self._users = users
        self._connection = connection
        self._principal = principal
        self._rights = rights

    def may_serve(self, pattern: str) -> bool:
        """Return False: users serve no nodes."""
        return False

    def check_attach(self, links: int, *, incoming: bool, address: str | None, dynamic: bool, waypoint: bool) -> None:
        """Raise AmqpError unless the user may attach this link. `incoming`: the user sends. Neither a temporary address
        of its own nor a sender without address needs a right; a receiver without address is checked when the broker
        has answered which subscription it is."""
        if waypoint:
            raise self._refusal("serve", address or "")
        if not dynamic and address is not None:
            self._check("send" if incoming else "recv", address)

    def check_message(self, address: str) -> None:
        """Raise AmqpError unless messages may be sent to `address`."""
        self._check("send", address)

    def check_recovered(self, address: str) -> None:
        """Raise AmqpError unless the user may receive from `address`."""
        self._check("recv", address)

    def check_link(self, record: LinkRecord) -> None:
        """Raise AmqpError unless the user may still have this link. A sender without address looks up its addresses
        again."""
        link = record.link
        if isinstance(record, AnonymousInLink):
            record.look_up_again()
            return
        incoming = isinstance(link, Receiver)
        terminus = link.remote_target if incoming else (link.remote_source or link.source)
        if terminus is not None and not terminus.dynamic and terminus.address:
            self._check("send" if incoming else "recv", terminus.address)

    def _check(self, operation: Operation, address: str) -> None:
        router = self._users.router
        kind, name = parse(address, router.id)
        if _is_temporary(router, kind, name) and (
            operation == "send" or router.temporaries.owned_by(self._connection, name)
        ):
            return
        plain = "/".join(tokens(strip(address)))  # as link routes read it
        if plain.startswith(_SUBSCRIPTIONS):
            allowed = _is_own(self._principal, plain) and self._rights.allows(operation, plain)
        elif plain.startswith("::") or "::" not in plain:
            allowed = self._allows(operation, plain)
        else:  # a queue of a topic, which may be that of another user
            topic = "/".join(tokens(plain.partition("::")[0]))
            allowed = self._allows(operation, topic) and self._allows("manage", topic)
        if not allowed:
            raise self._refusal(operation, plain)

    def _allows(self, operation: Operation, name: str) -> bool:
        if "*" not in name and "+" not in name and "#" not in name:
            return self._rights.allows(operation, name)
        words = ("+" if word == "*" else word for word in tokens(name))
        return self._rights.covers(operation, "/".join(words)).allowed

    def _refusal(self, operation: str, address: str) -> AmqpError:
        user = self._principal.name
        what = _WORDS.get(operation, operation)  # type: ignore[call-overload]  # other words are their own text
        return AmqpError(UNAUTHORIZED_ACCESS, f"user {user} may not {what} {address}")


def _is_own(principal: Principal, plain: str) -> bool:
    """Return whether an address `$sub/<broker>/<id>` is the queue of a subscription that this user has made. `.` reads
    as `/` in it, as in all that link routes compare."""
    id = plain.removeprefix(_SUBSCRIPTIONS).partition("/")[2]
    mine = queue_prefix(principal).replace(".", "/")
    own = id.startswith(mine) if mine else not id.startswith("~") or id.startswith("~%2F")
    return own and _ID.fullmatch(id) is not None


def _is_temporary(router: Router, kind: str, name: str) -> bool:
    """Return whether an address was made for one client, which gives it to others for replies."""
    if kind == LOCAL:
        return name.startswith("temp.")
    return kind == MOBILE and (name.startswith("_$temp.") or router.temporaries.broker_of(name) is not None)


__all__ = ["NO_CREDENTIALS", "UserRights", "Users"]
