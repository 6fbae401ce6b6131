"""Logins of clients: by a password, a token, a certificate, an exchange of SASL, or none where none is needed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct

from enmasse.amqp.sasl.layer import EXTERNAL
from enmasse.bridge.authentication import Authentication
from enmasse.bridge.client_access import NOBODY, ClientAccess
from enmasse.bridge.client_refused import Ask, ClientRefused, Refusal
from enmasse.identity.login import Certified, Login
from enmasse.identity.login_audit import LoginAudit, Outcome
from enmasse.identity.principal import ANONYMOUS, Principal
from enmasse.model.names import DEFAULT_SPACE


class LoginAttempt(Struct, frozen=True, kw_only=True):
    """Identity that a client states, with its proof.

    `space`: address space that its listener is for, None: for all; `host`: named by TLS (SNI), or by its request;
    empty: none. `peer`: host:port. `certificate`: the one that its listener has verified. `method`: it asks for an
    exchange by this mechanism of SASL, with `data` as its first message. `any_site`: it may be a web page of any site,
    in a browser that reaches the gateway."""

    peer: str = ""
    space: str | None = None
    host: str = ""
    username: str | None = None
    password: bytes | None = None
    certificate: Certified | None = None
    method: str | None = None
    data: bytes | None = None
    any_site: bool = False


class ClientLogins:
    """`logins` None: clients need not log in. `configured` waits until users and addresses are known, and raises
    ClientRefused if they are not in time."""

    def __init__(
        self,
        access: ClientAccess,
        audit: LoginAudit,
        logins: Authentication | None,
        configured: Callable[[], Awaitable[None]],
    ) -> None:
        self.logins = logins
        self._access = access
        self._audit = audit
        self._configured = configured

    async def admit(self, attempt: LoginAttempt, wanted: Callable[[], bool], ask: Ask) -> tuple[Login, bytes | None]:
        """Return the login of a client, and the last message of the service in an exchange. `wanted`: whether the
        client is still there; `ask` sends a challenge to it. Raises ClientRefused."""
        login, data = NOBODY, None
        if self.logins is not None:
            await self._configured()
        space = attempt.space or self._access.users.hosts.get(attempt.host)
        if self.logins is not None and self._needs_login(attempt, space):
            if attempt.method is not None:
                first = attempt.method, attempt.data
                login, data = await self.logins.exchange(*first, ask, attempt.peer, wanted, space)
            else:
                login = await self._login(self.logins, attempt, wanted, space)
        elif attempt.method is not None:
            raise ClientRefused(Refusal.METHOD, "there are no users")
        if attempt.any_site and login.principal.name == ANONYMOUS:
            text = "web pages that were fetched without TLS log in, unless --allowed-origin has their origin"
            raise ClientRefused(Refusal.NOT_ALLOWED, text)
        return login, data

    def _needs_login(self, attempt: LoginAttempt, space: str | None) -> bool:
        """Return whether the client has to prove who it is: the address space that it means has users. `space`: the one
        that it has chosen by its connection, None: its user name says it."""
        users = self._access.users
        if not users.is_open(space or DEFAULT_SPACE):
            return True
        if space is not None or not users.hosts:
            return False
        name, _, end = (attempt.username or "").rpartition("@")
        return attempt.method is not None or (bool(name) and end != DEFAULT_SPACE and users.has_space(end))

    async def _login(
        self, logins: Authentication, attempt: LoginAttempt, wanted: Callable[[], bool], space: str | None
    ) -> Login:
        certificate = attempt.certificate
        if certificate is not None and attempt.password is None and attempt.username in (None, certificate.user):
            return self._by_certificate(logins, certificate, attempt.peer, space or DEFAULT_SPACE)
        if attempt.username is not None:
            try:
                return await logins.login(attempt.username, attempt.password or b"", attempt.peer, wanted, space)
            except ClientRefused as refused:
                if certificate is None or attempt.password is not None or refused.refusal is not Refusal.CREDENTIALS:
                    raise
                raise ClientRefused(Refusal.CREDENTIALS, _other_name(certificate)) from None
        if attempt.password is not None:
            raise ClientRefused(Refusal.CREDENTIALS, "a password needs a user name")
        unnamed = NOBODY if space is None else Login(Principal(ANONYMOUS, space=space))
        if reason := self._access.users.loss(unnamed):
            raise ClientRefused(Refusal.NOT_ALLOWED, reason)
        return unnamed

    def _by_certificate(self, logins: Authentication, certificate: Certified, peer: str, space: str) -> Login:
        user = certificate.user
        login = self._access.users.by_certificate(user, space) if user else None
        logins.outcomes["refused" if login is None else "accepted"] += 1
        whose = Principal(user, space=space).full_name if user else None
        by = EXTERNAL if user else f"{EXTERNAL}, {certificate.problem}"
        outcome: Outcome = "refused" if login is None else "accepted"
        self._audit.note(whose, peer.rpartition(":")[0].strip("[]"), by, outcome, space=space)
        if login is None:
            raise ClientRefused(Refusal.NOT_ALLOWED, certificate.refusal)
        return login


def _other_name(certificate: Certified) -> str:
    """Return why a user name without a password does not log in beside this certificate. The name may be a password, so
    it is not repeated."""
    if certificate.problem:
        return f"a user name without a password; {certificate.problem}"
    return f"a user name without password, and not that of the certificate: send {certificate.user!r}, or no user name"
