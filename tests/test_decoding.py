"""Bad JSON is a ValueError, however bad it is."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from enmasse.storage.decoding import MAX_NESTING, decode, decode_any


class Report(msgspec.Struct):
    """A body with a known and, in what peers send, unknown fields."""

    name: str


def nested(depth: int) -> str:
    """Arrays in each other."""
    return "[" * depth + "]" * depth


@pytest.mark.parametrize("depth", [1_000, 5_000, 1_000_000])
@pytest.mark.parametrize("kind", [Report, dict[str, Any], list[int]])
def test_text_that_is_nested_too_deeply_is_a_value_error(depth: int, kind: Any) -> None:
    objects = '{"a":' * depth + "1" + "}" * depth
    for text in (nested(depth), '{"name": "a", "more": ' + nested(depth) + "}", objects):
        with pytest.raises(ValueError):
            decode(text.encode(), kind)
        with pytest.raises(ValueError, match="nested too deeply"):
            decode_any(text)


def test_a_value_of_any_type_is_nested_only_so_deep_that_it_can_be_shown_and_compared() -> None:
    value = decode_any(nested(MAX_NESTING))
    assert value == decode_any(nested(MAX_NESTING).encode())
    with pytest.raises(ValueError, match="it is nested too deeply"):
        decode_any(nested(MAX_NESTING + 1))
    with pytest.raises(ValueError, match="it is nested too deeply"):
        decode_any('{"a":' * 70 + "1" + "}" * 70)


def test_text_that_is_too_large_is_not_read() -> None:
    with pytest.raises(ValueError, match="it is larger than 10 bytes"):
        decode(b'{"name": "a"}', Report, most=10)
    with pytest.raises(ValueError, match="it is larger than 10 bytes"):
        decode_any(b'{"name": "a"}', most=10)
    assert decode(b'{"name": "a"}', Report).name == "a"


@pytest.mark.parametrize("text", ["", "{", "nul", "[1,]", '{"name": 1}'])
def test_text_that_is_not_what_is_expected_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        decode(text, Report)
