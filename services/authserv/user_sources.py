"""Sources of users: which proofs they accept. No sockets."""

from __future__ import annotations

from collections.abc import Set

from enmasse.identity.permissions import Permissions, Rights
from enmasse.identity.principal import Principal, named
from enmasse.identity.proofs import api_tokens
from enmasse.identity.proofs.passwords import PasswordChecks
from enmasse.model import feeds
from enmasse.model.names import DEFAULT_SPACE, SPACE
from enmasse.model.users import ANONYMOUS, GROUP, Granted, User, Verifier, prepared
from services.authserv.proof import Proof


class Users:
    """Users of users.json of all address spaces, as the configuration service publishes them. Of a principal that is
    asked about only name and space count."""

    def __init__(self, checks: PasswordChecks) -> None:
        self.known = False
        """The configuration service has delivered users."""
        self.anonymous = False
        """There are neither users nor issuers in the default space: clients need no credentials there."""
        self.scram = False
        """There is a user of the default space with a password for SCRAM."""
        self.spaces: Set[str] = frozenset()
        """All address spaces but the default one."""
        self.revision = 0
        """Revision of the feed; 0: nothing was delivered yet."""
        self._checks = checks
        self._users: dict[str, User] = {}
        """By full name."""
        self._tokens: dict[bytes, tuple[str, str]] = {}
        """Digest of an API token → full name of its user, and name."""
        self._permissions = {DEFAULT_SPACE: Permissions({})}

    def __len__(self) -> int:
        return sum(not named(name).name.startswith(GROUP) for name in self._users)

    def replace(self, body: feeds.Users) -> None:
        """Put other users in force."""
        self._users, self.anonymous, self.known = {**body.users, **(body.in_spaces or {})}, body.anonymous, True
        self.revision = body.revision
        self.spaces = frozenset(body.spaces or ())
        self.scram = any(user.scram for user in body.users.values())
        self._tokens = {
            token.sha256: (full_name, name)
            for full_name, user in self._users.items()
            for name, token in user.tokens.items()
        }
        granted: dict[str, dict[str, Granted]] = {space: {} for space in (DEFAULT_SPACE, *self.spaces)}
        for full_name, user in self._users.items():
            name, _, space = named(full_name)
            granted.setdefault(space, {})[name] = user.granted
        self._permissions = {
            space: Permissions(those, anonymous=body.anonymous and space == DEFAULT_SPACE, space=space)
            for space, those in granted.items()
        }

    def rights(self, principal: Principal) -> Rights:
        """Return what a principal may do, whatever its source is."""
        permissions = self._permissions.get(principal.space)
        return (permissions or self._permissions[DEFAULT_SPACE]).rights(principal)

    def credentials(self, who: Principal) -> str | None:
        """Return `credentials` of the feed `permissions`; None: the user has no entry."""
        found = self._entry(who)
        return None if found is None else feeds.granted(found).credentials

    def knows(self, who: Principal) -> bool:
        """Return whether there is an entry of this user."""
        return self._user(who) is not None

    def principal(self, who: Principal) -> Principal | None:
        """Return a user with its groups."""
        if self.anonymous and who.name == ANONYMOUS and who.space == DEFAULT_SPACE:
            return Principal(ANONYMOUS)
        found = self._entry(who)
        return None if found is None else Principal(who.name, found.groups, who.space)

    def verifier(self, who: Principal, mechanism: str) -> Verifier | None:
        """Return the verifier of a user for a SCRAM mechanism."""
        found = self._user(who)
        return None if found is None else found.scram.get(mechanism)

    def api_token(self, secret: str, today: float) -> Proof | None:
        """Return the identity of the user with this API token. `today`: seconds since 1970."""
        full_name, name = self._tokens.get(api_tokens.digest(secret), ("", ""))
        who = named(full_name)
        user = self._user(who)
        token = None if user is None else user.tokens.get(name)
        principal = self.principal(who)
        if principal is None or token is None or (token.expires is not None and token.expires <= today):
            return None
        return Proof(principal, token.expires, token=name, facts=token.facts)

    def at_once(self, who: Principal, password: str) -> Proof | None:
        """Check a password without a thread, as far as that is cheap."""
        found = self._user(who)
        right = self._checks.at_once(who.full_name, None if found is None else found.password, password)
        principal = self.principal(who) if right else None
        return None if principal is None else Proof(principal)

    async def check(self, who: Principal, password: str) -> Proof | None:
        """Check a password in a thread, after `at_once`. Raises Busy."""
        found = self._user(who)
        hash = None if found is None else found.password
        if not await self._checks.check(who.full_name, hash, password):
            return None
        now = self._user(who)  # may have changed meanwhile
        principal = self.principal(who) if now is not None and now.password == hash else None
        return None if principal is None else Proof(principal)

    def _entry(self, who: Principal) -> User | None:
        """Return the entry of a user, also of the anonymous one."""
        if who.name.startswith((GROUP, SPACE)) or (who.space != DEFAULT_SPACE and who.space not in self.spaces):
            return None
        return self._users.get(who.full_name)

    def _user(self, who: Principal) -> User | None:
        if who.name == ANONYMOUS or prepared(who.name) != who.name:
            return None
        return self._entry(who)
