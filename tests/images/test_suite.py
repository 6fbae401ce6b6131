"""The image of the whole suite, as a user runs it: published ports, volumes, the user of the first start, SIGTERM."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from enmasse import __version__
from enmasse.testing import free_port, wait_for
from tests.cli.running import enmasse
from tests.images.build import build
from tests.images.store import environment, podman

NAME = "enmasse-test-suite"
IMAGE = f"localhost/enmasse/suite:{__version__}"
PASSWORD = "/etc/enmasse/admin.password"


@pytest.fixture
def ports() -> Iterator[dict[int, int]]:
    """Port in the container → where it is published. The container has a read-only root and no capabilities, and is
    removed with its volumes."""
    build("suite")
    ports = {port: free_port() for port in (5671, 5672, 8443, 8883)}
    published = [f"--publish=127.0.0.1:{at}:{port}" for port, at in ports.items()]
    volumes = [f"--volume={NAME}-config:/etc/enmasse", f"--volume={NAME}-data:/var/lib/enmasse"]
    podman("rm", "--force", "--ignore", NAME)
    podman("volume", "rm", "--force", f"{NAME}-config", f"{NAME}-data", check=False)
    confined = ("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges")
    try:
        podman("run", "--detach", f"--name={NAME}", "--hostname=localhost", *confined, *published, *volumes, IMAGE)
        yield ports
    finally:
        podman("rm", "--force", "--ignore", NAME)
        podman("volume", "rm", "--force", f"{NAME}-config", f"{NAME}-data", check=False)


def inside(*command: str) -> str:
    return podman("exec", NAME, *command)


def is_healthy() -> bool:
    """Return True if the health check of the image passes."""
    assert podman("inspect", "--format={{.State.Running}}", NAME).strip() == "true", podman("logs", NAME)
    done = subprocess.run(["podman", "healthcheck", "run", NAME], env=environment(), capture_output=True, check=False)
    return done.returncode == 0


def test_what_clients_of_other_machines_stored_is_there_after_a_restart(ports: dict[int, int], tmp_path: Path) -> None:
    wait_for("the suite is healthy", is_healthy)
    ca, password = tmp_path / "ca.crt", tmp_path / "password"
    ca.write_text(inside("cat", "/var/lib/enmasse/tls/ca.crt"))
    password.write_text(inside("cat", PASSWORD))
    password.chmod(0o600)
    as_admin = {"ENMASSE_USER": "admin", "ENMASSE_PASSWORD_FILE": str(password), "ENMASSE_CA": str(ca)}
    queue = f"amqps://localhost:{ports[5671]}/myqueue"
    refused = enmasse("send", "--address", queue, "hello", env={"ENMASSE_CA": str(ca)})
    assert refused.returncode != 0, refused.stdout
    plain = enmasse("send", "--address", f"amqp://localhost:{ports[5672]}/myqueue", "hello", env=as_admin)
    assert plain.returncode != 0, "without TLS there is nobody beyond the loopback of the container"
    sent = enmasse("send", "--address", queue, "hello", env=as_admin)
    assert sent.returncode == 0, sent.stderr
    console = f"https://localhost:{ports[8443]}/api/v1/addresses"
    asked = ["curl", "--silent", "--fail", "--cacert", str(ca), "--user", f"admin:{password.read_text().strip()}"]
    assert "myqueue" in subprocess.run([*asked, console], capture_output=True, check=True, text=True).stdout
    assert json.loads(inside("enmasse", "status", "--json"))["ready"] is True
    assert inside("python3", "-c", "import os; print(os.getuid())").strip() == "65532"

    podman("stop", "--time=60", NAME)
    assert podman("inspect", "--format={{.State.ExitCode}}", NAME).strip() == "0", podman("logs", NAME)
    podman("start", NAME)
    wait_for("the suite is healthy again", is_healthy)
    assert inside("cat", PASSWORD) == password.read_text(), "the user stays"
    received = enmasse("receive", "--address", queue, "--count", "1", env=as_admin)
    assert (received.returncode, received.stdout) == (0, "hello\n"), received.stderr
