"""Servers of the test bed: each in a process group of its own, killed with this process, however that ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_starter = ThreadPoolExecutor(1, "starter")
"""Starts all servers. Their "parent" is the thread that starts them (prctl(2)): that of an event loop ends with it."""


class Server:
    """A process that can be killed and started again. What it writes goes to `NAME.log` in `folder`."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name, self.command, self.folder = name, list(command), folder
        self.environment = {**os.environ, **(environment or {})}
        self.log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = _starter.submit(self._start).result()

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            # setpriv and not preexec_fn, which is unsafe in a process with threads
            return subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *self.command],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} has not been started"
        return self._process.pid

    def alive(self) -> bool:
        """Raises AssertionError with the end of its log if it has ended by itself."""
        assert self._process is not None, f"{self.name} has not been started"
        status = self._process.poll()
        assert status is None, f"{self.name} has ended with status {status}: {self.tail()}"
        return True

    def tail(self, size: int = 3000) -> str:
        return self.log.read_text(errors="replace")[-size:] if self.log.exists() else ""

    def kill(self) -> None:
        """SIGKILL to it and to what it started; returns when it has ended."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
