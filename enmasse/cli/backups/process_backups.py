"""Copies that the processes of a running suite make of their folders."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from enmasse.cli.backups.manifest import copy_file, copy_folder, files_below

COPY = "backup"
POLL_SECONDS, PATIENCE = 0.05, 300.0


class CopyFailed(Exception):
    """A part cannot be copied; the text has the reason."""


@contextlib.contextmanager
def alone(data: Path) -> Iterator[None]:
    """Keep other backups of this data folder away. Raises CopyFailed, OSError."""
    with locked(data / "run", os.O_RDONLY | os.O_DIRECTORY) as free:
        if not free:
            raise CopyFailed("another backup of this suite is being made.")
        yield


@contextlib.contextmanager
def locked(lock: Path, flags: int = os.O_RDWR) -> Iterator[bool]:
    """Lock a file or folder, which others do that use it, and yield True; False if one has it. `flags`: how it is
    opened. Raises OSError."""
    descriptor = os.open(lock, flags | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def copy_made(folder: Path, last: str, target: Path, offset: int) -> None:
    """Have a process make a consistent copy of its folder, and take that. `last`: the file that is written last.
    Raises CopyFailed, OSError."""
    made = folder / COPY
    if made.exists():  # of a backup that was killed
        _wait(made / last, offset)
        shutil.rmtree(made)
    made.mkdir(mode=0o700)
    try:
        _wait(made / last, offset)
        copy_folder(made, target)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _wait(file: Path, offset: int) -> None:
    from enmasse.cli.contexts.http import NotRunning, suite_info

    began = time.monotonic()
    checked = began
    while not file.exists():
        now = time.monotonic()
        if now - checked > 1:
            checked = now
            try:
                suite_info(offset)
            except NotRunning:
                raise CopyFailed("the suite has ended before its data was copied.") from None
        if now - began > PATIENCE:
            raise CopyFailed(f"{file.parent}: no copy within {PATIENCE:g} s; `enmasse logs` shows why.")
        time.sleep(POLL_SECONDS)


def copy_broker(folder: Path, to: Path, offset: int) -> None:
    """Copy the data folder of a broker, which may run. Raises CopyFailed, OSError."""
    with locked(folder / "LOCK") as unused:
        if unused:  # of a broker that there is no longer, say
            for path in files_below(folder):
                if COPY not in path.parts[:-1]:
                    copy_file(folder / path, to / path)
    if not unused:
        copy_made(folder, "FORMAT", to, offset)
