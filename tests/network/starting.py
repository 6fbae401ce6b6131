"""Services at nodes of a network, and how they are."""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.kit.network import Node
from tests.kit.waiting import DEADLINE, wait_for

AMQP, HEALTH = 5672, 8080
"""Ports, the same at each node."""


def health(node: Node, port: int = HEALTH) -> dict[str, Any]:
    """Return the answer of a service to /healthz; empty without one."""
    with contextlib.suppress(urllib.error.URLError), node.inside():
        found: dict[str, Any] = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=DEADLINE))
        return found
    return {}


def begin(
    node: Node, kind: str, folder: Path, name: str = "", port: int = HEALTH, **settings: Any
) -> Callable[[], bool]:
    """Start a service at a node, and return what waits until it is ready. `name`: of the service, if there are several
    at the node; `port`: of its health."""
    name = name or node.name
    config = folder / f"{name}.json"
    config.write_text(json.dumps({"name": name, "health": f"127.0.0.1:{port}", **settings}))
    with (folder / f"{name}.log").open("w") as log:
        process = node.start_service(kind, config, log)

    def ready() -> bool:
        assert process.poll() is None, (folder / f"{name}.log").read_text()
        return bool(health(node, port).get("ready"))

    return partial(wait_for, ready, f"{name} is ready")


def start(node: Node, kind: str, folder: Path, **settings: Any) -> None:
    """Start a service at a node, and wait until it is ready."""
    begin(node, kind, folder, **settings)()
