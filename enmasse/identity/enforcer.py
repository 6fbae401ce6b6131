"""Live logins: which of them are looked at again when users change or a token expires, and how many a user may have.

No sockets, no clock of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from enmasse.clock import Timer
from enmasse.identity.allowances import Allowances
from enmasse.identity.login import LONGEST_WAIT, Login
from enmasse.identity.principal import Principal, named
from enmasse.identity.quotas import Quotas
from enmasse.identity.user_directory import UserDirectory
from enmasse.model.feeds import PermissionChanges
from enmasse.model.users import GROUP, ConnectionLimits

K = TypeVar("K", bound=Hashable)
"""Key of a login: its connection, or the identifier of its client."""


class _Member:
    __slots__ = ("login", "timer")

    def __init__(self, login: Login) -> None:
        self.login = login
        self.timer: Timer | None = None


class Enforcer(Generic[K]):
    """Live logins. `visit(key)`: a login may have lost something; `users.loss` says whether the whole login, otherwise
    its rights may be others. `later(seconds, call)`, `now`: a clock in seconds."""

    def __init__(
        self,
        users: UserDirectory,
        visit: Callable[[K], None],
        later: Callable[[float, Callable[[], None]], Timer],
        now: Callable[[], float],
    ) -> None:
        self.users = users
        self._visit = visit
        self._later = later
        self.allowances = Allowances(later, self._most)
        """Connections, and other uses, of address spaces."""
        self._quotas = Quotas(now, self.allowances, later)
        self._members: dict[str, dict[K, _Member]] = {}
        """By the full name of the user."""

    def too_many(self, login: Login, key: K) -> str:
        """Return why the user, or its address space, may not have this login beside the others; empty: it may."""
        if key in self._members.get(login.principal.full_name, {}):
            return ""
        return self.allowances.refusal(login.principal)

    def too_often(self, login: Login) -> str:
        """Return why the user may not log in at this time; empty: it may, and that counts."""
        return self._quotas.too_often(login.principal, self._limits(login.principal))

    def _limits(self, principal: Principal) -> ConnectionLimits:
        return self.users.permissions_of(principal.space).limits(principal)

    def _most(self, principal: Principal) -> int | None:
        return self._limits(principal).connections

    def hold(self, key: K, login: Login) -> None:
        """Count a login before it is live. One that is live under this key stays the one that is looked at."""
        members = self._members.setdefault(login.principal.full_name, {})
        if key not in members:
            members[key] = _Member(login)
            self.allowances.entered(login.principal)

    def enter(self, key: K, login: Login, soonest: float = 0.0) -> None:
        """Look after a login from now on, in the place of another one under this key. `soonest`: seconds within which
        no expiry is looked at."""
        self.leave(key, login)
        member = self._members.setdefault(login.principal.full_name, {})[key] = _Member(login)
        self.allowances.entered(login.principal)
        self._await_expiry(key, member, soonest)

    def leave(self, key: K, login: Login) -> None:
        """Forget a login that has ended."""
        name = login.principal.full_name
        members = self._members.get(name, {})
        member = members.pop(key, None)
        if member is not None:
            self.allowances.left(login.principal)
            if member.timer is not None:
                member.timer.cancel()
        if not members:
            self._members.pop(name, None)

    def take(self, body: PermissionChanges) -> list[K]:
        """Put what a message of the feed states in force. Return the logins that are concerned, to be looked at."""
        names = self.users.take(body)
        self.allowances.configure(body.spaces or {})
        self._limit_users(body)
        if names is None:
            return [key for members in self._members.values() for key in members]
        changed = map(named, names)
        groups = {(each.space, each.name.removeprefix(GROUP)) for each in changed if each.name.startswith(GROUP)}
        return [
            key
            for name in (list(self._members) if groups else names & self._members.keys())
            for key, member in self._members[name].items()
            if name in names or not groups.isdisjoint(self._groups(member.login.principal))
        ]

    def _limit_users(self, body: PermissionChanges) -> None:
        """Have limits of users' connections shared once there are some, or say that they may be others."""
        changed = [*body.users.values(), *(body.in_spaces or {}).values()]
        if self.allowances.of_users or any(each.limits.connections is not None for each in changed):
            members = (member.login.principal for those in self._members.values() for member in those.values())
            self.allowances.limit_users(members)

    def _groups(self, principal: Principal) -> list[tuple[str, str]]:
        """Return the groups of a principal, with its space."""
        space = principal.space
        return [(space, group) for group in self.users.permissions_of(space).groups(principal)]

    def _await_expiry(self, key: K, member: _Member, soonest: float = 0.0) -> None:
        member.timer = None
        if member.login.expires is None:
            return
        left = max(member.login.expires - self.users.today(), soonest)
        if left > 0:
            member.timer = self._later(min(left, LONGEST_WAIT), lambda: self._await_expiry(key, member))
        else:
            self._visit(key)
