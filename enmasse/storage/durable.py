"""Files written durably: they are on disk when the call returns."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def private(path: str, flags: int) -> int:
    """Open a file that only its owner can read, because it may hold messages. An `opener` for `open`."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def sync_folder(folder: Path) -> None:
    """Make creations, renames and deletions in the folder durable. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes) -> None:
    """Replace the content of a file durably. Raises OSError: the file then has its previous content.

    The new content is written to a file beside it with the suffix `.new`, then renamed.
    """
    fresh = path.with_suffix(".new")
    try:
        with open(fresh, "wb", opener=private) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
    sync_folder(path.parent)
