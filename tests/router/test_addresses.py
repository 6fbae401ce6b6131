from __future__ import annotations

import pytest

from services.router.routing.address_text import canonical, parse, strip


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
