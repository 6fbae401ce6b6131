"""Filters of a user are bounded by the places of their wildcards, and so is what they cost for names of others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from enmasse.identity.filter_limits import INNER, MOST, FilterLimits, account, places
from enmasse.name_tries import PatternTrie
from tests.test_name_tries import calls


@pytest.mark.parametrize(
    ("filter", "where"),
    [
        ("a/b", ""),
        ("a/b/#", ""),
        ("a/b/+", ""),
        ("#", ""),
        ("+", ""),
        ("a/b+c/d", ""),
        ("+/b", "+/"),
        ("a/+/c", "/+/"),
        ("x/+/y", "/+/"),
        ("a/+/+/#", "/+/+/#"),
        ("$share/g/a/+/c", "///+/"),
        ("a/#/b", "a/#/b"),
    ],
)
def test_where_a_filter_has_its_wildcards(filter: str, where: str) -> None:
    assert places(filter) == where


def test_filters_with_their_wildcards_at_the_same_places_count_once() -> None:
    limits = FilterLimits()
    room = limits.room("~eve/one")
    filters = [f"devices/+/{number}" for number in range(5000)] + [f"devices/{number}/#" for number in range(5000)]
    assert not any(room.refusal(each) for each in filters)
    limits.add("~eve/one", filters)
    deep = "+/" * (MOST - 3 - 1) + "a"
    assert f"{MOST + 1} levels" in limits.room("~eve/two").refusal("+/" + deep), "all clients of a user count together"
    assert not limits.room("~eve/two").refusal(deep)
    assert not limits.room("~bob/one").refusal("+/" + deep)
    limits.remove("~eve/one", filters[:4999])
    assert limits.room("~eve/one").refusal("+/" + deep)
    limits.remove("~eve/one", filters[4999:])
    assert not limits.room("~eve/one").refusal("+/" + deep)


def test_what_was_there_before_is_counted_and_kept() -> None:
    limits = FilterLimits()
    limits.add("~eve/one", ["+/" * MOST + "a"])
    assert not limits.room("~eve/one").refusal("a/b/#")
    assert limits.room("~eve/one").refusal("+/b")


def test_an_inner_rest_counts_by_itself() -> None:
    room, limits = FilterLimits().room("~eve/one"), MOST // (2 * INNER)
    assert not any(room.refusal(f"#/{number}") for number in range(limits))
    assert room.refusal("#/more")


def test_clients_without_a_user_count_each_by_itself() -> None:
    assert account("~eve/one") == account("~eve/two") != account("~bob/one")
    assert len({account("one"), account("two"), account("~eve/one"), account("user eve"), account("~/~eve/")}) == 5


def hostile() -> Iterator[str]:
    """Filters that cover nothing, and that a name follows level by level to their last."""
    for levels in itertools.product(("a", "+"), repeat=14):
        yield "/".join([*levels, "miss"])


@pytest.mark.parametrize("name", ["/".join("a" * 15), "/".join("a" * 14) + "/new"])
def test_the_worst_filters_that_are_allowed_cost_a_name_little(name: str) -> None:
    room, tree = FilterLimits().room("~eve/one"), PatternTrie[str]()
    for each in hostile():
        if not room.refusal(each):
            tree.add(each, each)
    assert len(tree) > 100 and tree.match(name) == []
    assert calls(lambda: tree.match(name)) < 4 * MOST
