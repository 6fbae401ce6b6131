"""Memory of a process, and the time in which its event loop is busy."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from enmasse import __version__

EVERY: Final = 5.0
"""Seconds for which a row is used again: of a process that does nothing else, only this changes."""


def resident_bytes(pid: int | None) -> int:
    """Return the resident set size of a process in bytes; 0 if it cannot be read."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


class UsageRow:
    """Makes the row `about` of live state (docs/contracts.md) in the thread of the event loop. `more()`: further facts
    of the service."""

    def __init__(self, more: Callable[[], dict[str, Any]] = dict) -> None:
        self._more = more
        self._row: dict[str, Any] = {}
        self._until = float("-inf")

    def row(self) -> dict[str, Any]:
        """Return the row, made again after EVERY seconds."""
        now = time.monotonic()
        if now >= self._until:
            self._until = now + EVERY
            usage = {"memory": resident_bytes(os.getpid()) or None, "busySeconds": round(time.thread_time(), 3)}
            self._row = {"version": __version__, **usage, **self._more()}
        return self._row
