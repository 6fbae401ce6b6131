"""Credentials of the suite's processes by certificates: mutual TLS, and SASL EXTERNAL (RFC 4422, appendix A).

A *folder*, as Kubernetes mounts a Secret of type kubernetes.io/tls: `tls.crt`, `tls.key`, and `ca.crt` with the
authorities of the suite, which certify nothing else. The subject's common name states role and name, `ROLE/NAME`: Helm,
cert-manager and openssl all issue it, Artemis and Dispatch read it. A certificate is that of a service, whose processes
are called NAME, or NAME-… as pods are.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from enmasse.identity.processes.roles import Peer, Role
from enmasse.network import tls
from enmasse.process.settings import ServiceSettingsError

CERT, KEY, CA = "tls.crt", "tls.key", "ca.crt"


class Certificate:
    """A process's own certificate, and the authorities by which it verifies servers. Changed files count for the next
    connection.

    Raises ServiceSettingsError if the folder's files cannot be used.
    """

    def __init__(self, folder: str | Path) -> None:
        cert, key, ca = _files(folder)

        def make() -> ssl.SSLContext:
            context = tls.client_context()
            context.load_cert_chain(cert, key, str)  # never asks a terminal for a password
            context.load_verify_locations(ca)
            return context

        self._followed = _followed(folder, lambda: tls.Followed((cert, key, ca), make))

    def tls(self) -> ssl.SSLContext:
        """Return the context for the next connection. The server's name is verified."""
        return self._followed.current()


class CertifiedPeers:
    """The processes that may connect: those with a certificate of the folder's authorities. `tls`: the context of the
    listener, with the certificate of its own that it shows them.

    Raises ServiceSettingsError if the folder's files cannot be used.
    """

    def __init__(self, folder: str | Path) -> None:
        cert, key, ca = _files(folder)
        self.tls = _followed(folder, lambda: tls.server(cert, key, ca=ca)).listening()


def common_name(certificate: Mapping[str, Any] | None) -> str:
    """Return the one common name of a verified certificate, in the form of `ssl.SSLSocket.getpeercert`; else ""."""
    subject = (certificate or {}).get("subject", ())
    found = [value for part in subject for name, value in part if name == "commonName"]
    return str(found[0]) if len(found) == 1 else ""


def peer_of(certificate: Mapping[str, Any] | None) -> Peer | None:
    """Return the process that a verified certificate is of; None: it states no role and name."""
    role, slash, name = common_name(certificate).partition("/")
    if not slash or not name or role not in set(Role):
        return None
    return Peer(name, Role(role), of_service=True)


def _files(folder: str | Path) -> tuple[str, str, str]:
    return str(Path(folder, CERT)), str(Path(folder, KEY)), str(Path(folder, CA))


def _followed(folder: str | Path, make: Callable[[], tls.Followed]) -> tls.Followed:
    try:
        return make()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ServiceSettingsError(f"{folder}: {CERT}, {KEY}, {CA}: cannot be used: {reason}") from None
