"""Change of one entry of a JSON file that people edit too: all other bytes of the file stay unchanged."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from json.decoder import JSONDecodeError, JSONDecoder, scanstring  # type: ignore[attr-defined]  # typeshed leaves scanstring out
from typing import Any

from enmasse.model.jsonfile import at_the_comma

_SPACE = re.compile(r"[ \t\r\n]*")
_LINE_WIDTH = 100


@dataclass(frozen=True, slots=True)
class JsonEntry:
    """One `"key": value` of the outermost object; `start` and `end` are offsets in the text."""

    key: str
    value: Any
    start: int
    end: int


def parse(text: str) -> list[JsonEntry]:
    """The entries of the JSON object that `text` is, in their order. Raises ValueError (with line and column)."""
    try:
        return _parse(text)
    except JSONDecodeError as error:
        raise at_the_comma(error) from None


def _parse(text: str) -> list[JsonEntry]:
    decode = JSONDecoder().raw_decode
    position = _skip(text, 1 if text[:1] == "\ufeff" else 0)  # a byte order mark stays, too
    if text[position : position + 1] != "{":
        raise JSONDecodeError("expected an object", text, position)
    entries: list[JsonEntry] = []
    position = _skip(text, position + 1)
    while text[position : position + 1] != "}":
        if entries:
            if text[position : position + 1] != ",":
                raise JSONDecodeError("expected ',' or '}'", text, position)
            position = _skip(text, position + 1)
        start = position
        if text[position : position + 1] != '"':
            raise JSONDecodeError("expected a name in double quotes", text, position)
        key, position = scanstring(text, position + 1, True)
        position = _skip(text, position)
        if text[position : position + 1] != ":":
            raise JSONDecodeError("expected ':'", text, position)
        value, position = decode(text, _skip(text, position + 1))
        entries.append(JsonEntry(key, value, start, position))
        position = _skip(text, position)
    if (end := _skip(text, position + 1)) != len(text):
        raise JSONDecodeError("unexpected text after the object", text, end)
    return entries


def add(text: str, key: str, value: Any) -> str:
    """`text` with one more entry at the end of the outermost object, indented as its neighbours."""
    return _added(text, parse(text), {key: value})


def replace(text: str, key: str, value: Any) -> str:
    """Return `text` with another value of the entry `key`, which it has once."""
    return put(text, {key: value})


def put(text: str, values: Mapping[str, Any]) -> str:
    """Return `text` with these entries: each in the place of the one of its key, of which there is one at most, or at
    the end. The text is read twice, however many entries there are."""
    pieces: list[str] = []
    position = 0
    missing = dict(values)
    for entry in parse(text):
        if entry.key in values:
            missing.pop(entry.key, None)
            shown = _render(entry.key, values[entry.key], _indent(text, entry.start)).lstrip()
            pieces += (text[position : entry.start], shown)
            position = entry.end
    replaced = "".join((*pieces, text[position:]))
    return _added(replaced, parse(replaced), missing) if missing else replaced


def _added(text: str, entries: list[JsonEntry], values: Mapping[str, Any]) -> str:
    """`text`, which has these entries, with further ones at the end."""
    if not entries:
        return "{\n" + ",\n".join(_render(key, value, "  ") for key, value in values.items()) + "\n}\n"
    last = entries[-1]
    indent = _indent(text, last.start)
    between = ",\n" if indent is not None else ", "
    further = "".join(between + _render(key, value, indent) for key, value in values.items())
    return text[: last.end] + further + text[last.end :]


def remove(text: str, key: str) -> str:
    """`text` without the entry (or the entries, if it occurs twice) `key`."""
    while True:
        entries = parse(text)
        index = next((i for i, entry in enumerate(entries) if entry.key == key), None)
        if index is None:
            return text
        if index > 0:
            text = text[: entries[index - 1].end] + text[entries[index].end :]
        elif len(entries) > 1:
            text = text[: entries[0].start] + text[entries[1].start :]
        else:
            text = "{}\n"


def _skip(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    assert found is not None
    return found.end()


def _indent(text: str, start: int) -> str | None:
    """The white space before an entry that begins a line; None if it shares the line with others."""
    begin = text.rfind("\n", 0, start) + 1
    line = text[begin:start]
    return line if begin and not line.strip() else None


def _render(key: str, value: Any, indent: str | None) -> str:
    line = f"{indent or ''}{json.dumps(key, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}"
    if indent is None or len(line) <= _LINE_WIDTH:
        return line
    block = json.dumps(value, ensure_ascii=False, indent=2).replace("\n", "\n" + indent)
    return f"{indent}{json.dumps(key, ensure_ascii=False)}: {block}"
