"""The option `schema` in Spark's DDL, as far as its types can be named wrongly. Spark parses it with all columns of the
source, and blames these for any fault in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from enmasse.text import did_you_mean

TYPES: Final = (
    "array", "bigint", "binary", "boolean", "byte", "char", "character", "date", "dec", "decimal", "double", "float",
    "geography", "geometry", "int", "integer", "interval", "long", "map", "numeric", "real", "short", "smallint",
    "string", "struct", "time", "timestamp", "timestamp_ltz", "timestamp_ntz", "tinyint", "varchar", "variant", "void",
)  # fmt: skip
"""Words that a type may begin with, also those that no JSON value becomes: there is a text of its own for these."""
MOST_LEVELS: Final = 50

_TOKEN = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|`[^`]*`|.", re.DOTALL)
_FIELD = re.compile(r"(`(?:[^`]|``)+`|[^\s:`]+)\s*:?\s*(.*)", re.DOTALL)
_PARAMETERS = re.compile(r"^\([^()]*\)\s*")
_AFTER_TYPE = re.compile(
    r"(?:with(?:out)?(?:\s+local)?\s+time\s+zone\b\s*)?(?:collate\s+\w+\b\s*)?(?:not\s+null\b\s*)?"
    r"(?:(?:comment|default)\s+(?:'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|\S+)\s*)*",
    re.IGNORECASE | re.DOTALL,
)
_OPEN, _CLOSE = "<(", ">)"


def fault(schema: str, level: int = 0) -> str | None:
    """Return what is wrong with the columns of a schema; None: nothing that is known here."""
    text = schema.strip()
    if level == 0 and (text[:1] in ("{", "[") or re.match(r"struct\s*<", text, re.IGNORECASE)):
        return f"write the fields alone, as in CREATE TABLE: device string, temperature double; not {text[:100]!r}"
    names: set[str] = set()
    for part in _parts(schema):
        found = _FIELD.fullmatch(part.strip())
        if found is None or not found[2]:
            return f"{part.strip()[:100]!r} is no column: write NAME TYPE, …"
        if (wrong := _fault_of_type(found[2], level)) is not None:
            return wrong
        if found[1].strip("`") in names:
            return f"the field {found[1]} is there twice"
        names.add(found[1].strip("`"))
    return None


def _fault_of_type(text: str, level: int) -> str | None:
    found = re.match(r"\w*", text)
    assert found is not None
    word, rest = found[0], text[found.end() :].strip()
    base = word.lower()
    if base not in TYPES:
        return f"{word or text[:100]!r} is no type.{did_you_mean(base, TYPES)}"
    if base not in ("array", "map", "struct"):
        good = base == "interval" or _AFTER_TYPE.fullmatch(_PARAMETERS.sub("", rest, 1))
        return None if good else f"after {word} comes {rest[:100]!r}: write a comma between two fields"
    inner, after = _within(rest)
    if inner is None or level == MOST_LEVELS:
        return f"write {word}<…>, not {text[:100]!r}"
    if not _AFTER_TYPE.fullmatch(after):
        return f"after {word}<…> comes {after[:100]!r}: write a comma between two fields"
    if base == "struct":
        return fault(inner, level + 1) if inner.strip() else None
    return next((wrong for part in _parts(inner) if (wrong := _fault_of_type(part.strip(), level + 1))), None)


def _within(text: str) -> tuple[str | None, str]:
    """Return what is between `<` and its `>`, None without them, and what comes after."""
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += (token[0] in _OPEN) - (token[0] in _CLOSE)
        if depth == 0:
            return (text[1 : token.start()], text[token.end() :].strip()) if token[0] == ">" else (None, "")
    return None, ""


def _parts(text: str) -> Iterator[str]:
    """Yield what commas divide, but for those within brackets and quotes."""
    depth = begin = 0
    for token in _TOKEN.finditer(text):
        depth += (token[0] in _OPEN) - (token[0] in _CLOSE)
        if token[0] == "," and depth == 0:
            yield text[begin : token.start()]
            begin = token.end()
    yield text[begin:]
