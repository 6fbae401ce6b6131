"""An issuer of tokens: its keys and passwords. The issuer away: tokens are checked with the newest keys, and
passwords cannot be checked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from enmasse.identity.proofs.login_requests import BrowserIssuer, RedeemCode
from enmasse.logs import log
from enmasse.model.issuers import Issuer, url_error
from enmasse.model.names import DEFAULT_SPACE
from enmasse.process import runner
from services.authserv.grant import CodeGrant, PasswordGrant
from services.authserv.issuer_http import Documents, IssuerError
from services.authserv.proof import Proof, Unavailable
from services.authserv.prover import Prover
from services.authserv.tokens import Tokens, TokensOfLogin, UnknownKey

REFRESH = 300.0
"""Seconds between two looks at the keys."""
RETRY = 10.0
"""Seconds until keys are fetched again after a failure."""
APART = 10.0
"""Seconds between fetches that tokens with unknown keys cause."""
PATIENCE = 3.0
"""Seconds that a login waits for documents: routers wait eight and gateways ten for all of it."""

T = TypeVar("T")


class TokenSource(Prover):
    """Users of one issuer, whose keys `run` keeps up to date. `now`: seconds since 1970; `space`: the address space
    whose file has the issuer."""

    def __init__(self, issuer: Issuer, now: Callable[[], float], space: str = DEFAULT_SPACE) -> None:
        super().__init__(issuer, space)
        clock = asyncio.get_running_loop().time
        self.passwords: PasswordGrant | None = None
        """Check of passwords; None: the issuer has no client for that."""
        self.codes: CodeGrant | None = None
        """Check of codes that browsers bring; None: the issuer has no client for that."""
        self._documents = Documents(issuer.ca)
        self._tokens = Tokens(issuer, now, space)
        self._clock = clock
        self._problem = "they have not been fetched yet"
        """Reason for which the keys are not up to date; empty if they are."""
        self._fetched = -APART
        self._fetching: asyncio.Task[None] | None = None
        if issuer.client_id is not None:
            self.passwords = PasswordGrant(issuer, self._documents, self.check, clock, now)
            self.codes = CodeGrant(issuer, self._documents, self._check_login, self.check)

    @property
    def checks_passwords(self) -> bool:
        """Return whether its entry has a client for that."""
        return self.passwords is not None

    @property
    def problem(self) -> str:
        """Return what does not work, empty if everything does."""
        found = [f"keys: {self._problem}"] if self._problem else []
        if self.passwords is not None and self.passwords.endpoint.problem:
            found.append(f"passwords: {self.passwords.endpoint.problem}")
        if self.codes is not None and self.codes.endpoint.problem:
            found.append(f"logins of browsers: {self.codes.endpoint.problem}")
        return "; ".join(found)

    async def check(self, token: str) -> Proof | None:
        """Return the identity that a token proves; for an unknown key fetch the keys first, if that was not tried just
        now. Raises Unavailable if the key is unknown because keys cannot be fetched."""
        return await self._checked(lambda: self._tokens.check(token))

    async def _check_login(self, id_token: str, access_token: str) -> TokensOfLogin | None:
        return await self._checked(lambda: self._tokens.check_login(id_token, access_token))

    async def _checked(self, check: Callable[[], T | None]) -> T | None:
        try:
            return check()
        except UnknownKey:
            pass
        await self._refreshed()
        try:
            return check()
        except UnknownKey:
            if self._problem:
                raise Unavailable(
                    f"the key of a token is not known, and keys cannot be fetched: {self._problem}"
                ) from None
            return None

    async def check_password(self, user: str, password: str) -> Proof | None:
        """Return the identity that a password proves, None also if the issuer checks none. Raises Busy, Unavailable."""
        if self.passwords is None:
            return None
        if not self.passwords.endpoint.url:
            await self._refreshed()
        return await self.passwords.check(user, password)

    async def redeem(self, login: RedeemCode) -> Proof | None:
        """Return the identity that a code proves, None also if browsers cannot log in. Raises Busy, Unavailable."""
        return None if self.codes is None else await self.codes.redeem(login)

    async def refresh(self, token: str) -> Proof | None:
        """Return the identity that a refresh token proves, None also if browsers cannot log in. Raises Busy,
        Unavailable."""
        return None if self.codes is None else await self.codes.refresh(token)

    def for_browsers(self, name: str) -> BrowserIssuer | None:
        """Return this issuer, under its name, as browsers may log in there; None: they may not."""
        if self.codes is None or self.issuer.client_id is None:
            return None
        return BrowserIssuer(name, self.issuer.client_id, self.codes.authorization_endpoint)

    async def run(self) -> None:
        """Keep the keys up to date until cancelled."""
        try:
            while True:
                await asyncio.wait([self._fetch()])
                await asyncio.sleep(RETRY if self._problem else REFRESH)
        finally:
            if self._fetching is not None:
                self._fetching.cancel()
            await self._documents.close()

    async def _refreshed(self) -> None:
        """Wait for a fetch, unless that was tried just now."""
        if self._fetching is not None or self._clock() - self._fetched >= APART:
            await asyncio.wait([self._fetch()], timeout=PATIENCE)

    def _fetch(self) -> asyncio.Task[None]:
        """Return the fetch that is under way, or a new one."""
        if self._fetching is None:
            self._fetched = self._clock()
            self._fetching = runner.spawn(self._fetch_documents(), "keys of an issuer")
            self._fetching.add_done_callback(self._done)
        return self._fetching

    def _done(self, task: asyncio.Task[None]) -> None:
        self._fetching = None

    async def _fetch_documents(self) -> None:
        issuer = self.issuer
        try:
            document: dict[str, Any] = {}
            if issuer.jwks_url is None or issuer.client_id is not None:
                document = await self._discovered()
            endpoint = _url(document, "token_endpoint") if issuer.client_id is not None else ""
            has_browsers = "authorization_endpoint" in document
            authorization = _url(document, "authorization_endpoint") if has_browsers else ""
            self._tokens.replace_keys(await self._documents.get(issuer.jwks_url or _url(document, "jwks_uri")))
            if self.passwords is not None:
                self.passwords.endpoint.url = endpoint
            if self.codes is not None:
                self.codes.endpoint.url = endpoint
                self.codes.authorization_endpoint = authorization
                self.codes.states_itself = document.get("authorization_response_iss_parameter_supported") is True
        except (IssuerError, ValueError) as error:
            if str(error) != self._problem:
                log.get().warning("authserv.keys.not-fetched", issuer=issuer.issuer, reason=str(error))
            self._problem = str(error)
        else:
            self._problem = ""

    async def _discovered(self) -> dict[str, Any]:
        url = self.issuer.issuer.rstrip("/") + "/.well-known/openid-configuration"
        document = await self._documents.get(url)
        if document.get("issuer") != self.issuer.issuer:
            raise IssuerError(f"{url}: is of the issuer {str(document.get('issuer'))[:200]!r}")
        return document


def _url(document: dict[str, Any], name: str) -> str:
    found = document.get(name)
    if not isinstance(found, str):
        raise IssuerError(f"the discovery document has no {name}")
    if (reason := url_error(found)) is not None:
        raise IssuerError(f"{name} of the discovery document: {found[:200]!r} {reason}")
    return found
