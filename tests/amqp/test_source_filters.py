"""Filters of a source are recognised by code, by symbol, and by the key that clients without descriptors use."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.amqp.codec.performatives import Source
from enmasse.amqp.codec.types import Described, Symbol, ULong
from enmasse.amqp.messages.source_filters import NO_LOCAL, SELECTOR, TYPES, FilterType, source_filters

CODE = 0x0000468C00000004


@pytest.mark.parametrize(
    ("key", "value", "type"),
    [
        ("any", Described(CODE, "a = 1"), SELECTOR),
        ("any", Described(ULong(CODE), "a = 1"), SELECTOR),
        ("any", Described(Symbol("apache.org:selector-filter:string"), "a = 1"), SELECTOR),
        ("jms-selector", "a = 1", SELECTOR),
        ("jms-selector", Described(Symbol("example:other"), "a = 1"), SELECTOR),
        ("apache.org:selector-filter:string", "a = 1", SELECTOR),
        ("no-local", Described(CODE, "a = 1"), SELECTOR),
        ("any", Described(0x0000468C00000003, []), NO_LOCAL),
        ("jms-selector", Described(0x0000468C00000003, []), NO_LOCAL),
        ("no-local", Described(Symbol("apache.org:no-local-filter:list"), []), NO_LOCAL),
        ("no-local", [], NO_LOCAL),
        ("any", Described(Symbol("example:other"), "a = 1"), None),
        ("any", Described([CODE], "a = 1"), None),
        ("any", "a = 1", None),
    ],
)
def test_a_filter_is_recognised(key: str, value: Any, type: FilterType | None) -> None:
    found = list(source_filters(Source(filter={Symbol(key): value})))
    assert [each.type for each in found] == ([] if type is None else [type])
    for each in found:
        assert (each.key, each.value) == (Symbol(key), value)
        assert each.content == (value.value if isinstance(value, Described) else value)


def test_what_our_clients_state_is_recognised() -> None:
    for number, type in enumerate(TYPES):
        (entry,) = type.entry(f"text {number}").items()
        assert entry == (Symbol(type.key), Described(ULong(type.code), f"text {number}"))
    source = Source(filter={**SELECTOR.entry("a = 1"), **NO_LOCAL.entry([])})
    assert [(each.type, each.content) for each in source_filters(source)] == [(SELECTOR, "a = 1"), (NO_LOCAL, [])]


def test_a_source_may_have_no_filters() -> None:
    assert list(source_filters(None)) == list(source_filters(Source())) == list(source_filters(Source(filter={}))) == []
