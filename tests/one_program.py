"""The same client program and the same files in every way to run EnMasse: what it has to print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from enmasse.cli.commands.suite.init import ADDRESSES, FLAVORS

ROOT = Path(__file__).resolve().parents[1]
FILES = {"addresses.json": ADDRESSES, "flavors.json": FLAVORS}
"""As `enmasse init` writes them; used to the byte."""
PRINTED = """\
anycast: to one
multicast: to all, to all, to all
queue: first, second, third
topic: to every subscriber, to every subscriber
durable subscription: one while away, two while away
retained: on, True
will: a device is lost, a device is lost
QoS 2: {orders}, the last (2)
AMQP to MQTT: from an application
MQTT to AMQP: from a device
""".format(orders=", ".join(f"order {n} (2)" for n in range(10)))
SECONDS = 400.0


def check(amqp: str, mqtt: str) -> None:
    """Runs demo/program.py against these URLs."""
    command = [sys.executable, "-m", "demo.program", amqp, mqtt]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stdout) == (0, PRINTED), done.stderr


def check_files(folder: Path) -> None:
    """They are as they were written."""
    assert {name: (folder / name).read_bytes().decode() for name in FILES} == FILES
