"""Sessions of browsers, and bearer tokens that were just checked."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from dataclasses import dataclass

from enmasse.identity.login import Login
from services.console.door.authserv_client import Refresh

LIFETIME, IDLE = 12 * 3600.0, 3600.0
"""Seconds of a session, and those without a request after which it ends."""
SESSIONS, SESSIONS_OF_USER = 10_000, 100
TOKENS, TOKEN_SECONDS = 1000, 30.0
"""Bearer tokens that are remembered, and for how long: a revoked one is accepted until then."""

EARLY = 30.0
"""Seconds before a token expires from which a session is refreshed."""
RETRY = 5.0
"""Seconds between two times that an issuer is asked about a session."""


@dataclass(slots=True)
class BrowserSession:
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


class BrowserSessions:
    """Sessions by the digest of their key, the least recently used first; and bearer tokens that were just checked."""

    def __init__(self) -> None:
        self._sessions: dict[bytes, BrowserSession] = {}
        self._tokens: dict[bytes, tuple[float, Login]] = {}

    def begin(self, login: Login, refresh: Refresh | None = None) -> BrowserSession:
        """Make a session."""
        now = time.monotonic()
        ends = now + LIFETIME
        if login.expires is not None and refresh is None:
            ends = min(ends, now + login.expires - time.time())
        session = BrowserSession(secrets.token_urlsafe(32), secrets.token_urlsafe(24), login, ends, now, refresh)
        name = login.principal.full_name
        own = [key for key, each in self._sessions.items() if each.login.principal.full_name == name]
        if len(own) >= SESSIONS_OF_USER:
            del self._sessions[own[0]]
        elif len(self._sessions) >= SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[digest(session.key)] = session
        return session

    def find(self, key: str) -> BrowserSession | None:
        """Return the session of a cookie; None if it has ended."""
        hashed, now = digest(key), time.monotonic()
        session = self._sessions.pop(hashed, None)
        if session is None or now > session.ends or now > session.used + IDLE:
            return None
        session.used = now
        self._sessions[hashed] = session
        return session

    def opened(self, key: str) -> BrowserSession | None:
        """Return a session that has not ended, without using it."""
        session = self._sessions.get(digest(key))
        return session if session is not None and time.monotonic() <= session.ends else None

    def end(self, key: str) -> None:
        """End a session."""
        self._sessions.pop(digest(key), None)

    def token(self, token: str, space: str | None) -> Login | None:
        """Return the identity that a token has proved just now, where the host meant this address space."""
        found = self._tokens.get(digest(f"{space or ''} {token}"))
        if found is None or time.monotonic() > found[0]:
            return None
        return found[1]

    def remember(self, token: str, space: str | None, login: Login) -> None:
        """Remember the identity that a token has proved."""
        until = time.monotonic() + TOKEN_SECONDS
        if login.expires is not None:
            until = min(until, time.monotonic() + login.expires - time.time())
        if len(self._tokens) >= TOKENS:
            del self._tokens[next(iter(self._tokens))]
        self._tokens[digest(f"{space or ''} {token}")] = (until, login)

    def forget(self, full_name: str) -> None:
        """Forget what tokens and passwords of a user have proved."""
        kept = self._tokens.items()
        self._tokens = {key: found for key, found in kept if found[1].principal.full_name != full_name}


def digest(secret: str) -> bytes:
    """Return what secrets are compared by: looking one up takes no time that depends on a part of it."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
