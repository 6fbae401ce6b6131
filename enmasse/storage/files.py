"""Atomic writes of small files: neither a reader nor a crash sees a partial file."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from enmasse.storage.decoding import decode_any
from enmasse.storage.durable import sync_folder

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors of a full disk or an exhausted quota."""

SPARE = ".spare"
SPARE_BYTES = 1 << 20
_SPARE_LEAST = 4096

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def write_text(path: Path, text: str, *, mode: int = 0o600, durable: bool = False) -> None:
    """Replace `path` by atomic rename; with `durable`, on disk before this returns. Raises OSError, leaving the old
    file. On a full disk the space reserved by `keep_spare` in the folder is used.
    """
    try:
        _replace(path, text, mode, durable)
    except OSError as error:
        if error.errno not in NO_ROOM or not _give_up_spare(path.parent):
            raise
        try:
            _replace(path, text, mode, durable)
        finally:
            keep_spare(path.parent)  # the old file's space is free again


def keep_spare(folder: Path) -> None:
    """Reserve disk space for the small files of `folder`, which must be written even on a full disk. If the disk has
    less free space, as much as possible is reserved.
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
    """Release the reserved space. Return False if there was none."""
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
        if isinstance(error, OSError):  # the name under which users know the file
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    if durable:
        sync_folder(path.parent)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes of EnMasse that change files of this folder waiting. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def edit_file(path: Path, edit: Callable[[bytes | None], bytes]) -> None:
    """Replace a file, that people edit too, by `edit(content)`, durably; None: there is no file, and
    the new one is for its owner alone.

    The new file changes places with the old one in one step. If that is not the content which was edited, it is put
    back and the edit begins again: a file that an editor has put there in between is not lost. Owner, group, mode, ACL
    and other extended attributes stay. Raises OSError, also where they cannot, and what `edit` raises.
    """
    path = path.resolve()
    while True:
        try:
            before = read_file(path)
        except FileNotFoundError:
            before = None
        after = edit(before)
        if after == before or _replaced(path, before, after):
            return


def _replaced(path: Path, before: bytes | None, after: bytes) -> bool:
    """Put a file with the content `after` in the place of one with the content `before`; return False if there was
    another one, or none. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(after)
            if before is not None:
                _keep_rights(path, descriptor)
            file.flush()
            os.fsync(descriptor)
        if before is None:
            os.link(temporary, path)
        elif read_file(path) != before or not _exchanged(temporary, path, before, after):
            return False
        sync_folder(path.parent)
        return True
    except (FileExistsError, FileNotFoundError):  # an editor has put it there, or is about to
        if not path.parent.is_dir():
            raise
        return False
    finally:
        temporary.unlink(missing_ok=True)


def _keep_rights(path: Path, descriptor: int) -> None:
    """Give an open file, of this process, owner, group, mode and extended attributes of another one. Raises OSError."""
    old, new = path.stat(), os.fstat(descriptor)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        try:
            os.fchown(descriptor, old.st_uid, old.st_gid)
        except PermissionError:
            raise OSError(
                errno.EPERM, "belongs to another user or group, which it would lose: edit it as that user", str(path)
            ) from None
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
    if not hasattr(os, "listxattr"):
        return
    try:
        names = os.listxattr(path)
    except OSError as error:
        if error.errno not in (errno.ENOTSUP, errno.ENOSYS):
            raise
        return
    for name in names:  # ACLs are among them
        try:
            os.setxattr(descriptor, name, os.getxattr(path, name))
        except OSError:
            if not name.startswith(("security.", "trusted.")):  # those are the system's
                raise


def _exchanged(temporary: Path, path: Path, before: bytes, after: bytes) -> bool:
    if not _exchange(temporary, path):  # the file system cannot: after the look there is a short time without one
        os.replace(temporary, path)
        return True
    if read_file(temporary) == before:
        return True
    try:
        if _exchange(temporary, path) and read_file(temporary) != after:
            _exchange(temporary, path)  # an editor has replaced even that: the newest content stays
    except FileNotFoundError:  # or has taken it away
        os.link(temporary, path)
    return False


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two files in one step (renameat2(2)). Return False if the system cannot do it. Raises OSError."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    if call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL):
        return False
    raise OSError(number, os.strerror(number), str(other))


def write_json(path: Path, value: Any, *, durable: bool = False) -> None:
    """Replace `path` by `value` as JSON (see `write_text`); its folder is made if it is missing."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_text(path, json.dumps(value, indent=1) + "\n", durable=durable)


def write_changed(path: Path, text: str) -> None:
    """Write a file unless it has this content: a restart must not need space on a full disk. Raises OSError."""
    try:
        if read_file(path) == text.encode():
            return
    except FileNotFoundError:
        pass
    write_text(path, text)


def write_changed_json(path: Path, value: Any) -> Path:
    """Write `value` as JSON unless the file has it, as `write_changed`. Return the file. Raises OSError."""
    if read_json(path) != value:
        write_json(path, value)
    return path


def read_file(path: Path) -> bytes:
    """Return the content of a regular file. Raises OSError, also for other kinds: reading a pipe waits for a writer."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:  # refuses a directory
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "is not a file", str(path))
        return file.read()


def read_json(path: Path) -> Any:
    """Return the value in `path`; None if the file is missing or not JSON."""
    try:
        return decode_any(read_file(path))
    except (OSError, ValueError):
        return None
