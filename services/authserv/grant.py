"""Grants of OAuth 2.0 by which an issuer proves users: passwords (RFC 6749, 4.3; Keycloak: direct access grant), and
codes that it gives to browsers (4.1; OpenID Connect Core 1.0, 3.1), with refresh tokens (6; 12).

The issuer exchanges either for a token, which is then checked as one that the client presents. So user and groups are
those of the claims, and the proof expires with the token.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from enmasse.identity.proofs.login_requests import RedeemCode
from enmasse.identity.proofs.passwords import MAX_PASSWORD
from enmasse.identity.proofs.remembered import Remembered
from enmasse.logs import log
from enmasse.model.issuers import Issuer
from services.authserv.issuer_http import Documents, IssuerError
from services.authserv.proof import Proof
from services.authserv.token_endpoint import TokenEndpoint
from services.authserv.tokens import MAX_TOKEN, TokensOfLogin

LIFETIME = 60.0
"""Seconds for which a success is remembered, if its token does not expire before: a password that was changed at the
issuer, or a disabled user, counts no longer than that."""
MAX_REMEMBERED = 20_000
"""Successes that are remembered, with 0.5 KB each and the names of groups."""
NOT_ACCEPTED = "its tokens for {} are not accepted: look at their iss, aud and user claim"


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
        self.endpoint = TokenEndpoint(
            issuer,
            documents,
            lambda reason: log.get().warning("authserv.password.not-checked", issuer=issuer.issuer, reason=reason),
        )
        self._check_token = check_token
        self._now = now
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

        async def accept(answer: Mapping[str, Any]) -> Proof | None:
            proof = await self._check_token(_token(answer, "access_token"))
            if proof is None:
                raise IssuerError(NOT_ACCEPTED.format("passwords"))
            return proof if proof.principal.name == user else None

        fields = {"grant_type": "password", "username": user, "password": password}
        found = await self.endpoint.exchange(fields, accept)
        if found is not None and found.expires is not None:
            self._remembered.put(key, found, min(LIFETIME, found.expires - self._now()))
        return found


class CodeGrant:
    """Codes that one issuer gives to browsers, and the refresh tokens that come with them. `check_tokens`: returns what
    ID token and access token of a login prove; `check_token`: what an access token proves."""

    def __init__(
        self,
        issuer: Issuer,
        documents: Documents,
        check_tokens: Callable[[str, str], Awaitable[TokensOfLogin | None]],
        check_token: Callable[[str], Awaitable[Proof | None]],
    ) -> None:
        self.endpoint = TokenEndpoint(
            issuer,
            documents,
            lambda reason: log.get().warning("authserv.code.not-redeemed", issuer=issuer.issuer, reason=reason),
        )
        self.authorization_endpoint = ""
        """URL to which browsers are sent; empty while it is not known."""
        self.states_itself = False
        """Whether the issuer says who it is when it sends a browser back (RFC 9207)."""
        self._issuer = issuer
        self._check_tokens = check_tokens
        self._check_token = check_token

    async def redeem(self, login: RedeemCode) -> Proof | None:
        """Return what a code proves; None if the issuer refuses it, or it is not that of this login. Raises Busy, and
        Unavailable if the issuer does not answer as it should."""
        if login.stated != self._issuer.issuer and (self.states_itself or login.stated is not None):
            return None

        async def accept(answer: Mapping[str, Any]) -> Proof | None:
            found = await self._check_tokens(_token(answer, "id_token"), _token(answer, "access_token"))
            if found is None:
                raise IssuerError(NOT_ACCEPTED.format("codes"))
            return _refreshable(found.proof, answer) if found.nonce == login.nonce else None

        fields = {
            "grant_type": "authorization_code", "code": login.code, "redirect_uri": login.redirect,
            "code_verifier": login.verifier,
        }  # fmt: skip
        return await self.endpoint.exchange(fields, accept)

    async def refresh(self, token: str) -> Proof | None:
        """Return what a refresh token proves; None if the issuer refuses it. Raises Busy, and Unavailable if the issuer
        does not answer as it should."""

        async def accept(answer: Mapping[str, Any]) -> Proof | None:
            found = await self._check_token(_token(answer, "access_token"))
            if found is None:
                raise IssuerError(NOT_ACCEPTED.format("refresh tokens"))
            return _refreshable(found._replace(refresh=token), answer)

        return await self.endpoint.exchange({"grant_type": "refresh_token", "refresh_token": token}, accept)


def _refreshable(proof: Proof, answer: Mapping[str, Any]) -> Proof:
    """Return a proof with the refresh token of an answer, which replaces that before it."""
    found = answer.get("refresh_token")
    return proof._replace(refresh=found) if isinstance(found, str) and len(found) <= MAX_TOKEN else proof


def _token(answer: Mapping[str, Any], name: str) -> str:
    found = answer.get(name)
    if not isinstance(found, str):
        raise IssuerError(f"the token endpoint: HTTP status 200, but no {name}")
    return found
