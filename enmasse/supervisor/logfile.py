"""Log files: one per child, appended to by the child itself and bounded by the supervisor, and the supervisor's own."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

LIMIT_BYTES = 8 << 20
"""A file that is larger moves into `<name>.log.1`; so at most about twice this is kept."""


def open_log(path: Path) -> int:
    """A descriptor to hand to a child as stderr; the caller closes it. Its folder is made if it is missing."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def bound_log(path: Path, limit: int = LIMIT_BYTES) -> None:
    """If `path` is larger than `limit` bytes, keep its last `limit` bytes as `<path>.1` and empty it.

    The child goes on writing to the same file (it appends). What it writes between copy and truncation is lost, and
    the kept part if the disk has no room for it.
    """
    try:
        size = path.stat().st_size
        if size <= limit:
            return
        with path.open("r+b") as file:
            file.seek(size - limit)
            with contextlib.suppress(OSError), path.with_name(path.name + ".1").open("wb") as old:
                shutil.copyfileobj(file, old)
            file.truncate(0)
    except OSError:  # gone, or not ours any more: no reason to stop watching the child
        return


def last_line(path: Path) -> str:
    """The last line written, shortened to 300 characters; empty if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4096))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


class OwnLog:
    """The supervisor's log file as a stream. It is bounded as those of the children are."""

    def __init__(self, path: Path, limit: int = LIMIT_BYTES) -> None:
        """Raises OSError."""
        self._path, self._limit = path, limit
        self._descriptor = open_log(path)
        self._size = os.fstat(self._descriptor).st_size

    def write(self, text: str) -> None:
        """Raises OSError."""
        if self._size > self._limit:
            bound_log(self._path, self._limit)
            self._size = os.fstat(self._descriptor).st_size
        self._size += os.write(self._descriptor, text.encode("utf-8", "backslashreplace"))

    def flush(self) -> None:
        """Nothing is kept back."""
