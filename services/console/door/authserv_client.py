"""Client of authserv: passwords, tokens, and codes of issuers are checked there."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple, TypeVar

import msgspec

from enmasse.control import ConnectionLost, ControlConnection, ControlError, connect
from enmasse.identity.login import Login
from enmasse.identity.processes.credentials import AnyCredential
from enmasse.identity.proofs.login_requests import (
    ADDRESS,
    ISSUERS,
    MAX_REQUEST,
    BrowserIssuer,
    IssuersAnswer,
    LoginAnswer,
    RevisionAnswer,
)
from enmasse.process.settings import host_port
from services.console.errors import RequestError
from services.console.request_links import Requester

SECONDS = 20.0
PAUSE = 0.02
"""Seconds between two looks at which users are known there."""
AT_ONCE = 64
"""Requests to authserv that are under way at most."""

T = TypeVar("T")


class Refresh(NamedTuple):
    """By which the issuer proves the identity of a session again. `issuer`: name in issuers.json; `token`: secret;
    `client`: the browser's host; `space`: the address space whose host it had asked, None: it was of none."""

    issuer: str
    token: str
    client: str
    space: str | None = None


class Proved(NamedTuple):
    """An identity that an issuer has proved; `token`: refresh token, None without one."""

    login: Login
    token: str | None


class Authserv:
    """Client of authserv's listener `logins` at `address` (host:port; None: without users)."""

    def __init__(self, address: str | None, name: str, credential: AnyCredential | None) -> None:
        self.known = address is not None
        self._address = address
        self._name = name
        self._credential = credential
        self._connecting = asyncio.Lock()
        self._connection: ControlConnection | None = None
        self._requesters: dict[str, Requester] = {}
        """Address → links of the connection."""
        self._under_way = 0

    async def check(
        self, user: str, password: str, client: str, space: str | None = None, *, api: bool = False
    ) -> Login | None:
        """Return the identity that a password, or a token, proves; None: it is wrong. `user` empty: that of the token.
        `client`: the client's host; `space`: the address space that the client means by the host it has asked, None:
        the user's name decides. `api`: an API token counts, too. Raises RequestError."""
        if len(user) + len(password) > MAX_REQUEST // 6:
            return None
        request = {"user": user, "password": password, "client": client, "spaces": True, "space": space, "api": api}
        return _decided(await self._ask(ADDRESS, request, LoginAnswer), "the password")

    async def issuers(self, space: str | None) -> tuple[BrowserIssuer, ...]:
        """Return the issuers at which browsers can log in. `space`: as of `check`. Raises RequestError."""
        return (await self._ask(ISSUERS, {"ask": "list", "space": space}, IssuersAnswer)).issuers if self.known else ()

    async def has_users(self, revision: int) -> None:
        """Wait until passwords and tokens are checked by this revision of the users, or a newer one. Raises
        RequestError."""
        while self.known and (await self._ask(ISSUERS, {"ask": "revision"}, RevisionAnswer)).revision < revision:
            await asyncio.sleep(PAUSE)

    async def redeem(self, **login: str | None) -> Proved | None:
        """Return the identity that a code proves, with the fields of `RedeemCode`; None: the issuer refuses it, or it
        is that of another login. Raises RequestError."""
        if sum(len(text or "") for text in login.values()) > MAX_REQUEST // 6:
            return None
        answer = await self._ask(ISSUERS, {"ask": "redeem", **login}, LoginAnswer)
        found = _decided(answer, "the login at the issuer")
        return None if found is None else Proved(found, answer.refresh)

    async def refresh(self, given: Refresh) -> Proved | None:
        """Return the identity that a refresh token proves now; None: the issuer refuses it. Raises RequestError."""
        answer = await self._ask(ISSUERS, {"ask": "refresh", **given._asdict()}, LoginAnswer)
        found = _decided(answer, "the session at the issuer")
        return None if found is None else Proved(found, answer.refresh)

    async def _ask(self, address: str, request: dict[str, Any], kind: type[T]) -> T:
        if self._under_way >= AT_ONCE:
            raise RequestError("console.login.limited", "too many logins are under way; try again")
        self._under_way += 1
        try:
            requester = await self._opened(address)
            return msgspec.json.decode(await requester.ask(request, SECONDS), type=kind)
        except (ControlError, ConnectionLost, TimeoutError, msgspec.DecodeError):
            raise RequestError(
                "console.login.limited", "the authentication service does not answer; try again"
            ) from None
        finally:
            self._under_way -= 1

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()

    async def _opened(self, address: str) -> Requester:
        async with self._connecting:
            lost = self._connection is None or self._connection.error is not None
            if lost or any(each.error is not None for each in self._requesters.values()):
                if self._address is None:
                    raise RequestError("console.login.limited", "there is no authentication service")
                self.close()
                self._requesters.clear()
                host, port = host_port(self._address)
                self._connection = await connect(host, port, container=self._name, credential=self._credential)
            assert self._connection is not None
            if address not in self._requesters:
                self._requesters[address] = Requester(self._connection, address)
            return self._requesters[address]


def _decided(answer: LoginAnswer, what: str) -> Login | None:
    if answer.outcome == "unavailable":
        raise RequestError("console.login.limited", f"{what} cannot be checked now; try again")
    return answer.login if answer.outcome == "accepted" else None
