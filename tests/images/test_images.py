"""Each image alone, as a cluster runs it: any uid, a read-only root, no capabilities; health by HTTP; SIGTERM."""

from __future__ import annotations

import http.client
import json
import re
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from enmasse import __version__
from enmasse.testing import free_port, wait_for
from tests.images.build import build
from tests.images.containers import UID, Container

STATE = "/var/lib/enmasse"
NOWHERE = {"configserv": "127.0.0.1:1", "router": "127.0.0.1:1"}
STORE = {"kind": "redis", "url": "redis://127.0.0.1:1", "prefix": "test"}
IMAGES = (
    "configserv",
    "ragent",
    "storage-controller",
    "router",
    "broker",
    "mqtt-gateway",
    "http-gateway",
    "subserv",
    "mqtt-lwt",
    "authserv",
    "console",
)
READY_ALONE = ("router", "broker")


def settings(image: str, port: int) -> dict[str, Any]:
    """Of a service that has nobody to talk to. `port`: where it listens, if it does."""
    listen = f"127.0.0.1:{port}"
    every: dict[str, dict[str, Any]] = {
        "configserv": {"listen": listen, "config_dir": "/tmp/config", "data_dir": f"{STATE}/data"},
        "authserv": {"listen": listen, "configserv": NOWHERE["configserv"]},
        "console": {"listen": listen, **NOWHERE},
        "ragent": {"listen": listen, "configserv": NOWHERE["configserv"]},
        "storage-controller": {
            "configserv": NOWHERE["configserv"],
            "driver": {
                "kind": "local",
                "desired": "/var/lib/enmasse/desired",
                "actual": "/var/lib/enmasse/actual.json",
            },
        },
        "router": {"entities": [["listener", {"name": "a", "host": "127.0.0.1", "port": str(port), "role": "normal"}]]},
        "broker": {"listen": listen, "data_dir": f"{STATE}/data", "page_dir": f"{STATE}/pages"},
        "mqtt-gateway": {**NOWHERE, "listeners": [{"kind": "mqtt", "host": "127.0.0.1", "port": port}]},
        "http-gateway": {**NOWHERE, "listeners": [{"kind": "http", "host": "127.0.0.1", "port": port}]},
        "subserv": {**NOWHERE, "store": STORE},
        "mqtt-lwt": {**NOWHERE, "store": {"kind": "sqlite", "path": f"{STATE}/store.db"}},
    }
    return every[image]


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    build(*IMAGES)


@contextmanager
def service(image: str, folder: Path) -> Iterator[tuple[Container, int]]:
    """The container, and the port of its health."""
    health = free_port()
    whole = {"name": "shared", "health": f"127.0.0.1:{health}", **settings(image, free_port())}
    (folder / "settings.json").write_text(json.dumps(whole))
    (folder / "settings.json").chmod(0o644)
    folder.chmod(0o755)
    container = Container(f"localhost/enmasse/{image}:{__version__}").writable("/tmp", STATE)
    with container.with_volume_mapping(str(folder), "/etc/enmasse").with_env("ENMASSE_NAME", "pod-0"):
        yield container, health


def answers(port: int, path: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:  # limit: it is asked again
            return bool(answer.status == 200)
    except (OSError, http.client.HTTPException):
        return False


def compiled(container: Container, *modules: str) -> set[str]:
    """Which files Python compiles, because the image lacks their bytecode, to import these modules."""
    said = container.execute("python3", "-v", "-c", f"import {', '.join(modules)}")
    sources = set(re.findall(r"^# code object from '?(/[^'\n]+)", said, re.MULTILINE))
    assert any(source.endswith(".pyc") for source in sources) and "Traceback" not in said, said[-1000:]
    return {source for source in sources if not source.endswith(".pyc")}


@pytest.mark.parametrize("image", IMAGES)
def test_a_service(image: str, tmp_path: Path) -> None:
    with service(image, tmp_path) as (container, health):

        def live() -> bool:
            assert container.running, container.said
            return answers(health, "/readyz" if image in READY_ALONE else "/livez")

        wait_for(f"{image} is {'ready' if image in READY_ALONE else 'live'}", live)
        written = container.execute("python3", "-c", "open('/opt/enmasse/x', 'w')")
        assert "Read-only file system" in written
        who = container.execute("python3", "-c", "import os; print(os.getuid(), os.getgid())")
        assert who.split() == [str(UID), "0"]
        assert compiled(container, f"services.{image.replace('-', '_')}.__main__", "enmasse.tracing.spans") == set()
        if image == "authserv":
            assert container.execute("python3", "-c", "import argon2, cryptography, joserfc, scramp") == ""
        if image == "console":  # its web server is imported with the first connection only
            assert container.execute("python3", "-c", "import services.console.web") == ""
        assert container.terminate() == 0, container.said
