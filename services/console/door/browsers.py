"""Logins of browsers at an issuer of OpenID Connect: the authorization code flow (OpenID Connect Core 1.0, 3.1) with
PKCE (RFC 7636), `state` and `nonce`. The console keeps what a login has begun with; authserv redeems its code.

No sockets.
"""

from __future__ import annotations

import hashlib
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlencode

from enmasse.identity.proofs.login_requests import BrowserIssuer
from services.console.door.browser_sessions import digest

SECONDS = 600.0
"""For a login, at the issuer and back."""
MOST = 10_000
"""Logins that have begun; the oldest is forgotten for another one."""
SCOPE = "openid"


@dataclass(frozen=True, slots=True)
class Begun:
    """A login that has begun. `space`: of the host that the browser has asked, None: of none; `browser`: digest of the
    secret in the browser's cookie; `until`: by the monotonic clock."""

    issuer: str
    space: str | None
    redirect: str
    nonce: str
    verifier: str
    browser: bytes
    until: float


class BrowserLogins:
    """Logins that have begun, by the digest of their `state`. `now`: a clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._begun: dict[bytes, Begun] = {}

    def begin(self, issuer: BrowserIssuer, redirect: str, space: str | None = None) -> tuple[str, str]:
        """Begin a login. Returns the URL to which the browser goes, and the secret for its cookie. `redirect`: URL to
        which the issuer sends it back."""
        state, nonce, browser = (secrets.token_urlsafe(32) for _ in range(3))
        verifier = secrets.token_urlsafe(48)
        if len(self._begun) >= MOST:
            del self._begun[next(iter(self._begun))]
        self._begun[digest(state)] = Begun(
            issuer.name, space, redirect, nonce, verifier, digest(browser), self._now() + SECONDS
        )
        challenge = urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = urlencode({
            "response_type": "code", "client_id": issuer.client_id, "redirect_uri": redirect, "scope": SCOPE,
            "state": state, "nonce": nonce, "code_challenge": challenge, "code_challenge_method": "S256",
        })  # fmt: skip
        return f"{issuer.endpoint}{'&' if '?' in issuer.endpoint else '?'}{query}", browser

    def end(self, state: str, browser: str) -> Begun | None:
        """Return the login that this browser has begun with this `state`, once; None: of no
        such login, or too late."""
        found = self._begun.pop(digest(state), None)
        if found is None or self._now() > found.until or not secrets.compare_digest(found.browser, digest(browser)):
            return None
        return found
