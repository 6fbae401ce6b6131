"""Texts without names of hidden addresses: what is quoted in them, found as by the grammar, in bounded work."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.console.following import redaction
from services.console.following.redaction import quoted

QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
"""The grammar, as a search that begins again at each quote."""


@given(st.text("'\"\\a\n", max_size=40))
def test_what_is_quoted(text: str) -> None:
    assert list(quoted(text)) == [found.span() for found in QUOTED.finditer(text)]


class Counting:
    """A pattern that counts the characters behind the places from which it is matched."""

    def __init__(self, pattern: re.Pattern[str], work: list[int]) -> None:
        self.pattern = pattern
        self.work = work

    def match(self, text: str, at: int) -> re.Match[str] | None:
        found = self.pattern.match(text, at)
        self.work.append(len(text) - at if found is None else len(found[0]))
        return found


def test_quotes_that_never_end_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    work: list[int] = []
    monkeypatch.setattr(
        redaction, "_QUOTED", {quote: Counting(pattern, work) for quote, pattern in redaction._QUOTED.items()}
    )
    for text in ("\\'" * 9000, "'" + "\\'\\\"" * 9000, "'a'" * 9000 + '"' + "\\\"'b'" * 9000):
        work.clear()
        list(quoted(text))
        assert sum(work) <= 4 * len(text)
