"""All issuers, as the configuration has them: which of them is asked about a token or a password."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

from enmasse.identity.proofs.login_requests import BrowserIssuer, RedeemCode, RefreshLogin
from enmasse.model.issuers import Issuer
from enmasse.model.names import DEFAULT_SPACE, space_prefix
from enmasse.process import runner
from enmasse.storage.decoding import decode_any
from services.authserv.issuer import TokenSource
from services.authserv.proof import Proof, Unavailable
from services.authserv.prover import Prover
from services.authserv.tokens import MAX_TOKEN


class Issuers:
    """Sources of users beside users.json: of each address space, in the order of its issuers.json. `now`: seconds since
    1970."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._sources: dict[str, dict[str, Prover]] = {DEFAULT_SPACE: {}}
        self._running: dict[Prover, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._sources.values()))

    def has(self, space: str) -> bool:
        """Return whether an issuer is configured in an address space."""
        return bool(self._sources.get(space))

    @property
    def check_passwords(self) -> bool:
        """Whether there is an issuer that checks passwords."""
        return any(source.checks_passwords for _, _, source in self._all())

    @property
    def has_directories(self) -> bool:
        """Whether there is a directory."""
        return any(source.issuer.ldap is not None for _, _, source in self._all())

    def checks_passwords_of(self, space: str) -> bool:
        """Return whether there is an issuer that checks passwords of users of an address space."""
        return any(source.checks_passwords and _may_prove(source, space) for source in self._of(space))

    @property
    def prove_spaces(self) -> bool:
        """Whether there are issuers of users of other address spaces than the default one."""
        return len(self._sources) > 1 or any(_names_spaces(source) for source in self._shared.values())

    def problems(self) -> list[str]:
        """Return what does not work, by issuer."""
        return [
            f"issuer {space_prefix(space)}{name}: {source.problem}"
            for space, name, source in self._all()
            if source.problem
        ]

    def replace(
        self, issuers: Mapping[str, Issuer], in_spaces: Mapping[str, Mapping[str, Issuer]] | None = None
    ) -> None:
        """Put other issuers in force. Those that are unchanged keep their keys."""
        before = {(space, name): source for space, name, source in self._all()}

        def kept_or_new(space: str, name: str, issuer: Issuer) -> Prover:
            found = before.get((space, name))
            return found if found is not None and found.issuer == issuer else _source(issuer, self._now, space)

        self._sources = {
            space: {name: kept_or_new(space, name, issuer) for name, issuer in those.items()}
            for space, those in {DEFAULT_SPACE: issuers, **(in_spaces or {})}.items()
        }
        kept = {source for _, _, source in self._all()}
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

    async def check_token(self, token: str, space: str | None) -> Proof | None:
        """Return the identity that a token proves, by the first of the issuers that it names. `space`: the address
        space that the client means, whose issuers are asked too; None: the token decides. Those of the default space
        check each token, so that the time does not tell which of them is for a space. Raises Unavailable if none
        accepts it and one could not decide."""
        stated = stated_issuer(token)
        if stated is None:
            return None
        sources = [source for source in self._of(space) if source.issuer.issuer == stated]
        return await self._first(sources, space, lambda source: source.check(token))

    async def check_password(self, user: str, password: str, space: str) -> Proof | None:
        """Return the identity that a password proves in an address space, by the first issuer that accepts it. Raises
        Unavailable if none does and one could not decide, and Busy."""
        sources = [source for source in self._of(space) if _may_prove(source, space)]
        return await self._first(sources, space, lambda source: source.check_password(user, password))

    def for_browsers(self, space: str | None) -> tuple[BrowserIssuer, ...]:
        """Return the issuers at which browsers can log in, at a host of this address space; None: at another one."""
        names = dict.fromkeys([*self._sources.get(space or DEFAULT_SPACE, ()), *self._shared])
        sources = ((name, self._named(name, space)) for name in names)
        found = (source.for_browsers(name) for name, source in sources if source is not None)
        return tuple(each for each in found if each is not None)

    async def redeem(self, login: RedeemCode) -> Proof | None:
        """Return the identity that a code of a browser proves. Raises Busy, Unavailable."""
        source = self._named(login.issuer, login.space)
        found = None if source is None else await source.redeem(login)
        return found if self._named(login.issuer, login.space) is source else None  # it may have been removed meanwhile

    async def refresh(self, login: RefreshLogin) -> Proof | None:
        """Return the identity that a refresh token proves. Raises Busy, Unavailable."""
        source = self._named(login.issuer, login.space)
        found = None if source is None else await source.refresh(login.token)
        return found if self._named(login.issuer, login.space) is source else None  # it may have been removed meanwhile

    @property
    def _shared(self) -> dict[str, Prover]:
        """The issuers of the default space, which may be for users of others."""
        return self._sources[DEFAULT_SPACE]

    def _all(self) -> Iterator[tuple[str, str, Prover]]:
        """Yield address space, name and source of each issuer."""
        for space, those in self._sources.items():
            for name, source in those.items():
                yield space, name, source

    def _of(self, space: str | None) -> list[Prover]:
        """Return the issuers of the default space, and those of this one."""
        own = {} if space in (None, DEFAULT_SPACE) else self._sources.get(space or "", {})
        return [*self._shared.values(), *own.values()]

    def _named(self, name: str, space: str | None) -> Prover | None:
        """Return the issuer with this name at which browsers log in, at a host of this address space."""
        own = None if space is None else self._sources.get(space, {}).get(name)
        found = own or self._shared.get(name)
        return found if found is not None and _may_prove(found, space or DEFAULT_SPACE) else None

    async def _first(
        self, sources: Iterable[Prover], space: str | None, ask: Callable[[Prover], Awaitable[Proof | None]]
    ) -> Proof | None:
        """Ask sources in their order for a user of this address space; None: of any."""
        undecided: Unavailable | None = None
        for source in sources:
            try:
                found = await ask(source)
            except Unavailable as error:
                undecided = error
                continue
            if found is None or (space is not None and found.principal.space != space):
                continue
            if source in self._running:  # it may have been removed meanwhile
                return found
        if undecided is not None:
            raise undecided
        return None


def _source(issuer: Issuer, now: Callable[[], float], space: str) -> Prover:
    if issuer.ldap is None:
        return TokenSource(issuer, now, space)
    from services.authserv.ldap.ldap_source import LdapSource  # with a library that few need

    return LdapSource(issuer, now, space)


def _names_spaces(source: Prover) -> bool:
    """Return whether users of an issuer of the default space may be in others."""
    return source.issuer.space is not None or source.issuer.space_claim is not None


def _may_prove(source: Prover, space: str) -> bool:
    """Return whether an issuer may prove users of an address space."""
    return source.issuer.space_claim is not None or source.space == space


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
