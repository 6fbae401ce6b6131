"""Contents of files. Of a file with several sources each holds some of its entries (docs/kubernetes.md,
"Configuration"). Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from enmasse.model.jsonfile import MAX_BYTES, Document, Problem, RefusedEntry, Unparsable, parse

_IN, _TOO = "is in ", " too; remove one of the two"
_LINE = re.compile(r":\d+$")


class FilePart(msgspec.Struct, frozen=True):
    """A part of a file: how people know it (`configmap/orders/addresses.json`), and what is in it.

    `refused`: why it is not read, although it is there; empty if it is. `entry`: the one entry that it has, of which
    this is known although it is not read.
    """

    name: str
    data: bytes
    refused: str = ""
    entry: str = ""


class Unreadable(msgspec.Struct, frozen=True):
    """A file that is there and cannot be read."""

    reason: str


Content = bytes | Unreadable | tuple[FilePart, ...] | None
"""Content of a file from a driver: its bytes, the reason it is unreadable, None without a file, or its sources.
"""


def content_by(read: Callable[[], bytes]) -> Content:
    """Return the content of the file that `read` reads."""
    try:
        return read()
    except FileNotFoundError:
        return None
    except OSError as error:
        return Unreadable(error.strerror or str(error))


class MergedDocument(Document):
    """The entries of all sources that can be read; each problem names the source of its entry.

    `unreadable`: what is wrong with the others. What these hold is not known, so nothing may be taken for removed.
    """

    def __init__(self, file: str, sources: Sequence[FilePart]) -> None:
        super().__init__(file, "{}", {}, [])
        self.unreadable: list[Problem] = []
        self._parts: dict[str, Document] = {}
        """Entry → the document that has it."""
        self._others: dict[str, Document] = {}
        """Entry → another document that has it too."""
        size = 0
        for source in sources:
            size += len(source.data)
            try:
                if source.entry:
                    self._add(Document(source.name, "{}", {source.entry: RefusedEntry(source.refused)}, []))
                    continue
                if source.refused:
                    raise Unparsable(Problem(file=source.name, reason=source.refused))
                if size > MAX_BYTES:
                    raise Unparsable(Problem(file=source.name, reason=f"{file} has more than {MAX_BYTES >> 20} MiB"))
                self._add(parse(source.name, source.data))
            except Unparsable as error:
                self.unreadable.append(error.problem)
        self.duplicates += [(name,) for name in self._others if (name,) not in self.duplicates]

    @property
    def partial(self) -> bool:
        """Return True if a source cannot be read, so that entries may be missing."""
        return bool(self.unreadable)

    @property
    def origins(self) -> dict[str, str]:
        """Entry → the name of its source."""
        return {name: part.file for name, part in self._parts.items()}

    def line(self, *path: str) -> int | None:
        """Return the line of a key in the source of its entry."""
        part = self._parts.get(path[0]) if path else None
        return part.line(*path) if part is not None else None

    def problem(self, reason: str, *path: str) -> Problem:
        """Return a problem that names the source of its entry."""
        part = self._parts.get(path[0]) if path else None
        return part.problem(reason, *path) if part is not None else super().problem(reason, *path)

    def repeated(self, *path: str) -> Problem:
        """Return the problem with a key that occurs twice, in one source or in two."""
        other = self._others.get(path[0]) if len(path) == 1 else None
        if other is None:
            return super().repeated(*path)
        where = other.problem("", *path)
        line = f":{where.line}" if where.line is not None else ""
        return self.problem(f"{_IN}{other.file}{line}{_TOO}", *path)

    def _add(self, part: Document) -> None:
        self.duplicates += part.duplicates
        for name, entry in part.entries.items():
            if name in self._parts:
                self._others.setdefault(name, part)
            else:
                self._parts[name] = part
                self.entries[name] = entry


def other_source(reason: str) -> str | None:
    """Return the other source of an entry that is in two, from the reason of the problem; None for another problem."""
    if not reason.startswith(_IN) or not reason.endswith(_TOO):
        return None
    return _LINE.sub("", reason[len(_IN) : -len(_TOO)])


def fingerprint(sources: Sequence[FilePart]) -> str:
    """Return the hash of a content for the status: of one source its SHA-256 (hex), of several that of all of them."""
    if len(sources) == 1:
        return hashlib.sha256(sources[0].data).hexdigest()
    lines = sorted(f"{source.name} {hashlib.sha256(source.data).hexdigest()}\n" for source in sources)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def kept(document: Document | None, last: dict[Any, Any]) -> dict[Any, Any]:
    """Return the entries of `last` that are not in the document, but may be in an unreadable source."""
    if not isinstance(document, MergedDocument) or not document.partial:
        return {}
    return {name: found for name, found in last.items() if name not in document.entries}
