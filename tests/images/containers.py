"""testcontainers over a podman of the tests' own store (store.py), as a service on a socket."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from enmasse.testing import wait_for
from tests.images.store import environment

UID = 12345


@contextmanager
def engine(folder: Path) -> Iterator[None]:
    """While it is open, testcontainers runs containers with podman."""
    socket = folder / "podman.sock"
    process = subprocess.Popen(["podman", "system", "service", "--time=0", f"unix://{socket}"], env=environment())
    os.environ["DOCKER_HOST"] = f"unix://{socket}"
    testcontainers_config.ryuk_disabled = True  # an image that removes what is left over; it would have to be pulled
    try:
        wait_for("podman listens", lambda: process.poll() is not None or socket.exists())
        assert process.poll() is None, "podman has ended"
        yield
    finally:
        del os.environ["DOCKER_HOST"]
        process.terminate()
        process.wait()


class Container(DockerContainer):
    """As a cluster runs it: any uid, a read-only root, no capabilities; on this machine's network. Removed when it is
    left."""

    def __init__(self, image: str) -> None:
        super().__init__(image)
        self.with_kwargs(
            network_mode="host",
            read_only=True,
            cap_drop=["ALL"],
            user=f"{UID}:0",
            security_opt=["no-new-privileges"],
        )

    def writable(self, *places: str) -> Container:
        """Empty folders in memory, as an emptyDir."""
        for place in places:
            self.with_tmpfs_mount(place)
        return self

    def kill(self) -> None:
        """SIGKILL to its process."""
        self.get_wrapped_container().kill()
        wait_for("the container has ended", lambda: not self.running)

    def start_again(self) -> None:
        self.get_wrapped_container().start()

    def terminate(self) -> int:
        """SIGTERM, and after 30 s SIGKILL. Returns its exit status: 137 after SIGKILL."""
        self.get_wrapped_container().stop(timeout=30)  # limit: the grace period of a pod, then SIGKILL
        wait_for("the container has ended", lambda: not self.running)
        return int(self._state()["ExitCode"])

    def execute(self, *command: str) -> str:
        """What the command, run in it, writes."""
        return bytes(self.exec(list(command)).output).decode()

    @property
    def running(self) -> bool:
        return bool(self._state()["Running"])

    @property
    def said(self) -> str:
        """What it has written."""
        return "\n".join(part.decode(errors="replace") for part in self.get_logs())

    def _state(self) -> Any:
        wrapped = self.get_wrapped_container()
        wrapped.reload()
        return wrapped.attrs["State"]
