"""sslProfile entities as contexts of Python's ssl module, and what a TLS connection tells of itself and its peer."""

from __future__ import annotations

import hashlib
import os
import ssl
from pathlib import Path
from typing import Any, NamedTuple

_SHORT = {
    "countryName": "C",
    "stateOrProvinceName": "ST",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "commonName": "CN",
    "domainComponent": "DC",
    "userId": "UID",
    "streetAddress": "street",
}
_UID_FIELDS = {
    "c": "countryName",
    "s": "stateOrProvinceName",
    "l": "localityName",
    "o": "organizationName",
    "u": "organizationalUnitName",
    "n": "commonName",
}
_UID_DIGESTS = {"1": hashlib.sha1, "2": hashlib.sha256, "5": hashlib.sha512}


class ProfileError(Exception):
    """A profile that cannot be used: which one, which attribute, why."""


def _password(body: dict[str, Any]) -> str | None:
    """The private key's password: `env:VAR`, `file:PATH`, `literal:`/`pass:` text, or the text itself."""
    given = body.get("password")
    if body.get("passwordFile"):
        given = "file:" + body["passwordFile"]
    if given is None:
        return None
    kind, colon, rest = str(given).partition(":")
    if colon and kind == "env":
        return os.environ.get(rest, "")
    if colon and kind == "file":
        return Path(rest).read_text().strip()
    return rest if colon and kind in ("literal", "pass") else str(given)


def _context(name: str, body: dict[str, Any], context: ssl.SSLContext) -> ssl.SSLContext:
    attribute = "certFile"
    try:
        if body.get("certFile"):
            context.load_cert_chain(body["certFile"], body.get("privateKeyFile"), lambda: _password(body) or "")
        attribute = "caCertFile"
        if body.get("caCertFile"):
            context.load_verify_locations(body["caCertFile"])
        attribute = "ciphers"
        if body.get("ciphers"):
            context.set_ciphers(body["ciphers"])
    except (OSError, ssl.SSLError) as error:
        value = body.get(attribute)
        raise ProfileError(f"sslProfile '{name}': {attribute} {value!r} cannot be used: {error}") from None
    versions = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
    wanted = [versions[word] for word in str(body.get("protocols") or "").split() if word in versions]
    context.minimum_version = min(wanted, default=ssl.TLSVersion.TLSv1_2)
    if wanted:
        context.maximum_version = max(wanted)
    return context


def server_context(name: str, body: dict[str, Any], *, authenticate: bool) -> ssl.SSLContext:
    """For a listener; `authenticate`: the peer must show a certificate. Raises ProfileError."""
    if not body.get("certFile"):
        raise ProfileError(f"sslProfile '{name}': a listener needs certFile")
    context = _context(name, body, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    if body.get("caCertFile"):
        context.verify_mode = ssl.CERT_REQUIRED if authenticate else ssl.CERT_OPTIONAL
    return context


def client_context(name: str, body: dict[str, Any], *, verify_hostname: bool) -> ssl.SSLContext:
    """For a connector. Without caCertFile the system's authorities are trusted. Raises ProfileError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not body.get("caCertFile"):
        context.load_default_certs()
    context.check_hostname = verify_hostname
    return _context(name, body, context)


class Protection(NamedTuple):
    """What a TLS connection was agreed to be: version, cipher suite, strength in bits."""

    protocol: str
    cipher: str
    bits: int


def protection(connection: ssl.SSLObject | None) -> Protection | None:
    """None for a connection without TLS."""
    if connection is None:
        return None
    cipher = connection.cipher() or ("", "", 0)
    return Protection(connection.version() or "", cipher[0], cipher[2])


def user_of(connection: ssl.SSLObject | None, uid_format: str | None) -> str | None:
    """Who the verified certificate of the peer is for: its distinguished name (RFC 2253), or what `uid_format` picks of
    it, joined with semicolons (A.2). None: there is no certificate, or nothing of the kind in it."""
    certificate = None if connection is None else connection.getpeercert()
    if connection is None or not certificate:
        return None
    subject: tuple[tuple[tuple[str, str], ...], ...] = certificate.get("subject", ())  # type: ignore[assignment]
    if uid_format is None:
        return _distinguished_name(subject) or None
    fields: dict[str, str] = {}
    for part in subject:
        for name, value in part:
            fields.setdefault(name, value)
    found = []
    for letter in uid_format:
        if letter in _UID_DIGESTS:
            found.append(_UID_DIGESTS[letter](connection.getpeercert(binary_form=True) or b"").hexdigest())
        elif _UID_FIELDS[letter] in fields:
            found.append(fields[_UID_FIELDS[letter]])
    return ";".join(found) or None


def _distinguished_name(subject: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    """The most specific part first, as RFC 2253 writes it."""
    parts = ("+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in part) for part in subject)
    return ",".join(reversed(list(parts)))


def _escaped(value: str) -> str:
    text = "".join("\\" + c if c in ',+"\\<>;' else c for c in value)
    if text[:1] in ("#", " "):
        text = "\\" + text
    if len(text) > 1 and text.endswith(" ") and not text.endswith("\\ "):
        text = text[:-1] + "\\ "
    return "".join(c if c.isascii() else "".join(f"\\{byte:02X}" for byte in c.encode()) for c in text)
