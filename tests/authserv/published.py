"""An issuer on loopback that does what a test wants: its documents, its token endpoint, and tokens by its keys."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey
from joserfc.jws import JWSRegistry

ISSUER, AUDIENCE, CLIENT = "https://issuer.example/realms/one", "messaging", "suite"
RSA = RSAKey.generate_key(2048, {"kid": "rsa", "use": "sig", "alg": "RS256"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
ENCRYPTING = RSAKey.generate_key(2048, {"kid": "enc", "use": "enc"})
NOW = 1_800_000_000


def claims(now: float = NOW, **more: Any) -> dict[str, Any]:
    found = {
        "iss": ISSUER, "aud": ["account", AUDIENCE], "exp": int(now) + 60, "iat": int(now), "sub": "uuid",
        "preferred_username": "alice", "groups": ["/staff", "ops", 7, "", "@x"], **more,
    }  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}


def signed(key: Any = RSA, alg: str = "RS256", header: dict[str, Any] | None = None, **more: Any) -> str:
    heads = {"alg": alg, "kid": key.kid, **(header or {})}
    heads = {name: value for name, value in heads.items() if value is not None}
    private = {name: value for name, value in key.as_dict(private=True).items() if name not in ("use", "alg")}
    registry = JWSRegistry(algorithms=[alg], strict_check_header=False)
    return jwt.encode(heads, claims(**more), type(key).import_key(private), [alg], registry)


def public(*keys: Any) -> dict[str, Any]:
    return {"keys": [key.as_dict(private=False) for key in keys]}


@dataclass
class Code:
    """A code that the issuer has given to a browser."""

    challenge: str
    redirect: str
    tokens: dict[str, Any]
    used: bool = False


class Published:
    """An issuer with its discovery document, its keys, and users with passwords."""

    def __init__(self) -> None:
        self.keys = public(RSA)
        self.asked = 0
        """Documents that were fetched."""
        self.passwords = {"alice": "alice's"}
        self.logins: list[tuple[str, str]] = []
        """User names and passwords of requests to the token endpoint."""
        self.requests: list[tuple[dict[str, str], dict[str, str]]] = []
        """Headers and fields of them."""
        self.claims: dict[str, Any] = {}
        """Claims of tokens for passwords."""
        self.codes: dict[str, Code] = {}
        """Code → login of a browser; each is good for one request."""
        self.refreshable: dict[str, dict[str, Any]] = {}
        """Refresh token → claims of the token that it is good for, once."""
        self.override: Callable[[http.server.BaseHTTPRequestHandler], None] | None = None
        """What answers requests to the token endpoint instead."""
        outer = self

        class Answer(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                found = {"/.well-known/openid-configuration": outer.discovery, "/keys": outer.keys}.get(self.path)
                self.answer(200 if found is not None else 404, found)

            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers["Content-Length"])).decode()
                fields = {name: values[0] for name, values in parse_qs(text).items()}
                outer.requests.append((dict(self.headers.items()), fields))
                if fields["grant_type"] == "password":
                    outer.logins.append((fields["username"], fields["password"]))
                if outer.override is not None:
                    outer.override(self)
                elif fields["grant_type"] == "authorization_code":
                    self.answer(*outer.redeemed(fields))
                elif fields["grant_type"] == "refresh_token":
                    self.answer(*outer.refreshed(fields["refresh_token"]))
                else:
                    self.check_password(fields)

            def check_password(self, fields: dict[str, str]) -> None:
                if outer.passwords.get(fields["username"]) == fields["password"]:
                    claims = {"preferred_username": fields["username"], **outer.claims}
                    self.answer(200, {"access_token": outer.token(**claims)})
                else:
                    self.answer(400, {"error": "invalid_grant", "error_description": "Invalid user credentials"})

            def answer(self, status: int, found: Any) -> None:
                self.send_response(status)
                self.send_header("Set-Cookie", "session=1")
                self.end_headers()
                self.wfile.write(json.dumps(found).encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.discovery: dict[str, Any] = {
            "issuer": self.url, "jwks_uri": f"{self.url}/keys", "token_endpoint": f"{self.url}/token",
            "authorization_endpoint": f"{self.url}/authorize",
        }  # fmt: skip
        threading.Thread(target=self.server.serve_forever).start()

    def token(self, key: Any = RSA, **more: Any) -> str:
        return signed(key, **{"now": time.time(), "iss": self.url, **more})

    def code(
        self, challenge: str, redirect: str, nonce: str, *, user: str = "alice", refresh: str = "", **claims: Any
    ) -> str:
        """Give a code to a browser. `refresh`: refresh token that comes with its tokens. `claims`: of its tokens: those
        with the prefix `id_` of the ID token only."""
        code = f"code-{len(self.codes)}"
        of_id = {name.removeprefix("id_"): value for name, value in claims.items() if name.startswith("id_")}
        both = {name: value for name, value in claims.items() if not name.startswith("id_")}
        both = {"preferred_username": user, **both}
        tokens = {
            "access_token": self.token(**both),
            "id_token": self.token(**{"aud": CLIENT, "nonce": nonce, **both, **of_id}),
        }
        if refresh:
            tokens["refresh_token"] = refresh
        self.codes[code] = Code(challenge, redirect, tokens)
        return code

    def redeemed(self, fields: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """Return status and answer for a code."""
        found = self.codes.get(fields["code"])
        digest = hashlib.sha256(fields["code_verifier"].encode()).digest()
        proved = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if found is None or found.used or (found.challenge, found.redirect) != (proved, fields["redirect_uri"]):
            return 400, {"error": "invalid_grant"}
        found.used = True
        return 200, found.tokens

    def refresh_token(self, **claims: Any) -> str:
        """Return a refresh token."""
        token = f"refresh-{len(self.requests)}-{len(self.refreshable)}"
        self.refreshable[token] = claims
        return token

    def refreshed(self, token: str) -> tuple[int, dict[str, Any]]:
        """Return status and answer for a refresh token, which another one replaces."""
        claims = self.refreshable.pop(token, None)
        if claims is None:
            return 400, {"error": "invalid_grant", "error_description": "Session not active"}
        return 200, {"access_token": self.token(**claims), "refresh_token": self.refresh_token(**claims)}

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
