"""Passwords of connectors and private keys, as Qpid Dispatch spells them."""

from __future__ import annotations

import os
from pathlib import Path


def password(given: str | None) -> str:
    """Return the password of `env:VAR`, of `file:PATH`, of `pass:` or `literal:` and text, or the text itself. Raises
    OSError."""
    kind, colon, rest = (given or "").partition(":")
    if colon and kind == "env":
        return os.environ.get(rest, "")
    if colon and kind == "file":
        return Path(rest).read_text().strip()
    return rest if colon and kind in ("literal", "pass") else given or ""
