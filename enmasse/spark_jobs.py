"""Spark jobs of this user: a file for each, which the job writes and `enmasse spark`, `status` and `up` read.

NAME.json    the job: what runs, and how far its queries are (`Job`)
NAME.windows newest windows of a pipeline (`Windows`)
NAME.lock    held by the job's process for as long as it lives
NAME.log     output of a job in the background
NAME.sources folder: a file PID for each receiver until it is attached; PID.source of each source (`ProcessedSpool`)
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from enmasse.api.types import Window

T = TypeVar("T")

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Names that a job may have: file names."""


SOURCES = "ENMASSE_SPARK_SOURCES"
"""Variable of the processes of a job: its folder `sources`."""
KILLED = "killed"
"""How `ended` begins of a job that could not write why."""


class JobInUseError(Exception):
    """A job of this name runs."""


class Query(msgspec.Struct, frozen=True):
    """A query of a job at its last report.

    batch, at (RFC 3339, empty before the first): of the last batch that had rows. rows: of all batches since the
    job started. starts: a batch runs, and none before it had rows. rows_per_second: what comes in now. behind: messages
    that are spooled and not processed, oldest_seconds: since the oldest of them arrived; None if no amqp source has
    stated it. without_id: messages that have come without a message-id since the job started. bad: messages of its
    batches that are no readings, of a pipeline. No field has a default: a report that lacks one is not read.
    """

    name: str
    batch: int
    starts: bool
    rows: int
    rows_per_second: float
    behind: int | None
    oldest_seconds: float | None
    without_id: int
    bad: int
    at: str

    @classmethod
    def begun(cls, name: str) -> Query:
        """Return a query that has not reported yet."""
        return cls(
            name, batch=-1, starts=False, rows=0, rows_per_second=0.0, behind=None, oldest_seconds=None, without_id=0,
            bad=0, at="",
        )  # fmt: skip


class Job(msgspec.Struct, frozen=True):
    """A job. since: when it started, RFC 3339. queries: those whose amqp sources have been attached. ended: None while
    it runs; then why it failed, empty if it did not."""

    name: str
    pid: int
    master: str
    file: str
    since: str
    queries: list[Query] = []
    ended: str | None = None


class ProcessedSpool(msgspec.Struct, frozen=True):
    """The spool of a source of a job: its folder, and one past the last processed record of each partition."""

    spool: str
    processed: list[int]


class Windows(msgspec.Struct, frozen=True):
    """Newest windows of a pipeline whose query has this id, by device and then by time."""

    query: str
    windows: list[Window] = []


def lock(file: Path) -> int:
    """Return a descriptor that holds the lock of the job with this file, until it is closed.

    Raises JobInUseError, OSError.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise JobInUseError(file.stem) from None
    return descriptor


def is_running(file: Path) -> bool:
    """Return True if the process of the job with this file lives."""
    try:
        os.close(lock(file))
    except JobInUseError:
        return True
    except OSError:
        return False
    return False


def note_attaching(receiver: int) -> None:
    """Note, in a job, that the receiver with this process id is not attached yet. A failure is ignored."""
    if folder := os.environ.get(SOURCES):
        with contextlib.suppress(OSError):
            (Path(folder) / str(receiver)).touch()


def note_attached(receiver: int) -> None:
    """Note, in a job, that the receiver with this process id is attached."""
    if folder := os.environ.get(SOURCES):
        with contextlib.suppress(OSError):
            (Path(folder) / str(receiver)).unlink()


def are_attached(folder: Path) -> bool:
    """Return True if all receivers of a job that live have been attached. folder: its `sources`."""
    return not any(Path("/proc", file.name).exists() for file in folder.glob("*"))


def note_processed(source: ProcessedSpool) -> None:
    """Note, in a job, how far Spark has processed the source of this process. A failure is ignored."""
    if folder := os.environ.get(SOURCES):
        _write(Path(folder) / f"{os.getpid()}.source", source)


def sources_of(folder: Path) -> list[ProcessedSpool]:
    """Return the sources of a job whose processes live. folder: its `sources`."""
    files = (file for file in folder.glob("*.source") if Path("/proc", file.stem).exists())
    return [source for file in files if (source := _read(file, ProcessedSpool)) is not None]


def read(file: Path) -> Job | None:
    """Return the job of a file; None if it cannot be read."""
    return _read(file, Job)


def write(file: Path, job: Job) -> None:
    """Replace the file. A failure is ignored: a full disk must not end a job."""
    _write(file, job)


def windows_of(file: Path) -> Path:
    """Return the file with the windows of the job with this file."""
    return file.with_suffix(".windows")


def read_windows(file: Path) -> Windows | None:
    """Return the windows of a file; None if it cannot be read."""
    return _read(file, Windows)


def write_windows(file: Path, windows: Windows) -> None:
    """Replace the file. A failure is ignored, as in `write`."""
    _write(file, windows)


def _read(file: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return None


def _write(file: Path, content: msgspec.Struct) -> None:
    temporary = file.with_name(f"{file.name}.new")
    with contextlib.suppress(OSError):
        temporary.write_bytes(msgspec.json.encode(content))
        temporary.replace(file)


def killed(file: Path) -> str:
    """Return when the job of a file was killed, in words."""
    with contextlib.suppress(OSError):
        last = datetime.fromtimestamp(file.stat().st_mtime, UTC)
        return f"{KILLED} at {last:%Y-%m-%dT%H:%M:%SZ} (kill -9, lack of memory, or a restart of the machine)"
    return KILLED


def listed(folder: Path) -> list[tuple[Job, bool]]:
    """Return the jobs of a folder, and whether each runs; those that have ended well are left out.

    A job whose process is gone and has not written why was killed, at most a second after it wrote its file last.
    """
    found = []
    for file in sorted(folder.glob("*.json")):
        job = read(file)
        if job is None:
            continue
        runs = is_running(file)
        if not runs and job.ended is None:
            job = msgspec.structs.replace(job, ended=killed(file))
        if runs or job.ended:
            found.append((job, runs))
    return found
