"""Runs a command in namespaces of its own, as root, for a real node: `python -m tests.kubernetes.isolated COMMAND ...`

The command has its own network (only loopback), processes, mounts and a folder, whose path is in the variable FOLDER;
cgroups that it makes stand under GROUP. All of it is gone when the command has ended, however that was: the kernel ends
the processes and mounts of a namespace with its first process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from enmasse.testing import wait_for
from tests.kit.waiting import DEADLINE

FOLDER, GROUP = "ENMASSE_NODE_FOLDER", "ENMASSE_NODE_GROUP"
CGROUPS = Path("/sys/fs/cgroup")
_SPACES = ("--net", "--mount", "--pid", "--mount-proc", "--propagation", "private")
_UNSHARE = ("unshare", *_SPACES, "--fork", "--kill-child", "--")
LITTER = ("/var/lib/kubelet", "/var/lib/cni", "/var/log/containers")
"""Folders that a kubelet and its plugins use at fixed paths; mounts hide them from the machine."""


def run(command: list[str]) -> int:
    """The exit status of the command, or of the signal that ended it, as a shell shows it."""
    if os.geteuid() != 0:
        sys.exit("a real node needs root: run it again with sudo, or in a container that is root")
    made = [folder for folder in map(Path, LITTER) if not folder.exists()]
    folder = Path(tempfile.mkdtemp(prefix="enmasse-node-", dir="/tmp"))
    group = folder.name
    process = subprocess.Popen([*_UNSHARE, *command], env={**os.environ, FOLDER: str(folder), GROUP: group})
    signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C reaches the command too, which is then waited for
    for number in (signal.SIGTERM, signal.SIGHUP):  # which unshare does not hear while its command runs
        signal.signal(number, lambda *_: process.kill())
    status = process.wait()
    wait_for("the node's cgroups are empty", lambda: _removed(group), DEADLINE)
    assert str(folder) not in Path("/proc/self/mounts").read_text(), f"{folder} holds mounts: it is left alone"
    subprocess.run(["rm", "-rf", "--one-file-system", str(folder)], check=True)
    for one in made:
        with contextlib.suppress(OSError):
            one.rmdir()
    return status if status >= 0 else 128 - status


def _removed(group: str) -> bool:
    """The node's cgroups, from the innermost. False while a process that was killed has not ended."""
    for top in CGROUPS.glob(f"*/{group}"):
        for place, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(place)
    return not any(CGROUPS.glob(f"*/{group}"))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
