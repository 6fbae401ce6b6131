"""What sources and targets ask for, and the client that is to be the only one of its container-id."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.amqp import termini
from enmasse.amqp.codec.performatives import Coordinator, Source, Target
from enmasse.amqp.codec.types import Described, Symbol

SELECTOR_CODE = 0x0000468C00000004


def test_capabilities_are_read_in_small_letters_and_a_coordinator_has_none() -> None:
    assert termini.capabilities(Target(capabilities=(Symbol("Queue"), Symbol("SHARED")))) == {"queue", "shared"}
    assert termini.capabilities(Source()) == termini.capabilities(Coordinator()) == termini.capabilities(None) == set()


@pytest.mark.parametrize(
    ("key", "value", "selector", "no_local"),
    [
        ("any", Described(SELECTOR_CODE, "a = 1"), True, False),
        ("any", Described(Symbol("apache.org:selector-filter:string"), "a = 1"), True, False),
        ("jms-selector", "a = 1", True, False),
        ("apache.org:selector-filter:string", "a = 1", True, False),
        ("any", Described(0x0000468C00000003, []), False, True),
        ("jms-selector", Described(0x0000468C00000003, []), False, True),
        ("no-local", Described(Symbol("apache.org:no-local-filter:list"), []), False, True),
        ("no-local", [], False, True),
        ("any", Described(Symbol("example:other"), "a = 1"), False, False),
    ],
)
def test_filters_are_recognised_by_code_by_symbol_and_by_the_key_clients_use(
    key: str, value: Any, selector: bool, no_local: bool
) -> None:
    assert (termini.is_selector(Symbol(key), value), termini.is_no_local(Symbol(key), value)) == (selector, no_local)


def test_what_only_a_topic_has() -> None:
    assert termini.subscription_kind(Source()) == ""
    assert termini.subscription_kind(Source(durable=2)) == "durable"
    assert termini.subscription_kind(Source(expiry_policy=Symbol("never"))) == "durable"
    assert termini.subscription_kind(Source(capabilities=(Symbol("shared"),))) == "shared"
