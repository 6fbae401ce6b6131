"""Words of messages for people."""

from __future__ import annotations

from collections.abc import Iterable


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number and its noun: `1 queue`, `2 queues`. The plural ends in s unless one is given."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def whole_number(text: str, most: int = 18, *, signed: bool = False) -> int | None:
    """Return the number of up to `most` ASCII digits that a text is (`signed`: a `-` may be in front); None for
    other texts. `int` alone refuses some of what `str.isdigit` takes (`²`), and long ones."""
    digits = text.removeprefix("-") if signed else text
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= most else None


def endpoint(host: str, port: int | str) -> str:
    """Return host:port as in URLs, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


MOST_COMPARED = 1000
"""Names of addresses that a service compares with one that there is not: a thousand take up to 20 ms."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a sentence with the known word that is most like `word`, after a space; empty if none is like it."""
    from difflib import get_close_matches  # 5 ms, at errors only

    found = get_close_matches(word, known, 1)
    return f" Did you mean {found[0]!r}?" if found else ""


def named_as(word: str, known: Iterable[str]) -> str:
    """Return the name among those known that a word states with `-` for `_`, or the other way round; else the word."""
    plain = word.replace("-", "_")
    return next((name for name in known if name.replace("-", "_") == plain), word)


def offset_option(offset: int) -> str:
    """Return the option that addresses an `enmasse` command to the suite with this port offset; empty for 0."""
    return f" --port-offset {offset}" if offset else ""


def printable(text: str) -> str:
    """Return a name with escapes (`\\x1b`) for characters that would move the cursor or break the line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
