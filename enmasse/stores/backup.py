"""Backups of an SQLite store that is in use: an empty folder `backup` beside the file is filled with a copy.

The copy has the name of the store's file and appears when it is complete and on disk. It has every change that was
committed before the folder was found, and is the content at one moment: SQLite's backup interface copies the pages in
portions, and pages that a transaction changes meanwhile again (https://www.sqlite.org/backup.html). A transaction waits
for one portion at most.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from pathlib import Path

from enmasse.logs import log
from enmasse.storage.durable import private, sync_folder

NAME = "backup"
PAGES = 128
"""Pages of a portion: half a MiB with SQLite's default size of a page."""
PAUSE = 0.001
"""Seconds between two portions, in which transactions can begin."""


class _Stopped(Exception):
    pass


class Backup:
    """Fills the folder `backup` beside a store. `step` from time to time; `stop` before the connection is closed."""

    def __init__(self, store: Path) -> None:
        self.writing = threading.Lock()
        """Held by each transaction, and while a portion is copied: a portion fails inside a transaction."""
        self._store = store
        self._folder = store.parent / NAME
        self._worker: threading.Thread | None = None
        self._stopping = False
        self._reason = ""
        """Why the last attempt failed; logged once, because an empty folder is tried again."""

    def step(self, connection: sqlite3.Connection) -> None:
        """Begin a copy in a thread of its own if the folder exists and has none, or one that was broken off."""
        if self._worker is not None and self._worker.is_alive():
            return
        try:
            found = list(self._folder.iterdir())
            if self._folder / self._store.name in found:
                return
            for each in found:
                each.unlink()
        except OSError:
            return  # no folder: no backup is asked for; or it is being taken away
        self._stopping = False
        self._worker = threading.Thread(target=self._run, args=(connection,), name="store backup", daemon=True)
        self._worker.start()

    def stop(self) -> None:
        """Give up a copy that is under way; the folder is empty then."""
        worker, self._worker = self._worker, None
        if worker is not None:
            self._stopping = True
            worker.join()

    # in the thread

    def _run(self, connection: sqlite3.Connection) -> None:
        copy = self._folder / self._store.name
        fresh = copy.with_suffix(".new")
        try:
            os.close(private(str(fresh), os.O_RDWR | os.O_CREAT | os.O_EXCL))
            self._copy(connection, fresh)
            with open(fresh, "rb") as file:
                os.fsync(file.fileno())
                size = os.fstat(file.fileno()).st_size  # once it has its name, the operator may move it away
            fresh.rename(copy)
            sync_folder(self._folder)
        except _Stopped:
            _remove(fresh)
        except (sqlite3.Error, OSError) as error:
            _remove(fresh)
            if str(error) != self._reason:
                log.get().error("store.backup.failed", folder=str(self._folder), reason=str(error))
            self._reason = str(error)
        else:
            self._reason = ""
            log.get().info("store.backup.completed", folder=str(self._folder), bytes=size)

    def _copy(self, connection: sqlite3.Connection, path: Path) -> None:
        target = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            # The file is synced once, when it is complete: not under the lock that transactions wait for.
            target.execute("PRAGMA synchronous = OFF")
            target.execute("PRAGMA journal_mode = OFF")
            with self.writing:
                connection.backup(target, pages=PAGES, progress=self._between)
        finally:
            target.close()

    def _between(self, *_: int) -> None:
        """Let transactions in after a portion. Raises _Stopped."""
        self.writing.release()
        try:
            time.sleep(PAUSE)
        finally:
            self.writing.acquire()
        if self._stopping:
            raise _Stopped


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
