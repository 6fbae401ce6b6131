"""JSON as people write it: duplicate keys are found, and errors come with their line.

The usual case costs one pass of a parser in C. Lines are looked for only once something is wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]  # typeshed leaves scanstring out
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

import msgspec
from msgspec.structs import replace

from enmasse.model.values import Wrong
from enmasse.storage.decoding import decode

T = TypeVar("T")
K = TypeVar("K", bound=str)

MAX_BYTES = 64 * 1024 * 1024
MAX_NAME = 1000
"""Characters of a key that are shown; a legal name has fewer."""
MAX_LINES = 1000
"""Lines that are looked at for the beginning and the end of an entry."""
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


def added(found: Iterable[Problem], known: Iterable[Problem]) -> list[Problem]:
    """Return the problems of `found` that are not among `known`, in whichever line they stood."""
    there = {replace(problem, line=None) for problem in known}
    return [problem for problem in found if replace(problem, line=None) not in there]


class Unparsable(ValueError):
    """The file is no JSON object; nothing of it can be used. `problem` has the reason."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


class RefusedEntry(NamedTuple):
    """The value of an entry that its source does not give, with the reason."""

    reason: str


class Document:
    """A parsed file. `entries`: name → value as written; `duplicates`: paths of keys that occur twice. `plain`: no key
    occurs twice, and no string has a brace or bracket, so that `edited` can tell what a later edit changes. `find`:
    text → the lines of its keys, by their path; that of JSON by default."""

    def __init__(
        self,
        file: str,
        text: str,
        entries: dict[str, Any],
        duplicates: list[tuple[str, ...]],
        *,
        plain: bool = False,
        find: Callable[[str], dict[tuple[str, ...], list[int]]] | None = None,
    ) -> None:
        self.file = file
        self.entries = entries
        self.duplicates = duplicates
        self.plain = plain
        self._text, self._find = text, find or locate
        self._lines: dict[tuple[str, ...], list[int]] | None = None

    def line(self, *path: str) -> int | None:
        """Return the line of a key (of the second one if it occurs twice), or of the nearest known key above it."""
        if self._lines is None:
            self._lines = self._find(self._text)
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

    def faults(self, wrong: Wrong, name: str) -> list[Problem]:
        """Return the problems of an entry with which this is wrong."""
        return [self.problem(str(each), name, *each.path) for each in (wrong, *wrong.others)]

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
                if isinstance(entry, RefusedEntry):
                    raise Wrong(entry.reason)
                good[name] = parse(name, entry)
            except Wrong as wrong:
                problems += self.faults(wrong, name)
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
        entries, plain = quickly
        return Document(file, text, entries, [], plain=plain)
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


def _without_repetition(text: str) -> tuple[dict[str, Any], bool] | None:
    """Return the object in `text`, in a third of the time that the checks of `parse` take, and whether all braces and
    brackets in it are outside of strings; None if it is no object, or a key may occur twice in it: a colon follows
    each key, so a lost key leaves more colons than keys."""
    try:
        value = decode(text, dict[str, Any])
    except ValueError:
        return None
    colons = text.count(":")
    objects: list[dict[str, Any]] = [value]
    arrays: list[list[Any]] = []
    braces = brackets = 0
    while objects or arrays:
        colons -= sum(map(len, objects))
        braces += len(objects)
        brackets += len(arrays)
        inner = [*chain.from_iterable(map(dict.values, objects)), *chain.from_iterable(arrays)]
        objects = [each for each in inner if isinstance(each, dict)]
        arrays = [each for each in inner if isinstance(each, list)]
    if colons != 0:
        return None
    return value, (braces, braces, brackets, brackets) == tuple(map(text.count, "{}[]"))


class Edit(NamedTuple):
    """The entries of the part in which two versions of a file differ, before and after, in the order of the files."""

    before: dict[str, Any]
    after: dict[str, Any]

    def applied(self, entries: dict[K, T], changed: Mapping[K, T]) -> dict[K, T] | None:
        """Return `entries`, one for each of the file before in its order, with those of `before` replaced by `changed`,
        one for each of `after`; None if a name would occur twice."""
        names, removed = list(entries), list(self.before)
        start = names.index(cast(K, removed[0])) if removed else 0
        end = start + len(removed)
        if names[start:end] != removed:
            return None
        result = dict(islice(entries.items(), start))
        result.update(changed)
        result.update(islice(entries.items(), end, None))
        return result if len(result) == len(entries) - len(removed) + len(changed) else None


def edited(before: bytes, after: bytes) -> Edit | None:
    """Return what an edit has changed, in a fraction of the time that `parse` takes; None if only `parse` can tell: the
    new version may be wrong, or its lines do not show where an entry begins.

    `before`: a file whose document is plain. Both versions are cut at the same two commas between entries (or the outer
    braces), around everything that differs. A line break is never in a string of JSON, and the braces before it
    show how deep it is.
    """
    if len(after) > MAX_BYTES:
        return None
    least = min(len(before), len(after))
    same = _alike(least, lambda start, end: before[start:end] == after[start:end])
    ends = len(before), len(after)
    tail = _alike(
        least - same,
        lambda start, end: before[ends[0] - end : ends[0] - start] == after[ends[1] - end : ends[1] - start],
    )
    start = _cut_before(before, same)
    end = None if start is None else _cut_behind(before, start, len(before) - tail)
    if start is None or end is None:
        return None
    further = end + len(after) - len(before)
    try:
        entries = decode(b"{%b}" % before[start:end], dict[str, Any])
        found = _without_repetition((b"{%b}" % after[start:further]).decode())
    except ValueError:
        return None
    if found is None or not found[1]:
        return None
    if not found[0] and before[start - 1 : start] + before[end : end + 1] != b"{}":
        return None  # a comma too many
    return Edit(entries, found[0])


def _alike(most: int, equal: Callable[[int, int], bool]) -> int:
    """Return how much two texts have in common, at most `most`; `equal(start, end)` compares a part of them."""
    size, step = 0, 1 << 16
    while step:
        if size + step <= most and equal(size, size + step):
            size += step
        else:
            step >>= 1
    return size


def _cut_before(text: bytes, place: int) -> int | None:
    """Return the index behind the last comma between entries, or the outer brace, that ends a line before `place`."""
    end = text.rfind(b"\n", 0, place)
    depth = _depth(text, 0, end)
    for _ in range(MAX_LINES):
        if end < 0:
            break
        last = _last_character(text, end)
        if depth == 1 and text[last : last + 1] in (b",", b"{"):
            return last + 1
        start = text.rfind(b"\n", 0, end)
        depth -= _depth(text, max(start, 0), end)
        end = start
    return None


def _cut_behind(text: bytes, start: int, place: int) -> int | None:
    """Return the index of the first comma between entries that ends a line, or of the outer brace, not before `place`;
    `start` is between entries."""
    depth, counted, look = 1, start, place
    for _ in range(MAX_LINES):
        end = text.find(b"\n", look)
        if end < 0:
            last = text.rfind(b"}")
            return last if last >= place else None
        depth += _depth(text, counted, end)
        last = _last_character(text, end)
        if depth == 1 and last >= place and text[last : last + 1] == b",":
            return last
        counted, look = end, end + 1
    return None


def _depth(text: bytes, start: int, end: int) -> int:
    """Return how many more objects and arrays begin than end in a part of a text."""
    begun, ended = (sum(text.count(each, start, end) for each in pair) for pair in ((b"{", b"["), (b"}", b"]")))
    return begun - ended


def _last_character(text: bytes, end: int) -> int:
    """Return the index of the last character before `end` that is no white space, or of white space far before it."""
    begin = max(0, end - MAX_NAME)
    return begin + len(text[begin:end].rstrip(b" \t\r\n")) - 1


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


def locate(text: str) -> dict[tuple[str, ...], list[int]]:
    """Path of keys → the lines it occurs on, for the upper three levels of a text known to be an object."""
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
            if text[place] == "{" and len(here) < 3:
                place = walk(place, here)
            else:
                _, place = _SKIP.raw_decode(text, place)
            place = skip(place)
        return place + 1

    walk(skip(1 if text[:1] == "\ufeff" else 0), ())
    return found
