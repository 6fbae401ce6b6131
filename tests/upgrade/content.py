"""Content of the archives: written by `write` when a version is released, looked for by the test of later versions.

It is written with commands, so that it does not depend on the modules of a version.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from enmasse.spark.spool.spool import SpoolWriter
from enmasse.testing import Suite, wait_for
from tests.kit.waiting import DEADLINE

QUEUE, TOPIC = "kept-queue", "kept-topic"
ADDRESSES = {
    QUEUE: {"type": "queue", "flavor": "small-persisted-queue"},
    TOPIC: {"type": "topic", "flavor": "small-persisted-topic"},
    "kept-anycast": {"type": "anycast"},
}
MESSAGES = [f"message {number}".ljust(150_000 if number == 3 else 20, ".") for number in range(6)]
PROPERTIES = {"color": "blue"}
NEWS = ["news 1", "news 2", "news 3"]
SUBSCRIPTION = ("--durable", "kept", "--container", "reader")
CLIENT, FILTER = "kept-session", f"{TOPIC}/+"
WAITING = {f"{TOPIC}/one": ("at QoS 1", 1), f"{TOPIC}/two": ("at QoS 2", 2)}
RETAINED = {f"{TOPIC}/kitchen": "21.5", f"{TOPIC}/kitchen/lamp": "on"}
WILLED, WILL = "willed", (f"{TOPIC}/wills", "the client is lost")
SPOOLED = [b"first", b"", bytes(range(256)) * 40]


def command(suite: Suite, *arguments: str) -> list[str]:
    """Return the arguments of a process that runs a command on the suite."""
    program = Path(sys.executable).with_name("enmasse")
    return [str(program), *arguments, "--port-offset", str(suite.offset)]


def enmasse(suite: Suite, *arguments: str, input: str | None = None) -> str:
    """Return the output of a command on the suite. Raises AssertionError if it fails."""
    done = subprocess.run(command(suite, *arguments), capture_output=True, text=True, timeout=DEADLINE, input=input)
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


def bodies(lines: str) -> list[Any]:
    """Return the bodies of messages that were printed with --json."""
    return [json.loads(line)["body"] for line in lines.splitlines()]


def session(suite: Suite, *end: str) -> list[Any]:
    """Return the bodies of the messages of the kept session, which stays."""
    kept = ["--client-id", CLIENT, "--session-expiry", "never", "--no-retained"]
    return bodies(enmasse(suite, "subscribe", FILTER, "--qos", "2", *kept, *end, "--json"))


def write(suite: Suite, spool: Path) -> None:
    """Fill a running suite and a spool, then kill the suite while a client with a will is connected."""
    enmasse(suite, "send", QUEUE, input="\n".join(MESSAGES))
    enmasse(suite, "send", QUEUE, "last", *(f"--property={key}={value}" for key, value in PROPERTIES.items()))
    enmasse(suite, "receive", TOPIC, *SUBSCRIPTION, "--timeout", "1")
    enmasse(suite, "send", TOPIC, input="\n".join(NEWS))
    assert session(suite, "--timeout", "1") == []
    for topic, (body, qos) in WAITING.items():
        enmasse(suite, "publish", topic, body, "--qos", str(qos))
    for topic, body in RETAINED.items():
        enmasse(suite, "publish", topic, body, "--retain")
    willed = ["--client-id", WILLED, "--will-topic", WILL[0], "--will-message", WILL[1]]
    with subprocess.Popen(command(suite, "subscribe", f"{TOPIC}/none", *willed), stderr=subprocess.DEVNULL) as client:
        wait_for("the client with a will", lambda: WILLED in enmasse(suite, "mqtt", "clients", "--json"))
        assert suite.process is not None
        suite.process.kill()
        suite.process.wait()
        client.kill()
    writer = SpoolWriter(spool)
    for number, record in enumerate(SPOOLED):
        writer.append(record, number)
    writer.sync()
    writer.close()
