"""Sentences for bodies and parameters that have the wrong form."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest

from enmasse.storage.decoding import decode
from services.console.errors import in_words


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    a: int | None
    b: list[Literal["x", "y"]] = []
    c: Annotated[str, msgspec.Meta(max_length=3)] = ""
    d: Annotated[int, msgspec.Meta(ge=1)] = 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"a": "s"}', "`a` of the body must be a whole number or `null`, not text"),
        ('{"a": 1, "b": ["q"]}', "`b[0]` of the body has the value 'q', which it may not have"),
        ('{"a": 1, "c": "four"}', "`c` of the body must be text of at most 3 characters"),
        ('{"a": 1, "d": 0}', "`d` of the body must be a whole number of at least 1"),
        ('{"a": 1, "z": 2}', "the body has the unknown field `z`"),
        ("{}", "the body lacks the field `a`"),
        ("[]", "the body must be an object, not a list"),
        ("{", "the body is no JSON that can be used: Input data was truncated"),
        ("[" * 100_000, "the body must be an object, not a list"),
    ],
)
def test_what_is_wrong_with_a_body_is_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(msgspec.DecodeError) as found:
        decode(text, _Body)
    assert in_words("the body", found.value) == sentence


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        ("ten", int, "parameter 'limit' must be a whole number, not text"),
        ("9", Annotated[int, msgspec.Meta(le=5)], "parameter 'limit' must be a whole number of at most 5"),
        ("yes", bool, "parameter 'limit' must be `true` or `false`, not text"),
        ("own", Literal["send"], "parameter 'limit' has the value 'own', which it may not have"),
    ],
)
def test_what_is_wrong_with_a_parameter_is_a_sentence(text: str, kind: Any, sentence: str) -> None:
    with pytest.raises(msgspec.ValidationError) as found:
        msgspec.convert(text, kind, strict=False)
    assert in_words("parameter 'limit'", found.value) == sentence
