"""Lag of a source: what its spool holds beyond the batch that runs, for the query's progress."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from enmasse.spark.segment import SpoolError, read_spool, segments


def bytes_of(folder: Path) -> int:
    """Return the bytes of all segments of a spool; those that are deleted meanwhile may count or not."""
    total = 0
    for _, path in segments(folder):
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # Spark has just committed it
            continue
    return total


def arrival_of(folder: Path, record: int) -> int | None:
    """Return when a record arrived, in milliseconds since 1970; None if the spool no longer has it."""
    try:
        return next(iter(read_spool(folder, record, record + 1))).arrived_ms
    except SpoolError:
        return None


class Lag:
    """Lag of a query behind its spool. What needs a look at files is kept until the numbers of records change."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: tuple[int, int] | None = None
        self._bytes = 0
        self._oldest: int | None = None

    def report(self, end: int, head: int, now_ms: int) -> dict[str, Any]:
        """Return the end of the spool (`record`), the records behind those of the batch that ends before `end`
        (`behind`), seconds since the oldest of them arrived (null without one), and the bytes of the spool.

        now_ms: the time of the day in milliseconds since 1970; if it was set back the age is 0.
        """
        if self._known != (end, head):
            self._known = (end, head)
            self._bytes = bytes_of(self._folder)
            self._oldest = arrival_of(self._folder, end) if head > end else None
        age = None if self._oldest is None else max(0, now_ms - self._oldest) / 1000
        return {"record": head, "behind": max(0, head - end), "oldestSeconds": age, "spoolBytes": self._bytes}
