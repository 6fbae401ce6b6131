"""Payloads put out of memory that may die with the process: non-durable messages, brokers in memory."""

from __future__ import annotations

from pathlib import Path


class Pager:
    """Append-only page files in a directory of its own; a file is deleted once all its pages are released. What an
    earlier process left there is deleted at the start."""

    def __init__(self, directory: Path, *, file_size: int = 16 << 20) -> None:
        raise NotImplementedError

    def write(self, payload: bytes | bytearray | memoryview) -> int:
        """Puts a payload out; returns its place. Raises OSError (no space): keep the message in memory, or refuse
        it."""
        raise NotImplementedError

    def read(self, place: int) -> bytes:
        """The payload; stays until released."""
        raise NotImplementedError

    def release(self, place: int) -> None:
        """The page is no longer needed."""

    @property
    def disk_bytes(self) -> int:
        raise NotImplementedError

    def close(self) -> None:
        """Deletes everything."""
