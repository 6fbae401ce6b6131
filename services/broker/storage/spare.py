"""Room on the disk for what makes room: when somebody else has filled it, removals must still be written."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

from services.broker.storage.files import Files

NAME = "SPARE"
SIZE = 2 << 20
"""Bytes: removals of some 20,000 messages, and their entries in the catalogue. By then whole segments go."""
PIECE = 128 << 10
"""Bytes given up at a time: what is free for longer than a moment, whoever fills the disk may take."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


class Spare:
    """A file in the data directory that shrinks by what must be written and finds no room."""

    def __init__(self, directory: Path, files: Files) -> None:
        self._path = directory / NAME
        self._files = files
        self._size = 0

    def keep(self) -> None:
        """Take the room, as far as it is not taken. May be called again and again. Raises nothing."""
        if self._size == SIZE:
            return
        try:
            is_new = NAME not in self._files.list(self._path.parent)
            file = self._files.open(self._path, create=is_new)
            try:
                file.allocate(SIZE)
                self._size = SIZE
            finally:
                file.close()
        except OSError:
            return

    def spend(self, work: Callable[[], None]) -> None:
        """Do the work, which may be begun anew, with as much of the room as it takes. Raises OSError. May run in a
        thread.
        """
        while True:
            try:
                return work()
            except OSError as error:
                if error.errno not in _NO_ROOM or not self._give():
                    raise

    def _give(self) -> bool:
        """Whether there was something left to be given up."""
        self._size = 0  # not known, until it is kept again
        try:
            file = self._files.open(self._path)
            try:
                size = file.size()
                file.truncate(max(0, size - PIECE))
                return size > 0
            finally:
                file.close()
        except OSError:
            return False
