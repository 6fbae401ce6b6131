"""A real Artemis for tests: own folder, own port, killed, stopped and started again as the test wants."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from enmasse.engines.artemis import distribution, instance
from enmasse.engines.artemis.instance import MIB, Instance
from enmasse.testing import free_port, wait_for
from tests.kit.processes import end_with_parent
from tests.kit.waiting import DEADLINE

HEADER = b"AMQP\x03\x01\x00\x00"
QUICK = ("-XX:TieredStopAtLevel=1",)
"""For function tests only: less CPU for the start, less speed afterwards."""
ENVIRONMENT = {"JDK_JAVA_OPTIONS": " ".join(QUICK)}
"""The same for the brokers of a suite."""


class Artemis:
    """Listens on `port` of `host`; its files are in `folder`. `more`: other fields of `Instance` than its defaults."""

    host = "127.0.0.1"

    def __init__(self, folder: Path, **more: Any) -> None:
        self.folder = folder
        self.port = more.pop("port", None) or free_port()
        self.address = f"{self.host}:{self.port}"
        etc, data, tmp = (folder / name for name in ("etc", "data", "tmp"))
        for made in (etc, tmp):
            made.mkdir(parents=True, exist_ok=True)
        given = {"name": "artemis", "memory": 64 * MIB, **more}
        self.instance = Instance(host=self.host, port=self.port, etc=str(etc), data=str(data), tmp=str(tmp), **given)
        self.log = folder / "artemis.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it answers."""
        for name, text in instance.files(self.instance).items():
            (self.folder / "etc" / name).write_text(text)
        java, *rest = instance.command(self.instance, *distribution.ready())
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [java, *QUICK, *rest], stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=end_with_parent
            )
        wait_for("Artemis answers", self.answers)

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        return answers(self.host, self.port)

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; its exit status, when it is gone."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait()

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()


def answers(host: str, port: int) -> bool:
    """Whether AMQP with SASL is spoken there."""
    try:
        with socket.create_connection((host, port), timeout=DEADLINE) as connection:
            connection.sendall(HEADER)
            return connection.recv(8) == HEADER
    except OSError:
        return False


@contextlib.contextmanager
def running_artemis(folder: Path, **more: Any) -> Iterator[Artemis]:
    """A broker that answers, with `host` and `port`, in a folder of its own; it ends with the block."""
    server = Artemis(folder, **more)
    try:
        server.start()
        yield server
    finally:
        server.end()
