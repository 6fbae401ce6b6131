"""Configuration from a directory, watched by polling the files' state, which works on every file system.

Works with editors that rename over the file and with the symbolic links that ConfigMap volumes exchange.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from enmasse.model.configuration import ADDRESSES, BROKERS, FILES, FLAVORS
from enmasse.model.jsonfile import MAX_BYTES
from enmasse.model.merged import Content, FilePart, content_by
from enmasse.model.names import space_error
from enmasse.model.tenants.spaces import FOLDER, MAX_SPACES, OWN_FILES, space_file
from enmasse.storage.files import edit_file, locked, read_file
from services.configserv.drivers.driver import Contents, Edit, NotWritable

POLL, POLL_CHANGED = 0.4, 0.05
"""Seconds between looks, and to the next one where a change was seen: it is read then, not while it is being written.
"""

_NEVER_MADE = (ADDRESSES, FLAVORS, BROKERS)
"""Files that an edit does not make: without the first two nothing is in force."""
_EDITED = "edited"

PORTION = 2000
"""Files of address spaces that are looked at each time, in turn."""

Signature = tuple[int, ...] | str | None


class _Unchanged(Exception):
    """An edit that changes no byte."""


class FilesDriver:
    """Driver for the files of one directory."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._paths = {name: self._directory / name for name in FILES}
        self._spaces: Signature = None
        """State of the folder of spaces when its content was listed."""
        self._turn: Iterator[str] = iter(())
        """Files of spaces that have not been looked at in this turn."""
        self._contents: Contents = {}
        self._read: dict[str, Signature] = {}
        self._seen: dict[str, Signature] = {}
        self._changed: Callable[[Contents], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self, changed: Callable[[Contents], None]) -> None:
        self._changed = changed
        self._list_spaces()
        for name, path in self._paths.items():
            self._seen[name] = self._read[name] = signature(path)
            self._contents[name] = content(path)
        changed(dict(self._contents))
        self._later(POLL)

    @property
    def contents(self) -> Contents:
        return dict(self._contents)

    async def edit(self, file: str, edit: Edit) -> None:
        await asyncio.to_thread(self._edit, file, edit)
        self._look_soon(file)

    async def check(self, file: str, edit: Edit) -> None:
        await asyncio.to_thread(self._check, file, edit)

    def _check(self, file: str, edit: Edit) -> None:
        try:
            before: bytes | None = read_file(self._directory / file)
        except FileNotFoundError:
            before = None
        self._edited(file, edit, before)

    def _edited(self, file: str, edit: Edit, before: bytes | None) -> dict[str, bytes]:
        if before is None and file in _NEVER_MADE:
            raise NotWritable(f"{file} is missing: put it back first, or what it held would be removed")
        return edit([FilePart(file, b"{}\n" if before is None else before)], file)

    def _edit(self, file: str, edit: Edit) -> None:
        path = self._directory / file

        def change(before: bytes | None) -> bytes:
            texts = self._edited(file, edit, before)
            if file not in texts:
                raise _Unchanged  # nothing differs, and no users.json is made: with that file everyone needs a login
            path.parent.mkdir(parents=True, exist_ok=True)
            return texts[file]

        with locked(self._directory), contextlib.suppress(_Unchanged):
            edit_file(path, change)

    async def remove_files(self, space: str) -> None:
        await asyncio.to_thread(self._remove_files, space)
        for own in OWN_FILES:
            self._look_soon(space_file(space, own))

    def _remove_files(self, space: str) -> None:
        folder = self._directory / FOLDER / space
        with locked(self._directory):
            for own in OWN_FILES:
                (folder / own).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # something else is there
                folder.rmdir()

    def _look_soon(self, file: str) -> None:
        """Look at a file soon, whose ever turn it is."""
        self._paths.setdefault(file, self._directory / file)
        self._seen[file] = _EDITED
        if self._timer is not None and self._changed is not None:
            self._timer.cancel()
            self._later(POLL_CHANGED)

    def close(self) -> None:
        self._changed = None
        if self._timer is not None:
            self._timer.cancel()

    def _later(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        if self._changed is None:
            return
        different = False
        self._list_spaces()
        for name in self._due():
            path = self._paths[name]
            now = signature(path)
            if now == self._seen.get(name) and now != self._read.get(name):
                found = content(path)
                if signature(path) != now:
                    continue  # written to while it was read: the next poll reads it
                self._read[name] = now
                if found != self._contents.get(name):
                    self._contents[name] = found
                    different = True
            self._seen[name] = now
        self._later(POLL if self._seen == self._read else POLL_CHANGED)
        if different:
            self._changed(dict(self._contents))

    def _list_spaces(self) -> None:
        """Add the files of spaces that have a folder now."""
        folder = self._directory / FOLDER
        now = signature(folder)
        if now == self._spaces:
            return
        try:
            names = sorted(name for name in os.listdir(folder) if space_error(name) is None)
        except OSError:  # the folder is gone, or cannot be read: its files tell
            names = []
        else:
            self._spaces = now
        for space in names[:MAX_SPACES]:
            for file in (space_file(space, own) for own in OWN_FILES):
                self._paths.setdefault(file, self._directory / file)

    def _due(self) -> list[str]:
        """Return the files to look at now: those of no space, those that change, and a portion of the others."""
        portion = list(islice(self._turn, PORTION))
        if len(portion) < PORTION:
            self._turn = iter([name for name in self._paths if name not in FILES])
        changing = [name for name, seen in self._seen.items() if seen != self._read.get(name)]
        return list(dict.fromkeys([*FILES, *changing, *portion]))


def signature(path: Path) -> Signature:
    """Return a value that differs after each change of the file; None if there is no file."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error.strerror or str(error)
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)


def content(path: Path) -> Content:
    """Return the content of a file, None if it is absent, Unreadable if it cannot be read or is no file. Of a larger
    file than allowed one byte too many is read."""

    def read() -> bytes:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would block until a writer opens it
            raise OSError("is not a file")
        with open(path, "rb") as file:
            return file.read(MAX_BYTES + 1)

    return content_by(read)
