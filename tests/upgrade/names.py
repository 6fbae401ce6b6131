"""Subscriptions and sessions with names of every kind, written without users: `python -m tests.upgrade.names TARGET`.

The archive `889b2e1-names.txz` was written by that version, the last one that had neither users nor owners.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path

from enmasse.testing import Suite, running
from tests.upgrade import archive, content
from tests.upgrade.content import enmasse

SUBSCRIPTIONS = [
    ("reader", "kept"), ("a.b", "c"), ("a", "b.c.d"), ("alice@host", "sub"), ("host", "sub@alice"), ("50%", "x%2Ey"),
]  # fmt: skip
"""Container-id and link name of durable subscriptions."""
CLIENTS = ["kept", "dev.1", "a@b", "50%25", "é"]
"""Client identifiers of sessions."""


def subscribe(suite: Suite, client: str, *end: str) -> str:
    kept = ["--client-id", client, "--session-expiry", "never", "--no-retained"]
    return enmasse(suite, "subscribe", content.FILTER, "--qos", "1", *kept, *end, "--json")


def write(suite: Suite) -> None:
    for container, link in SUBSCRIPTIONS:
        enmasse(suite, "receive", content.TOPIC, "--durable", link, "--container", container, "--timeout", "1")
    for client in CLIENTS:
        subscribe(suite, client, "--timeout", "1")
    enmasse(suite, "send", content.TOPIC, "to subscriptions")
    enmasse(suite, "publish", f"{content.TOPIC}/one", "to sessions", "--qos", "1")
    assert suite.process is not None
    suite.process.kill()
    suite.process.wait()


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with running(Path(folder), content.ADDRESSES, options=()) as suite:
            suite.up()
            write(suite)
        with tarfile.open(target, "w:xz") as packed:
            for name in ("config", "data"):
                packed.add(Path(folder) / name, name, filter=archive.kept)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
