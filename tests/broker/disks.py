"""Disks that fail, as file layers (services/broker/storage/journal/file_operations.py) over a real folder.

What the real folder holds is what would be on the platter: the death of the process, or dropping the layer in a test,
is the power cut. `LossyFiles` keeps everything unsynced in memory; names may become durable before they must.
`TearingFiles` besides lets pieces of what is being written through early, some of them with flipped bits.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from services.broker.storage.journal.file_operations import File, RealFile, RealFiles
from services.broker.storage.journal.segment import GROUP, MAGIC_BYTES

HIDDEN = ".unsynced-"


class PowerCutError(BaseException):
    """The fuse of the layer has blown: nothing works any more."""


class _Inode:
    """A file: `real` is its path on the platter, `visible` what the process sees, `todo` what no sync has taken
    down."""

    def __init__(self, files: LossyFiles, real: Path) -> None:
        self.files = files
        self.real = real
        self.fd = os.open(real, os.O_RDWR | os.O_CLOEXEC)
        files.fds.add(self.fd)
        self.visible = bytearray(os.pread(self.fd, os.fstat(self.fd).st_size, 0))
        self.todo: list[tuple[int, bytes | None]] = []  # offset and data; size and None

    # the File protocol
    def write(self, offset: int, data: bytes) -> None:
        self.files.spend()
        if len(self.visible) < offset:
            self.visible.extend(bytes(offset - len(self.visible)))
        self.visible[offset : offset + len(data)] = data
        self.todo.append((offset, data))
        self.files.leak(self.fd, offset, data)

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self.visible[offset : offset + size])

    def sync(self) -> None:
        self.files.spend()
        count = len(self.todo)
        for offset, data in self.todo[:count]:
            if data is None:
                os.ftruncate(self.fd, offset)
            else:
                os.pwrite(self.fd, data, offset)
        del self.todo[:count]

    def allocate(self, size: int) -> None:
        self.files.spend()
        if size > len(self.visible):
            self.visible.extend(bytes(size - len(self.visible)))
            os.ftruncate(self.fd, max(size, os.fstat(self.fd).st_size))

    def truncate(self, size: int) -> None:
        self.files.spend()
        del self.visible[size:]
        self.todo.append((size, None))

    def size(self) -> int:
        return len(self.visible)

    def close(self) -> None:
        pass  # unsynced data outlives the descriptor


class LossyFiles(RealFiles):
    """`fuse`: how many writing operations still work before PowerCutError (None = all)."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self.rng = rng or random.Random()
        self.fuse: int | None = None
        self.fds: set[int] = set()
        self._views: dict[Path, dict[str, _Inode | str]] = {}  # a string: not opened yet, its name on the platter
        self._gone: dict[Path, set[str]] = {}  # names on the platter that are to go with the next sync of the folder
        self._count = 0

    def spend(self) -> None:
        if self.fuse is not None:
            if self.fuse <= 0:
                raise PowerCutError
            self.fuse -= 1

    def power_cut(self) -> None:
        """Everything not synced is gone; so is the lock."""
        self.fuse = 0
        for fd in self.fds:
            with contextlib.suppress(OSError):
                os.close(fd)
        self.fds.clear()

    def leak(self, fd: int, offset: int, data: bytes) -> None:
        pass

    def _view(self, folder: Path) -> dict[str, _Inode | str]:
        view = self._views.get(folder)
        if view is None:
            names = (e.name for e in os.scandir(folder) if e.is_file() and not e.name.startswith(HIDDEN))
            view = self._views[folder] = {name: name for name in names}
        return view

    def _changed(self, folder: Path) -> None:
        if self.rng.random() < 0.5:
            self._write_dir(folder)

    def make_dir(self, path: Path) -> None:
        self.spend()
        super().make_dir(path)

    def list(self, path: Path) -> list[str]:
        return sorted(self._view(path))

    def open(self, path: Path, *, create: bool = False) -> File:
        view = self._view(path.parent)
        found = view.get(path.name)
        if create:
            self.spend()
            if found is not None:
                raise FileExistsError(errno.EEXIST, "exists", str(path))
            self._count += 1
            real = path.parent / f"{HIDDEN}{os.getpid()}-{self._count}-{self.rng.random()}"
            real.touch()
            view[path.name] = inode = _Inode(self, real)
            self._changed(path.parent)
            return inode
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        if isinstance(found, str):
            found = view[path.name] = _Inode(self, path.parent / found)
        return found

    def rename(self, old: Path, new: Path) -> None:
        self.spend()
        view = self._view(old.parent)
        self._forget(old.parent, view.get(new.name))
        view[new.name] = view.pop(old.name)
        self._changed(old.parent)

    def unlink(self, path: Path) -> None:
        if path.name not in self._view(path.parent):
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        self.spend()
        self._forget(path.parent, self._view(path.parent).pop(path.name))
        self._changed(path.parent)

    def sync_dir(self, path: Path) -> None:
        self.spend()
        self._write_dir(path)

    def _write_dir(self, folder: Path) -> None:
        view = self._view(folder)
        moves = {}
        for name, entry in view.items():
            real = entry if isinstance(entry, str) else entry.real.name
            if real != name:
                moves[real] = name
        while moves:
            real, name = next((r, n) for r, n in moves.items() if n not in moves)
            os.replace(folder / real, folder / name)
            del moves[real]
            entry = view[name]
            if isinstance(entry, str):
                view[name] = name
            else:
                entry.real = folder / name
        kept = {entry if isinstance(entry, str) else entry.real.name for entry in view.values()}
        for name in self._gone.pop(folder, set()) - kept:
            os.unlink(folder / name)

    def _forget(self, folder: Path, entry: _Inode | str | None) -> None:
        if entry is not None:
            self._gone.setdefault(folder, set()).add(entry if isinstance(entry, str) else entry.real.name)

    def lock(self, path: Path) -> int | None:
        fd = super().lock(path)
        if fd is not None:
            self.fds.add(fd)
        return fd

    def unlock(self, handle: int) -> None:
        self.fds.discard(handle)
        super().unlock(handle)


class TearingFiles(LossyFiles):
    def leak(self, fd: int, offset: int, data: bytes) -> None:
        at = 0
        while at < len(data):
            piece = bytearray(data[at : at + self.rng.choice((1, 7, 64, 512, 4096))])
            choice = self.rng.random()
            if choice < 0.4:
                for _ in range(self.rng.choice((0, 0, 1, 3))):
                    piece[self.rng.randrange(len(piece))] ^= 1 << self.rng.randrange(8)
                os.pwrite(fd, piece, offset + at)
            at += len(piece)


class KillableFiles(RealFiles):
    """A real disk of a process that can be killed."""

    def __init__(self) -> None:
        self.locks: set[int] = set()

    def lock(self, path: Path) -> int | None:
        handle = super().lock(path)
        if handle is not None:
            self.locks.add(handle)
        return handle

    def unlock(self, handle: int) -> None:
        self.locks.discard(handle)
        super().unlock(handle)

    def kill(self) -> None:
        """What the process had locked is free; the store that used these files is to be forgotten."""
        for handle in list(self.locks):
            self.unlock(handle)


class FullFiles(KillableFiles):
    """On which space runs out, or which fails, when `space` or `sync_error` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.space: int | None = None  # bytes that can still be written
        self.sync_error: OSError | None = None

    def take(self, size: int) -> None:
        if self.space is not None:
            if size > self.space:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.space -= size

    def open(self, path: Path, *, create: bool = False) -> File:
        return _FullFile(self, super().open(path, create=create))

    def free(self, path: Path) -> int:
        return super().free(path) if self.space is None else self.space


class _FullFile:
    def __init__(self, files: FullFiles, file: File) -> None:
        self.files = files
        self.file = file

    def write(self, offset: int, data: bytes) -> None:
        allowed = len(data) if self.files.space is None else min(len(data), self.files.space)
        if allowed < len(data):
            self.file.write(offset, data[:allowed])  # as far as it goes
        self.files.take(len(data))
        self.file.write(offset, data)

    def read(self, offset: int, size: int) -> bytes:
        return self.file.read(offset, size)

    def sync(self) -> None:
        if self.files.sync_error:
            raise self.files.sync_error
        self.file.sync()

    def allocate(self, size: int) -> None:
        self.files.take(0 if self.files.space is None or size <= self.files.space else size)
        self.file.allocate(size)

    def truncate(self, size: int) -> None:
        self.file.truncate(size)

    def size(self) -> int:
        return self.file.size()

    def close(self) -> None:
        self.file.close()


class DeafFiles(RealFiles):
    """A real disk that is written as ever, and read only as far as `error` and `short` let it: they hold for files that
    are open as for those that are opened. `fails`: asked at every read, where it is set."""

    def __init__(self) -> None:
        self.error: OSError | None = None
        self.short: int | None = None  # bytes that a read gives at most
        self.fails: Callable[[], bool] | None = None
        self.refused = 0

    def open(self, path: Path, *, create: bool = False) -> File:
        if not create:
            self.refuse()
        return _DeafFile(self, super().open(path, create=create))

    def refuse(self) -> None:
        if self.error is not None and (self.fails is None or self.fails()):
            self.refused += 1
            raise self.error


class _DeafFile:
    def __init__(self, files: DeafFiles, file: File) -> None:
        self._files, self._file = files, file

    def read(self, offset: int, size: int) -> bytes:
        self._files.refuse()
        if self._files.short is not None:
            self._files.refused += 1
            size = min(size, self._files.short)
        return self._file.read(offset, size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class HeldFiles(RealFiles):
    """A journal's segments are read whole, but the first of them, only once there is a file GO_ON beside them."""

    GO_ON = "go-on"

    def open(self, path: Path, *, create: bool = False) -> File:
        file = super().open(path, create=create)
        return _Held(file, path.with_name(self.GO_ON)) if path.suffix == ".journal" and not create else file


class _Held:
    first = True

    def __init__(self, file: File, go_on: Path) -> None:
        self._file, self._go_on = file, go_on

    def read(self, offset: int, size: int) -> bytes:
        if size > 4096:
            if not _Held.first:
                while not self._go_on.exists():
                    # pause: the disk, which is the fault
                    time.sleep(0.01)
            _Held.first = False
        return self._file.read(offset, size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class _FailingFile:
    def __init__(self, file: Any, disk: FailingDisk) -> None:
        self._file = file
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        if self._disk.broken:
            raise OSError(5, "Input/output error")
        self._file.sync()


class FailingDisk(RealFiles):
    """A disk whose syncs fail while it is `broken`."""

    broken = False

    def open(self, path: Path, *, create: bool = False) -> Any:
        return _FailingFile(super().open(path, create=create), self)


class _DyingFile(RealFile):
    def __init__(self, files: DyingFiles, fd: int) -> None:
        super().__init__(fd)
        self.files = files

    def write(self, offset: int, data: bytes) -> None:
        self.files.groups -= data.count(MAGIC_BYTES + bytes((GROUP, 0)))
        if self.files.groups <= 0 and self.files.point == "half":
            os.pwrite(self.fd, data[: len(data) * 2 // 3], offset)
            die()
        super().write(offset, data)
        if self.files.groups <= 0 and self.files.point == "written":
            die()

    def sync(self) -> None:
        super().sync()
        if self.files.groups <= 0 and self.files.point == "synced":
            die()


class DyingFiles(RealFiles):
    """A process that dies by SIGKILL when it has written a part of the n-th group of its journal (`half`), all of it,
    or has synced it, and has answered no one."""

    def __init__(self, point: str, groups: int) -> None:
        self.point = point
        self.groups = groups

    def open(self, path: Path, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        return _DyingFile(self, os.open(path, flags, 0o600))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
