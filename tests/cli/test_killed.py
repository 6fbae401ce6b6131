"""`enmasse up` is killed: nothing it started is left, whatever it was doing at that moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import ENMASSE, alive, enmasse, free_offset, wait_for

SERVICES = ["configserv", "ragent", "storage_controller", "console", "router", "broker"]
MOMENTS = [
    0.3,
    1.0,
    *(pytest.param(moment, marks=pytest.mark.slow) for moment in (0.1, 0.2, 0.4, 0.5, 0.7, 1.5, 2.0, 3.0)),
]
"""Seconds after the start: from before the first child to after the last is ready. `make test` has two of them."""
STARTS_A_CHILD = """
import os, subprocess, sys, time
child = subprocess.Popen(sys.argv[1:], env={**os.environ, "ENMASSE_PARENT": str(os.getpid())})
print(child.pid, flush=True)
time.sleep(600)
"""
NEVER_IMPORTED = """
import time
print("imports", flush=True)
time.sleep(600)
"""


def marked(mark: str) -> list[int]:
    """The processes with `mark` in their environment, or in their command: forked ones show no environment."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and alive(int(folder.name)):
            try:
                shown = (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in shown:
                found.append(int(folder.name))
    return found


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_that_still_imports_dies_with_its_parent(service: str, tmp_path: Path) -> None:
    (tmp_path / "msgspec.py").write_text(NEVER_IMPORTED)
    command = [sys.executable, "-P", "-m", f"services.{service}", "--config", "none.json"]
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_A_CHILD, *command],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    ) as parent:
        assert parent.stdout is not None
        said = [parent.stdout.readline().strip() for _ in range(2)]  # the child may be the first that writes
        child = int(next(line for line in said if line != "imports"))
        try:
            assert "imports" in said
            parent.kill()
            wait_for(lambda: not alive(child), what="the child is gone")
        finally:
            parent.kill()
            if alive(child):
                os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("moment", MOMENTS)
def test_nothing_is_left_of_a_suite_killed_at_any_moment(moment: float, tmp_path: Path) -> None:
    assert enmasse("init", tmp_path / "config").returncode == 0
    mark = str(tmp_path / "data")
    folders = ["--config", str(tmp_path / "config"), "--data", str(tmp_path / "data")]
    with subprocess.Popen(
        [ENMASSE, "up", *folders, "--port-offset", str(free_offset())],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "ENMASSE_TEST": mark},
    ) as up:
        with pytest.raises(subprocess.TimeoutExpired):
            up.wait(moment)
        up.kill()
    wait_for(lambda: not marked(mark), "all of its processes are gone")
