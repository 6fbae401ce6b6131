"""JSON as people write it: duplicate keys are found, and errors come with their line.

The usual case costs one pass of a parser in C. Lines are looked for only once something is wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]  # typeshed leaves scanstring out
from typing import Any, NoReturn, TypeVar

import msgspec

from enmasse.decoding import decode
from enmasse.model.values import Wrong

T = TypeVar("T")

MAX_BYTES = 64 * 1024 * 1024
MAX_NAME = 1000
"""Characters of a key that are shown; a legal name has fewer."""
_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = r'"(?:[^"\\]++|\\.)*+"|'
_CONSTANT, _ENDLESS = re.compile(_STRING + "(NaN|-?Infinity)"), re.compile(_STRING + r"(\d{4301,})")
_SKIP = json.JSONDecoder(parse_int=str, parse_float=str)


class Problem(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Problem in a configuration file, for people: its place, and a reason with its remedy."""

    file: str
    entry: str | None = None
    field: str | None = None
    line: int | None = None
    reason: str
    applies: bool = False
    """True if the entry applies, except for a part without effect."""

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        if self.entry is not None:
            where += f": {self.entry}"
        if self.field is not None:
            where += f".{self.field}"
        return f"{where}: {self.reason}"


class Unparsable(ValueError):
    """The file is no JSON object; nothing of it can be used. `problem` has the reason."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


class Document:
    """A parsed file. `entries`: name → value as written; `duplicates`: paths of keys that occur twice."""

    def __init__(self, file: str, text: str, entries: dict[str, Any], duplicates: list[tuple[str, ...]]) -> None:
        self.file = file
        self.entries = entries
        self.duplicates = duplicates
        self._text = text
        self._lines: dict[tuple[str, ...], list[int]] | None = None

    def line(self, *path: str) -> int | None:
        """Return the line of a key (of the second one if it occurs twice), or of the nearest known key above it."""
        if self._lines is None:
            self._lines = locate(self._text)
        while path:
            found = self._lines.get(path)
            if found:
                return found[-1]
            path = path[:-1]
        return None

    def problem(self, reason: str, *path: str) -> Problem:
        """Return a problem with the entry, field … named by `path`."""
        return Problem(
            file=self.file,
            entry=shown(path[0]) if path else None,
            field=".".join(map(shown, path[1:])) or None,
            line=self.line(*path),
            reason=reason,
        )

    def repeated(self, *path: str) -> Problem:
        """Return the problem with a key that occurs twice (one of `duplicates`)."""
        return self.problem("occurs twice; remove one of the two", *path)

    def parsed(self, parse: Callable[[str, Any], T]) -> tuple[dict[str, T], list[Problem]]:
        """Return what `parse` makes of each entry (name, value), and the problems: entries for which it raises Wrong,
        and keys that occur twice."""
        good: dict[str, T] = {}
        problems = [self.repeated(*path) for path in self.duplicates]
        bad = {path[0] for path in self.duplicates}
        for name, entry in self.entries.items():
            if name in bad:
                continue
            try:
                good[name] = parse(name, entry)
            except Wrong as wrong:
                problems.append(self.problem(str(wrong), name, *wrong.path))
        return good, problems


def shown(name: str) -> str:
    """The name as messages have it: one that is far too long to be legal is cut off."""
    return name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}…"


class _Repeated(dict[str, Any]):
    """An object in which a key occurs more than once. `keys_seen`: all of its keys."""

    def __init__(self, items: list[tuple[str, Any]]) -> None:
        super().__init__(items)
        self.keys_seen = [key for key, _ in items]


def _repetitions(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the paths of keys that occur twice in a value and what is in it."""
    if isinstance(value, _Repeated):
        yield from ((*path, key) for key in value if value.keys_seen.count(key) > 1)
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _repetitions(inner, (*path, str(key)))


def parse(file: str, data: bytes) -> Document:
    """Return the object in `data`. Raises Unparsable."""

    def unparsable(reason: str, line: int | None = None) -> NoReturn:
        raise Unparsable(Problem(file=file, line=line, reason=reason))

    if len(data) > MAX_BYTES:
        unparsable(f"is larger than {MAX_BYTES >> 20} MiB, which is the most that is read; make it smaller")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        unparsable("is not UTF-8; save it as UTF-8", data.count(b"\n", 0, error.start) + 1)
    if not text.strip():
        unparsable("is empty; an empty configuration is {}")
    quickly = _without_repetition(text)
    if quickly is not None:
        return Document(file, text, quickly, [])
    repeated = False

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        found = dict(items)
        if len(found) != len(items):
            repeated = True
            return _Repeated(items)
        return found

    def constant(name: str) -> NoReturn:
        unparsable(f"{name} is not JSON; write a number", _line_of(_CONSTANT, text))

    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    except JSONDecodeError as error:
        error = at_the_comma(error)
        unparsable(f"is not JSON: {error.msg} (column {error.colno})", error.lineno)
    except RecursionError:
        unparsable("is nested too deeply")
    except Unparsable:
        raise
    except ValueError:  # Python's limit of digits; its message is for programmers
        line = _line_of(_ENDLESS, text)
        unparsable("is not JSON that can be read: a number has thousands of digits; write a smaller one", line)
    if not isinstance(value, dict):
        unparsable("must be an object: name → entry", 1)
    if "\\u" in text:
        try:
            msgspec.json.encode(value)
        except UnicodeEncodeError:
            unparsable("has half of a surrogate pair (\\ud800 to \\udfff) in a string; write the character itself")
        except (OverflowError, RecursionError):
            pass  # too large a number: its own check reports it
    document = Document(file, text, value, [])
    if repeated:
        document._lines = locate(text)
        twice = {path for path, lines in document._lines.items() if len(lines) > 1}
        # What is inside a repeated object is seen twice as well, and is no error of its own.
        document.duplicates = [
            path
            for path in document._lines
            if path in twice and not any(path[:n] in twice for n in range(1, len(path)))
        ]
        known = {path[0] for path in document.duplicates}  # others have them deeper, or in arrays
        for name, entry in value.items():
            document.duplicates += () if name in known else [*_repetitions(entry, (name,))][:1]
    return document


def _without_repetition(text: str) -> dict[str, Any] | None:
    """Return the object in `text`, in a third of the time that the checks of `parse` take; None if it is no object, or
    a key may occur twice in it: a colon follows each key, so a lost key leaves more colons than keys."""
    try:
        value = decode(text, dict[str, Any])
    except ValueError:
        return None
    colons = text.count(":")
    objects: list[dict[str, Any]] = [value]
    arrays: list[list[Any]] = []
    while objects or arrays:
        colons -= sum(map(len, objects))
        inner = [*chain.from_iterable(map(dict.values, objects)), *chain.from_iterable(arrays)]
        objects = [each for each in inner if isinstance(each, dict)]
        arrays = [each for each in inner if isinstance(each, list)]
    return value if colons == 0 else None


def at_the_comma(error: JSONDecodeError) -> JSONDecodeError:
    """The error where people have to look: at a comma too many, or behind what a comma is missing after. The parser
    stops at what comes next, which may be lines further down.
    """
    before = error.doc[: error.pos].rstrip(" \t\r\n")
    found = error.doc[error.pos : error.pos + 1]
    if before.endswith(",") and found and found in "}]":
        return JSONDecodeError(f"a comma before the closing {found}: remove it", error.doc, len(before) - 1)
    if found == '"' and before and before[-1] not in ",:{[" and "'," in error.msg:
        return JSONDecodeError("a comma is missing behind this", error.doc, len(before) - 1)
    return error


def _line_of(pattern: re.Pattern[str], text: str) -> int | None:
    """Return the line of the first match of the pattern's group."""
    for match in pattern.finditer(text):
        if match.group(1) is not None:
            return text.count("\n", 0, match.start()) + 1
    return None


def locate(text: str, depth: int = 3) -> dict[tuple[str, ...], list[int]]:
    """Path of keys → the lines it occurs on, for the upper `depth` levels of a text known to be an object."""
    found: dict[tuple[str, ...], list[int]] = {}
    position, line = 0, 1

    def line_at(place: int) -> int:
        nonlocal position, line
        line += text.count("\n", position, place)
        position = place
        return line

    def skip(place: int) -> int:
        match = _SPACE.match(text, place)
        assert match is not None
        return match.end()

    def walk(place: int, path: Sequence[str]) -> int:
        place = skip(place + 1)
        while text[place] != "}":
            if text[place] == ",":
                place = skip(place + 1)
            start = place
            key, place = scanstring(text, place + 1, True)
            here = (*path, key)
            found.setdefault(here, []).append(line_at(start))
            place = skip(skip(place) + 1)
            if text[place] == "{" and len(here) < depth:
                place = walk(place, here)
            else:
                _, place = _SKIP.raw_decode(text, place)
            place = skip(place)
        return place + 1

    walk(skip(1 if text[:1] == "\ufeff" else 0), ())
    return found
