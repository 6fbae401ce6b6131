"""Prepared placements: bound when every binder has reported the very preparation."""

from __future__ import annotations

import pytest

from enmasse.model.feeds import BoundReport, Placement
from enmasse.model.names import AddressName
from services.configserv.bound_placements import BoundPlacements

T, U = AddressName("t"), AddressName("u")


def prepared(epoch: int, broker: str = "b") -> list[Placement]:
    return [Placement(broker="a"), Placement(broker=broker, state="prepared", type="topic", epoch=epoch)]


def test_all_binders_have_to_report() -> None:
    found = BoundPlacements(["one", "two"])
    assert not found.placed({T: prepared(1)}, [T])
    assert not found.report("one", BoundReport(addresses={T: {"b": 1}}), full=True)
    assert found.bound == {}
    assert found.report("two", BoundReport(addresses={T: {"b": 1}}), full=True) == {T}
    assert found.bound == {T: {"b": 1}}
    assert found.placed({T: prepared(2)}, [T]) == {T}
    assert found.bound == {}, "another preparation"
    assert not found.report("two", BoundReport(addresses={T: {"b": 2}}), full=False)
    assert found.report("one", BoundReport(addresses={T: {"b": 2}}), full=False) == {T}
    assert found.placed({T: [Placement(broker="b")]}, [T]) == {T}
    assert found.bound == {}, "it is active by now"


@pytest.mark.parametrize("first", ["report", "placement"])
def test_the_order_of_report_and_placement_does_not_matter(first: str) -> None:
    """configserv may have restarted, and gets them anew."""
    found = BoundPlacements(["one"])
    if first == "placement":
        found.placed({T: prepared(5)}, [T])
    found.report("one", BoundReport(addresses={T: {"b": 5}, U: {"b": 6}}), full=True)
    if first == "report":
        found.placed({T: prepared(5)}, [T])
    assert found.bound == {T: {"b": 5}}


def test_a_report_replaces_or_changes_the_one_before() -> None:
    found = BoundPlacements(["one"])
    found.placed({T: prepared(1), U: prepared(2)}, [T, U])
    found.report("one", BoundReport(addresses={T: {"b": 1}}), full=True)
    assert found.report("one", BoundReport(addresses={U: {"b": 2}}, removed=[T]), full=False) == {T, U}
    assert found.bound == {U: {"b": 2}}
    assert found.report("one", BoundReport(), full=True) == {U}
    assert found.bound == {}


def test_without_binders_nothing_is_waited_for() -> None:
    found = BoundPlacements([])
    assert found.placed({T: prepared(3)}, [T]) == {T}
    assert found.bound == {T: {"b": 3}}
