"""Catalogue that survives damage to the journal: a second copy of the definitions, and the list of segments.

One file, CATALOGUE, in the framing of a segment (number 0). Each commit that changes it writes one record, synced
before the commit is reported. So unreadable bytes are a torn end if no valid record follows them, otherwise damage. A
record is the journal location up to which it is valid (8 bytes), then entries of kind (1), length (4), body. The file
is rewritten and renamed when it exceeds twice its content, or after a failed write.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path

from services.broker.storage.journal.file_operations import File, Files, write_anew
from services.broker.storage.journal.segment import BAD, ENTRIES, FIRST, TAIL, encode_head, record, walk

NAME = "CATALOGUE"
GARBAGE = 1 << 20  # bytes above twice the live content at which the file is rewritten

_DEFINE, _UNDEFINE, _SEGMENT, _GONE, _KEEP, _UNKEEP = range(1, 7)
_ENTRY = struct.Struct("<BI")
_ID = struct.Struct("<Q")
_DEFINED = struct.Struct("<QQ")  # id, location of its record in the journal; value
_MADE = struct.Struct("<QQQ")  # segment, allocated bytes, end offset (0: still being written)


class Batch:
    """Content of one write: the whole catalogue, or entries to append."""

    __slots__ = ("payload", "whole")

    def __init__(self, payload: bytes, whole: bool) -> None:
        self.payload = payload
        self.whole = whole


class StoredDefinitions:
    """Memory is authoritative after `read`; `cut` and `write` persist it."""

    def __init__(self, directory: Path, files: Files) -> None:
        self.path = directory / NAME
        self.definitions: dict[int, tuple[int, bytes]] = {}  # location in the journal, value
        self.segments: dict[int, tuple[int, int]] = {}  # allocated bytes, end offset (0: still being written)
        self.kept: set[int] = set()  # undefined ids whose references are kept
        self.undefined: set[int] = set()  # from `read`: ids deleted since the last rewrite
        self.upto = 0  # from `read`: the content is valid up to this journal location
        self.intact = False  # from `read`: the file is complete
        self.damage: list[tuple[int, int]] = []  # from `read`: unreadable ranges
        self._files = files
        self._file: File | None = None
        self._end = 0
        self._least = 0  # size in bytes after the last rewrite
        self._pending: list[bytes] = []
        self._renew = True

    # -- reading -------------------------------------------------------------------------------------------------------
    def read(self) -> None:
        """Read the file; without one the catalogue stays empty and not `intact`. Raises OSError."""
        if self.path.name not in self._files.list(self.path.parent):
            return
        self._file = self._files.open(self.path)
        data = self._file.read(0, self._file.size())
        self.intact = data[:FIRST] == encode_head(0, 0, 0)
        if not self.intact:
            self.damage.append((0, min(FIRST, len(data))))
        end = FIRST
        torn = len(data) <= FIRST
        for kind, start, stop in walk(data, 0, len(data)):
            if kind == ENTRIES:
                self._take(data[start:stop])
                end = stop
            elif kind == BAD:
                self.damage.append((start, stop))
            elif kind == TAIL:
                torn = True
        if end == FIRST:
            self.damage.append((FIRST, len(data)))
        self.intact = self.intact and not self.damage
        self._end = self._least = end
        self._renew = torn or not self.intact

    def _take(self, payload: bytes) -> None:
        (self.upto,) = _ID.unpack_from(payload)
        for kind, body in _entries(payload):
            (id,) = _ID.unpack_from(body)
            if kind == _DEFINE:
                _, location = _DEFINED.unpack_from(body)
                self.definitions[id] = (location, body[_DEFINED.size :])
            elif kind == _UNDEFINE:
                self.definitions.pop(id, None)
                self.undefined.add(id)
            elif kind == _SEGMENT:
                _, size, end = _MADE.unpack(body)
                self.segments[id] = (size, end)
            elif kind == _GONE:
                self.segments.pop(id, None)
            elif kind == _KEEP:
                self.kept.add(id)
            elif kind == _UNKEEP:
                self.kept.discard(id)

    # -- what changes --------------------------------------------------------------------------------------------------
    def define(self, id: int, location: int, value: bytes) -> None:
        """Note a definition and its location in the journal, to be written with the next `write`."""
        self.definitions[id] = (location, value)
        self._pending.append(_defined(id, location, value))
        self.keep(id, False)

    def undefine(self, id: int) -> None:
        """Note that a definition is removed."""
        if self.definitions.pop(id, None) is not None:
            self._pending.append(_entry(_UNDEFINE, _ID.pack(id)))

    def made(self, number: int, size: int, end: int = 0) -> None:
        """Record that the segment exists; with `end`, that it is closed."""
        if self.segments.get(number) != (size, end):
            self.segments[number] = (size, end)
            self._pending.append(_entry(_SEGMENT, _MADE.pack(number, size, end)))

    def gone(self, numbers: Iterable[int]) -> None:
        """Record that these segments will be deleted."""
        for number in numbers:
            if self.segments.pop(number, None) is not None:
                self._pending.append(_entry(_GONE, _ID.pack(number)))

    def keep(self, id: int, wanted: bool = True) -> None:
        """Set whether the references of an undefined id are kept."""
        if wanted != (id in self.kept):
            (self.kept.add if wanted else self.kept.discard)(id)
            self._pending.append(_entry(_KEEP if wanted else _UNKEEP, _ID.pack(id)))

    def replace(self, definitions: dict[int, tuple[int, bytes]], segments: dict[int, tuple[int, int]]) -> None:
        """Replace the content by the state found at the start."""
        if definitions != self.definitions or segments != self.segments:
            self._renew = True
        self.definitions, self.segments = definitions, segments
        self.undefined = set()

    @property
    def changed(self) -> bool:
        """Return True if the file differs from memory."""
        return bool(self._pending)

    # -- writing -------------------------------------------------------------------------------------------------------
    def cut(self, upto: int) -> Batch | None:
        """Return the pending write for a journal that is committed up to a location; None if there is nothing to
        write."""
        if not self._pending and not self._renew:
            return None
        whole = self._renew or self._end > 2 * self._least + GARBAGE
        self._renew = False
        pending, self._pending = self._pending, []
        return Batch(_ID.pack(upto) + b"".join(self._all(self.segments) if whole else pending), whole)

    def content(self, upto: int, segments: Container[int]) -> bytes:
        """Return the bytes of a whole file for a copy of the directory with these segments only."""
        some = {number: made for number, made in self.segments.items() if number in segments}
        return _whole(_ID.pack(upto) + b"".join(self._all(some)))

    def _all(self, segments: Mapping[int, tuple[int, int]]) -> Iterator[bytes]:
        for number, (size, end) in segments.items():
            yield _entry(_SEGMENT, _MADE.pack(number, size, end))
        for id, (location, value) in self.definitions.items():
            yield _defined(id, location, value)
        for id in self.kept:
            yield _entry(_KEEP, _ID.pack(id))

    def write(self, batch: Batch) -> None:
        """Write durably. May run in a thread. Raises OSError; the next write must then be of the whole file."""
        try:
            if batch.whole or self._file is None:
                self._write_anew(batch.payload)
            else:
                added = record(ENTRIES, 0, self._end, batch.payload)
                self._file.write(self._end, added)
                self._file.sync()
                self._end += len(added)
        except OSError:
            self.failed()
            raise

    def failed(self) -> None:
        """Record that the last `cut` was not written."""
        self._renew = True

    def _write_anew(self, payload: bytes) -> None:
        data = _whole(payload)
        self.close()
        write_anew(self._files, self.path, data)
        self._file = self._files.open(self.path)
        self._end = self._least = len(data)

    def close(self) -> None:
        """Close the file; what is pending is not written."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


def _whole(payload: bytes) -> bytes:
    return encode_head(0, 0, 0) + record(ENTRIES, 0, FIRST, payload)


def _entry(kind: int, body: bytes) -> bytes:
    return _ENTRY.pack(kind, len(body)) + body


def _defined(id: int, location: int, value: bytes) -> bytes:
    return _entry(_DEFINE, _DEFINED.pack(id, location) + value)


def _entries(payload: bytes) -> Iterator[tuple[int, bytes]]:
    at = _ID.size
    while at < len(payload):
        kind, length = _ENTRY.unpack_from(payload, at)
        at += _ENTRY.size
        yield kind, payload[at : at + length]
        at += length
