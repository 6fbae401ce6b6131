"""A process as Linux sees it: whether it is stopped, for what it has waited, and how much it has worked."""

from __future__ import annotations

import os
from pathlib import Path

from enmasse.process.service_table import SERVICES

CARRIERS = frozenset(kind for kind, service in SERVICES.items() if service.schemes) | {"broker"}
"""Kinds of processes that carry clients' messages: clients wait while one stands still."""
WAITED_FOR = CARRIERS | {"authserv"}
"""Kinds of processes that clients wait for, also to log in."""


def is_stopped(pid: int) -> bool:
    """Return True if a child of this process is stopped (SIGSTOP); one that a debugger holds is not."""
    try:
        found = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return found is not None and found.si_code == os.CLD_STOPPED


def state(pid: int) -> bytes:
    """Return the letter of the state of a process, as in ps. Raises OSError."""
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]


def waits_for_disk(pid: int) -> bool:
    """Return True if the process is in a system call that no signal ends."""
    try:
        return state(pid) == b"D"
    except OSError:
        return False


def waited(pid: int) -> float:
    """Return the seconds that the main thread of a process, which has its event loop, has waited for a processor; 0
    where Linux does not count them."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_bytes().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def worked(pid: int) -> float:
    """Return the seconds of processor time of the main thread of a process, which has its event loop; 0 if it has
    ended."""
    try:
        fields = Path(f"/proc/{pid}/task/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
