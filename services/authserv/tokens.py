"""Bearer tokens (JWT, RFC 7519) of an OpenID Connect issuer, checked with its public keys. No sockets, no clock.

Refused whatever the token says: algorithms with a shared secret or none, keys for encryption, and tokens of other
issuers, for other audiences, expired or without an expiry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, Key, KeySet, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from enmasse.identity.principal import Principal
from enmasse.model.issuers import Issuer
from enmasse.model.names import DEFAULT_SPACE
from enmasse.model.users import ANONYMOUS, GROUP, name_error, user_name_error
from services.authserv.proof import Proof

MAX_TOKEN = 12 * 1024
"""Bytes of a token."""
MAX_GROUPS = 1000
LATEST = 253_402_300_799
"""End of the year 9999, in seconds since 1970: later expiries count as this one."""


class UnknownKey(Exception):
    """The token is signed by a key that is not known: the keys may have changed."""


class TokensOfLogin(NamedTuple):
    """Proof by the tokens of a browser's login. `nonce`: of the request for which they were made; empty: none."""

    proof: Proof
    nonce: str


class Tokens:
    """Tokens of one issuer. `now`: seconds since 1970; `space`: the address space whose file has the issuer."""

    def __init__(self, issuer: Issuer, now: Callable[[], float], space: str = DEFAULT_SPACE) -> None:
        self._space = issuer.space or space
        self._issuer = issuer
        self._keys: dict[str, Key] = {}
        self._registry = JWSRegistry(algorithms=issuer.algorithms, strict_check_header=False)
        self._claims = _claims_of(issuer, issuer.audience, now)
        self._claims_of_id = None if issuer.client_id is None else _claims_of(issuer, issuer.client_id, now)

    def replace_keys(self, document: Mapping[str, Any]) -> None:
        """Take the keys of a JWK set (RFC 7517, 5): public ones for signatures. Raises ValueError."""
        try:
            keys = KeySet.import_key_set({"keys": list(document["keys"])}).keys
        except (JoseError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"is not a set of keys: {type(error).__name__}: {error}") from None
        found: dict[str, Key] = {
            str(key.kid or ""): key
            for key in keys
            if isinstance(key, RSAKey | ECKey | OKPKey) and key.get("use", "sig") == "sig"
        }
        if not found:
            raise ValueError("has no public key for signatures")
        self._keys = found

    def check(self, token: str) -> Proof | None:
        """Return the identity that a token proves, and until when; None if it proves none. Raises UnknownKey."""
        claims = self._verified(token, self._claims)
        return None if claims is None else self._proof(claims)

    def check_login(self, id_token: str, access_token: str) -> TokensOfLogin | None:
        """Return the identity that the tokens of a browser's login prove (OpenID Connect Core 1.0, 3.1.3.7): the ID
        token is for the client, the access token proves the user as any other, and both have the same `sub`. None if
        they prove none. Raises UnknownKey."""
        if self._claims_of_id is None:
            return None
        stated = self._verified(id_token, self._claims_of_id)
        claims = self._verified(access_token, self._claims)
        if stated is None or claims is None:
            return None
        if not isinstance(stated.get("sub"), str) or stated["sub"] != claims.get("sub"):
            return None
        if stated.get("azp", self._issuer.client_id) != self._issuer.client_id:
            return None
        proof, nonce = self._proof(claims), stated.get("nonce")
        return None if proof is None else TokensOfLogin(proof, nonce if isinstance(nonce, str) else "")

    def _verified(self, token: str, registry: jwt.JWTClaimsRegistry) -> dict[str, Any] | None:
        """Return the claims of a token that is signed, and valid by the registry; None of another."""
        if len(token) > MAX_TOKEN or token.count(".") != 2:
            return None
        try:
            claims = jwt.decode(token, self._key, list(self._issuer.algorithms), self._registry).claims
            registry.validate(claims)
        except (JoseError, ValueError, TypeError, KeyError, RecursionError):
            return None
        return claims

    def _proof(self, claims: Mapping[str, Any]) -> Proof | None:
        principal = self._principal(claims)
        return None if principal is None else Proof(principal, int(min(claims["exp"] + self._issuer.skew, LATEST)))

    def _key(self, token: Any) -> Any:
        headers = token.headers()
        if headers.get("alg") not in self._issuer.algorithms:
            raise ValueError("the algorithm is not allowed")
        if "crit" in headers:
            raise ValueError("extensions that must be understood")
        kid = headers.get("kid")
        key = self._keys.get(str(kid)) if kid is not None else None
        if kid is None and len(self._keys) == 1:
            key = next(iter(self._keys.values()))
        if key is None:
            raise UnknownKey
        if key.get("alg", headers["alg"]) != headers["alg"]:
            raise ValueError("the key is for another algorithm")
        return key

    def _principal(self, claims: Mapping[str, Any]) -> Principal | None:
        space: Any = self._space if self._issuer.space_claim is None else claims.get(self._issuer.space_claim)
        if not isinstance(space, str):
            return None
        name = claims.get(self._issuer.user_claim)
        if not isinstance(name, str) or name == ANONYMOUS or user_name_error(name) is not None:
            return None
        groups = claims.get(self._issuer.groups_claim, [])
        stated = (
            [group.removeprefix("/") for group in groups if isinstance(group, str)] if isinstance(groups, list) else []
        )
        legal = [group for group in stated if name_error(GROUP + group) is None]
        return Principal(name, tuple(dict.fromkeys(legal))[:MAX_GROUPS], space)


def _claims_of(issuer: Issuer, audience: str, now: Callable[[], float]) -> jwt.JWTClaimsRegistry:
    return jwt.JWTClaimsRegistry(
        now=lambda: int(now()),
        leeway=issuer.skew,
        iss={"essential": True, "value": issuer.issuer},
        aud={"essential": True, "value": audience},
        exp={"essential": True},
    )
