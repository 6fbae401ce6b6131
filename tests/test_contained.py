"""`python -m tests.contained`: nothing is left of a command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from enmasse.testing import wait_for
from tests.kit.waiting import DEADLINE

CONTAINED = [sys.executable, "-m", "tests.contained"]
ORPHAN = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
MIDDLE = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {ORPHAN!r}], start_new_session=True)"
PARENT = f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', {MIDDLE!r}]); time.sleep(600)"
INTERRUPTED = (
    "import signal, sys\n"
    "signal.signal(signal.SIGINT, lambda *_: sys.exit(5))\n"
    "print(1, flush=True)\n"
    "signal.pause()"
)  # fmt: skip


def ended(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_orphans_are_ended() -> None:
    with subprocess.Popen(
        [*CONTAINED, sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stderr is not None
        orphan = int(process.stdout.readline())
        process.terminate()
        assert process.wait(DEADLINE) == 128 + signal.SIGTERM
        wait_for("the end of the orphan", lambda: ended(orphan))
        assert f"left behind and ended: {orphan}" in process.stderr.read()


def test_the_status_is_that_of_the_command() -> None:
    for status in (0, 3):
        assert subprocess.run([*CONTAINED, "sh", "-c", f"exit {status}"], timeout=DEADLINE).returncode == status


def test_an_interrupt_is_left_to_the_command() -> None:
    command = [*CONTAINED, sys.executable, "-c", INTERRUPTED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "1\n"
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(DEADLINE) == 5
