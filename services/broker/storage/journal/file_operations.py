"""File operations of the storage, few enough that tests can replace them by a disk that loses or tears writes.

`FILES` is the layer of this process. Only the durability tests replace it, before the broker starts.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from pathlib import Path
from typing import Protocol


class File(Protocol):
    """An open file. Offsets and sizes are bytes; every method raises OSError. `write` and `sync` may run in a thread,
    one at a time, while the loop reads."""

    def write(self, offset: int, data: bytes) -> None:
        """Write all of `data` at `offset`; not durable yet."""

    def read(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes, fewer at the end of the file, including writes that are not durable yet."""

    def sync(self) -> None:
        """Make all earlier writes durable. After an error the state of these writes on disk is unknown."""

    def allocate(self, size: int) -> None:
        """Reserve the space of the first `size` bytes, which read as zeros."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    def size(self) -> int:
        """Return the size."""

    def close(self) -> None:
        """Close the file; a second time does nothing."""


class Files(Protocol):
    """Operations on names. A name is durable once `sync_dir` has returned for its folder."""

    def make_dir(self, path: Path) -> None:
        """Create a folder with its parents; an existing one is not an error."""

    def list(self, path: Path) -> list[str]:
        """Return the names in a folder, sorted."""

    def open(self, path: Path, *, create: bool = False) -> File:
        """Open a file; with `create` it must not exist."""

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file, replacing another."""

    def unlink(self, path: Path) -> None:
        """Remove a name."""

    def link(self, old: Path, new: Path) -> None:
        """Give the file a second name in the same file system."""

    def copy(self, old: Path, new: Path) -> None:
        """Copy a file, not durably."""

    def sync_dir(self, path: Path) -> None:
        """Make the names in a folder durable."""

    def free(self, path: Path) -> int:
        """Return the bytes that can still be written."""

    def lock(self, path: Path) -> int | None:
        """Lock the file until `unlock` or the end of the process. Return a handle; None if another process has it."""

    def holds(self, handle: int, path: Path) -> bool:
        """Return True if `path` still names the locked file: the file or its folder may have been deleted."""

    def unlock(self, handle: int) -> None:
        """Unlock what `lock` has locked."""


class RealFile:
    """A file of the operating system."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def write(self, offset: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            n = os.pwrite(self.fd, view, offset)
            view = view[n:]
            offset += n

    def read(self, offset: int, size: int) -> bytes:
        data = os.pread(self.fd, size, offset)
        if len(data) == size or not data:
            return data
        pieces = [data]
        while data and (size := size - len(data)):  # interrupted by a signal, or more than the kernel writes at once
            offset += len(data)
            data = os.pread(self.fd, size, offset)
            pieces.append(data)
        return b"".join(pieces)

    def sync(self) -> None:
        os.fdatasync(self.fd)

    def allocate(self, size: int) -> None:
        try:
            os.posix_fallocate(self.fd, 0, size)
        except OSError as e:
            if e.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
            # not supported by this file system: space is allocated by the writes

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fd, size)

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class RealFiles:
    """The file system."""

    def make_dir(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def list(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))

    def open(self, path: Path, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        return RealFile(os.open(path, flags, 0o600))

    def rename(self, old: Path, new: Path) -> None:
        os.replace(old, new)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def link(self, old: Path, new: Path) -> None:
        os.link(old, new)

    def copy(self, old: Path, new: Path) -> None:
        try:
            os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))  # the file contains messages
            shutil.copyfile(old, new)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(new)
            raise

    def sync_dir(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free(self, path: Path) -> int:
        s = os.statvfs(path)
        return s.f_bavail * s.f_frsize

    def lock(self, path: Path) -> int | None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except OSError:
            os.close(fd)
            raise
        return fd

    def holds(self, handle: int, path: Path) -> bool:
        try:
            return os.path.samestat(os.fstat(handle), os.stat(path))
        except FileNotFoundError:
            return False

    def unlock(self, handle: int) -> None:
        os.close(handle)


def write_new(files: Files, path: Path, data: bytes) -> None:
    """Write a file, replacing any leftover. On return its content is durable, but not its name. Raises OSError."""
    if path.name in files.list(path.parent):
        files.unlink(path)
    file = files.open(path, create=True)
    try:
        file.write(0, data)
        file.sync()
    finally:
        file.close()


def write_anew(files: Files, path: Path, data: bytes) -> None:
    """Replace a file's content atomically and durably. Raises OSError."""
    new = path.with_name(path.name + ".new")
    write_new(files, new, data)
    files.rename(new, path)
    files.sync_dir(path.parent)


FILES: Files = RealFiles()
