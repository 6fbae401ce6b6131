"""Credentials of the suite's processes: a secret for each process, and the verifiers by which listeners check them.

Two kinds of files, 0600: a process reads its own *credential* (name, role, secret), a listener the *peers* (name → role
and SCRAM verifier, which proves a secret but does not reveal it). `enmasse up` writes both. Where credential or peers
are a folder, they are certificates (process_certificates.py).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import msgspec

from enmasse.errors import marked
from enmasse.identity.processes.process_certificates import Certificate, CertifiedPeers
from enmasse.identity.processes.roles import Peer, Role
from enmasse.model.users import Verifier
from enmasse.process import settings

SECRET_BYTES = 32
REVIEW = 1.0
"""Seconds between two looks at the file of peers."""


class Credential(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A process's own name, role and secret. `relay_key`: that of a suite's routers, gateways and authentication
    service (enmasse/identity/processes/relays.py); empty for others. Secret and key are not in its repr."""

    name: str
    role: Role
    secret: str
    relay_key: str = ""

    def __repr__(self) -> str:
        return f"Credential({self.name!r}, {self.role!r})"

    def tls(self) -> None:
        """Return None: a secret is proved without TLS."""


AnyCredential = Credential | Certificate
"""How a process authenticates: by a secret, or by a certificate."""


def relay_key_of(credential: AnyCredential | None) -> str:
    """Return the `relay_key` of a credential; empty without one, and for certificates, which prove more."""
    return credential.relay_key if isinstance(credential, Credential) else ""


class PeerEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Role and verifier of a process, for listeners."""

    role: Role
    verifier: Verifier


class _PeersFile(msgspec.Struct, forbid_unknown_fields=True):
    peers: dict[str, PeerEntry]


def new_secret() -> str:
    """Return a secret of 256 random bits, as text."""
    return secrets.token_urlsafe(SECRET_BYTES)


def read_credential(path: str | Path) -> Credential:
    """Return the credential in a file. Raises ServiceSettingsError."""
    return settings.read(path, Credential)


def own(config: settings.ServiceSettings) -> AnyCredential | None:
    """Return the credential that these settings name, None without one. A bad file ends the process: one line on
    stderr, status 2."""
    path = config.credential
    try:
        if path is not None and Path(path).is_dir():
            return Certificate(path)
        return None if path is None else read_credential(path)
    except settings.ServiceSettingsError as error:
        settings.end(marked("service.setting.invalid", str(error)))


class Peers:
    """The processes that may connect, read from the file of verifiers, and again whenever the file is replaced.

    A file that cannot be read leaves the last good content in force; none was read before: no peer is known. Open
    connections of a process end when its entry is gone, or is another one.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._stamp: tuple[int, int, int] | None = None
        self._entries: dict[str, PeerEntry] = {}
        self._open: dict[object, tuple[str, PeerEntry, Callable[[], None]]] = {}

    async def follow(self) -> NoReturn:
        """Read the file again whenever it is replaced, until cancelled."""
        while True:
            await asyncio.sleep(REVIEW)
            self._read()

    def opened(self, connection: object, name: str, entry: PeerEntry, end: Callable[[], None]) -> None:
        """Call `end` when the process `name`, whose connection this is, has no longer this entry."""
        self._open[connection] = name, entry, end

    def ended(self, connection: object) -> None:
        """Forget a connection."""
        self._open.pop(connection, None)

    def find(self, name: str) -> PeerEntry | None:
        """Return the entry of the process with this name, or None."""
        self._read()
        return self._entries.get(name)

    def peer(self, name: str) -> Peer | None:
        """Return the identity of the process with this name, or None."""
        entry = self.find(name)
        return None if entry is None else Peer(name, entry.role)

    def _read(self) -> None:
        try:
            state = self._path.stat()
        except OSError:
            return
        stamp = (state.st_ino, state.st_mtime_ns, state.st_size)
        if stamp != self._stamp:
            try:
                self._entries = settings.read(self._path, _PeersFile).peers
            except settings.ServiceSettingsError:
                return
            self._stamp = stamp
            for name, entry, end in list(self._open.values()):
                if self._entries.get(name) != entry:
                    end()


AnyPeers = Peers | CertifiedPeers
"""The processes that may connect, and how they prove it: by a secret, or by a certificate."""


def peers_at(path: str | None) -> AnyPeers | None:
    """Return the peers that a setting `peers` names, None without one. A bad folder ends the process, as with `own`."""
    try:
        if path is not None and Path(path).is_dir():
            return CertifiedPeers(path)
    except settings.ServiceSettingsError as error:
        settings.end(marked("service.setting.invalid", str(error)))
    return None if path is None else Peers(path)


def peers_text(peers: dict[str, PeerEntry]) -> str:
    """Return the content of the file that `Peers` reads."""
    return msgspec.json.encode(_PeersFile(peers)).decode()
