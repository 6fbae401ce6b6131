"""A table of Parquet files, partitioned by day, to which each batch of a query is added exactly once.

Layout: `day=YYYY-MM-DD/<query>-<first>-<last>.parquet`, the rows that batches first to last of a query have of a day.
Every reader of partitioned Parquet sees the table. One process writes: the driver of the query, on a file system of its
own machine.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from enmasse.spark.errors import QueryError

NAME = re.compile(r"(?P<query>.+)-(?P<first>\d{10})-(?P<last>\d{10})\.parquet")
REPLACING = "_replacing"
"""Folder of days that are being compacted. Readers leave out names that begin with an underscore."""
EXCHANGE = 2
"""RENAME_EXCHANGE of renameat2(2)."""
AT_FDCWD = -100


class ParquetTableError(QueryError):
    """The table cannot be written: the text gives the folder and the reason."""


class ParquetTable:
    """The table in a folder. A batch that is repeated replaces its files, or is left out where they were compacted."""

    def __init__(self, folder: Path, query: str, most: int) -> None:
        """query: id of the query, which numbers its batches; most: files of a day and query before they become one."""
        self.folder = folder
        self.query = query
        self.most = most
        self._mend()

    def append(self, rows: pa.Table, epoch: int) -> None:
        """Add the rows of a batch to the days of their column `start`. Raises ParquetTableError."""
        try:
            for day, part in by_day(rows):
                folder = self.folder / f"day={day}"
                if any(first < epoch <= last or first <= epoch < last for first, last, _ in self._files(folder)):
                    continue  # compacted: a repeated batch has the same rows
                folder.mkdir(parents=True, exist_ok=True)
                _write(part, folder / self._name(epoch, epoch))
                if len(self._files(folder)) >= self.most:
                    self._compact(folder)
        except OSError as error:
            raise ParquetTableError(f"pipeline: [table] path {self.folder}: {error}") from None

    def _files(self, folder: Path) -> list[tuple[int, int, Path]]:
        """Return first batch, last batch and path of the files of this query for a day."""
        found = []
        for path in sorted(folder.glob(f"{self.query}-*.parquet")):
            if (name := NAME.fullmatch(path.name)) and name["query"] == self.query:
                found.append((int(name["first"]), int(name["last"]), path))
        return found

    def _name(self, first: int, last: int) -> str:
        return f"{self.query}-{first:010}-{last:010}.parquet"

    def _compact(self, folder: Path) -> None:
        """Make one file of a day's files. The folder of the day is exchanged with one that holds all in one file: by
        one operation of the file system, so that a process that is killed leaves either of them."""
        files = self._files(folder)
        new = self.folder / REPLACING / folder.name
        new.mkdir(parents=True)
        old = [path for _, _, path in files]
        for other in folder.iterdir():
            if other not in old:
                os.link(other, new / other.name)
        parts = [pq.ParquetFile(path).read() for path in old]
        _write(pa.concat_tables(parts, promote_options="default"), new / self._name(files[0][0], files[-1][1]))
        _exchange(new, folder)
        self._mend()

    def _mend(self) -> None:
        """Remove what a compaction has left: the new folder before the exchange, the old one after it."""
        shutil.rmtree(self.folder / REPLACING, ignore_errors=True)


def by_day(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield each day (UTC, YYYY-MM-DD) of the column `start` with its rows."""
    days = pc.strftime(rows["start"], "%Y-%m-%d")
    for day in sorted(pc.unique(days).to_pylist()):
        yield day, rows.filter(pc.equal(days, day))


def _write(rows: pa.Table, path: Path) -> None:
    """Write a file that is there completely or not at all."""
    unfinished = path.with_name(f".{path.name}")
    with unfinished.open("wb") as file:
        pq.write_table(rows, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    _sync(path.parent)


def _exchange(one: Path, other: Path) -> None:
    """Exchange two folders at once. Raises OSError, also where the file system does not do so."""
    _sync(one)
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        raise OSError(errno.ENOSYS, "the system does not exchange folders (renameat2): leave out compact")
    if rename(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), EXCHANGE):
        number = ctypes.get_errno()
        unable = "the file system does not exchange folders: leave out compact" if number == errno.EINVAL else ""
        raise OSError(number, unable or os.strerror(number))
    _sync(other.parent)
    _sync(one.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
