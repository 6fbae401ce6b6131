"""Runs a command and leaves no process of it behind, however it ends: `python -m tests.contained COMMAND ...`

pytest's workers are killed if Ctrl-C is pressed twice, or if pytest is killed. Suites and virtual machines that they
have started then run on. As a "subreaper" (prctl(2)) this process becomes the parent of what is left, and ends it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
PATIENCE = 15.0
"""Seconds for what is left to end after SIGTERM: `enmasse up` stops its processes in order."""


def run(command: list[str]) -> int:
    """The exit status of `command`, as a shell shows it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    process = subprocess.Popen(command)
    # Ctrl-C reaches the command too, which is then waited for; other signals reach only this process.
    signal.signal(signal.SIGINT, lambda *_: None)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: process.send_signal(number))
    status = process.wait()
    for line in end_children():
        print(f"left behind and ended: {line}", file=sys.stderr)
    return status if status >= 0 else 128 - status


def end_children(patience: float = PATIENCE) -> list[str]:
    """Ends all children of this process, and theirs: SIGTERM, and SIGKILL after so many seconds. What they were."""
    ended: dict[int, str] = {}
    deadline = time.monotonic() + patience
    while found := _children():
        late = time.monotonic() >= deadline
        for pid in found:
            if late or pid not in ended:
                ended.setdefault(pid, f"{pid} {_command(pid)}")
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
        # pause: until it looks again
        time.sleep(0.02)
    return list(ended.values())


def _children() -> list[int]:
    """Children that run; those that have ended are waited for."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    except OSError:  # not Linux
        return []


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()[:200]
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
