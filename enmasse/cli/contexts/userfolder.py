"""Base folders of the user (XDG Base Directory Specification 0.8)."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def user_folder(variable: str, usual: str) -> Path | None:
    """Return the folder that an environment variable names, else `usual` in the home folder; None without a home."""
    named = Path(os.environ.get(variable, ""))
    if named.is_absolute():  # "If … relative … ignore it"
        return named
    with contextlib.suppress(RuntimeError):  # neither HOME nor an entry of this user
        home = Path.home()
        if os.environ.get("HOME") != "" and home.is_absolute():  # Path.home() takes an empty HOME for /
            return home / usual
    return None
