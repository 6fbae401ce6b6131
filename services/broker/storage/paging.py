"""Pages payloads out of memory that need not survive the process: non-durable messages, in-memory brokers."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from services.broker.storage.journal import file_operations as layer
from services.broker.storage.journal.file_operations import File, Files

WRITE_BUFFER = 64 << 10  # bytes gathered before they are written
READ_AHEAD = 128 << 10
_NAME = re.compile(r"\d{10}\.pages")


class _PageFile:
    __slots__ = ("file", "held", "path", "size")

    def __init__(self, path: Path, file: File) -> None:
        self.path = path
        self.file = file
        self.size = 0  # bytes assigned, including buffered ones
        self.held = 0  # number of pages that are not released


class Pager:
    """Append-only page files in their own directory; a file is deleted once all its pages are released. Files of
    earlier processes are deleted at the start. Nothing is synced. Memory: two buffers, and a few words per file. A
    place is an opaque positive integer."""

    def __init__(self, directory: Path, *, file_size: int = 16 << 20, files: Files | None = None) -> None:
        """Create or empty the directory. Raises OSError if that fails."""
        self._directory = directory
        self._files = files or layer.FILES
        self._file_size = file_size
        self._pages: dict[int, _PageFile] = {}
        self._number = 0
        self._buffer: list[bytes | bytearray | memoryview] = []
        self._buffered = 0
        self._ahead: tuple[int, int, bytes] = (0, 0, b"")
        self._files.make_dir(directory)
        for name in self._files.list(directory):
            if _NAME.fullmatch(name):
                self._files.unlink(directory / name)

    def write(self, payload: bytes | bytearray | memoryview) -> int:
        """Write a payload out. Return its place. Raises OSError (no space): the payload is not kept; the caller keeps
        it in memory or refuses the message."""
        page = self._pages.get(self._number)
        if page is None or page.size + 4 + len(payload) > self._file_size:
            page = self._next()
        at = page.size
        self._buffer += (len(payload).to_bytes(4, "little"), bytes(payload))
        self._buffered += 4 + len(payload)
        page.size += 4 + len(payload)
        if self._buffered >= WRITE_BUFFER:
            try:
                self._flush()
            except OSError:
                del self._buffer[-2:]
                self._buffered -= 4 + len(payload)
                page.size = at
                raise
        page.held += 1
        return self._number << 32 | at

    def _next(self) -> _PageFile:
        self._flush()
        last = self._pages.get(self._number)
        number = self._number + 1
        path = self._directory / f"{number:010}.pages"
        page = _PageFile(path, self._files.open(path, create=True))
        self._pages[number] = page
        old, self._number = self._number, number
        if last and not last.held:
            self._delete(old)
        return page

    def _flush(self) -> None:
        if self._buffered:
            page = self._pages[self._number]
            page.file.write(page.size - self._buffered, b"".join(self._buffer))
            self._buffer.clear()
            self._buffered = 0

    def read(self, place: int) -> bytes:
        """Return the payload, which stays until released. Raises KeyError (unknown place), OSError."""
        number, at = place >> 32, place & 0xFFFFFFFF
        page = self._pages[number]
        if number == self._number and at + 4 > page.size - self._buffered:
            data, offset = b"".join(self._buffer), at - (page.size - self._buffered)
            size = int.from_bytes(data[offset : offset + 4], "little")
            return data[offset + 4 : offset + 4 + size]
        held, start, ahead = self._ahead
        offset = at - start
        if held == number and 0 <= offset <= len(ahead) - 4:
            size = int.from_bytes(ahead[offset : offset + 4], "little")
            if offset + 4 + size <= len(ahead):
                return ahead[offset + 4 : offset + 4 + size]
        data = page.file.read(at, READ_AHEAD)
        size = int.from_bytes(data[:4], "little")
        if len(data) < 4 + size:
            data += page.file.read(at + len(data), 4 + size - len(data))
        if len(data) < 4 + size:
            raise OSError(f"{page.path}: offset {at}: the page cannot be read")
        self._ahead = (number, at, data[:READ_AHEAD])
        return data[4 : 4 + size]

    def release(self, place: int) -> None:
        """Release a page that is no longer needed."""
        number = place >> 32
        page = self._pages[number]
        page.held -= 1
        if not page.held and number != self._number:
            self._delete(number)

    def _delete(self, number: int) -> None:
        page = self._pages.pop(number)
        with contextlib.suppress(OSError):
            page.file.close()
            self._files.unlink(page.path)

    @property
    def disk_bytes(self) -> int:
        """Bytes of all pages."""
        return sum(page.size for page in self._pages.values())

    def close(self) -> None:
        """Delete all page files."""
        for number in list(self._pages):
            self._delete(number)
