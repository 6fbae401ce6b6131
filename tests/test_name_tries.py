"""Tries of patterns and of names agree with a naive matcher, and do bounded work for hostile input."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enmasse.name_tries import NameTrie, PatternTrie
from services.router.routing.address_text import canonical, tokens


def covers(pattern: list[str], name: list[str], single: str = "+") -> bool:
    if not pattern:
        return not name
    if pattern[0] == "#":
        return any(covers(pattern[1:], name[at:], single) for at in range(len(name) + 1))
    return bool(name) and pattern[0] in (single, name[0]) and covers(pattern[1:], name[1:], single)


def plainly(pattern: str, name: str, single: str, reserved: str | None) -> bool:
    if name[:1] == reserved and pattern.split("/")[0] in (single, "#"):
        return False
    return covers(pattern.split("/"), name.split("/"), single)


_patterns = st.lists(st.sampled_from(["a", "b", "", "+", "*", "#", "$x", "a+"]), min_size=1, max_size=5).map("/".join)
_names = st.lists(st.sampled_from(["a", "b", "", "+", "#", "$x", "a+"]), min_size=1, max_size=5).map("/".join)
_pairs = st.lists(st.tuples(_patterns, st.integers(0, 3)), max_size=12)


@settings(max_examples=300)
@given(_pairs, _pairs, st.lists(_names, max_size=6), st.sampled_from("+*"), st.sampled_from([None, "$"]))
def test_a_trie_finds_the_patterns_that_match_one_by_one(
    added: list[tuple[str, int]], removed: list[tuple[str, int]], names: list[str], single: str, reserved: str | None
) -> None:
    trie: PatternTrie[tuple[str, int]] = PatternTrie(single, reserved)
    model: dict[tuple[str, int], None] = {}
    for pattern, number in added:
        assert trie.add(pattern, (pattern, number)) == ((pattern, number) not in model)
        model[pattern, number] = None
    for pattern, number in removed:
        assert trie.remove(pattern, (pattern, number)) == ((pattern, number) in model)
        model.pop((pattern, number), None)
    assert len(trie) == len(model)
    for name in names:
        found = trie.match(name)
        assert sorted(found) == sorted(each for each in model if plainly(each[0], name, single, reserved))
    for pattern, number in model:
        assert trie.remove(pattern, (pattern, number))
    assert trie._root.empty() and not trie._exact, "patterns that went leave nothing"


_words = st.lists(st.sampled_from("ab*#"), min_size=1, max_size=4).map("/".join).map(canonical)


@settings(max_examples=300)
@given(
    st.sets(_words, max_size=6), st.sets(_words, max_size=3), st.lists(st.sampled_from("abc"), min_size=1, max_size=4)
)
def test_the_best_pattern_begins_better_than_the_others(kept: set[str], gone: set[str], name: list[str]) -> None:
    trie: PatternTrie[str] = PatternTrie("*")
    for pattern in kept | gone:
        trie.add(pattern, pattern)
    for pattern in gone:
        trie.remove(pattern, pattern)
    covering = [pattern for pattern in kept - gone if covers(pattern.split("/"), name, "*")]
    best = trie.best(name)
    if best is None:
        assert not covering
    else:
        assert best in covering
        first = [pattern.split("/")[0] for pattern in covering]
        assert best.split("/")[0] == min(first, key=lambda word: "*#".find(word))


@pytest.mark.parametrize(
    ("patterns", "address", "best"),
    [
        (["a"], "a", "a"),
        (["a"], "a/b", None),
        (["a/#"], "a", "a/#"),
        (["a/#"], "a.b/c", "a/#"),
        (["a/#"], "ab", None),
        (["topic/#"], "topic::sub", None),
        (["a/b"], "a.b", "a/b"),
        (["a/*", "a/#"], "a/x", "a/*"),
        (["a/*", "a/#"], "a", "a/#"),
        (["a/*", "a/#", "a/x"], "a/x", "a/x"),
        (["a/b/#", "a/*/c"], "a/b/c", "a/b/#"),
        (["*/c", "a/#"], "a/c", "a/#"),
        (["a/b/x", "a/*/c"], "a/b/c", "a/*/c"),
        (["#/c"], "a/b/c", "#/c"),
        (["#/c"], "c", "#/c"),
        (["a/#/c"], "a/c", "a/#/c"),
        (["a/#/c"], "a/b/d", None),
        (["#"], "anything/at.all", "#"),
        (["#", "a"], "b", "#"),
    ],
)
def test_the_best_pattern(patterns: list[str], address: str, best: str | None) -> None:
    assert _trie(patterns).best(tokens(address)) == best


def _trie(patterns: list[str]) -> PatternTrie[str]:
    trie: PatternTrie[str] = PatternTrie("*")
    for pattern in patterns:
        trie.add(canonical(pattern), pattern)
    return trie


def test_the_first_value_of_a_pattern_stays_its_first() -> None:
    trie = _trie(["a/#"])
    trie.add("a/#", "later")
    assert trie.first("a/#") == trie.best(["a", "b"]) == "a/#"
    assert trie.first("a") is trie.first("a/b/#") is None


def calls(search: Callable[[], Any]) -> int:
    """Return the calls of functions that a search makes: a measure that does not depend on the machine."""
    found = 0

    def count(_: Any, event: str, __: Any) -> None:
        nonlocal found
        found += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        search()
    finally:
        sys.setprofile(before)
    return found


def test_a_long_hostile_name_is_not_tried_for_ever() -> None:
    """The nodes meet each level a few times: calls are counted, time depends on the machine."""
    trie = _trie(["#/a/#/b/#/c/#/d", "*/#/a/*/#/b", "#/a/#/a/#/a/#/x"])
    levels = ["a", "b", "c"] * 3000
    assert trie.best(levels) is None and trie.best([*levels, "d"]) == "#/a/#/b/#/c/#/d"
    assert trie.match("/".join([*levels, "d"])) == ["#/a/#/b/#/c/#/d"]
    assert calls(lambda: trie.best(levels)) < 1_000_000
    assert calls(lambda: trie.match("/".join(levels))) < 1_000_000


def test_many_wildcards_do_not_take_forever() -> None:
    trie = _trie(["*/#/" * 40 + "x", "#/a/" * 40 + "x"])
    assert calls(lambda: trie.match("/".join("a" * 400))) < 1_000_000
    names = NameTrie()
    names.add("/".join("a" * 400))
    assert calls(lambda: names.covered("#/+/" * 40 + "x")) < 1_000_000


def test_a_trie_does_not_look_at_patterns_that_cannot_match() -> None:
    trie: PatternTrie[str] = PatternTrie()
    for number in range(10_000):
        trie.add(f"site/{number}/+", f"v{number}")
    assert trie.match("site/77/t") == ["v77"]
    assert calls(lambda: trie.match("site/77/t")) < 20


@settings(max_examples=300)
@given(st.sets(_names, max_size=8), st.sets(_names, max_size=4), _patterns)
def test_names_are_found_by_pattern(names: set[str], gone: set[str], pattern: str) -> None:
    trie = NameTrie()
    for name in sorted(names | gone):
        trie.add(name)
    for name in gone:
        trie.remove(name)
        trie.remove(name)
    trie.remove("never/there")
    wanted = pattern.split("/")
    assert sorted(trie.covered(pattern)) == sorted(n for n in names - gone if covers(wanted, n.split("/")))
    if "#" not in wanted[:-1]:
        end = len(wanted) - (wanted[-1] == "#")
        expected = [
            (name, min(name.count("/") + 1, end))
            for name in names - gone
            if covers(wanted[: name.count("/") + 1], name.split("/")) or covers(wanted, name.split("/"))
        ]
        assert sorted(trie.above(wanted)) == sorted(expected)
