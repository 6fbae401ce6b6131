"""Lag of a source: what its spool holds beyond the batch that runs, for the query's progress."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from enmasse.spark.spool.segment import SpoolError, partition_folder, read_spool, segments


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

    def __init__(self, folder: Path, first: int = 0) -> None:
        """first: the partition that the first number of `report` is for."""
        self._folder, self._first = folder, first
        self._known: tuple[Sequence[int], Sequence[int]] | None = None
        self._bytes = 0
        self._oldest: int | None = None

    def report(self, ends: Sequence[int], heads: Sequence[int], now_ms: int) -> dict[str, Any]:
        """Return the records behind those of the batch that ends before `ends` (`behind`), seconds since the oldest of
        them arrived (null without one), and the bytes of the spool. heads: the ends of its partitions.

        now_ms: the time of the day in milliseconds since 1970; if it was set back the age is 0.
        """
        if self._known != (ends, heads):
            self._known = (ends, heads)
            folders = [partition_folder(self._folder, self._first + n) for n in range(len(heads))]
            self._bytes = sum(map(bytes_of, folders))
            parts = zip(folders, ends, heads, strict=True)
            arrivals = [arrival_of(folder, end) for folder, end, head in parts if head > end]
            self._oldest = min((ms for ms in arrivals if ms is not None), default=None)
        age = None if self._oldest is None else max(0, now_ms - self._oldest) / 1000
        behind = sum(max(0, head - end) for end, head in zip(ends, heads, strict=True))
        return {"behind": behind, "oldestSeconds": age, "spoolBytes": self._bytes}
