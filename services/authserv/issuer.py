"""An issuer of tokens: its keys, fetched and refreshed over HTTPS. The issuer away: the newest keys stay in force."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from enmasse import log
from enmasse.decoding import decode_any
from services.authserv.proof import Proof
from services.authserv.tokens import Issuer, Tokens, UnknownKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import ClientSession

REFRESH = 300.0
"""Seconds between two looks at the keys."""
RETRY = 10.0
"""Seconds until keys are fetched again after a failure, and between fetches that tokens with unknown keys cause."""
TIMEOUT = 10.0
MAX_DOCUMENT = 1 << 20


class IssuerError(Exception):
    """The keys cannot be fetched; the message has the reason."""


class TokenSource:
    """Tokens of one issuer, with keys that are kept up to date by `run`. `now`: seconds since 1970."""

    def __init__(self, issuer: Issuer, now: Callable[[], float]) -> None:
        self.issuer = issuer
        self.problem = "the keys have not been fetched yet"
        """Reason for which the keys are not up to date; empty if they are."""
        self._tokens = Tokens(issuer, now)
        self._fetched = -RETRY
        self._fetching = asyncio.Lock()
        self._session: ClientSession | None = None

    async def check(self, token: str) -> Proof | None:
        """Return the identity that a token proves; for an unknown key fetch the keys first, if that was not tried just
        now."""
        try:
            return self._tokens.check(token)
        except UnknownKey:
            pass
        async with self._fetching:
            if asyncio.get_running_loop().time() - self._fetched >= RETRY:
                await self._fetch()
        try:
            return self._tokens.check(token)
        except UnknownKey:
            return None

    async def run(self) -> None:
        """Keep the keys up to date until cancelled."""
        try:
            while True:
                async with self._fetching:
                    await self._fetch()
                await asyncio.sleep(RETRY if self.problem else REFRESH)
        finally:
            if self._session is not None:
                await self._session.close()

    async def _fetch(self) -> None:
        self._fetched = asyncio.get_running_loop().time()
        try:
            url = self.issuer.jwks_url or await self._discover()
            self._tokens.replace_keys(await self._get(url))
        except (IssuerError, ValueError) as error:
            if str(error) != self.problem:
                log.get().warning("authserv.keys.not-fetched", issuer=self.issuer.issuer, reason=str(error))
            self.problem = str(error)
        else:
            self.problem = ""

    async def _discover(self) -> str:
        document = await self._get(self.issuer.issuer.rstrip("/") + "/.well-known/openid-configuration")
        if document.get("issuer") != self.issuer.issuer:
            raise IssuerError(f"the discovery document is of {str(document.get('issuer'))[:200]!r}")
        return str(document.get("jwks_uri"))

    async def _get(self, url: str) -> dict[str, Any]:
        import aiohttp

        _check_url(url)
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(TIMEOUT))
        try:
            trust = ssl.create_default_context(cafile=self.issuer.ca) if url.startswith("https:") else True
            async with self._session.get(url, ssl=trust, allow_redirects=False) as answer:
                if answer.status != 200:
                    raise IssuerError(f"{url}: HTTP status {answer.status}")
                data = await answer.content.read(MAX_DOCUMENT + 1)
                while len(data) <= MAX_DOCUMENT and (more := await answer.content.read(MAX_DOCUMENT)):
                    data += more
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise IssuerError(f"{url}: {error or type(error).__name__}") from None
        found = decode_any(data) if len(data) <= MAX_DOCUMENT else None
        if not isinstance(found, dict):
            raise IssuerError(f"{url}: is not a JSON object of at most {MAX_DOCUMENT} bytes")
        return found


def _check_url(url: str) -> None:
    """Raise IssuerError unless keys can be fetched there without being changed on the way: HTTPS, or loopback."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        return
    try:
        local = parts.hostname == "localhost" or ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        local = False
    if parts.scheme != "http" or not local:
        raise IssuerError(f"{url}: must be https://")
