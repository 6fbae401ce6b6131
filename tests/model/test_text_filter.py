"""Filters of lists by text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.cli.output.lists import Column, WantedRows
from enmasse.http.webhooks import Webhook
from enmasse.text_filter import text_filter


def plainly(pattern: str, text: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(plainly(pattern[1:], text[at:]) for at in range(len(text) + 1))
    return bool(text) and pattern[0] in ("?", text[0]) and plainly(pattern[1:], text[1:])


@given(st.text("ab*?[\n", max_size=8), st.text("ab[\n*?", max_size=8))
def test_a_filter_takes_what_a_naive_one_takes(pattern: str, text: str) -> None:
    assert text_filter(pattern)(text) is plainly(pattern, text)


@pytest.mark.parametrize("pattern", ["?" * 65, "a*" + "b" * 64 + "?*c", "a*" + "?" * 65])
def test_what_would_take_long_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="64 characters"):
        text_filter(pattern)
    assert text_filter(pattern.replace("?", "b"))("") is False


def test_an_address_of_ipv6_is_no_class_of_characters() -> None:
    takes = text_filter("[::1]:*")
    assert takes("[::1]:5672") and not takes(":5672")


def test_lists_and_webhooks_take_a_bracket_as_itself(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"name": "a[1]"}, {"name": "a1"}]
    assert WantedRows(("a[1]",)).show("rows", rows, (Column("name", "name"),)) == rows[:1]
    hook = Webhook(url="https://host/", secret="", events=("client.[a-z]*",))
    assert not hook.wants("client.refused", "default") and hook.wants("client.[a-z]x", "default")
