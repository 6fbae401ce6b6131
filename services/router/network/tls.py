"""Builds contexts of Python's ssl module from sslProfile entities, and reads the properties of TLS connections."""

from __future__ import annotations

import hashlib
import ssl

from enmasse.network import tls
from services.router.network.port_settings import SslProfile
from services.router.network.secrets import password
from services.router.routing.connection import Protection

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


class ProfileError(ValueError):
    """Raised for an unusable profile; names profile, attribute and reason."""


def _filled(profile: SslProfile, context: ssl.SSLContext) -> ssl.SSLContext:
    """Put the files and options of the profile into a context. Raises ProfileError."""
    attribute, value = "certFile", profile.cert_file
    try:
        if profile.cert_file:
            context.load_cert_chain(profile.cert_file, profile.private_key_file, lambda: password(profile.password))
        attribute, value = "caCertFile", profile.ca_cert_file
        if profile.ca_cert_file:
            context.load_verify_locations(profile.ca_cert_file)
        attribute, value = "ciphers", profile.ciphers
        if profile.ciphers:
            context.set_ciphers(profile.ciphers)
    except (OSError, ssl.SSLError) as error:
        text = f"sslProfile '{profile.name}': {attribute} {value!r} cannot be used: {error}"
        raise ProfileError(text) from None
    versions = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
    wanted = [versions[word] for word in profile.protocols if word in versions]
    context.minimum_version = min(wanted, default=ssl.TLSVersion.TLSv1_2)
    if wanted:
        context.maximum_version = max(wanted)
    return context


def server_context(profile: SslProfile, *, authenticate: bool) -> ssl.SSLContext:
    """Return a listener's context, which follows the files of the profile; `authenticate`: the peer must present a
    certificate. Raises ProfileError."""
    if not profile.cert_file:
        raise ProfileError(f"sslProfile '{profile.name}': a listener needs certFile")

    def make() -> ssl.SSLContext:
        context = _filled(profile, tls.listener_context())
        if profile.ca_cert_file:
            tls.demand_certificates(context, required=authenticate)
        return context

    files = (profile.cert_file, profile.private_key_file, profile.ca_cert_file)
    return tls.Followed([file for file in files if file], make).listening()


def client_context(profile: SslProfile, *, verify_hostname: bool) -> ssl.SSLContext:
    """Return a connector's context. Without caCertFile the system's authorities are trusted. Raises ProfileError."""
    context = tls.client_context()
    if not profile.ca_cert_file:
        context.load_default_certs()
    context.check_hostname = verify_hostname
    return _filled(profile, context)


def protection(facts: tuple[str, str, int] | None) -> Protection | None:
    """Return the protection of a connection by the facts that enmasse.network.tls gives; None without TLS."""
    return None if facts is None else Protection(*facts)


def user_of(connection: ssl.SSLObject | None, uid_format: str | None) -> str | None:
    """Return the user of the peer's verified certificate: its distinguished name (RFC 2253), or the parts selected by
    `uid_format`, joined with semicolons. None without a certificate, or if it has no such parts."""
    certificate = None if connection is None else connection.getpeercert()
    if connection is None or not certificate:
        return None
    subject: tuple[tuple[tuple[str, str], ...], ...] = certificate.get("subject", ())  # type: ignore[assignment]  # typeshed's type covers every field
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
    """Return the distinguished name in the order of RFC 2253, the most specific part first."""
    parts = ("+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in part) for part in subject)
    return ",".join(reversed(list(parts)))


def _escaped(value: str) -> str:
    text = "".join("\\" + c if c in ',+"\\<>;' else c for c in value)
    if text[:1] in ("#", " "):
        text = "\\" + text
    if len(text) > 1 and text.endswith(" ") and not text.endswith("\\ "):
        text = text[:-1] + "\\ "
    return "".join(c if c.isascii() else "".join(f"\\{byte:02X}" for byte in c.encode()) for c in text)
