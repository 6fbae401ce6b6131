"""Log files: one per child, appended to by the child itself and bounded by the supervisor, and the supervisor's own."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

LIMIT_BYTES = 8 << 20
"""Size in bytes at which a file is moved to `<name>.log.1`; about twice this is kept at most."""


AUDIT_BYTES, AUDIT_FILES = 16 << 20, 9
"""Size in bytes at which the audit file is renamed, and the number of older ones that are kept."""


def open_log(path: Path) -> int:
    """Return a descriptor for a child's stderr, which the caller closes. A missing folder is created."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def bound_log(path: Path, limit: int = LIMIT_BYTES) -> None:
    """If `path` is larger than `limit` bytes, keep its last `limit` bytes as `<path>.1` and empty it.

    The child keeps writing to the same file (it appends). Lines that it writes between copy and truncation are lost,
    and so is the kept part if the disk is full.
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
    except OSError:  # deleted, or no longer ours: no reason to stop watching the child
        return


def rotate_log(path: Path, limit: int = AUDIT_BYTES) -> None:
    """If `path` is larger than `limit` bytes, rename it to `<path>.1`, that to `<path>.2` and so on; AUDIT_FILES older
    files stay. No line is lost: writers open the file for each."""
    try:
        if path.stat().st_size <= limit:
            return
        for number in range(AUDIT_FILES - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                os.replace(f"{path}.{number}", f"{path}.{number + 1}")
        os.replace(path, f"{path}.1")
    except OSError:  # not there yet, or no longer ours
        return


def last_line(path: Path) -> str:
    """Return the last line, cut to 300 characters; empty for an empty file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4096))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


class OwnLog:
    """The supervisor's log file as a stream, bounded like those of the children."""

    def __init__(self, path: Path, limit: int = LIMIT_BYTES) -> None:
        """Open the file to append to it. Raises OSError."""
        self._path, self._limit = path, limit
        self._descriptor = open_log(path)
        self._size = os.fstat(self._descriptor).st_size

    def write(self, text: str) -> None:
        """Append a text. Raises OSError."""
        if self._size > self._limit:
            bound_log(self._path, self._limit)
            self._size = os.fstat(self._descriptor).st_size
        self._size += os.write(self._descriptor, text.encode("utf-8", "backslashreplace"))

    def flush(self) -> None:
        """Do nothing: writes are not buffered."""
