"""Limit of open files: each connection and each segment of a journal is one."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable

ENOUGH = 1024
MOST = 1 << 20


def raise_open_files(say: Callable[[str], None]) -> None:
    """Raise the limit to the hard limit, for this process and its children; warn through `say` if that is low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    if soft != resource.RLIM_INFINITY and soft < ENOUGH:
        say(
            f"a process may have only {soft} open files here, and each connection is one: further clients will be kept "
            "out. Raise the hard limit (ulimit -Hn, or LimitNOFILE= of a systemd unit)."
        )
