"""Callers, and what each may view and do (docs/identity.md, "Console")."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from enmasse.identity.permissions import Permissions, Rights
from enmasse.identity.principal import ANONYMOUS, Principal
from enmasse.model.operations import Operation

EVERYTHING = "#"


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request. `rights` None: everything is allowed (the operator; anyone, without users). `session`:
    key of the session; `csrf`: its token."""

    how: Literal["operator", "session", "bearer", "anonymous"]
    principal: Principal | None = None
    rights: Rights | None = None
    session: str | None = None
    csrf: str | None = None
    expires: float | None = None

    @property
    def name(self) -> str | None:
        """The name of the user; None: the operator, or there are no users."""
        return None if self.principal is None else self.principal.name

    @property
    def title(self) -> str:
        """The name for auditors, beside `role`."""
        return self.name or self.how

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
        return user is not None and user == self.name and user != ANONYMOUS

    @property
    def viewer(self) -> bool:
        """Whether the caller may view everything."""
        return self.covers("view", ())

    @property
    def administrator(self) -> bool:
        """Whether the caller may manage everything."""
        return self.covers("manage", ())

    def holds(self, permissions: Permissions) -> bool:
        """Return whether the rights are those of the permissions in force."""
        if self.principal is None:
            return self.how == "operator" or permissions.anonymous
        return permissions.rights(self.principal) is self.rights
