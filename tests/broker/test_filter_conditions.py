"""Each filter that is recognised has an effect at the broker, and the answer states those that have one."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.amqp.codec.performatives import Source
from enmasse.amqp.codec.types import Described, Symbol, ULong
from enmasse.amqp.messages.source_filters import NO_LOCAL, SELECTOR, TYPES, FilterType
from services.broker.core.messages.condition import Condition
from services.broker.filter_conditions import SELECTORS, Filters, stated, together
from services.broker.selector import compile_selector

CONTENTS = {SELECTOR: "a = 1", NO_LOCAL: []}


@pytest.mark.parametrize("type", TYPES, ids=lambda type: type.key)
def test_a_known_filter_is_a_condition_and_is_answered(type: FilterType) -> None:
    entry = type.entry(CONTENTS[type])
    filters = Filters(Source(filter={**entry, Symbol("other"): Described(Symbol("example:other"), 1)}))
    assert not filters.condition("client").open
    assert (filters.selector is not None) == type.reads_messages == (type in SELECTORS)
    assert filters.echo == entry
    assert filters.echo_on_queue == (entry if type.on_queues else {})


def test_the_descriptor_counts_not_the_key() -> None:
    entry: dict[str, Any] = {Symbol("no-local"): Described(ULong(SELECTOR.code), "a = 1")}
    filters = Filters(Source(filter=entry))
    assert filters.condition("client").parts == ("a = 1", None)
    assert filters.echo_on_queue == entry


@pytest.mark.parametrize("condition", [Condition(), Condition.of("a = 1"), Condition(no_local="client")])
def test_a_stored_condition_is_the_same(condition: Condition) -> None:
    assert Condition.stored(condition.definition()).parts == condition.parts


def test_several_filters_hold_together() -> None:
    both = together([compile_selector("a = 1 -- one"), compile_selector("b = 2 OR b = 3")])
    assert both is not None
    assert [both.matches({"a": a, "b": b}.get) for a, b in ((1, 2), (1, 3), (1, 4), (2, 2))] == [
        True,
        True,
        False,
        False,
    ]
    assert together([]) is None


def test_a_recovered_subscription_states_its_selector() -> None:
    assert stated(Condition()) == {}
    assert stated(Condition.of("a = 1")) == {Symbol("jms-selector"): "a = 1"}
