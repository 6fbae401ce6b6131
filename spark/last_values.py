"""The latest reading of each device, by event time, in an SQLite database that others read meanwhile."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from enmasse.spark.errors import QueryError

TABLE = """
    CREATE TABLE IF NOT EXISTS last_values (
      device TEXT PRIMARY KEY,
      time TEXT NOT NULL,       -- UTC, 2026-01-02T03:04:05.000006Z: in the order of time
      value REAL NOT NULL,
      "offset" INTEGER NOT NULL -- the number of its message in the spool
    ) WITHOUT ROWID
"""
UPSERT = """
    INSERT INTO last_values VALUES (?, ?, ?, ?) ON CONFLICT (device) DO UPDATE
    SET time = excluded.time, value = excluded.value, "offset" = excluded."offset"
    WHERE (excluded.time, excluded."offset") >= (time, "offset")
"""


class LastValuesError(QueryError):
    """The database cannot be written: the text gives the file and the reason."""


class LastValues:
    """The table `last_values` of a database file. An update that is repeated changes nothing."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def update(self, rows: pa.Table) -> None:
        """Store readings (`device`, `time`, `value`, `offset`) that are not older than the one stored of their device,
        all in one transaction. Raises LastValuesError."""
        times = pc.strftime(pc.cast(rows["time"], pa.timestamp("us", "UTC")), "%Y-%m-%dT%H:%M:%SZ")
        columns = [rows["device"], times, rows["value"], rows["offset"]]
        try:
            with self._open() as database:
                database.executemany(UPSERT, zip(*(column.to_pylist() for column in columns), strict=True))
        except (sqlite3.Error, OSError) as error:
            raise LastValuesError(f"pipeline: [last] path {self.file}: {error}") from None

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(self.file, timeout=60)) as database:
            database.execute("PRAGMA journal_mode = WAL")  # readers do not wait
            database.execute("PRAGMA synchronous = FULL")
            with database:
                database.execute(TABLE)
                yield database
