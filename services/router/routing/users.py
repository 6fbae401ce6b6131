"""Users of the listeners with `saslPlugin`: their connections, and their rights by the permissions that the
configuration service publishes.

Rights are asked when a link is attached, and for the address of a message without a link of its own before that address
is remembered. A change visits the connections of the users that it concerns, and no others.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from enmasse.amqp.codec.errors import NOT_ALLOWED, RESOURCE_LIMIT_EXCEEDED, UNAUTHORIZED_ACCESS, AmqpError
from enmasse.amqp.link import Receiver
from enmasse.amqp.sasl.layer import EXTERNAL
from enmasse.identity.enforcer import Enforcer
from enmasse.identity.login import Login
from enmasse.identity.login_audit import LoginAudit, Outcome
from enmasse.identity.owned import queue_prefix
from enmasse.identity.permissions import Rights
from enmasse.identity.principal import ANONYMOUS, Principal
from enmasse.identity.senders import of_user
from enmasse.identity.user_directory import UserDirectory
from enmasse.model.permission_words import Operation, refusal
from enmasse.model.tenants.plans import SpaceLimits
from enmasse.model.tenants.spaces import meant_host
from services.router.routing.address_text import LOCAL, MOBILE, OWN_TEMPORARY, ROUTER, parse, strip, tokens
from services.router.routing.anonymous import AnonymousInLink
from services.router.routing.brokers.routed_link import RoutedHalf
from services.router.routing.connection import RouterConnection
from services.router.routing.connection_rates import ConnectionRates

if TYPE_CHECKING:
    from enmasse.model import feeds
    from services.router.routing.connection import LinkRecord
    from services.router.routing.router import Router

_SUBSCRIPTIONS = "$sub/"
_ID = re.compile(r"[A-Za-z0-9_/~%@-]+")
"""Ids in the names of subscriptions' queues: neither wildcards nor `::`."""
NO_CREDENTIALS = Principal(ANONYMOUS)


class Users:
    """Users as the configuration service publishes them, and their open connections."""

    def __init__(self, router: Router, today: Callable[[], float]) -> None:
        """`today`: seconds since 1970, for tokens."""
        self.router = router
        self.directory = UserDirectory(today)
        router.refusals.tried = self.directory.tried
        self.audit = LoginAudit(router.now)
        self.enforcer: Enforcer[RouterConnection] = Enforcer(
            self.directory,
            self._visit,
            lambda seconds, call: router.clock.call_later(seconds, call),
            router.now,
        )
        self.rates = ConnectionRates(router.connections, self.enforcer.allowances, router.clock)

    def admit(self, connection: RouterConnection, login: Login) -> UserRights | None:
        """Return the rights of an authenticated connection that opens; None: there are no users. Raises AmqpError if
        the user is no longer there, or has reached one of its limits."""
        login = connection.login = self._with_credentials(login)
        opened = connection.amqp.remote_open
        host = meant_host(opened.hostname or "") if opened is not None else ""
        if self.directory.hosts.get(host, login.principal.space) != login.principal.space:
            raise AmqpError(NOT_ALLOWED, f"{host} means another address space than the login: name the host of one")
        if reason := self.directory.loss(login):
            raise AmqpError(UNAUTHORIZED_ACCESS, reason)
        if reason := self.enforcer.too_many(login, connection) or self.enforcer.too_often(login):
            raise AmqpError(RESOURCE_LIMIT_EXCEEDED, reason)
        connection.enter(login.principal)
        if self.directory.hosts:  # there are other address spaces
            connection.amqp.tenant = login.principal.space
        self.enforcer.enter(connection, login)
        return None if self.directory.is_open(login.principal.space) else self._rights(connection)

    def _with_credentials(self, login: Login) -> Login:
        """Return a login with the credentials that its user has now, if the service that has accepted it states none:
        it is lost when these change."""
        entry = self.directory.entry(login.principal.name, login.principal.space)
        if login.certified or login.credentials or (login.credentials == "" and entry is not None):
            return login
        return login._replace(credentials=None if entry is None else entry.credentials)

    def by_certificate(self, name: str, asked: str, peer: str, space: str) -> Login | None:
        """Return the login of a client that has presented a certificate with this name, and wants to be the user
        `asked` (empty: whoever it is) of a space; None: it is refused. `peer`: its address."""
        login = self.directory.by_certificate(name, space) if asked in ("", name) else None
        outcome: Outcome = "refused" if login is None else "accepted"
        self.audit.note(Principal(name, space=space).full_name, peer, EXTERNAL, outcome, space=space)
        return login

    def left(self, connection: RouterConnection) -> None:
        """Forget a connection that has ended."""
        if connection.login is not None:
            self.enforcer.leave(connection, connection.login)

    def take(self, body: feeds.PermissionChanges) -> None:
        """Put other permissions in force, on open connections too."""
        for connection in self.enforcer.take(body):
            self._visit(connection)
        self.rates.start()

    def _rights(self, connection: RouterConnection) -> UserRights:
        principal = connection.principal
        rights = self.directory.permissions_of(principal.space).rights(principal)
        return UserRights(self, connection, principal, rights)

    def _visit(self, connection: RouterConnection) -> None:
        assert connection.login is not None
        if reason := self.directory.loss(connection.login):
            connection.amqp.close(AmqpError(UNAUTHORIZED_ACCESS, reason))
            connection.amqp.wake()
            return
        rights = connection.rights = self._rights(connection)
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

    of_process = False
    for_clients = False

    def __init__(self, users: Users, connection: RouterConnection, principal: Principal, rights: Rights) -> None:
        self.sender = of_user(principal)
        self._users = users
        self._connection = connection
        self._principal = principal
        self._rights = rights

    @property
    def max_message_size(self) -> int:
        """Largest message of the router's policy and of the plan of the user's space, in bytes; 0: no limit."""
        most, of_space = self._users.router.policy.config.max_message_size, self._limits.max_message_size
        return most if of_space is None else min(most or of_space, of_space)

    @property
    def _limits(self) -> SpaceLimits:
        return self._users.enforcer.allowances.limits(self._principal.space)

    def may_serve(self, pattern: str) -> bool:
        """Return False: users serve no nodes."""
        return False

    def check_attach(self, links: int, *, incoming: bool, address: str | None, dynamic: bool, waypoint: bool) -> None:
        """Raise AmqpError unless the user may attach this link. `incoming`: the user sends. Neither a temporary address
        of its own nor a sender without address needs a right; a receiver without address is checked when the broker
        has answered which subscription it is."""
        if waypoint:
            raise self._refusal("serve", address or "")
        most = self._limits.links_per_connection
        used = len(self._connection.links)  # also those that brokers answer
        if most is not None and used >= most:
            raise AmqpError(
                RESOURCE_LIMIT_EXCEEDED,
                f"{used} of {most} links of this connection are used, which is what the plan "
                f"{self._users.enforcer.allowances.plan(self._principal.space)!r} gives: detach one of them, or ask "
                "for another plan of the space",
            )
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
        kind, name = parse(address, router.id, self._connection.prefix)
        if kind == ROUTER:  # a temporary address of a client at another router
            kind, name = LOCAL, strip(address).split("/", 3)[-1]
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
        return AmqpError(UNAUTHORIZED_ACCESS, refusal(self._principal.name, operation, address))


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
    return kind == MOBILE and (name.startswith(OWN_TEMPORARY) or router.temporaries.broker_of(name) is not None)


__all__ = ["NO_CREDENTIALS", "UserRights", "Users"]
