"""TLS of a listener: versions and ciphers, and its certificate, read again when its files change."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable

from enmasse import log as logs

log = logs.get(part="tls")

PERIOD = 10.0
"""Seconds between two looks at the files."""


CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:DHE+CHACHA20"
"""Ciphers of TLS 1.2: forward secrecy and authenticated encryption. Those of TLS 1.3 all have both."""


def listener_context() -> ssl.SSLContext:
    """Return the context of a listener, without a certificate: TLS 1.2 and 1.3, no renegotiation."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_ciphers(CIPHERS)
    return context


class Renewal:
    """Puts the certificate and key of these files into `context`, now and after each change of a file. Connections that
    are open keep what they began with. Files that do not fit together, or are gone, change nothing and are logged.

    `password` gives the key's. Raises OSError, ssl.SSLError if the files cannot be used now.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        cert: str,
        key: str | None,
        password: Callable[[], str] = str,
    ) -> None:
        self._context = context
        self._cert, self._key = cert, key
        self._password = password
        self._seen = self._stamp()
        self._load(context)
        self._timer = asyncio.get_running_loop().call_later(PERIOD, self._look)

    def close(self) -> None:
        """Stop looking for changed certificates."""
        self._timer.cancel()

    def _look(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PERIOD, self._look)
        stamp = self._stamp()
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            # Loading replaces first the certificate, then the key: what does not fit must not reach the context in use.
            self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            self._load(self._context)
        except (OSError, ssl.SSLError) as error:
            log.error("tls.certificate.rejected", cert=self._cert, reason=str(error))
        else:
            log.info("tls.certificate.renewed", cert=self._cert)

    def _load(self, into: ssl.SSLContext) -> None:
        into.load_cert_chain(self._cert, self._key, self._password)

    def _stamp(self) -> tuple[tuple[int, int, int] | None, ...]:
        """Differs when a file has changed; a mounted Secret changes by another folder behind a link."""
        return _stamp(self._cert), _stamp(self._key or self._cert)


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
