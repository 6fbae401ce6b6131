"""Users as the configuration service publishes them (feed `permissions/changes`), and what their logins have lost.

No sockets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Set

from enmasse.identity.login import Login
from enmasse.identity.permissions import Permissions, Rights
from enmasse.identity.principal import ANONYMOUS, Principal
from enmasse.model.feeds import GrantedUser, PermissionChanges


class UserDirectory:
    """Users and groups, by name. `open_to_all`: nothing is followed, everyone may do everything. `today`: seconds since
    1970."""

    def __init__(self, today: Callable[[], float] = time.time, *, open_to_all: bool = False) -> None:
        self.today = today
        self.known = open_to_all
        """The configuration service has delivered them."""
        self.tokens = True
        """There are issuers, whose tokens may name users without an entry."""
        self.users: dict[str, GrantedUser] = {}
        self.permissions = Permissions(self.users, anonymous=open_to_all)

    @property
    def anonymous(self) -> bool:
        """There are no users: clients need no credentials, and everything is allowed."""
        return self.permissions.anonymous

    def take(self, body: PermissionChanges) -> Set[str] | None:
        """Put what a message of the feed states in force. Return the names of users and groups that are others now;
        None: everyone may be concerned."""
        users, names = self.users, body.users.keys() | set(body.removed)
        if body.full:
            names = {name for name in users.keys() | body.users.keys() if users.get(name) != body.users.get(name)}
        for name in names - body.users.keys():
            users.pop(name, None)
        users.update(body.users)
        everyone = not self.known or body.anonymous != self.anonymous
        self.tokens, self.known = body.tokens, True
        self.permissions.changed(names, anonymous=body.anonymous)
        return None if everyone else names

    def entry(self, user: str) -> GrantedUser | None:
        """Return the entry of a user, not of a group."""
        return self.users.get(user) if self.permissions.knows(user) else None

    def rights(self, principal: Principal) -> Rights | None:
        """Return what a principal may do; None: everything, as there are no users."""
        return None if self.anonymous else self.permissions.rights(principal)

    def by_certificate(self, user: str) -> Login | None:
        """Return the login of a client whose certificate names this user; None if there is no such user."""
        entry = self.entry(user)
        return None if entry is None else Login(Principal(user, entry.groups), certified=True)

    def loss(self, login: Login) -> str:
        """Return why a login no longer holds: by this text clients, logs and operators learn it. Empty: it holds."""
        name = login.principal.name
        if self.anonymous:
            return ""
        if login.expires is not None and self.today() >= login.expires:
            return f"the token of {name} has expired"
        entry = self.entry(name)
        if name == ANONYMOUS:
            return "" if entry is not None else "clients without credentials are not allowed"
        if login.credentials is None and not login.certified:
            return ""
        if entry is None:
            return removed(name)
        same = login.certified or login.credentials == entry.credentials
        return "" if same else f"the password of {name} has changed"


def removed(user: str) -> str:
    """Return the text about the login of a user without an entry."""
    return f"the user {user} was removed"
