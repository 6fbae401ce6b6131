"""Logins: passwords, tokens and codes of issuers, which authserv checks, and the sessions of browsers."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from dataclasses import dataclass
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
)
from enmasse.process.settings import host_port
from services.console.errors import RequestError
from services.console.request_links import Requester

SECONDS = 20.0
AT_ONCE = 64
"""Requests to authserv that are under way at most."""
LIFETIME, IDLE = 12 * 3600.0, 3600.0
"""Seconds of a session, and those without a request after which it ends."""
SESSIONS, SESSIONS_OF_USER = 10_000, 100
TOKENS, TOKEN_SECONDS = 1000, 30.0
"""Bearer tokens that are remembered, and for how long: a revoked one is accepted until then."""

EARLY = 30.0
"""Seconds before a token expires from which a session is refreshed."""
RETRY = 5.0
"""Seconds between two times that an issuer is asked about a session."""

T = TypeVar("T")


class Refresh(NamedTuple):
    """By which the issuer proves the identity of a session again. `issuer`: name in issuers.json; `token`: secret;
    `client`: the browser's host."""

    issuer: str
    token: str
    client: str


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

    async def check(self, user: str, password: str, client: str) -> Login | None:
        """Return the identity that a password, or a token, proves; None: it is wrong. `user` empty: that of the token.
        `client`: the client's host. Raises RequestError."""
        if len(user) + len(password) > MAX_REQUEST // 6:
            return None
        request = {"user": user, "password": password, "client": client}
        return _decided(await self._ask(ADDRESS, request, LoginAnswer), "the password")

    async def issuers(self) -> tuple[BrowserIssuer, ...]:
        """Return the issuers at which browsers can log in. Raises RequestError."""
        return (await self._ask(ISSUERS, {"ask": "list"}, IssuersAnswer)).issuers if self.known else ()

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


@dataclass(slots=True)
class Session:
    """A session of a browser. Times by the monotonic clock. `refresh`: by which its login is proved again before that
    expires; None: the session ends with the login. `refreshing`: that is under way; `again`: not before."""

    key: str
    csrf: str
    login: Login
    ends: float
    used: float
    refresh: Refresh | None = None
    refreshing: asyncio.Task[None] | None = None
    again: float = 0.0

    @property
    def left(self) -> float:
        """Seconds until the login expires."""
        return float("inf") if self.login.expires is None else self.login.expires - time.time()


class Sessions:
    """Sessions by the digest of their key, the least recently used first; and bearer tokens that were just checked."""

    def __init__(self) -> None:
        self._sessions: dict[bytes, Session] = {}
        self._tokens: dict[bytes, tuple[float, Login]] = {}

    def begin(self, login: Login, refresh: Refresh | None = None) -> Session:
        """Make a session."""
        now = time.monotonic()
        ends = now + LIFETIME
        if login.expires is not None and refresh is None:
            ends = min(ends, now + login.expires - time.time())
        session = Session(secrets.token_urlsafe(32), secrets.token_urlsafe(24), login, ends, now, refresh)
        own = [key for key, each in self._sessions.items() if each.login.principal.name == login.principal.name]
        if len(own) >= SESSIONS_OF_USER:
            del self._sessions[own[0]]
        elif len(self._sessions) >= SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[digest(session.key)] = session
        return session

    def find(self, key: str) -> Session | None:
        """Return the session of a cookie; None if it has ended."""
        hashed, now = digest(key), time.monotonic()
        session = self._sessions.pop(hashed, None)
        if session is None or now > session.ends or now > session.used + IDLE:
            return None
        session.used = now
        self._sessions[hashed] = session
        return session

    def opened(self, key: str) -> Session | None:
        """Return a session that has not ended, without using it."""
        session = self._sessions.get(digest(key))
        return session if session is not None and time.monotonic() <= session.ends else None

    def end(self, key: str) -> None:
        """End a session."""
        self._sessions.pop(digest(key), None)

    def token(self, token: str) -> Login | None:
        """Return the identity that a token has proved just now."""
        found = self._tokens.get(digest(token))
        if found is None or time.monotonic() > found[0]:
            return None
        return found[1]

    def remember(self, token: str, login: Login) -> None:
        """Remember the identity that a token has proved."""
        until = time.monotonic() + TOKEN_SECONDS
        if login.expires is not None:
            until = min(until, time.monotonic() + login.expires - time.time())
        if len(self._tokens) >= TOKENS:
            del self._tokens[next(iter(self._tokens))]
        self._tokens[digest(token)] = (until, login)


def digest(secret: str) -> bytes:
    """Return what secrets are compared by: looking one up takes no time that depends on a part of it."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
