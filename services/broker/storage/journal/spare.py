"""Reserved disk space for records that free space: removals must be written even if other programs fill the disk."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

from services.broker.storage.journal.file_operations import Files

NAME = "SPARE"
SIZE = 2 << 20
"""Bytes for removals of some 20,000 messages and their catalogue entries; by then whole segments are deleted."""
PIECE = 128 << 10
"""Bytes released at a time: other programs may take space that stays free."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


class Spare:
    """File in the data directory that shrinks by the bytes of necessary writes that find no other space."""

    def __init__(self, directory: Path, files: Files) -> None:
        self._path = directory / NAME
        self._files = files
        self._size = 0
        self._busy = threading.Lock()

    def keep(self) -> None:
        """Reserve the space that is not reserved yet, unless `spend` is at work. May be called repeatedly. Raises
        nothing."""
        if self._size == SIZE or not self._busy.acquire(blocking=False):
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
        finally:
            self._busy.release()

    def spend(self, work: Callable[[], None]) -> None:
        """Run `work`, repeating it with as much of the reserved space as it needs. Raises OSError. May run in a
        thread."""
        while True:
            try:
                return work()
            except OSError as error:
                if error.errno not in _NO_ROOM or not self._give():
                    raise

    def _give(self) -> bool:
        """Release a piece. Return False if nothing was left."""
        with self._busy:
            self._size = 0  # unknown until the next `keep`
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
