"""Checks of every request: Host and Origin, identity of the caller, and the token against forged requests."""

from __future__ import annotations

import asyncio
import base64
import hmac
import time
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from aiohttp import web

from enmasse.identity.login import Login, may_be_token
from enmasse.identity.principal import ANONYMOUS, Principal, named
from enmasse.identity.processes.operator import BEARER, read_line
from enmasse.identity.proofs.api_tokens import is_secret
from enmasse.identity.refused import Refusals
from enmasse.identity.user_directory import UserDirectory
from enmasse.logs import log
from enmasse.logs.audit import RepeatedEvents
from enmasse.model.feeds import GrantedUser
from enmasse.model.loopback import NAMES, host_of, is_loopback, may_be_rebound
from enmasse.model.names import DEFAULT_SPACE
from enmasse.process import runner
from services.console.door.access import Caller
from services.console.door.authserv_client import Authserv, Refresh
from services.console.door.browser_sessions import EARLY, RETRY, BrowserSession, BrowserSessions
from services.console.door.token_uses import TokenUses
from services.console.errors import RequestError

BASIC = "Basic "
COOKIE = "enmasse-session"
CSRF = "X-CSRF-Token"
SAFE = frozenset({"GET", "HEAD"})
Ended = Literal["login", "permissions"]
_refused: RepeatedEvents[tuple[str, str]] = RepeatedEvents(time.monotonic)


def token_of(stated: str) -> str | None:
    """Return the token in a header Authorization; None without one, as in that with the operator's secret."""
    token = stated.removeprefix(BEARER)
    return token if stated.startswith(BEARER) and (may_be_token(token) or is_secret(token)) else None


class Gate:
    """Identifies callers. `users`: those in force; `secret`: the file with the operator's secret; `token_uses`: that
    with the last uses of API tokens."""

    def __init__(
        self, users: UserDirectory, authserv: Authserv, secret: str | None, token_uses: str | None = None
    ) -> None:
        self.sessions = BrowserSessions()
        self.refusals = Refusals(time.monotonic)
        """Refusals of web pages of other sites, and of callers with wrong credentials."""
        self.refusals.tried = users.tried
        self.tokens = TokenUses(token_uses)
        self._users = users
        self._withdrawn: dict[tuple[str, str | None], GrantedUser] = {}
        """User, and API token (empty: all logins; None: the password) → the entry in force as these were removed."""
        self._authserv = authserv
        self._secret = None if secret is None else Path(secret)

    def check_site(self, request: web.Request) -> None:
        """Refuse requests that a web page of another site makes. Raises RequestError."""
        hosts = request.headers.getall("Host", [])
        if len(hosts) != 1:
            raise RequestError("console.request.invalid", "there must be one Host header")
        host = host_of(f"//{hosts[0]}")
        if host is None:
            raise RequestError("console.request.invalid", "the Host header is no host")
        if self._users.anonymous and not (host in NAMES and is_loopback(request.remote or "")):
            text = "without users the console is for this machine: the Host header must name loopback"
            raise self._other_site(request, text)
        for origin in request.headers.getall("Origin", []):
            if not _same_site(origin, hosts[0]):
                raise self._other_site(request, "requests from other web sites are not answered", origin)
        if request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site") and request.method not in SAFE:
            raise self._other_site(request, "requests from other web sites are not answered")

    def _other_site(self, request: web.Request, text: str, origin: str = "") -> RequestError:
        """Return the refusal of a request that may come from a page of another site, which becomes an event."""
        reason = f"{text}: {f'a page of {origin} asked' if origin else 'it was for'} {request.host}"
        self.refusals.note("connect", condition="origin refused", reason=reason, peer=peer_of(request))
        return RequestError("console.origin.refused", text)

    async def caller(self, request: web.Request) -> Caller:
        """Return the caller. Raises RequestError if it is not known."""
        found = await self.find(request)
        if found is None:
            text = "log in first, or send user and password with each request (`curl -u USER`)"
            raise RequestError("console.login.needed", text)
        self.check_token(request, found)
        return found

    def check_token(self, request: web.Request, caller: Caller) -> None:
        """Check that a request that changes something may: one with a cookie states the token of the session, and one
        with an API token has one that is not read-only. Raises RequestError."""
        if caller.read_only and request.method not in SAFE:
            raise RequestError("console.permission.denied", f"the API token {caller.token} is read-only")
        if caller.how == "session" and request.method not in SAFE:
            stated = request.headers.get(CSRF, "")
            if not hmac.compare_digest(stated.encode("utf-8", "replace"), (caller.csrf or "").encode()):
                raise RequestError("console.origin.refused", f"the header {CSRF} must have `csrf` of /api/v1/me")

    async def find(self, request: web.Request) -> Caller | None:
        """Return the caller; None without credentials. Raises RequestError if credentials are wrong."""
        stated = request.headers.get("Authorization")
        if stated is not None:
            return await self._stated(request, stated)
        key = request.cookies.get(COOKIE)
        session = None if key is None else self.sessions.find(key)
        meant = self.space_of(request)
        if session is not None and meant in (None, session.login.principal.space):
            await self._renewed(session)
            caller = self.of_session(session)
            if caller is not None:
                return caller
            self.sessions.end(session.key)
        space = meant or DEFAULT_SPACE
        permissions = self._users.permissions_of(space)
        if permissions.anonymous:
            return Caller("anonymous")
        # Without TLS, whose certificate proves the name, it may be a page of another site.
        if permissions.knows(ANONYMOUS) and (request.secure or not may_be_rebound(request.host)):
            principal = Principal(ANONYMOUS, space=space)
            return Caller("anonymous", principal, permissions.rights(principal), space=space)
        return None

    def space_of(self, request: web.Request) -> str | None:
        """Return the address space that a request means by its host; None: its host is of none, the login decides."""
        hosts = self._users.hosts
        return hosts.get(host_of(f"//{request.host}") or "") if hosts else None

    def oversees(self, caller: Caller) -> bool:
        """Return whether the caller may view what belongs to no address space, or to all: processes, their metrics and
        status. While there are spaces, only the operator may, else each caller with `view` on everything."""
        return caller.is_operator or (caller.space == DEFAULT_SPACE and caller.viewer and not self._users.hosts)

    def begin(self, request: web.Request, login: Login, refresh: Refresh | None = None) -> Caller | None:
        """Begin a session of a browser. Returns its caller; None if the user was removed or changed meanwhile."""
        caller = self.of_session(self.sessions.begin(login, refresh))
        if caller is not None:
            host = request.remote or "?"
            log.audit(
                "audit.login.accepted",
                who=caller.title, from_=host, what="console", outcome="accepted", count=1, space=caller.space,
            )  # fmt: skip
        return caller

    def of_session(self, session: BrowserSession) -> Caller | None:
        """Return the caller of a session; None if its user was removed, or has another password now."""
        return self._known(session.login, session)

    def ended(self, caller: Caller) -> Ended | None:
        """Return why the streams of a caller end: `login`, which has expired or was ended, or `permissions`, which are
        others now. None: nothing has changed that its rights follow from."""
        if caller.session is not None:
            session = self.sessions.opened(caller.session)
            known = None if session is None else self.of_session(session)
            if session is None or known is None or known.principal != caller.principal:
                return "login"
            self._renew(session)
        if self.left(caller) <= 0 or (caller.proof is not None and self._users.loss(caller.proof)):
            return "login"
        space = (caller.login or caller).space
        return None if caller.holds(self._users.permissions_of(space)) else "permissions"

    def left(self, caller: Caller) -> float:
        """Return the seconds until the login of a caller expires, unless it is renewed before."""
        session = None if caller.session is None else self.sessions.opened(caller.session)
        if session is not None:
            return min(session.left, session.ends - time.monotonic())
        return float("inf") if caller.expires is None else caller.expires - time.time()

    def _renew(self, session: BrowserSession) -> asyncio.Task[None] | None:
        """Have the issuer prove a session again, if that is due; return what is under way."""
        if session.refreshing is None and session.refresh is not None and session.left < EARLY:
            if time.monotonic() < session.again:
                return None
            session.refreshing = runner.spawn(self._prove(session, session.refresh), "session")
        return session.refreshing

    async def _renewed(self, session: BrowserSession) -> None:
        """Have a session proved again, if that is due. Raises RequestError if it has ended by that, or cannot be used
        until the issuer answers."""
        refresh, task = session.refresh, self._renew(session)
        if task is not None:
            await asyncio.shield(task)
        if refresh is None:
            return
        if self.sessions.opened(session.key) is None:
            text = f"the issuer {refresh.issuer} has ended the session; log in again"
            raise RequestError("console.login.needed", text)
        if session.left <= 0:
            text = f"the issuer {refresh.issuer} cannot be asked about the session now; try again"
            raise RequestError("console.login.limited", text)

    async def _prove(self, session: BrowserSession, refresh: Refresh) -> None:
        try:
            found = await self._authserv.refresh(refresh)
        except RequestError:
            return
        finally:
            session.refreshing, session.again = None, time.monotonic() + RETRY
        if found is None or found.login.principal.full_name != session.login.principal.full_name:
            self.sessions.end(session.key)
            who, what = session.login.principal.full_name, f"session, by the issuer {refresh.issuer}"
            space = session.login.principal.space
            log.audit(
                "audit.login.refused", who=who, from_=refresh.client, what=what, outcome="refused", count=1, space=space
            )
            return
        session.login = found.login
        session.refresh = refresh if found.token is None else refresh._replace(token=found.token)

    async def _stated(self, request: web.Request, stated: str) -> Caller:
        secret = None if self._secret is None else read_line(self._secret)
        if secret is not None and hmac.compare_digest(stated.encode("utf-8", "replace"), f"{BEARER}{secret}".encode()):
            return Caller("operator")
        token = token_of(stated)
        credentials = basic(stated) if token is None else ("", token)
        if credentials is not None and self._authserv.known:
            space = self.space_of(request)
            login = self.sessions.token(stated, space)
            if login is None:
                login = await self._authserv.check(*credentials, request.remote or "?", space, api=True)
                if login is not None:
                    self.sessions.remember(stated, space, login)
            caller = None if login is None else self._known(login)
            if caller is not None:
                self.tokens.used(caller)
                return caller
        self.refused(request, "a wrong secret, token or password", "" if credentials is None else credentials[0])
        raise RequestError("console.login.refused", "what the header Authorization states is not valid, or has expired")

    def refused(self, request: web.Request, what: str, user: str = "") -> None:
        """Note a refused login, for auditors, and as an event. `user`: the name that it states."""
        host = request.remote or "?"
        self.refusals.note_failed(
            "connect", user, space=self.space_of(request) or DEFAULT_SPACE, condition="login refused",
            reason="user, password or token is wrong, or the user has to wait after failures", peer=peer_of(request),
        )  # fmt: skip
        if count := _refused.count((host, what)):
            log.audit("audit.request.refused", who=None, from_=host, what=what, outcome="refused", count=count)

    def keep(self, request: web.Request, response: web.Response, caller: Caller, origin: str | None) -> web.Response:
        """Give the browser the cookie of a session that has begun. `origin`: of the page. Returns the response."""
        response.set_cookie(
            COOKIE, caller.session or "", path="/", httponly=True, samesite="Strict", secure=is_secure(request, origin)
        )
        return response

    def withdraw(self, user: str, space: str, token: str | None = "") -> None:
        """Refuse a removed user, one of its API tokens, or with None its former password, from now on: the feed may
        have the change later."""
        kept = self._withdrawn.items()
        self._withdrawn = {key: entry for key, entry in kept if self._users.entry(*named(key[0])[::2]) is entry}
        full_name = Principal(user, space=space).full_name
        if (entry := self._users.entry(user, space)) is not None:
            self._withdrawn[full_name, token] = entry
        self.sessions.forget(full_name)

    def _known(self, login: Login, session: BrowserSession | None = None) -> Caller | None:
        principal = login.principal
        if self._users.loss(login):
            return None
        entry = self._users.entry(principal.name, principal.space)
        by_password = login.credentials is not None and not login.token and not login.certified
        stated = {"", login.token, None} if by_password else {"", login.token}
        gone = (self._withdrawn.get((principal.full_name, each)) for each in stated)
        if entry is not None and any(each is entry for each in gone):
            return None
        return Caller(
            "session" if session is not None else "token" if login.token else "bearer",
            principal,
            self._users.rights(principal),
            session=None if session is None else session.key,
            csrf=None if session is None else session.csrf,
            expires=login.expires,
            token=login.token,
            proof=None if session is not None else login,
            read_only=login.read_only,
            space=principal.space,
        )


def peer_of(request: web.Request) -> str:
    """Return host and port of the client."""
    found = None if request.transport is None else request.transport.get_extra_info("peername")
    return f"{found[0]}:{found[1]}" if isinstance(found, tuple) else request.remote or ""


def is_secure(request: web.Request, origin: str | None) -> bool:
    """Return whether a page of this origin was fetched with TLS, of the console or of a proxy before it."""
    return request.secure or (origin is not None and origin.startswith("https://"))


def basic(stated: str) -> tuple[str, str] | None:
    """Return user and password of a header Authorization (RFC 7617); None: it states none."""
    if not stated.startswith(BASIC):
        return None
    try:
        user, colon, password = base64.b64decode(stated.removeprefix(BASIC), validate=True).decode().partition(":")
    except ValueError:  # of base64, or of UTF-8
        return None
    return (user, password) if user and colon else None


def _same_site(origin: str, host: str) -> bool:
    """Return whether a page of this origin was served at this Host."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()
