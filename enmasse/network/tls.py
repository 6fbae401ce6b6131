"""TLS: versions and ciphers of listeners, and contexts that follow the files of their certificates."""

from __future__ import annotations

import os
import ssl
import weakref
from asyncio import sslproto
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from enmasse.logs import log as logs

log = logs.get(part="tls")

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:DHE+CHACHA20"
"""Ciphers of TLS 1.2: forward secrecy and authenticated encryption. Those of TLS 1.3 all have both."""

MOST_SESSIONS = 1000
"""Sessions of TLS 1.2, without tickets, that the context of a listener remembers: half a KiB each, and with a client's
certificate 3 KiB."""

Stamp = tuple[int, int, int] | None
_followed: weakref.WeakSet[Followed] = weakref.WeakSet()
_asked: weakref.WeakKeyDictionary[ssl.SSLObject | ssl.SSLSocket, str] = weakref.WeakKeyDictionary()
"""Connections of listeners → the host that the client has asked for."""


def listener_context() -> ssl.SSLContext:
    """Return the context of a listener, without a certificate: TLS 1.2 and 1.3, no renegotiation."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_ciphers(CIPHERS)
    return context


def demand_certificates(context: ssl.SSLContext, *, required: bool = True) -> None:
    """Make a listener ask its peers for certificates. It issues no tickets: a peer that resumes a session is not
    verified again. With TLS 1.2 peers resume what this context remembers, and has verified by the same files."""
    context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0


def client_context() -> ssl.SSLContext:
    """Return the context of a client, without authorities: TLS 1.2 and 1.3, the server's name is verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def stamp(path: str) -> Stamp:
    """Return a value that differs when a file has changed; a mounted Secret changes by another folder behind a link.
    None: there is no such file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


class Followed:
    """A context that `make` builds from files, and again once one of them has changed. Files that do not fit together,
    or are gone, change nothing and are logged.

    `make` raises OSError (ssl.SSLError is one) for files that cannot be used. So does the construction.
    """

    def __init__(self, files: Iterable[str], make: Callable[[], ssl.SSLContext]) -> None:
        self.files = tuple(files)
        self._make = make
        self._seen = self._stamps()
        self._context = make()
        self.rejected = ""
        """Why the files cannot be used until one of them changes; empty: they are used."""
        _followed.add(self)

    def current(self) -> ssl.SSLContext:
        """Return the context for the next connection."""
        stamps = self._stamps()
        if stamps != self._seen:
            changed = ", ".join(
                file for file, *both in zip(self.files, self._seen, stamps, strict=True) if len(set(both)) > 1
            )
            self._seen = stamps
            if self._remake(changed):
                log.info("tls.certificate.renewed", cert=changed)
        return self._context

    def listening(self) -> ssl.SSLContext:
        """Return the context of a listener, whose connections have the current one. Those that are open keep what they
        began with."""
        return _Listening(self)

    def without_sessions(self) -> ssl.SSLContext:
        """Return another context for the next connection: its predecessor's sessions are forgotten. While the files are
        rejected there is no other."""
        if not self.rejected:
            self._remake(", ".join(self.files))
        return self._context

    def _remake(self, cert: str) -> bool:
        try:
            self._context = self._make()
        except (OSError, ValueError) as error:
            log.error("tls.certificate.rejected", cert=cert, reason=str(error))
            self.rejected = str(error)
            return False
        self.rejected = ""
        return True

    def _stamps(self) -> tuple[Stamp, ...]:
        return tuple(map(stamp, self.files))


class _Listening(ssl.SSLContext):
    """Context of a listener: hands its connections to the current one of `followed`, and sessions can be resumed as
    long as that one is in use.

    OpenSSL remembers 20,480 sessions of TLS 1.2 for each context, for two hours, and Python has no setting for that.
    Beyond MOST_SESSIONS they are forgotten: another context is made of the same files.
    """

    def __new__(cls, followed: Followed) -> Self:
        """As ssl.SSLContext, which takes the protocol here."""
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, followed: Followed) -> None:
        self._followed = followed
        self.verify_mode = followed.current().verify_mode

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *options: Any, **named: Any) -> ssl.SSLObject:
        """As ssl.SSLContext."""
        context = self._followed.current()
        if context.session_stats()["number"] > MOST_SESSIONS:
            context = self._followed.without_sessions()
        context.sni_callback = _note_name
        return context.wrap_bio(incoming, outgoing, *options, **named)


def _note_name(connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> None:
    if name:
        _asked[connection] = name


def server_name(connection: ssl.SSLObject | None) -> str:
    """Return the host that a client has asked a listener for (SNI), in small letters; empty if it names none."""
    return "" if connection is None else _asked.get(connection, "").lower()


def protection(connection: ssl.SSLObject | None) -> tuple[str, str, int] | None:
    """Return version, cipher suite and strength in bits of a TLS connection; None without TLS."""
    if connection is None:
        return None
    cipher = connection.cipher() or ("", "", 0)
    return connection.version() or "", cipher[0], cipher[2]


def shown(connection: ssl.SSLObject | None) -> dict[str, str] | None:
    """Return what rows of live state have of a TLS connection; None without TLS."""
    found = protection(connection)
    return None if found is None else {"protocol": found[0], "cipher": found[1]}


def rejections() -> dict[str, bool]:
    """Return the files that this process uses, and whether a changed one cannot be used with the others."""
    found: dict[str, bool] = {}
    for each in list(_followed):
        each.current()
        for file in each.files:
            found[file] = found.get(file, False) or bool(each.rejected)
    return found


def used_files() -> set[str]:
    """Return the files of certificates, keys and authorities that this process uses."""
    return {file for each in list(_followed) for file in each.files}


def expiries(files: Iterable[str]) -> Iterator[tuple[str, float]]:
    """Yield the files with certificates, and when the first of each expires (seconds since 1970). Files that have none,
    such as those of keys, are left out."""
    from cryptography import x509

    for file in sorted(files):
        try:
            found = x509.load_pem_x509_certificates(Path(file).read_bytes())
        except (OSError, ValueError):
            continue
        yield file, min(each.not_valid_after_utc.timestamp() for each in found)


sslproto.SSLProtocol.max_size = 8 << 10
"""asyncio's buffer of each connection with TLS that we dial. It is 256 KiB by itself, and filled with zeroes when the
handshake begins. Accepted ones have `TlsTransport`."""


def server(
    cert: str, key: str | None, *, ca: str | None = None, required: bool = True, alpn: Sequence[str] = ()
) -> Followed:
    """Return contexts of a listener with these files. With `ca` its peers must show certificates of these authorities;
    `required` False: they may. `alpn`: the protocols that it speaks, the best first; empty: it does not say. Raises
    OSError."""

    def make() -> ssl.SSLContext:
        context = listener_context()
        context.load_cert_chain(cert, key, str)  # never asks a terminal for a password
        if ca is not None:
            context.load_verify_locations(ca)
            demand_certificates(context, required=required)
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context

    return Followed([file for file in (cert, key, ca) if file], make)
