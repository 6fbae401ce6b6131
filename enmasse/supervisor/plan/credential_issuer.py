"""Issuer of credentials: a new secret for each start of a process, the verifiers for listeners, the operator's secret.

Secrets are in files that only their owner can read (docs/identity.md): never in arguments, logs or the environment.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from enmasse.identity.processes.credentials import Credential, PeerEntry, new_secret, peers_text
from enmasse.identity.processes.operator import OPERATOR, SECRET_FILE
from enmasse.identity.processes.roles import GATEWAYS, Role
from enmasse.storage.files import write_text
from enmasse.supervisor.plan.services import CREDENTIAL, PEERS, SECRET

_RELAYING = (Role.ROUTER, *GATEWAYS, Role.AUTHSERV)
"""Roles that state to the authentication service for which client they ask, and the service itself."""


class CredentialIssuer:
    """Writes its files into the folder `run`, which has space reserved for them. Raises OSError if that fails."""

    def __init__(self, run: Path, files: Callable[[Mapping[str, PeerEntry]], Mapping[str, str]]) -> None:
        """`files`: peers → name and text of further files by which brokers know them."""
        self._folder = run
        self._files = files
        self._peers = run / PEERS
        self._operator_file = run / SECRET_FILE
        self._entries: dict[str, PeerEntry] = {}
        self.operator_secret = new_secret()
        self._relay_key = new_secret()
        self.supervisor = Credential("supervisor", Role.SUPERVISOR, new_secret())
        """The credential of `enmasse up` itself, which is in no file."""

    def begin(self) -> None:
        """Remove what an earlier suite has left, and write the operator's secret. Raises OSError."""
        for file in (*self._folder.glob(f"*{CREDENTIAL}"), *self._folder.glob(f"*{SECRET}")):
            file.unlink()
        self._peers.unlink(missing_ok=True)
        self._admit(OPERATOR, Role.OPERATOR, self.operator_secret)
        self._admit(self.supervisor.name, self.supervisor.role, self.supervisor.secret)
        self.restore()

    def restore(self) -> None:
        """Write the files for listeners and operators if they have been deleted. Raises OSError."""
        if not self._peers.exists():
            self._write_peers()
        if not self._operator_file.exists():
            write_text(self._operator_file, f"{self.operator_secret}\n")

    def issue(self, name: str, role: Role, *, as_line: bool = False) -> None:
        """Give the process `name`, which is about to start, a new secret: in a file that `read_credential` reads, or
        `as_line` in one that has nothing else, for programs of other products. Raises OSError."""
        credential = Credential(name, role, new_secret(), self._relay_key if role in _RELAYING else "")
        self._admit(name, role, credential.secret)
        self._write_peers()
        if as_line:
            write_text(self._folder / f"{name}{SECRET}", f"{credential.secret}\n")
        else:
            write_text(self._folder / f"{name}{CREDENTIAL}", msgspec.json.encode(credential).decode())

    def withdraw(self, name: str) -> None:
        """Refuse the process `name` from now on: it has left the suite. Raises OSError."""
        if self._entries.pop(name, None) is not None:
            self._write_peers()
        for suffix in (CREDENTIAL, SECRET):
            (self._folder / f"{name}{suffix}").unlink(missing_ok=True)

    def end(self) -> None:
        """Remove the operator's secret, which is no longer valid."""
        with contextlib.suppress(OSError):
            self._operator_file.unlink(missing_ok=True)

    def _admit(self, name: str, role: Role, secret: str) -> None:
        from enmasse.identity.processes.scram import (
            verifier,  # its library takes time: the fork server starts meanwhile
        )

        self._entries[name] = PeerEntry(role, verifier(secret))

    def _write_peers(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, text in self._files(self._entries).items():
            write_text(self._folder / name, text)
            soon = time.time() + 1  # Artemis reads a file that is newer than its last look, by a coarse clock
            os.utime(self._folder / name, (soon, soon))
        write_text(self._peers, peers_text(self._entries))
