"""Small files written so that a reader, or a crash, never meets half of one."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

from enmasse.decoding import decode_any
from enmasse.durable import sync_folder

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors of a full disk, or of a user who may have no more of it."""

SPARE = ".spare"
SPARE_BYTES = 1 << 20
_SPARE_LEAST = 4096


def write_text(path: Path, text: str, *, mode: int = 0o600, durable: bool = False) -> None:
    """Replace `path` by atomic rename; with `durable`, on disk before this returns. Raises OSError, leaving the old
    file. On a full disk it takes the room that `keep_spare` has kept in the folder.
    """
    try:
        _replace(path, text, mode, durable)
    except OSError as error:
        if error.errno not in NO_ROOM or not _give_up_spare(path.parent):
            raise
        try:
            _replace(path, text, mode, durable)
        finally:
            keep_spare(path.parent)  # the old file is gone, and with it what it took


def keep_spare(folder: Path) -> None:
    """Keep room on the disk for the small files of `folder`: they must be written also when nothing else can be. Where
    the disk has less than is wanted, as much as it has.
    """
    size = SPARE_BYTES
    with contextlib.suppress(OSError):
        descriptor = os.open(folder / SPARE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while size >= _SPARE_LEAST:
                try:
                    os.posix_fallocate(descriptor, 0, size)
                except OSError:
                    os.ftruncate(descriptor, 0)
                    size //= 2
                else:
                    return
        finally:
            os.close(descriptor)


def _give_up_spare(folder: Path) -> bool:
    """Whether there was any."""
    try:
        there = (folder / SPARE).stat().st_size > 0
        os.unlink(folder / SPARE)
    except OSError:
        return False
    return there


def _replace(path: Path, text: str, mode: int, durable: bool) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):  # people know the file by this name
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    if durable:
        sync_folder(path.parent)


def write_json(path: Path, value: Any, *, durable: bool = False) -> None:
    """Replace `path` by `value` as JSON (see `write_text`); its folder is made if it is missing."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_text(path, json.dumps(value, indent=1) + "\n", durable=durable)


def read_file(path: Path) -> bytes:
    """The content of a regular file. Raises OSError, also for what is none: reading a pipe is waiting for a writer."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:  # refuses a directory
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "is not a file", str(path))
        return file.read()


def read_json(path: Path) -> Any:
    """The value in `path`, or None if there is no file or it holds no JSON."""
    try:
        return decode_any(read_file(path))
    except (OSError, ValueError):
        return None
