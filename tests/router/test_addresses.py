from __future__ import annotations

import random
import sys
from typing import Any

import pytest

from services.router.routing.names import canonical, parse, strip
from services.router.routing.patterns import AddressPatterns


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("queue", "M0queue"),
        ("/queue", "M0queue"),
        ("queue/", "M0queue"),
        ("queue.", "M0queue"),
        ("amqp:queue", "M0queue"),
        ("amqp:/queue", "M0queue"),
        ("amqp://host:5672/queue", "M0queue"),
        ("a/b.c", "M0a/b.c"),
        ("topic::sub", "M0topic::sub"),
        ("_local/x", "Lx"),
        ("_topo/0/r1/temp.x", "Ltemp.x"),
        ("amqp:/_topo/0/r1/$management", "L$management"),
        ("_topo/0/r2/temp.x", "Rr2"),
        ("_topo/all/x", "Tx"),
        ("_topo/1/r1/x", "A1"),
        ("_edge/e1/x", "He1"),
        ("_x", "M0_x"),
        ("$management", "M0$management"),
        ("", "M0"),
        ("amqp://host", "M0"),
    ],
)
def test_hash_keys(text: str, key: str) -> None:
    assert parse(text, "r1").key() == key


def test_phase_is_part_of_mobile_keys_only() -> None:
    assert parse("q", "r1").key("1") == "M1q"
    assert parse("_local/q", "r1").key("1") == "Lq"


def test_strip_takes_one_separator_at_each_end() -> None:
    assert strip("//a//") == "/a/"


@pytest.mark.parametrize(
    ("pattern", "one"),
    [("a.b", "a/b"), ("/a/b/", "a/b"), ("a.#.#", "a/#"), ("a/#/*", "a/*/#"), ("#.*.#", "*/#"), ("a", "a")],
)
def test_canonical(pattern: str, one: str) -> None:
    assert canonical(pattern) == one


def test_a_pattern_needs_words() -> None:
    with pytest.raises(ValueError, match="no tokens"):
        canonical("/")


def tree(*patterns: str) -> AddressPatterns[str]:
    found: AddressPatterns[str] = AddressPatterns()
    for pattern in patterns:
        found.add(canonical(pattern), pattern)
    return found


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
    assert tree(*patterns).match(address) == best


def _matches(pattern: list[str], address: list[str]) -> bool:
    if not pattern:
        return not address
    if pattern[0] == "#":
        return any(_matches(pattern[1:], address[i:]) for i in range(len(address) + 1))
    return bool(address) and pattern[0] in ("*", address[0]) and _matches(pattern[1:], address[1:])


def _rank(pattern: str, address: list[str]) -> tuple[int, ...]:
    """Literal before `*` before `#`, word by word: the smaller tuple wins."""
    return tuple(0 if word not in "*#" else 1 if word == "*" else 2 for word in pattern.split("/"))


def test_random_trees_agree_with_a_plain_matcher() -> None:
    chance = random.Random(1)
    for _ in range(300):
        patterns = {canonical("/".join(chance.choice("ab*#") for _ in range(chance.randint(1, 4)))) for _ in range(6)}
        found: AddressPatterns[str] = AddressPatterns()
        for pattern in patterns:
            found.add(pattern, pattern)
        gone = {pattern for pattern in patterns if chance.random() < 0.3}
        for pattern in gone:
            found.remove(pattern)
        kept = patterns - gone
        assert len(found) == len(kept)
        for _ in range(20):
            address = [chance.choice("abc") for _ in range(chance.randint(1, 4))]
            best = found.match("/".join(address))
            candidates = [p for p in kept if _matches(p.split("/"), address)]
            if candidates:
                assert best in candidates
                assert best is not None
                assert best.split("/")[0] == min(candidates, key=lambda p: _rank(p, address)[:1]).split("/")[0]
            else:
                assert best is None


def test_a_pattern_is_stored_once_and_can_be_removed() -> None:
    found = tree("a/#")
    with pytest.raises(KeyError):
        found.add("a/#", "again")
    found.remove("a/#")
    assert found.match("a/b") is None
    assert len(found) == 0
    with pytest.raises(KeyError):
        found.remove("a/#")


def test_a_long_hostile_address_is_not_tried_for_ever() -> None:
    """Each node of the tree meets each of its words a few times; counted, for how long that takes is the machine's."""
    calls = 0

    def count(_: Any, event: str, __: Any) -> None:
        nonlocal calls
        calls += event == "call"

    found = tree("#/a/#/b/#/c/#/d", "*/#/a/*/#/b", "#/a/#/a/#/a/#/x")
    words = ["a", "b", "c"] * 3000
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        matches = [found.match("/".join(words)), found.match("/".join([*words, "d"]))]
    finally:
        sys.setprofile(before)
    assert matches == [None, "#/a/#/b/#/c/#/d"]
    assert calls < 200_000, calls
