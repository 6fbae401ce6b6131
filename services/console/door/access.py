"""Callers, and what each may view and do (docs/identity.md, "Console")."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

from enmasse.identity.login import Login
from enmasse.identity.permissions import Permissions, Rights
from enmasse.identity.principal import ANONYMOUS, Principal
from enmasse.model.names import DEFAULT_SPACE
from enmasse.model.permission_words import Operation

EVERYTHING = "#"


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request. `rights` None: everything is allowed (the operator; anyone, without users). `session`:
    key of the session; `csrf`: its token. `token`: name of the API token; empty: none. `read_only`: it changes nothing.
    `proof`: the login by what each request states; None: there is a session, or no login.
    `space`: the address space in which the caller acts, and whose names it
    states; `login`: the caller as it has logged in, if that is another space."""

    how: Literal["operator", "session", "bearer", "token", "anonymous"]
    principal: Principal | None = None
    rights: Rights | None = None
    session: str | None = None
    csrf: str | None = None
    expires: float | None = None
    token: str = ""
    read_only: bool = False
    proof: Login | None = None
    space: str = DEFAULT_SPACE
    login: Caller | None = None

    def within(self, space: str) -> Caller | None:
        """Return the caller as it acts in an address space; None: it has nothing there. A caller that may manage
        everything in the default space is the operator, and may do everything in each."""
        if space == self.space:
            return self
        if not self.is_operator:
            return None
        return replace(self, rights=None, space=space, login=self)

    @property
    def name(self) -> str | None:
        """The name of the user; None: the operator, or there are no users."""
        return None if self.principal is None else self.principal.name

    @property
    def title(self) -> str:
        """The name for auditors, beside `role`: as `account`, with the API token."""
        return f"{self.account} (token {self.token})" if self.token else self.account

    @property
    def account(self) -> str:
        """The name of the caller: that of a user in another space than the default one has it in front."""
        return self.how if self.principal is None else self.principal.full_name

    @property
    def role(self) -> str | None:
        """`operator`, or `anonymous` without users, for those whom no entry of users.json names; None: a user, whose
        name may be one of these words."""
        return self.how if self.principal is None else None

    def may(self, operation: Operation, address: str) -> bool:
        """Return whether the caller may do this on an address."""
        return self.rights is None or self.rights.allows(operation, address)

    def views(self, address: str | None) -> bool:
        """Return whether the caller may view an address; None, no address: whether everything."""
        return self.viewer if address is None else self.may("view", address)

    def covers(self, operation: Operation, names: Collection[str]) -> bool:
        """Return whether the caller may do this on all that these filters of names match. Without names: on
        everything."""
        return self.rights is None or all(
            self.rights.covers(operation, name).allowed for name in names or (EVERYTHING,)
        )

    def owns(self, user: str | None) -> bool:
        """Return whether something of this user is the caller's own; nothing is of those who do not log in."""
        return user is not None and user == self.name and user != ANONYMOUS and self.login is None

    @property
    def viewer(self) -> bool:
        """Whether the caller may view everything."""
        return self.covers("view", ())

    @property
    def administrator(self) -> bool:
        """Whether the caller may manage everything."""
        return self.covers("manage", ())

    @property
    def manager(self) -> bool:
        """Whether the caller may manage anything."""
        return self.administrator or any(
            rule.permission.effect == "allow" and "manage" in rule.permission.operations
            for rule in (() if self.rights is None else self.rights.rules)
        )

    @property
    def is_operator(self) -> bool:
        """Whether the caller may do everything in each address space."""
        return self.space == DEFAULT_SPACE and self.administrator

    def holds(self, permissions: Permissions) -> bool:
        """Return whether the rights are those of the permissions in force."""
        if self.login is not None:
            return self.login.holds(permissions)
        if self.principal is None:
            return self.how == "operator" or permissions.anonymous
        return permissions.rights(self.principal) is self.rights
