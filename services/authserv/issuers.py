"""All issuers, as the configuration has them: which of them is asked about a token or a password."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping

from enmasse.identity.proofs.login_requests import BrowserIssuer, RedeemCode, RefreshLogin
from enmasse.model.issuers import Issuer
from enmasse.process import runner
from enmasse.storage.decoding import decode_any
from services.authserv.issuer import TokenSource
from services.authserv.proof import Proof, Unavailable
from services.authserv.tokens import MAX_TOKEN


class Issuers:
    """Sources of users beside users.json, in the order of issuers.json. `now`: seconds since 1970."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._sources: dict[str, TokenSource] = {}
        self._running: dict[TokenSource, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._sources)

    @property
    def check_passwords(self) -> bool:
        """Whether there is an issuer that checks passwords."""
        return any(source.passwords is not None for source in self._sources.values())

    def problems(self) -> list[str]:
        """Return what does not work, by issuer."""
        return [f"issuer {name}: {source.problem}" for name, source in self._sources.items() if source.problem]

    def replace(self, issuers: Mapping[str, Issuer]) -> None:
        """Put other issuers in force. Those that are unchanged keep their keys."""
        before = self._sources
        self._sources = {
            name: before[name] if name in before and before[name].issuer == issuer else TokenSource(issuer, self._now)
            for name, issuer in issuers.items()
        }
        kept = set(self._sources.values())
        for source in before.values():
            if source not in kept:
                self._running.pop(source).cancel()
        for source in kept - self._running.keys():
            self._running[source] = runner.spawn(source.run(), "keys of an issuer")

    async def close(self) -> None:
        """End the requests to all issuers."""
        tasks = list(self._running.values())
        self.replace({})
        await asyncio.gather(*tasks, return_exceptions=True)

    async def check_token(self, token: str) -> Proof | None:
        """Return the identity that a token proves, by the first of the issuers that it names. Raises Unavailable if
        none accepts it and one could not decide."""
        stated = stated_issuer(token)
        if stated is None:
            return None
        return await self._first(stated, lambda source: source.check(token))

    async def check_password(self, user: str, password: str) -> Proof | None:
        """Return the identity that a password proves, by the first issuer that accepts it. Raises Unavailable if none
        does and one could not decide, and Busy."""
        return await self._first(None, lambda source: source.check_password(user, password))

    def for_browsers(self) -> tuple[BrowserIssuer, ...]:
        """Return the issuers at which browsers can log in."""
        found = (source.for_browsers(name) for name, source in self._sources.items())
        return tuple(each for each in found if each is not None)

    async def redeem(self, login: RedeemCode) -> Proof | None:
        """Return the identity that a code of a browser proves. Raises Busy, Unavailable."""
        source = self._sources.get(login.issuer)
        found = None if source is None else await source.redeem(login)
        return found if self._sources.get(login.issuer) is source else None  # it may have been removed meanwhile

    async def refresh(self, login: RefreshLogin) -> Proof | None:
        """Return the identity that a refresh token proves. Raises Busy, Unavailable."""
        source = self._sources.get(login.issuer)
        found = None if source is None else await source.refresh(login.token)
        return found if self._sources.get(login.issuer) is source else None  # it may have been removed meanwhile

    async def _first(self, issuer: str | None, ask: Callable[[TokenSource], Awaitable[Proof | None]]) -> Proof | None:
        """Ask the sources in their order. `issuer`: only those of this one."""
        undecided: Unavailable | None = None
        for name, source in list(self._sources.items()):
            if issuer is not None and source.issuer.issuer != issuer:
                continue
            try:
                found = await ask(source)
            except Unavailable as error:
                undecided = error
                continue
            if found is not None and self._sources.get(name) is source:  # it may have been removed meanwhile
                return found
        if undecided is not None:
            raise undecided
        return None


def stated_issuer(token: str) -> str | None:
    """Return the issuer that a token names, None without one. Nothing is verified."""
    parts = token.split(".")
    if len(token) > MAX_TOKEN or len(parts) != 3:
        return None
    try:
        claims = decode_any(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error):
        return None
    found = claims.get("iss") if isinstance(claims, dict) else None
    return found if isinstance(found, str) else None
