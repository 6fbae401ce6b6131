"""Patterns of text, as of lists, commands and webhooks: `*` stands for any text, `?` for one character."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_LONGEST: Final = 64
"""Characters between two `*` if a `?` is among them: these are compared at each place of a text, while what has none is
found in one pass."""


def text_filter(pattern: str) -> Callable[[str], bool]:
    """Return whether a text matches. Raises ValueError if that would take long."""
    first, *rest = re.split(r"\*+", pattern)
    if any("?" in part and len(part) > _LONGEST for part in (first, *rest)):
        text = f"between two * there may be {_LONGEST} characters if a ? is among them; shorten the filter"
        raise ValueError(text)
    if not rest:
        return _whole(first)
    *middle, last = rest
    begins, finds, ends = _whole(first), [_finder(part) for part in middle], _whole(last)

    def matches(text: str) -> bool:
        at, stop = len(first), len(text) - len(last)
        if at > stop or not begins(text[:at]) or not ends(text[stop:]):
            return False
        for find in finds:
            at = find(text, at, stop)
            if at < 0:
                return False
        return True

    return matches


def _whole(part: str) -> Callable[[str], bool]:
    if "?" not in part:
        return part.__eq__
    compiled = _compiled(part)
    return lambda text: compiled.fullmatch(text) is not None


def _finder(part: str) -> Callable[[str, int, int], int]:
    """Return a function that finds a part in a text between two places, and returns where it ends; -1: nowhere."""
    if "?" not in part:

        def find(text: str, at: int, stop: int) -> int:
            found = text.find(part, at, stop)
            return found if found < 0 else found + len(part)

        return find
    compiled = _compiled(part)

    def search(text: str, at: int, stop: int) -> int:
        found = compiled.search(text, at, stop)
        return -1 if found is None else found.end()

    return search


def _compiled(part: str) -> re.Pattern[str]:
    return re.compile("".join("." if each == "?" else re.escape(each) for each in part), re.DOTALL)
