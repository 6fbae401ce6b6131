"""A Mosquitto broker as a process of a test."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from enmasse.testing import free_port, wait_for

PROGRAM = shutil.which("mosquitto") or "/usr/sbin/mosquitto"


def answers(port: int) -> bool:
    """Return True if a port of this machine accepts connections."""
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def run_mosquitto(folder: Path, *settings: str) -> Iterator[int]:
    """Run a Mosquitto with these lines of configuration as long as the block, which gets its port."""
    port = free_port()
    (folder / "conf").write_text("\n".join([f"listener {port} 127.0.0.1", *settings, ""]))
    process = subprocess.Popen([PROGRAM, "-c", str(folder / "conf")], stderr=subprocess.DEVNULL)
    try:
        wait_for("mosquitto", lambda: answers(port))
        yield port
    finally:
        process.kill()
        process.wait()
