"""The data directory of one suite: made, locked, checked for its format version and for room on its disk."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import signal
import stat
import time
from pathlib import Path

from enmasse.storage.files import keep_spare, read_json, write_json
from enmasse.supervisor.errors import StartError

FORMAT = 1
"""Format version of the data directory. A suite reads its own and older versions."""

_MARKER = "format.json"
_SUITE = "suite.json"

MIN_FREE_BYTES = 64 << 20
"""Least free space for a start: journals allocate segments of several MiB in advance."""


class DataDir:
    """An opened (locked) data directory. The lock lasts until `close` or the end of the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run = path / "run"
        self.logs = path / "logs"
        self.audit = self.logs / "audit.log"
        """The file for auditors, to which all processes of the suite append."""
        self.desired = path / "desired"
        self.actual = self.run / "actual.json"
        """File of the processes that run, as `desired` has the ones that should."""
        self._locks: list[int] = []

    def lock(self) -> None:
        """Hold the directory until `close`. Raises StartError if another process holds it, OSError.

        The file `lock` names the holder. The directory itself is locked too, if its file system can do that: a file
        may be deleted by hand.
        """
        file = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        self._locks.append(file)
        self._locks.append(os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        for descriptor in self._locks:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(file, 32, 0).decode("ascii", "replace").strip()
                who = f"process {holder} (enmasse up)" if holder.isdigit() else "another process"
                raise StartError(
                    "start.data.in-use",
                    f"data directory {self.path} is in use by {who}. "
                    "Stop it, or give this suite its own directory with --data.",
                ) from None
            except OSError:
                if descriptor == file:
                    raise
        with contextlib.suppress(OSError):  # on a full disk other suites get a shorter message
            pid = b"%d\n" % os.getpid()
            os.pwrite(file, pid, 0)  # overwrites the old content, which needs no further space
            os.ftruncate(file, len(pid))

    def close(self) -> None:
        """Release the lock."""
        while self._locks:
            os.close(self._locks.pop())


def open_data_dir(path: Path) -> DataDir:
    """Make `path` if it is missing, lock and check it. Raises StartError."""
    data = DataDir(path.absolute())
    try:
        if data.path.exists() and not data.path.is_dir():
            raise StartError(
                "start.data.not-a-directory",
                f"data directory {data.path} is not a directory. Choose another one with --data.",
            )
        data.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        data.lock()
        _check_format(data.path)
        _make_private(data.path)
        for folder in (data.run, data.logs, data.desired):
            folder.mkdir(mode=0o700, exist_ok=True)
        keep_spare(data.run)
    except OSError as error:
        data.close()
        what = f"{error.filename}: " if error.filename not in (None, str(data.path)) else ""
        raise StartError(
            "start.data.not-writable",
            f"data directory {data.path}: {what}{error.strerror or error}. Choose a directory this user may write to "
            "with --data, or put that right.",
        ) from None
    except BaseException:
        data.close()
        raise
    return data


def _check_format(path: Path) -> None:
    """Raise StartError if the directory is not usable, or has no space for the first messages. A directory that has
    messages must start regardless of space, so that consumers can free some."""
    marker = path / _MARKER
    if not marker.exists():
        _check_space(path)
        write_json(marker, {"format": FORMAT}, durable=True)
        return
    content = read_json(marker)
    version = content.get("format") if isinstance(content, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise StartError(
            "start.data.unknown-format",
            f'{marker}: expected {{"format": {FORMAT}}}. This is not a data directory of EnMasse, or it is damaged: '
            "choose another one with --data, or put the file right.",
        )
    if version > FORMAT:
        raise StartError(
            "start.data.newer-format",
            f"data directory {path} has format {version}, written by a newer EnMasse; this one reads up to {FORMAT}. "
            "Use the newer version, or another directory with --data.",
        )


def _make_private(path: Path) -> None:
    """Remove the permissions of other users from everything in `path`: only permitted clients may read messages. Files
    of this suite have none (its umask); files made by an older version or by hand may have some.
    """
    for folder, _, files in os.walk(path):
        for name in (folder, *(os.path.join(folder, file) for file in files)):
            with contextlib.suppress(OSError):  # not ours, or deleted
                mode = os.lstat(name).st_mode
                if mode & 0o077 and not stat.S_ISLNK(mode):
                    os.chmod(name, stat.S_IMODE(mode) & 0o700)


def _check_space(path: Path) -> None:
    free = shutil.disk_usage(path).free
    if free < MIN_FREE_BYTES:
        raise StartError(
            "start.disk.full",
            f"no disk space: data directory {path} has {free >> 20} MiB free, at least {MIN_FREE_BYTES >> 20} MiB are "
            "needed. Make room, or choose another disk with --data.",
        )


def note_offset(data: DataDir, offset: int) -> None:
    """Write down the port offset of the suite that holds the directory. Raises OSError."""
    write_json(data.run / _SUITE, {"port-offset": offset})


def offset_of(path: Path) -> int | None:
    """Return the port offset of the suite that runs, or ran last, on this directory; None if none did."""
    content = read_json(path / "run" / _SUITE)
    offset = content.get("port-offset") if isinstance(content, dict) else None
    return offset if isinstance(offset, int) else None


def is_used(path: Path) -> bool:
    """Return True if a suite has run on this directory."""
    return os.path.lexists(path / _MARKER)


def end_orphans(data: DataDir) -> None:
    """Kill children that a killed supervisor of this data directory left behind (normally they die with it).

    Waits at most 30 seconds for their end. We hold the lock, so no other supervisor owns them.
    """
    pids = read_json(data.run / "children.json")
    ending = select.poll()
    with contextlib.ExitStack() as handles:
        left = 0
        for pid in pids if isinstance(pids, list) else []:
            with contextlib.suppress(OSError):  # it has ended
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
                ours = os.fsencode(data.run) + b"/" in words  # in some commands it is part of a word
                if words and not ours:
                    continue  # pids are reused
                handle = os.pidfd_open(pid)  # also of one without words: it ends, and may still have its ports
                handles.callback(os.close, handle)
                if ours:
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                ending.register(handle, select.POLLIN)
                left += 1
        end = time.monotonic() + 30.0
        while left and (seconds := end - time.monotonic()) > 0:
            for handle, _ in ending.poll(seconds * 1000):
                ending.unregister(handle)
                left -= 1
