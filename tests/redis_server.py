"""A real redis-server for tests: own folder, own port, killed, stopped and started again as the test wants."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import redis

from enmasse.testing import free_port, wait_for
from tests.kit.waiting import DEADLINE

DURABLE = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")


class RedisServer:
    """Listens on `port` of loopback; its files are in `folder`. `options` beside those of a durable server."""

    def __init__(self, folder: Path, *options: str, start: bool = True) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.options = folder, options
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.process: subprocess.Popen[bytes] | None = None
        if start:
            self.start()

    def start(self) -> None:
        program = shutil.which("redis-server")
        assert program is not None, "redis-server is missing: tools/prepare.sh test installs it"
        place = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--logfile", "redis.log"]
        environment = {**os.environ, "LC_ALL": "C"}
        self.process = subprocess.Popen([program, *place, *DURABLE, *self.options], env=environment)
        wait_for("redis-server answers", self.answers)

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "redis.log").read_text()
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, socket_timeout=DEADLINE)

    def set(self, name: str, value: str) -> None:
        """CONFIG SET."""
        with self.client() as client:
            client.config_set(name, value)

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def pause(self) -> None:
        """It accepts connections and does not answer."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()  # asked politely, it may wait for a file that it is rewriting
