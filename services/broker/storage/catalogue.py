"""What must outlive damage to the journal: the definitions, held here a second time, and which segments there are.

One file, CATALOGUE, framed as a segment is (number 0). Each commit that has news writes one record, synced before the
commit is reported: so bytes that cannot be read are a torn end if nothing good is behind them, else damage. A record is
the place in the journal up to which it holds (8 bytes), then entries of kind (1), length (4), body. Once it has grown
to more than twice its content, or a write has failed, the file is written anew and renamed.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path

from services.broker.storage.files import File, Files, write_anew
from services.broker.storage.segment import BAD, ENTRIES, FIRST, TAIL, encode_head, record, walk

NAME = "CATALOGUE"
GARBAGE = 1 << 20  # bytes beside twice what is in force from which on the file is written anew

_DEFINE, _UNDEFINE, _SEGMENT, _GONE, _KEEP, _UNKEEP = range(1, 7)
_ENTRY = struct.Struct("<BI")
_ID = struct.Struct("<Q")
_DEFINED = struct.Struct("<QQ")  # id, location of its record in the journal; value
_MADE = struct.Struct("<QQQ")  # segment, bytes allocated for it, where it ends (0: it is written to)


class Batch:
    """What one write takes: the whole content, or entries to be added."""

    __slots__ = ("payload", "whole")

    def __init__(self, payload: bytes, whole: bool) -> None:
        self.payload = payload
        self.whole = whole


class Catalogue:
    """`read` fills it from the file. What is in memory is the truth; `cut` and `write` bring the file up to it."""

    def __init__(self, directory: Path, files: Files) -> None:
        self.path = directory / NAME
        self.definitions: dict[int, tuple[int, bytes]] = {}  # location in the journal, value
        self.segments: dict[int, tuple[int, int]] = {}  # bytes allocated, end (0: written to)
        self.kept: set[int] = set()  # ids that are not defined and whose references are kept all the same
        self.undefined: set[int] = set()  # of what was read: deleted since it was last written anew
        self.upto = 0  # of what was read: it holds for what lies before this location
        self.intact = False  # what was read is whole
        self.damage: list[tuple[int, int]] = []  # of what was read: where it cannot be read
        self._files = files
        self._file: File | None = None
        self._end = 0
        self._least = 0  # bytes it had when it was last written anew
        self._pending: list[bytes] = []
        self._renew = True

    # -- reading -------------------------------------------------------------------------------------------------------
    def read(self) -> None:
        """Raises OSError. Without a file it stays empty, and is not `intact`."""
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
        self.definitions[id] = (location, value)
        self._pending.append(_defined(id, location, value))
        self.keep(id, False)

    def undefine(self, id: int) -> None:
        if self.definitions.pop(id, None) is not None:
            self._pending.append(_entry(_UNDEFINE, _ID.pack(id)))

    def made(self, number: int, size: int, end: int = 0) -> None:
        """There is such a segment; with `end`, it is closed."""
        if self.segments.get(number) != (size, end):
            self.segments[number] = (size, end)
            self._pending.append(_entry(_SEGMENT, _MADE.pack(number, size, end)))

    def gone(self, numbers: Iterable[int]) -> None:
        """These segments are going to be deleted."""
        for number in numbers:
            if self.segments.pop(number, None) is not None:
                self._pending.append(_entry(_GONE, _ID.pack(number)))

    def keep(self, id: int, wanted: bool = True) -> None:
        """The references of an id that is not defined are to be kept, or need not be."""
        if wanted != (id in self.kept):
            (self.kept.add if wanted else self.kept.discard)(id)
            self._pending.append(_entry(_KEEP if wanted else _UNKEEP, _ID.pack(id)))

    def replace(self, definitions: dict[int, tuple[int, bytes]], segments: dict[int, tuple[int, int]]) -> None:
        """What was found to be true at the start."""
        if definitions != self.definitions or segments != self.segments:
            self._renew = True
        self.definitions, self.segments = definitions, segments
        self.undefined = set()

    @property
    def changed(self) -> bool:
        """Whether the file has to be brought up to date."""
        return bool(self._pending)

    # -- writing -------------------------------------------------------------------------------------------------------
    def cut(self, upto: int) -> Batch | None:
        """What is to be written, for a journal that is committed up to a location; None: nothing."""
        if not self._pending and not self._renew:
            return None
        whole = self._renew or self._end > 2 * self._least + GARBAGE
        self._renew = False
        pending, self._pending = self._pending, []
        return Batch(_ID.pack(upto) + b"".join(self._all(self.segments) if whole else pending), whole)

    def content(self, upto: int, segments: Container[int]) -> bytes:
        """A whole file, for a copy of the directory with these segments only."""
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
        """Durable when it returns. May run in a thread. Raises OSError: then it is to be written as a whole."""
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
        """What was cut was not written."""
        self._renew = True

    def _write_anew(self, payload: bytes) -> None:
        data = _whole(payload)
        self.close()
        write_anew(self._files, self.path, data)
        self._file = self._files.open(self.path)
        self._end = self._least = len(data)

    def close(self) -> None:
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
