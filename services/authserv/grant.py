"""Passwords that an issuer checks: the password grant of OAuth 2.0 (RFC 6749, 4.3; Keycloak: direct access grant).

The issuer exchanges user name and password for a token, which is then checked as one that the client presents. So user
and groups are those of the claims, and the proof expires with the token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from enmasse import log
from enmasse.identity.passwords import MAX_PASSWORD, Busy
from enmasse.identity.remembered import Remembered
from enmasse.model.issuers import Issuer
from services.authserv.documents import Documents, IssuerError
from services.authserv.proof import Proof, Unavailable

TIMEOUT = 5.0
"""Seconds for a password, waiting included: routers and gateways wait ten for the whole login."""
AT_ONCE = 16
"""Passwords that an issuer is asked about at a time."""
MAX_WAITING = 1024
"""Passwords that are asked about or wait."""
LIFETIME = 60.0
"""Seconds for which a success is remembered, if its token does not expire before: a password that was changed at the
issuer, or a disabled user, counts no longer than that."""
MAX_REMEMBERED = 20_000
"""Successes that are remembered, with 0.5 KB each and the names of groups."""


class PasswordGrant:
    """Passwords of the users of one issuer. `check_token`: returns what a token proves. `clock`: seconds; `now`:
    seconds since 1970."""

    def __init__(
        self,
        issuer: Issuer,
        documents: Documents,
        check_token: Callable[[str], Awaitable[Proof | None]],
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self.endpoint = ""
        """URL of the token endpoint; empty while it is not known."""
        self.problem = ""
        """Reason for which the last password could not be checked; empty if it was."""
        self._issuer = issuer
        self._documents = documents
        self._check_token = check_token
        self._now = now
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0
        self._remembered: Remembered[Proof] = Remembered(clock, MAX_REMEMBERED)

    async def check(self, user: str, password: str) -> Proof | None:
        """Return what a user name and password prove, None if they are wrong. Raises Busy, and Unavailable if the
        issuer does not answer."""
        if len(password.encode("utf-8", "surrogatepass")) > MAX_PASSWORD:
            return None
        key = self._remembered.key(user, password)
        found = self._remembered.get(key)
        if found is not None:
            return found
        if self._waiting >= MAX_WAITING:
            raise Busy
        self._waiting += 1
        try:
            async with asyncio.timeout(TIMEOUT), self._slots:
                found = await self._asked(user, password)
        except (IssuerError, Unavailable, TimeoutError) as error:
            reason = str(error) or f"no answer within {TIMEOUT:.0f} s"
            if reason != self.problem:
                log.get().warning("authserv.password.not-checked", issuer=self._issuer.issuer, reason=reason)
            self.problem = reason
            raise Unavailable(reason) from None
        finally:
            self._waiting -= 1
        self.problem = ""
        if found is not None and found.expires is not None:
            self._remembered.put(key, found, min(LIFETIME, found.expires - self._now()))
        return found

    async def _asked(self, user: str, password: str) -> Proof | None:
        """Raise IssuerError or Unavailable if there is no decision."""
        if not self.endpoint:
            raise IssuerError("the token endpoint is not known yet")
        client, secret = self._issuer.client_id or "", self._issuer.client_secret
        fields = {"grant_type": "password", "username": user, "password": password}
        if secret is None:
            fields["client_id"] = client
        status, answer = await self._documents.post(self.endpoint, fields, None if secret is None else (client, secret))
        if status == 200 and isinstance(token := answer.get("access_token"), str):
            proof = await self._check_token(token)
            if proof is None:
                raise IssuerError("its tokens for passwords are not accepted: look at their iss, aud and user claim")
            return proof if proof.principal.name == user else None
        error = str(answer.get("error"))[:100]
        if status in (400, 401) and error == "invalid_grant":
            return None
        raise IssuerError(f"{self.endpoint}: HTTP status {status}, error {error!r}")
