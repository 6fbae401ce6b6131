"""sslProfile entities as contexts of Python's ssl module."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Any


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
