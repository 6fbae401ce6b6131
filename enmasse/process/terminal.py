"""The terminal of a process."""

from __future__ import annotations

import os


def has_terminal() -> bool:
    """Return whether this process has a terminal: no longer once that was closed, nor as a service."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
