"""Sources of users: which proofs they accept. No sockets."""

from __future__ import annotations

from enmasse.identity.permissions import Permissions, Rights
from enmasse.identity.principal import Principal
from enmasse.identity.proofs.passwords import PasswordChecks
from enmasse.model import feeds
from enmasse.model.users import ANONYMOUS, GROUP, User, Verifier, prepared
from services.authserv.proof import Proof


class Users:
    """Users of users.json, as the configuration service publishes them."""

    def __init__(self, checks: PasswordChecks) -> None:
        self.known = False
        """The configuration service has delivered users."""
        self.anonymous = False
        """There are neither users nor issuers: clients need no credentials."""
        self.scram = False
        """There is a user with a password for SCRAM."""
        self._checks = checks
        self._users: dict[str, User] = {}
        self._permissions = Permissions({})

    def __len__(self) -> int:
        return sum(not name.startswith(GROUP) for name in self._users)

    def replace(self, body: feeds.Users) -> None:
        """Put other users in force."""
        self._users, self.anonymous, self.known = body.users, body.anonymous, True
        self.scram = any(user.scram for user in body.users.values())
        granted = {name: user.granted for name, user in body.users.items()}
        self._permissions = Permissions(granted, anonymous=body.anonymous)

    def allows_anonymous(self) -> bool:
        """Return whether clients without credentials are let in."""
        return self.anonymous or ANONYMOUS in self._users

    def rights(self, principal: Principal) -> Rights:
        """Return what a principal may do, whatever its source is."""
        return self._permissions.rights(principal)

    def credentials(self, user: str) -> str | None:
        """Return `credentials` of the feed `permissions`; None: the user has no entry."""
        found = self._users.get(user) if not user.startswith(GROUP) else None
        return None if found is None else feeds.granted(found).credentials

    def knows(self, user: str) -> bool:
        """Return whether there is an entry of this user."""
        return self._user(user) is not None

    def principal(self, user: str) -> Principal | None:
        """Return a user with its groups."""
        if self.anonymous and user == ANONYMOUS:
            return Principal(ANONYMOUS)
        found = self._users.get(user) if not user.startswith(GROUP) else None
        return None if found is None else Principal(user, found.groups)

    def verifier(self, user: str, mechanism: str) -> Verifier | None:
        """Return the verifier of a user for a SCRAM mechanism."""
        found = self._user(user)
        return None if found is None else found.scram.get(mechanism)

    def at_once(self, user: str, password: str) -> Proof | None:
        """Check a password without a thread, as far as that is cheap."""
        found = self._user(user)
        right = self._checks.at_once(user, None if found is None else found.password, password)
        principal = self.principal(user) if right else None
        return None if principal is None else Proof(principal)

    async def check(self, user: str, password: str) -> Proof | None:
        """Check a password in a thread, after `at_once`. Raises Busy."""
        found = self._user(user)
        hash = None if found is None else found.password
        if not await self._checks.check(user, hash, password):
            return None
        now = self._user(user)  # may have changed meanwhile
        principal = self.principal(user) if now is not None and now.password == hash else None
        return None if principal is None else Proof(principal)

    def _user(self, user: str) -> User | None:
        if user.startswith(GROUP) or user == ANONYMOUS or prepared(user) != user:
            return None
        return self._users.get(user)
