"""Each image alone, as a cluster runs it: any uid, a read-only root, no capabilities; health by HTTP; SIGTERM."""

from __future__ import annotations

import http.client
import json
import subprocess
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from enmasse import __version__
from enmasse.testing import free_port, wait_for
from tests.images.build import build
from tests.images.store import environment, podman

NOWHERE = {"configserv": "127.0.0.1:1", "router": "127.0.0.1:1"}
STORE = {"kind": "redis", "url": "redis://127.0.0.1:6379", "prefix": "test"}
SETTINGS: dict[str, dict[str, Any]] = {
    "configserv": {"listen": "0.0.0.0:5672", "config_dir": "/tmp/config", "data_dir": "/var/lib/enmasse/data"},
    "ragent": {"listen": "0.0.0.0:5672", "configserv": NOWHERE["configserv"]},
    "storage-controller": {
        "configserv": NOWHERE["configserv"],
        "driver": {"kind": "local", "desired": "/var/lib/enmasse/desired", "actual": "/var/lib/enmasse/actual.json"},
    },
    "router": {"entities": [["listener", {"name": "amqp", "host": "0.0.0.0", "port": "5672", "role": "normal"}]]},
    "broker": {"listen": "0.0.0.0:5672", "data_dir": "/var/lib/enmasse/data", "page_dir": "/var/lib/enmasse/pages"},
    "mqtt-gateway": {**NOWHERE, "listeners": [{"kind": "mqtt", "host": "0.0.0.0", "port": 1883}]},
    "subserv": {**NOWHERE, "store": STORE},
    "mqtt-lwt": {**NOWHERE, "store": {"kind": "sqlite", "path": "/var/lib/enmasse/store.db"}},
}
READY_ALONE = ("router", "broker")


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    build(*SETTINGS)


@contextmanager
def container(*arguments: str) -> Iterator[str]:
    """The name of a container that runs these arguments of `podman run`; it is removed afterwards."""
    name = f"enmasse-test-{uuid.uuid4().hex[:12]}"
    podman("run", "--detach", "--name", name, "--network=host", *arguments)
    try:
        yield name
    finally:
        podman("rm", "--force", "--time", "0", name, check=False)


RESTRICTED = ("--read-only", "--cap-drop=ALL", "--user=12345:0", "--security-opt=no-new-privileges")


@contextmanager
def service(image: str, folder: Path, **more: Any) -> Iterator[tuple[str, int]]:
    """Name of the container, port of its health."""
    health = free_port()
    settings = {"name": "shared", "health": f"127.0.0.1:{health}", **SETTINGS[image], **more}
    text = json.dumps(settings)
    for port in ("5672", "1883"):
        text = text.replace(f"0.0.0.0:{port}", f"127.0.0.1:{free_port()}")
    (folder / "settings.json").write_text(text)
    (folder / "settings.json").chmod(0o644)
    folder.chmod(0o755)
    mounts = (f"--volume={folder}:/etc/enmasse:ro", "--tmpfs=/tmp:mode=1777", "--tmpfs=/var/lib/enmasse:mode=1777")
    with container(
        *RESTRICTED, *mounts, "--env=ENMASSE_NAME=pod-0", f"localhost/enmasse/{image}:{__version__}"
    ) as name:
        yield name, health


def answers(port: int, path: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return bool(answer.status == 200)
    except (OSError, http.client.HTTPException):
        return False


def inspected(name: str) -> Any:
    return json.loads(podman("inspect", name))[0]


@pytest.mark.parametrize("image", SETTINGS)
def test_a_service(image: str, tmp_path: Path) -> None:
    with service(image, tmp_path) as (name, health):

        def live() -> bool:
            assert inspected(name)["State"]["Running"], podman("logs", name)
            return answers(health, "/readyz" if image in READY_ALONE else "/livez")

        wait_for(f"{image} is {'ready' if image in READY_ALONE else 'live'}", live)
        written = subprocess.run(
            ["podman", "exec", name, "python3", "-c", "open('/opt/enmasse/x', 'w')"],
            env=environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert "Read-only file system" in written.stderr
        who = podman("exec", name, "python3", "-c", "import os; print(os.getuid(), os.getgid())")
        assert who.split() == ["12345", "0"]
        podman("stop", "--time", "30", name)  # SIGTERM; SIGKILL after 30 s, which would show as 137
        assert inspected(name)["State"]["ExitCode"] == 0, podman("logs", name)
