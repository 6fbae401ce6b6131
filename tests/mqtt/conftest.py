"""A mosquitto for the tests of this folder: the reference that the client is tested against."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from enmasse.testing import free_port, wait_for


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a mosquitto of this module."""
    folder: Path = tmp_path_factory.mktemp("mosquitto")
    port = free_port()
    (folder / "conf").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n")
    binary = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
    process = subprocess.Popen([binary, "-c", str(folder / "conf")], stderr=subprocess.DEVNULL)

    def answers() -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_for("mosquitto", answers)
        yield port
    finally:
        process.kill()
        process.wait()
