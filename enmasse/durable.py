"""Files that are on disk when the call returns."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def private(path: str, flags: int) -> int:
    """An opener of files that are their owner's only: they may hold messages."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def sync_folder(folder: Path) -> None:
    """What was created, renamed and deleted in the folder is on disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes) -> None:
    """The file has this content, on disk; or, if this raises OSError, what it had before.

    It is written beside it, under the same name with the suffix `.new`.
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
