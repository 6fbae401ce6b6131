"""Known routes: what it costs to forget some, and that none is used that does not hold any longer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.broker.core.broker import Broker
from services.broker.core.routing import route_table
from services.broker.core.routing.routes import Route
from tests.broker.sansio import Core
from tests.test_name_tries import calls

COUNT = 5000


def topics(count: int) -> tuple[Broker, list[Route]]:
    """Return a broker, and its routes to so many names."""
    broker = Core().broker
    broker.catalogue.create_address("t", frozenset({"MULTICAST"}))
    found = [broker.catalogue.route(f"t/site{number % 50}/{number}/temp", None) for number in range(count)]
    return broker, [route for route in found if route is not None]


def subscribe(broker: Broker, pattern: str, name: str = "s") -> None:
    broker.catalogue.create_queue(pattern, name, "MULTICAST", durable=False, temporary=True)


@pytest.mark.parametrize("pattern", ["t/+/+/miss", "t/+/+/+/miss", "t/+/#", "t/#"])
def test_a_wide_pattern_costs_little_however_many_routes_are_known(pattern: str) -> None:
    broker, routes = topics(COUNT)
    assert calls(lambda: subscribe(broker, pattern)) < 2 * COUNT
    assert all(route.stale for route in routes), "they may have changed"
    topics_of = {f"t/site{number % 50}/{number}/temp" for number in range(COUNT)}
    again = [broker.catalogue.route(name, None) for name in topics_of]
    assert calls(lambda: broker.catalogue.destroy_queue("s")) < 2 * COUNT
    assert all(route is not None and route.stale for route in again)


def test_a_subscription_costs_little_however_many_others_there_are() -> None:
    broker = Core().broker
    broker.catalogue.create_address("t", frozenset({"MULTICAST"}))
    for number in range(COUNT):
        subscribe(broker, f"t/site{number % 50}/{number}/orders", f"s{number}")
    subscribe(broker, "t/+/+/miss")
    assert calls(lambda: broker.catalogue.destroy_queue("s")) < 2 * COUNT


def test_a_narrow_pattern_leaves_other_routes_alone() -> None:
    broker, routes = topics(COUNT)
    subscribe(broker, "t/site7/+/temp")
    assert [route for route in routes if route.stale] == [r for r in routes if r.name.startswith("t/site7/")]


def test_dropped_routes_and_their_names_are_freed_bit_by_bit() -> None:
    broker, _ = topics(COUNT)
    table = broker.catalogue._table
    for turn in range(5):
        subscribe(broker, "t/#", f"s{turn}")
        assert len(table._dropped) <= COUNT
        for number in range(COUNT // 2):
            broker.catalogue.route(f"t/turn{turn}/{number}", None)
        assert not table._dropped
        assert sorted(table._known.covered("#")) == sorted(name for name, _ in table._routes)


NAMES = [f"t/{a}/{b}" for a in "abc" for b in "xyz"]
PATTERNS = ["t/#", "t/a/x", "t/+/x", "t/a/+", "t/b/#", "t/+/y", "t/c/z"]


@given(st.lists(st.one_of(st.sampled_from(PATTERNS), st.sampled_from(NAMES)), max_size=40))
def test_a_route_that_is_not_stale_holds(steps: list[str]) -> None:
    """With room for five routes, a name is published to, or a pattern subscribed to or no longer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(route_table, "_MAX_ROUTES", 5)
        patch.setattr(route_table, "_LOOKED", 8)
        broker, _ = topics(0)
        routes: dict[str, Route] = {}
        for step in steps:
            if step in broker.catalogue.queues:
                broker.catalogue.destroy_queue(step)
            elif step in PATTERNS:
                subscribe(broker, step, step)
            elif (found := broker.catalogue.route(step, None)) is not None:
                routes[step] = found
            for name, route in routes.items():
                if not route.stale:
                    fresh = broker.catalogue._table._make(name, None, frozenset())
                    assert fresh is not None and set(route.targets) == set(fresh.targets)
