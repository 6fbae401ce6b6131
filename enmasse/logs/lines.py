"""Lines of text to a file descriptor. Those that cannot be written at once are written by a thread: a reader that stops
reading does not stop the process.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

MAX_WAITING: Final = 1 << 20
"""Characters that wait to be written at most; further lines are dropped and counted."""
LONGEST: Final = 2.0
"""Seconds for which `put` waits for the lock, which is held for moments only."""


class LineWriter:
    """Queue of lines before a file descriptor. `lost(count)` is called in the thread after lines were dropped."""

    def __init__(self, descriptor: int, lost: Callable[[int], None]) -> None:
        self.dropped = 0
        """Lines that were dropped and have not been reported yet."""
        self._descriptor = descriptor
        self._lost = lost
        self._changed = threading.Condition()
        self._lines: deque[str] = deque()
        self._waiting = 0
        """Characters of the lines that are not written yet."""
        self._thread: threading.Thread | None = None
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def put(self, line: str) -> None:
        """Write a line, or have it written later; drop it if too much waits already. Never blocks."""
        if not self._changed.acquire(timeout=LONGEST):  # it went with the thread that writes: the interpreter ends
            return
        try:
            if not self._waiting and not self.dropped and self._has_room(line):
                self._write(_encoded(line))
                return
            if self._waiting + len(line) > MAX_WAITING:
                self.dropped += 1
                return
            self._lines.append(line)
            self._waiting += len(line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="log", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        finally:
            self._changed.release()

    def flush(self, seconds: float) -> bool:
        """Wait until all lines are written, at most `seconds`. Return True if they are."""
        with self._changed:
            return self._changed.wait_for(lambda: self._waiting == 0, seconds)

    def _has_room(self, line: str) -> bool:
        """Return whether the line can be written without waiting: a writable pipe has room for PIPE_BUF bytes."""
        return len(line) < select.PIPE_BUF // 4 and bool(self._poll.poll(0))

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines)
                lines = list(self._lines)
                self._lines.clear()
                dropped, self.dropped = self.dropped, 0
                size = sum(map(len, lines))
                self._waiting = size
            self._write(b"".join(map(_encoded, lines)))
            with self._changed:
                self._waiting -= size
                self._changed.notify_all()
            if dropped:
                self._lost(dropped)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            pass  # there is no reader: a log that cannot be written must not end the process


def _encoded(line: str) -> bytes:
    return f"{line}\n".encode("utf-8", "backslashreplace")
