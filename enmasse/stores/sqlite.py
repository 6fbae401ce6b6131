"""The engine of a store in a file of SQLite: write-ahead log, every commit synced, one process at a time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from enmasse.storage.disk_errors import disk_error
from enmasse.storage.durable import private, sync_folder
from enmasse.stores.backup import Backup
from enmasse.stores.storage_engine import EngineError, Page, Tables

SCHEMA = 1
_APPLICATION = 0x456E4D73  # "EnMs": https://www.sqlite.org/pragma.html#pragma_application_id
_PAGE_ENTRIES = 512
_PAGE_BYTES = 1024 * 1024
_WAL_BYTES = 64 * 1024 * 1024
"""The log is cut to this when it has been emptied."""

_TABLE = """CREATE TABLE IF NOT EXISTS entries (
  tab TEXT NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (tab, key)) WITHOUT ROWID"""
_PUT = "INSERT INTO entries VALUES (?, ?, ?) ON CONFLICT (tab, key) DO UPDATE SET value = excluded.value"
_DELETE = "DELETE FROM entries WHERE tab = ? AND key = ?"
_GET = "SELECT value FROM entries WHERE tab = ? AND key = ?"
_SCAN = f"SELECT key, value FROM entries WHERE tab = ? AND key > ? ORDER BY key LIMIT {_PAGE_ENTRIES}"  # noqa: S608 - a number

_UNDONE = {"SQLITE_FULL", "SQLITE_TOOBIG", "SQLITE_NOMEM", "SQLITE_READONLY", "SQLITE_BUSY"}
"""After these nothing has been committed (https://www.sqlite.org/lang_transaction.html, "Response To Errors")."""
_TEXTS = {
    "SQLITE_FULL": "the disk is full; free space",
    "SQLITE_BUSY": "another process uses it; end that one, or give each its own file",
    "SQLITE_CORRUPT": "it is damaged; restore it from a backup, or move it away and lose what it held",
    "SQLITE_NOTADB": "it is damaged, or no file of a store; restore it, or move it away and lose what it held",
    "SQLITE_READONLY": "its file system is read-only, or this user has no right to write it: give it that",
    "SQLITE_CANTOPEN": "it cannot be opened; give a path that the service may read and write",
    "SQLITE_IOERR": "reading or writing it failed; look at the disk and its free space",
}

R = TypeVar("R")


class SqliteEngine:
    """`path`: the file; beside it is its write-ahead log, `<path>-wal`. All work is done in a thread of its own."""

    def __init__(self, path: str) -> None:
        self.place = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sqlite")
        self._connection: sqlite3.Connection | None = None
        self._backup = Backup(Path(path).absolute())
        self._identity = (0, 0)
        self._name = b""
        """Name of the store, once it was opened. From then on the file is not created again: that would use the log of
        one that was moved."""

    async def open(self) -> bytes:
        """Open the file; see Engine.open."""
        return await self._in_thread(self._open)

    async def check(self) -> None:
        """See Engine.check."""
        await self._in_thread(self._check)

    async def commit(self, tables: Tables) -> None:
        """See Engine.commit."""
        await self._in_thread(lambda: self._commit(tables))

    async def get(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """See Engine.get."""
        return await self._in_thread(lambda: self._get(table, keys))

    async def page(self, table: str, after: bytes) -> Page:
        """See Engine.page."""
        return await self._in_thread(lambda: self._page(table, after))

    async def close(self) -> None:
        """See Engine.close."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    async def _in_thread(self, work: Callable[[], R]) -> R:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            raise self._explained(error) from None
        except OSError as error:
            text = f"{disk_error(error)}, or give a path that the service may write"
            raise EngineError(f"{self.place}: {text}") from None

    def _explained(self, error: sqlite3.Error) -> EngineError:
        name: str = getattr(error, "sqlite_errorname", "")
        primary = "_".join(name.split("_")[:2])
        text = _TEXTS.get(primary, "look at the file and its disk")
        reason = f"{self.place}: {text} ({error}{f', {name}' if name else ''})"
        return EngineError(reason, undone=primary in _UNDONE, full=primary == "SQLITE_FULL")

    # in the thread

    def _open(self) -> bytes:
        self._close()
        folder = Path(self.place).absolute().parent
        if not self._name:
            folder.mkdir(parents=True, exist_ok=True)
            os.close(private(self.place, os.O_RDWR | os.O_CREAT))
        elif not os.path.exists(self.place):
            raise EngineError(
                f"{self.place}: what it held is gone, there is no such file; bring it back with its log "
                f"({self.place}-wal), or restart this service to go on without"
            )
        connection = sqlite3.connect(self.place, isolation_level=None, check_same_thread=False, timeout=0.0)
        try:
            name = self._prepare(connection)
            if self._name and name != self._name:
                raise EngineError(
                    f"{self.place}: what it held is gone, another store is there; stop this service before you put "
                    "files back, or restart it to go on with these"
                )
        except BaseException:
            connection.close()
            raise
        sync_folder(folder)
        self._connection, self._name = connection, name
        return name

    def _prepare(self, connection: sqlite3.Connection) -> bytes:
        """Locks the file, looks whether it is one of ours, and shows by a transaction that it can be written.

        Gives the store's name, made with its file.
        """
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        if (mode := connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]) != "wal":
            raise EngineError(
                f"{self.place}: this file system cannot hold a write-ahead log (mode {mode}); give another"
            )
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
        connection.execute("BEGIN IMMEDIATE")
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (schema,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if application != _APPLICATION and (tables or application):
            raise EngineError(f"{self.place}: it is another program's database; give the service a file of its own")
        if schema > SCHEMA:
            raise EngineError(f"{self.place}: a newer release wrote it (schema {schema}, here {SCHEMA}); use that one")
        connection.execute(_TABLE)
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {SCHEMA}")
        connection.execute("INSERT OR IGNORE INTO entries VALUES ('', ?, ?)", (b"name", os.urandom(8)))
        connection.execute(_PUT, ("", b"opened", os.urandom(8)))
        connection.execute("COMMIT")
        found = os.stat(self.place)
        self._identity = found.st_dev, found.st_ino
        name: bytes = connection.execute(_GET, ("", b"name")).fetchone()[0]
        return name

    def _check(self) -> None:
        self._backup.step(self._same_file())

    def _same_file(self) -> sqlite3.Connection:
        if self._connection is None:
            raise EngineError(f"{self.place}: is closed")
        try:
            found = os.stat(self.place)
        except OSError as error:
            raise EngineError(f"{self.place}: {disk_error(error)}") from None
        if (found.st_dev, found.st_ino) != self._identity:
            raise EngineError(f"{self.place}: the file was replaced by another")
        return self._connection

    def _commit(self, tables: Tables) -> None:
        connection = self._same_file()
        with self._backup.writing:
            connection.execute("BEGIN IMMEDIATE")
            try:
                for table, entries in tables.items():
                    connection.executemany(_PUT, [(table, k, v) for k, v in entries.items() if v is not None])
                    connection.executemany(_DELETE, [(table, k) for k, v in entries.items() if v is None])
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.rollback()
                raise

    def _get(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        connection = self._same_file()
        rows = [connection.execute(_GET, (table, key)).fetchone() for key in keys]
        return [None if row is None else row[0] for row in rows]

    def _page(self, table: str, after: bytes) -> Page:
        entries: list[tuple[bytes, bytes]] = []
        size = 0
        for key, value in self._same_file().execute(_SCAN, (table, after)):
            entries.append((key, value))
            size += len(value)
            if size >= _PAGE_BYTES:
                return Page(entries, key)
        return Page(entries, entries[-1][0] if len(entries) == _PAGE_ENTRIES else None)

    def _close(self) -> None:
        self._backup.stop()
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()
