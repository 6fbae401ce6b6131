"""Users as the configuration service publishes them (feed `permissions/changes`), and what their logins have lost.

No sockets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Set

import msgspec

from enmasse.identity.login import Login
from enmasse.identity.permissions import Permissions, Rights
from enmasse.identity.principal import ANONYMOUS, Principal, named
from enmasse.model.feeds import GrantedUser, PermissionChanges
from enmasse.model.names import DEFAULT_SPACE
from enmasse.model.tenants.spaces import hosts_of


class _Users:
    """Users and groups of one address space, by name."""

    def __init__(self, space: str, *, anonymous: bool = False) -> None:
        self.users: dict[str, GrantedUser] = {}
        self.permissions = Permissions(self.users, anonymous=anonymous, space=space)

    def put(self, changed: Mapping[str, GrantedUser | None], *, anonymous: bool = False) -> None:
        """Put these entries in force; None: the name has no entry."""
        for name, entry in changed.items():
            if entry is None:
                self.users.pop(name, None)
            else:
                self.users[name] = entry
        self.permissions.changed(changed.keys(), anonymous=anonymous)


class UserDirectory:
    """Users and groups of all address spaces. `open_to_all`: nothing is followed, everyone may do everything. `today`:
    seconds since 1970.

    A user of another space than the default one is never anonymous for want of users: it needs an entry.
    """

    def __init__(self, today: Callable[[], float] = time.time, *, open_to_all: bool = False) -> None:
        self.today = today
        self.known = open_to_all
        """The configuration service has delivered them."""
        self.hosts: Mapping[str, str] = {}
        """Host → the address space that clients mean by it; empty if there is the default one only."""
        default = _Users(DEFAULT_SPACE, anonymous=open_to_all)
        self.users, self.permissions = default.users, default.permissions
        """Users and permissions of the default space."""
        self._spaces = {DEFAULT_SPACE: default}
        self._with_tokens = {DEFAULT_SPACE}

    @property
    def anonymous(self) -> bool:
        """There are no users in the default space: clients need no credentials there, and everything is allowed."""
        return self.permissions.anonymous

    def is_open(self, space: str) -> bool:
        """Return whether clients of a space need no credentials, because there are no users."""
        return self.anonymous and space == DEFAULT_SPACE

    def has_space(self, space: str) -> bool:
        """Return whether there is an address space of this name; the default one is always there."""
        return space in self._spaces

    def is_empty(self, space: str) -> bool:
        """Return whether an address space is there and has no users, so that no client is let in."""
        return (found := self._spaces.get(space)) is not None and space != DEFAULT_SPACE and not found.users

    def may_lack_entry(self, space: str) -> bool:
        """Return whether a space may have users without an entry: there are issuers, whose tokens name them, or it is
        not known."""
        return space in self._with_tokens or space not in self._spaces

    def permissions_of(self, space: str) -> Permissions:
        """Return the permissions of the users of a space; none, if there is no such space."""
        found = self._spaces.get(space)
        return Permissions({}, space=space) if found is None else found.permissions

    def take(self, body: PermissionChanges) -> Set[str] | None:
        """Put what a message of the feed states in force. Return the full names of users and groups that are others
        now; None: everyone may be concerned."""
        entries = {**body.users, **(body.in_spaces or {})}
        names = entries.keys() | set(body.removed)
        if body.full:
            before = self.entries()
            names = {name for name in before.keys() | entries.keys() if before.get(name) != entries.get(name)}
        spaces = {} if body.spaces is msgspec.UNSET else body.spaces
        gone = self._spaces.keys() - spaces.keys() - {DEFAULT_SPACE}
        names |= {name for space in gone for name in self.entries(space)}
        for space in gone:
            del self._spaces[space]
        self.hosts = hosts_of(spaces)
        self._with_tokens = {space for space, reached in spaces.items() if reached.tokens}
        if body.tokens:
            self._with_tokens.add(DEFAULT_SPACE)
        everyone = not self.known or body.anonymous != self.anonymous or bool(gone)
        self.known = True
        changed: dict[str, dict[str, GrantedUser | None]] = {DEFAULT_SPACE: {}}
        for full_name in names:
            user = named(full_name)
            changed.setdefault(user.space, {})[user.name] = entries.get(full_name)
        for space in spaces:
            self._spaces.setdefault(space, _Users(space))
        for space, those in changed.items():
            if (found := self._spaces.get(space)) is not None:
                found.put(those, anonymous=body.anonymous and space == DEFAULT_SPACE)
        return None if everyone else names

    def entries(self, space: str | None = None) -> dict[str, GrantedUser]:
        """Return the entries of users and groups of a space, by full name; None: of all."""
        if space == DEFAULT_SPACE or (space is None and len(self._spaces) == 1):
            return self.users
        return {
            Principal(name, space=each).full_name: entry
            for each in (self._spaces if space is None else {space} & self._spaces.keys())
            for name, entry in self._spaces[each].users.items()
        }

    def granted(self, name: str, space: str) -> GrantedUser | None:
        """Return the entry of a user or group of a space."""
        found = self._spaces.get(space)
        return None if found is None else found.users.get(name)

    def entry(self, user: str, space: str = DEFAULT_SPACE) -> GrantedUser | None:
        """Return the entry of a user, not of a group."""
        found = self._spaces.get(space)
        return found.users.get(user) if found is not None and found.permissions.knows(user) else None

    def tried(self, stated: str, space: str | None) -> Principal | None:
        """Return the user that a client has named in a login; None: there is no such user. `space`: address space that
        the client has chosen otherwise; None: `USER@SPACE` names one, else it is the default one."""
        name, _, end = stated.rpartition("@")
        if space is None:
            named_one = bool(name) and end != DEFAULT_SPACE and end in self._spaces
            who = Principal(name, space=end) if named_one else Principal(stated)
        else:
            who = Principal(name if name and end == space else stated, space=space)
        return None if self.entry(who.name, who.space) is None else who

    def rights(self, principal: Principal) -> Rights | None:
        """Return what a principal may do in its space; None: everything, as there are no users."""
        if self.is_open(principal.space):
            return None
        return self.permissions_of(principal.space).rights(principal)

    def by_certificate(self, user: str, space: str = DEFAULT_SPACE) -> Login | None:
        """Return the login of a client whose certificate names this user; None if there is no such user."""
        entry = self.entry(user, space)
        return None if entry is None else Login(Principal(user, entry.groups, space), certified=True)

    def loss(self, login: Login) -> str:
        """Return why a login no longer holds: by this text clients, logs and operators learn it. Empty: it holds."""
        name, _, space = login.principal
        if self.is_open(space) and not login.token:
            return ""
        if login.expires is not None and self.today() >= login.expires:
            return f"the login of {name} has expired"
        entry = self.entry(name, space)
        if name == ANONYMOUS:
            return "" if entry is not None else "clients without credentials are not allowed"
        if login.credentials is None and not login.certified:
            return "" if space in self._spaces else removed(name)
        if entry is None:
            return removed(name)
        if login.token:
            token = entry.tokens.get(login.token)
            same = token is not None and token.id == login.credentials
            return "" if same else f"the API token {login.token} of {name} was removed"
        same = login.certified or login.credentials == entry.credentials
        return "" if same else f"the password of {name} has changed"


def removed(user: str) -> str:
    """Return the text about the login of a user without an entry."""
    return f"the user {user} was removed"
