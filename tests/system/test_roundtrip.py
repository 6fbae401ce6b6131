"""What `helm test` runs in a pod (charts/enmasse/storage/files), here beside a suite."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from enmasse.testing import Suite
from tests.kit.waiting import DEADLINE

PROGRAM = Path(__file__).parents[2] / "charts" / "enmasse" / "files" / "roundtrip.py"


def _round_trip(suite: Suite, address: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), suite.url, address]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)


@pytest.mark.parametrize("address", ["", "direct", "orders"])
def test_a_sent_message_is_received(suite: Suite, address: str) -> None:
    """From a reply address of the router, by the router alone, and by a broker."""
    done = _round_trip(suite, address)
    assert done.returncode == 0, done.stderr
    assert "'round trip' came back from " in done.stdout and done.stdout.endswith(": Accepted()\n")


def test_an_unknown_address_is_refused(suite: Suite) -> None:
    done = _round_trip(suite, "nowhere")
    assert done.returncode == 1
    assert "no message came back from 'nowhere': amqp:not-found" in done.stderr
