"""A broker on a copy of a data folder, which only this command reaches."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from enmasse.cli.backups.process_backups import CopyFailed
from enmasse.cli.contexts.target_server import LOCAL
from enmasse.identity.processes.credentials import Credential, PeerEntry, new_secret, peers_text
from enmasse.identity.processes.roles import Role
from enmasse.identity.processes.scram import verifier
from enmasse.process.installed import import_path
from enmasse.storage.files import write_text

START_SECONDS = 300.0
"""Seconds for a broker to have read its data."""
POLL_SECONDS = 0.05


@contextlib.contextmanager
def broker_on(data: Path) -> Iterator[tuple[int, Credential]]:
    """Run a broker on a data folder as long as the block, which gets its port, and the credential for it. Raises
    CopyFailed, OSError."""
    with _held_ports() as (port, health), _broker(data, port, health) as credential:
        yield port, credential


@contextlib.contextmanager
def _broker(data: Path, port: int, health: int) -> Iterator[Credential]:
    """Run a broker that listens at these ports, as long as the block. Raises CopyFailed, OSError."""
    credential = Credential("operator", Role.OPERATOR, new_secret())
    peers, settings = data.with_name(f"{data.name}.peers"), data.with_name(f"{data.name}.json")
    write_text(peers, peers_text({credential.name: PeerEntry(credential.role, verifier(credential.secret))}))
    listening = {"listen": f"{LOCAL}:{port}", "health": f"{LOCAL}:{health}"}
    write_text(settings, json.dumps({"name": "backup", "data_dir": str(data), "peers": str(peers), **listening}))
    process = subprocess.Popen(
        (sys.executable, "-P", "-m", "services.broker", "--config", str(settings)),
        # It ends with this command, also if that is killed.
        env={**os.environ, **import_path(), "ENMASSE_PARENT": str(os.getpid())},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + START_SECONDS
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > until:
                raise CopyFailed(f"{data}: a broker cannot be started on this copy.")
            time.sleep(POLL_SECONDS)
        yield credential
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def _held_ports() -> Iterator[tuple[int, int]]:
    """Reserve two free ports as long as the block: by sockets that are bound and do not listen, beside which a server
    with SO_REUSEADDR can. A port that was only looked up may be another process's when the broker has started."""
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind((LOCAL, 0))
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        yield one.getsockname()[1], other.getsockname()[1]


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((LOCAL, port), timeout=1):
        return True
    return False
