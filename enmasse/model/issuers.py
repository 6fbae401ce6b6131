"""issuers.json: who proves users beside users.json. Issuers of tokens by OpenID Connect (docs/identity.md, "Issuers"),
and directories ("Directories")."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any, Final, Literal, get_args
from urllib.parse import urlsplit

import msgspec

from enmasse.model import values
from enmasse.model.jsonfile import Document, Problem
from enmasse.model.loopback import is_loopback
from enmasse.model.names import simple_error, space_error
from enmasse.model.values import Wrong

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519"]
"""Signatures by public keys (RFC 7518, 3.1; RFC 9864)."""
ALGORITHMS: Final[tuple[Algorithm, ...]] = get_args(Algorithm)
MAX_ISSUERS: Final = 32
MAX_TEXT: Final = 1024
"""Characters of a URL, and of the other texts."""
MAX_CA: Final = 256 * 1024
"""Characters of `ca`."""
MAX_SKEW: Final = 600
LEAST_SESSION, MOST_SESSION = 60, 7 * 86400
PORTS: Final = {"ldaps": 636, "ldap": 389}
_SPACE_CLAIM = "spaceClaim"
_EXAMPLE = '{"issuer": "https://sso.example.com/realms/main", "audience": "messaging"}'
_LDAP_EXAMPLE = '{"url": "ldaps://ldap.example.com", "users": "ou=people,dc=example,dc=com"}'
_ATTRIBUTE = re.compile(r"[A-Za-z][A-Za-z0-9;-]*")
_MEMBER = re.compile(rf"{_ATTRIBUTE.pattern}(:[0-9]+(\.[0-9]+)*:)?")
_CERTIFICATE = r"[^-]*-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----\s*"
_CERTIFICATES = re.compile(f"(?:{_CERTIFICATE})+")
_SEQUENCE = b"\x30"
"""The first byte of a certificate in DER."""


class Ldap(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`ldap` of an entry of issuers.json. `url`: the server; `starttls`: TLS begins on its plain port. `bind_dn`,
    `bind_password`: who searches; None: anonymously. `users`: the entry below which users are; `user_attribute`: has
    the name; `user_filter`: what a user has to match, too. `groups`: the entry below which groups are, None: users have
    none; `group_attribute`: has the name of a group; `member_attribute`: its members. `session`: seconds until a user
    has to prove its password again. The repr has no secret."""

    url: str
    users: str
    starttls: bool = False
    bind_dn: str | None = None
    bind_password: str | None = None
    user_attribute: str = "uid"
    user_filter: str | None = None
    groups: str | None = None
    group_attribute: str = "cn"
    member_attribute: str = "member"
    session: int = 3600

    def __repr__(self) -> str:
        return f"Ldap(url={self.url!r}, users={self.users!r}, bind_dn={self.bind_dn!r})"

    @property
    def server(self) -> tuple[str, int]:
        """Return host and port."""
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or PORTS[parts.scheme]


class Issuer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An entry of issuers.json. `issuer`, `audience`: what the claims `iss` and `aud` must have. `jwks_url`: its keys;
    None: where its discovery document says. `ca`: certificates in PEM of the authorities of its server; None: those of
    the system. `skew`: seconds that clocks may differ. `user_claim`, `groups_claim`: claims with the names.
    `client_id`, `client_secret`: of the client by which passwords are proved; None: they are not proved here, or the
    client has no secret. `space`: address space of its users; `space_claim`: claim with its name; neither: the space
    that has the file. `ldap`: it is a directory, which may have `ca` and `space`, too. The repr has no secret."""

    issuer: str = ""
    audience: str = ""
    jwks_url: str | None = None
    ca: str | None = None
    algorithms: tuple[Algorithm, ...] = ("RS256", "PS256", "ES256")
    user_claim: str = "preferred_username"
    groups_claim: str = "groups"
    skew: int = 30
    client_id: str | None = None
    client_secret: str | None = None
    space: str | None = None
    space_claim: str | None = msgspec.field(default=None, name="spaceClaim")
    ldap: Ldap | None = None

    def __repr__(self) -> str:
        if self.ldap is not None:
            return repr(self.ldap)
        return f"Issuer(issuer={self.issuer!r}, audience={self.audience!r}, client_id={self.client_id!r})"


def parse_issuers(document: Document, *, in_space: bool = False) -> tuple[dict[str, Issuer], list[Problem]]:
    """Return the valid entries of issuers.json in their order, and the problems of the others. `in_space`: the file is
    that of another address space than the default one, whose issuers prove its users alone."""
    too_many = set(list(document.entries)[MAX_ISSUERS:])

    def parse(name: str, entry: Any) -> Issuer:
        if name in too_many:
            raise Wrong(f"there may be {MAX_ISSUERS} issuers at most; remove some")
        reason = simple_error(name, "issuer")
        if reason is not None:
            raise Wrong(reason)
        found = _issuer(entry)
        for key, value in (("space", found.space), (_SPACE_CLAIM, found.space_claim)):
            if in_space and value is not None:
                raise Wrong(
                    "is for issuers of the default address space: these prove users of their own; remove it", key
                )
        return found

    return document.parsed(parse)


def url_error(url: str) -> str | None:
    """Return why documents are not fetched from `url`, None if they are: it must be https://, so that they cannot be
    changed or read on the way, or http:// on loopback."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is not a URL; write https://HOST/PATH"
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url or not host:
        return "is not a URL; write https://HOST/PATH"
    if parts.username is not None or parts.password is not None:
        return "must not have a user or password; remove it"
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)):
        return None
    return "must be https://, or http:// on loopback"


def _issuer(entry: Any) -> Issuer:
    if not isinstance(entry, dict):
        raise Wrong(f"must be an object such as {_EXAMPLE}, not {values.kind(entry)}")
    found: dict[str, Any] = {}
    for key, value in entry.items():
        check = _CHECKS.get(key)
        if check is None:
            raise values.unknown_key(key, _CHECKS)
        try:
            found[key] = check(value)
        except Wrong as wrong:
            raise Wrong(str(wrong), key, *wrong.path) from None
    if "ldap" in found:
        for key in found.keys() - _OF_DIRECTORIES:
            raise Wrong("is for issuers of tokens; remove it, or ldap", key)
        return Issuer(**found)
    for key in ("issuer", "audience"):
        if key not in found:
            raise Wrong(f"is missing; write an object such as {_EXAMPLE}", key)
    if "client_secret" in found and "client_id" not in found:
        raise Wrong("needs client_id, the client that has this secret; add it, or remove the secret", "client_secret")
    if "space" in found and _SPACE_CLAIM in found:
        raise Wrong("cannot be beside space: a token has one address space; remove one of the two", _SPACE_CLAIM)
    claim = found.pop(_SPACE_CLAIM, None)
    return Issuer(**found, space_claim=claim)


def _text(value: Any) -> str:
    found = values.text(value)
    if len(found) > MAX_TEXT or not found.isprintable():
        raise Wrong(f"must be a string of at most {MAX_TEXT} printable characters")
    return found


def _url(value: Any) -> str:
    found = _text(value)
    if (reason := url_error(found)) is not None:
        raise Wrong(reason)
    return found


def _space(value: Any) -> str:
    found = values.text(value)
    if (reason := space_error(found)) is not None:
        raise Wrong(reason)
    return found


def _issuer_url(value: Any) -> str:
    found = _url(value)
    if "?" in found or "#" in found:
        raise Wrong("must not have a query or fragment (OpenID Connect Discovery, 3); remove it")
    return found


def _ca(value: Any) -> str:
    found = values.text(value)
    if len(found) > MAX_CA or not _CERTIFICATES.fullmatch(found):
        raise Wrong("must be the text of certificates in PEM, and nothing else: -----BEGIN CERTIFICATE-----…")
    for body in re.findall(_CERTIFICATE, found):
        try:
            data = base64.b64decode("".join(body.split()), validate=True)
        except ValueError:
            data = b""
        if not data.startswith(_SEQUENCE):
            raise Wrong("has a certificate that cannot be read; copy it again")
    return found


def _algorithms(value: Any) -> tuple[Algorithm, ...]:
    if not isinstance(value, list) or not value or any(each not in ALGORITHMS for each in value):
        raise Wrong(f"must be an array of {', '.join(ALGORITHMS)}; others, and an empty one, would let anyone sign")
    return tuple(dict.fromkeys(value))


def _ldap(value: Any) -> Ldap:
    """Return the value of `ldap`. Raises Wrong."""
    found = values.members(value, _LDAP_CHECKS)
    for key in ("url", "users"):
        if key not in found:
            raise Wrong(f"is missing; write an object such as {_LDAP_EXAMPLE}", key)
    made = Ldap(**found)
    if made.starttls and made.url.startswith("ldaps:"):
        raise Wrong("is for ldap://; with ldaps:// there is TLS from the beginning: remove one of the two", "starttls")
    if not made.starttls and made.url.startswith("ldap:") and not is_loopback(made.server[0]):
        reason = "must be ldaps://, or have starttls beside it, or be on loopback: others could read passwords"
        raise Wrong(reason, "url")
    for key, other in (("bind_password", "bind_dn"), ("bind_dn", "bind_password")):
        if key in found and other not in found:
            raise Wrong(f"needs {other}; add it, or remove both for an anonymous search", key)
    return made


def _server_url(value: Any) -> str:
    found = _text(value)
    try:
        parts = urlsplit(found)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    whole = f"{parts.scheme}://{parts.netloc}" if host else ""
    if not host or parts.scheme not in PORTS or "@" in whole or " " in whole or found not in (whole, f"{whole}/"):
        raise Wrong("must be ldaps://HOST or ldaps://HOST:PORT, or ldap:// in its place, and nothing else")
    return found


def _dn(value: Any) -> str:
    found = _text(value)
    if "=" not in found:
        raise Wrong("must be the name of an entry, such as ou=people,dc=example,dc=com")
    return found


def _filter(value: Any) -> str:
    """Return a filter (RFC 4515) whose parentheses match, so that it is one part of another."""
    found, depth = _text(value), 0
    for place, character in enumerate(found):
        depth += (character == "(") - (character == ")")
        if depth <= 0 and place < len(found) - 1:
            break
    else:
        if depth == 0 and found.startswith("("):
            return found
    raise Wrong("must be one filter in parentheses, such as (objectClass=person) or (&(a=1)(b=2))")


def _attribute(value: Any) -> str:
    return _matching(value, _ATTRIBUTE, "the name of an attribute, such as uid")


def _member(value: Any) -> str:
    return _matching(value, _MEMBER, "the name of an attribute, such as member, also with a rule, member:1.2.840:")


def _matching(value: Any, pattern: re.Pattern[str], what: str) -> str:
    found = _text(value)
    if not pattern.fullmatch(found):
        raise Wrong(f"must be {what}")
    return found


_LDAP_CHECKS: dict[str, Callable[[Any], Any]] = {
    "url": _server_url,
    "users": _dn,
    "starttls": values.boolean,
    "bind_dn": _text,
    "bind_password": _text,
    "user_attribute": _attribute,
    "user_filter": _filter,
    "groups": _dn,
    "group_attribute": _attribute,
    "member_attribute": _member,
    "session": lambda value: values.whole(value, LEAST_SESSION, MOST_SESSION, " of seconds"),
}
_CHECKS: dict[str, Callable[[Any], Any]] = {
    "issuer": _issuer_url,
    "audience": _text,
    "jwks_url": _url,
    "ca": _ca,
    "algorithms": _algorithms,
    "user_claim": _text,
    "groups_claim": _text,
    "skew": lambda value: values.whole(value, 0, MAX_SKEW, " of seconds"),
    "client_id": _text,
    "client_secret": _text,
    "space": _space,
    _SPACE_CLAIM: _text,
    "ldap": _ldap,
}
_OF_DIRECTORIES = {"ldap", "ca", "space"}
