"""Selectors: a table of JMS' rules and Artemis' extensions, and random conditions beside a second, slow evaluator."""

from __future__ import annotations

import math
import operator
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.broker.selector import MAX_LENGTH, MAX_NESTING, SelectorError, compile_selector, read_words
from tests.test_name_tries import calls

MESSAGE: dict[str, object] = {
    "i": 7,
    "n": -3,
    "big": 1 << 53,
    "f": 2.5,
    "s": "it's",
    "t": True,
    "u": False,
    "color": "red",
    "percent": "100%",
    "under": "a_b",
    "lines": "one\ntwo",
    "a.b": "dotted",
    "x-opt": "hyphen",
    "two words": 2,
    "JMSPriority": 4,
    "$d_1": 1,
    "größe": 3,
    "raw": b"bytes",
}

TRUE = [
    "",
    "  ",
    "i = 7",
    "i=7.0",
    "i <> 8",
    "i > 6 AND i >= 7 and i < 8 And i <= 7",
    "NOT i = 8",
    "not not t",
    "t",
    "t = TRUE",
    "u = false",
    "t <> u",
    "NOT u AND NOT i = 8 OR missing",
    "s = 'it''s'",
    "color IN ('blue', 'red')",
    "color NOT IN ('blue')",
    "color LIKE 'r%'",
    "color LIKE '_e_'",
    "color LIKE '%'",
    "color LIKE 'red'",
    "color NOT LIKE 're'",
    "lines LIKE 'one%two'",
    "percent LIKE '%!%' ESCAPE '!'",
    "under LIKE 'a\\_b' ESCAPE '\\'",
    "s LIKE 'it''%'",
    "i BETWEEN 7 AND 7",
    "i NOT BETWEEN 1 AND 6",
    "i BETWEEN n AND 3 * 3",
    "missing IS NULL",
    "i IS NOT NULL",
    "missing = 1 OR t",
    "missing IS NULL AND (i = 1 OR f = 2.5)",
    "i + 1 = 8 AND i - 1 = 6 AND i * 2 = 14",
    "i / 2 = 3",
    "-i / 2 = -3",
    "i / 2.0 = 3.5",
    "i % 4 = 3 AND -i % 4 = -3",
    "1 + 2 * 3 = 7",
    "(1 + 2) * 3 = 9",
    "10 - 2 - 3 = 5",
    "- - i = 7",
    "+i = 7",
    "-i = n - 4",
    "f = 2.5e0 AND f = 25E-1 AND f = .25e1 AND f = 2.5f AND f = 2.5d",
    "2. < f",
    "i = 0x7 AND i = 007 AND i = 7L AND 0XFF = 255",
    "-9223372036854775808 < n",
    "9223372036854775807 > n",
    "i / 0.0 > 1e300",
    "big = 9007199254740992",
    "a.b = 'dotted'",
    "$d_1 = 1",
    "größe = 3",
    '"two words" = 2',
    "hyphenated_props:x-opt = 'hyphen'",
    "hyphenated_props: x-opt LIKE 'h%' AND i - 1 = 6",
    "JMSPriority >= 4",
    "i = 7 -- a comment",
    "i /* a comment */ = 7",
    "raw IS NOT NULL",
    "(((t)))",
    "color = 'red' AND (i = 1 OR (f > 2 AND NOT (u)))",
]

NOT_TRUE = [
    "i = 8",
    "FALSE",
    "u",
    "NOT t",
    "missing",
    "NOT missing",
    "missing = 1",
    "missing <> 1",
    "NOT (missing = 1)",
    "missing = missing",
    "missing > 1 OR u",
    "missing IN ('a')",
    "missing NOT IN ('a')",
    "missing LIKE '%'",
    "missing NOT LIKE 'a'",
    "missing BETWEEN 1 AND 2",
    "missing NOT BETWEEN 1 AND 2",
    "missing + 1 = 1",
    "i = '7'",
    "i <> '7'",
    "color = 1",
    "t = 1",
    "color > 1",
    "i LIKE '7'",
    "i NOT LIKE '8'",
    "i IN ('7')",
    "i IS NULL",
    "color",
    "i",
    "NOT color",
    "color + 1 = 2",
    "-color = 1",
    "t + 1 = 2",
    "i / 0 = 0",
    "i % 0 = 0",
    "raw = 'bytes'",
    "raw LIKE '%'",
    "color LIKE 're'",
    "color LIKE 'RED'",
    "percent LIKE '100!%_' ESCAPE '!'",
    "I = 7",
    "i BETWEEN 8 AND 6",
    "f / 0.0 < 1",
    "f % 0.0 = 0",
]

WRONG = [
    ("i =", 3, "expected a value, found the end"),
    ("i = = 7", 4, "expected a value, found ="),
    ("i == 7", 3, "expected a value, found ="),
    ("i 7", 2, "unexpected 7"),
    ("i = 7)", 5, "unexpected )"),
    ("(i = 7", 6, "expected ), found the end"),
    ("AND i = 7", 0, "expected a value, found AND"),
    ("i = 7 AND", 9, "expected a value, found the end"),
    ("'text'", 0, "a condition is needed, this is a string"),
    ("1 + 1", 0, "a condition is needed, this is a number"),
    ("t AND 1", 6, "a condition is needed, this is a number"),
    ("NOT 'x'", 4, "a condition is needed, this is a string"),
    ("color < 'red'", 8, "a number is needed, this is a string"),
    ("t > TRUE", 4, "a number is needed, this is a condition"),
    ("color + 'x' = 'redx'", 8, "a number is needed, this is a string"),
    ("'x' + 1 = 2", 0, "a number is needed, this is a string"),
    ("-'x' = 1", 1, "a number is needed, this is a string"),
    ("s = 'it", 4, "string without its closing quote"),
    ("i = 7 & t", 6, "unexpected character '&'"),
    ("i IN (1, 2)", 6, "expected a string, found 1"),
    ("i IN ()", 6, "expected a string, found )"),
    ("i IN ('a' 'b')", 10, "expected ), found 'b'"),
    ("1 IN ('a')", 0, "IN needs the name of a property before it"),
    ("'a' LIKE 'a'", 0, "LIKE needs the name of a property before it"),
    ("(i) IS NULL", 0, "IS NULL needs the name of a property before it"),
    ("i IS 7", 5, "expected NULL, found 7"),
    ("i NOT 7", 6, "expected BETWEEN, IN or LIKE, found 7"),
    ("i BETWEEN 1 OR 2", 12, "expected AND, found OR"),
    ("s LIKE 7", 7, "expected a string, found 7"),
    ("s LIKE 'a' ESCAPE 'ab'", 18, "ESCAPE needs a single character"),
    ("s LIKE 'a!' ESCAPE '!'", 7, "the pattern ends in its escape character"),
    ("i = 09", 4, "malformed number 09"),
    ("i = 7x", 4, "malformed number 7x"),
    ("i = 9223372036854775808", 4, "9223372036854775808 does not fit 64 bits"),
    ("i = 99999999999999999999999", 4, "99999999999999999999999 does not fit 64 bits"),
    ("NULL = 1", 0, "expected a value, found NULL"),
    ("BETWEEN = 1", 0, "expected a value, found BETWEEN"),
    ("i = 1 = 1", 6, "unexpected ="),
    ("(" * (MAX_NESTING + 1) + "t" + ")" * (MAX_NESTING + 1), MAX_NESTING, "nested deeper than 40"),
    ("NOT " * (MAX_NESTING + 1) + "t", MAX_NESTING * 4, "nested deeper than 40"),
    ("i = " + "- " * (MAX_NESTING + 1) + "i", 4 + MAX_NESTING * 2, "nested deeper than 40"),
    (" " * (MAX_LENGTH + 1), MAX_LENGTH, "longer than 16384 characters"),
]


@pytest.mark.parametrize("text", TRUE)
def test_matches(text: str) -> None:
    assert compile_selector(text).matches(MESSAGE.get)


@pytest.mark.parametrize("text", NOT_TRUE)
def test_does_not_match(text: str) -> None:
    assert not compile_selector(text).matches(MESSAGE.get)


@pytest.mark.parametrize(("text", "position", "reason"), WRONG, ids=[w[0][:30] for w in WRONG])
def test_what_is_no_selector_says_where(text: str, position: int, reason: str) -> None:
    with pytest.raises(SelectorError) as caught:
        compile_selector(text)
    assert (caught.value.reason, caught.value.position) == (reason, position)
    assert str(caught.value) == f"{reason} at position {position}"


def test_identifiers_are_told() -> None:
    selector = compile_selector("a = 1 AND b.c LIKE 'x' OR NOT a IS NULL")
    assert selector.identifiers == {"a", "b.c"}
    assert selector.text.startswith("a = 1")
    assert compile_selector("a = 1 AND b.c LIKE 'x' OR NOT a IS NULL") is selector


def test_the_longest_chains_are_no_deep_recursion() -> None:
    for text in ("t" + " AND t" * 511, "u OR " * 511 + "t", "0" + "+1" * 510 + "=510", "1" + "*1" * 510 + "=1"):
        assert compile_selector(text).matches(MESSAGE.get)


def test_nesting_up_to_the_limit_works() -> None:
    assert compile_selector("(" * MAX_NESTING + "t" + ")" * MAX_NESTING).matches(MESSAGE.get)
    assert compile_selector("NOT " * MAX_NESTING + "t").matches(MESSAGE.get)


def test_like_takes_no_more_than_text_times_pattern() -> None:
    """A pattern made to be slow: by backtracking it would not end in the lifetime of the test."""
    selector = compile_selector("s LIKE '" + "%a" * 200 + "%b'")
    began = time.process_time()
    assert not selector.matches({"s": "a" * 5000}.get)
    assert time.process_time() - began < 60


@pytest.mark.parametrize("value", [math.nan, math.inf, 10**400, -(10**400), "", b"", [], {}, (), object(), None, True])
def test_no_value_makes_it_raise(value: object) -> None:
    for text in TRUE + NOT_TRUE:
        compile_selector(text).matches(lambda name: value)


# -- beside a second evaluator ---------------------------------------------------------------------------------------
NAMES = ("i", "n", "f", "color", "s", "t", "u", "missing", "raw")
Tree = tuple[Any, ...]


def number(value: object) -> bool:
    return type(value) in (int, float)


def evaluate(tree: Tree) -> Any:
    """Straight from the rules, over the tree the text was made of."""
    match tree:
        case ("lit", value):
            return value
        case ("id", name):
            return MESSAGE.get(name)
        case ("and", a, b):
            x, y = truth(a), truth(b)
            return False if x is False or y is False else None if x is None or y is None else True
        case ("or", a, b):
            x, y = truth(a), truth(b)
            return True if x is True or y is True else None if x is None or y is None else False
        case ("not", a):
            x = truth(a)
            return None if x is None else not x
        case ("=" | "<>" | "<" | "<=" | ">" | ">=" as op, a, b):
            return compare(op, evaluate(a), evaluate(b))
        case ("between", a, low, high):
            return evaluate(("and", (">=", a, low), ("<=", a, high)))
        case ("null", name):
            return MESSAGE.get(name) is None
        case ("in", name, strings):
            value = MESSAGE.get(name)
            return value in strings if isinstance(value, str) else None
        case ("like", name, pattern):
            value = MESSAGE.get(name)
            regex = "".join(".*" if c == "%" else "." if c == "_" else re.escape(c) for c in pattern)
            return bool(re.fullmatch(regex, value, re.DOTALL)) if isinstance(value, str) else None
        case ("+" | "-" | "*" as op, a, b):
            x, y = evaluate(a), evaluate(b)
            if not (number(x) and number(y)):
                return None
            return {"+": operator.add, "-": operator.sub, "*": operator.mul}[op](x, y)
    raise AssertionError(tree)


def truth(tree: Tree) -> bool | None:
    value = evaluate(tree)
    return value if isinstance(value, bool) else None


def compare(op: str, x: Any, y: Any) -> bool | None:
    if x is None or y is None:
        return None
    numbers = number(x) and number(y)
    if op in ("=", "<>"):
        if not (numbers or type(x) is type(y) in (str, bool)):
            return False
        return bool((x == y) == (op == "="))
    if not numbers:
        return False
    return bool({"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}[op](x, y))


def text_of(tree: Tree) -> str:
    match tree:
        case ("lit", bool() as value):
            return str(value).upper()
        case ("lit", str() as value):
            return "'" + value.replace("'", "''") + "'"
        case ("lit", value):
            return repr(value)
        case ("id", name):
            return str(name)
        case ("not", a):
            return f"NOT ({text_of(a)})"
        case ("between", a, low, high):
            return f"{text_of(a)} BETWEEN {text_of(low)} AND {text_of(high)}"
        case ("null", name):
            return f"{name} IS NULL"
        case ("in", name, strings):
            return f"{name} IN ({', '.join(text_of(('lit', s)) for s in strings)})"
        case ("like", name, pattern):
            return f"{name} LIKE {text_of(('lit', pattern))}"
        case ("and" | "or" as op, a, b):
            return f"({text_of(a)}) {op.upper()} ({text_of(b)})"
        case (("+" | "-" | "*") as op, a, b):
            return f"({text_of(a)} {op} {text_of(b)})"
        case (op, a, b):
            return f"{text_of(a)} {op} {text_of(b)}"
    raise AssertionError(tree)


names = st.sampled_from(NAMES)
identifiers = st.tuples(st.just("id"), names)
literals = st.tuples(st.just("lit"), st.one_of(st.integers(0, 9), st.sampled_from([0.5, 2.5, 7.0]), st.just(1 << 40)))
numbers = st.recursive(
    st.one_of(identifiers, literals),
    lambda inner: st.tuples(st.sampled_from("+-*"), inner, inner),
    max_leaves=5,
)
strings = st.sampled_from(["red", "it's", "", "7", "'", "r"])
values = st.one_of(numbers, st.tuples(st.just("lit"), strings), st.tuples(st.just("lit"), st.booleans()), identifiers)
conditions = st.recursive(
    st.one_of(
        identifiers,
        st.tuples(st.sampled_from(["=", "<>"]), values, values),
        st.tuples(st.sampled_from(["<", "<=", ">", ">="]), numbers, numbers),
        st.tuples(st.just("between"), numbers, numbers, numbers),
        st.tuples(st.just("null"), names),
        st.tuples(st.just("in"), names, st.lists(strings, min_size=1, max_size=3)),
        st.tuples(st.just("like"), names, st.text("red%_'its", max_size=6)),
    ),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["and", "or"]), inner, inner),
        st.tuples(st.just("not"), inner),
    ),
    max_leaves=8,
)


@given(conditions)
def test_agrees_with_the_rules(tree: Tree) -> None:
    assert compile_selector(text_of(tree)).matches(MESSAGE.get) == (truth(tree) is True), text_of(tree)


@given(st.text("ine0x17.'\"()=<>+-*/% ANDORTLIKEBWS,_\n", max_size=60))
def test_any_text_is_a_selector_or_a_selector_error(text: str) -> None:
    try:
        selector = compile_selector(text)
    except SelectorError as e:
        assert 0 <= e.position <= len(text)
    else:
        selector.matches(MESSAGE.get)


def test_what_one_message_may_cost_is_bounded() -> None:
    """Products do not grow without end, LIKE does not look through texts without end, long texts are not kept."""
    most = {"n": (1 << 63) - 1, "text": "a" * 100_000}
    product = compile_selector("n" + " * n" * 500 + " > 0")
    assert not product.matches(most.get)
    assert compile_selector("n * n * n - 1 > n").matches(most.get)
    assert compile_selector("text LIKE '%a'").matches(most.get)
    assert not compile_selector("text LIKE '%" + "a" * 8000 + "'").matches({"text": "b" + "a" * 7999}.get)
    sought = "text LIKE '%" + "a" * 500 + "%'"
    assert compile_selector(sought).matches({"text": "a" * 520}.get)
    assert not compile_selector(sought).matches(most.get)
    assert not compile_selector(f"NOT {sought}").matches(most.get)
    long = "n = 1" + " OR n = 1" * 200
    kept = compile_selector(long)
    assert compile_selector(long) is kept  # its attach compiles it twice
    compile_selector(f"{long} OR n = 2")
    assert compile_selector(long) is not kept
    assert compile_selector("n = 1") is compile_selector("n = 1")


WORST = {
    "comparisons": " OR ".join(["a = 1"] * 1000),
    "sums": "1 = " + " + ".join(["a"] * 2000),
    "texts": " OR ".join(f"a LIKE '%{'x' * 60}{n}%'" for n in range(190)),
    "one text": f"a LIKE '%{'x' * 14_000}%'",
    "single characters": " OR ".join(f"a LIKE '_{n}'" for n in range(500)),
    "a list": "a IN (" + ", ".join(f"'{n}'" for n in range(2000)) + ")",
    "words": "NOT " * 2000 + "a",
}


@pytest.mark.parametrize("kind", WORST)
def test_too_much_work_is_refused_with_the_reason(kind: str) -> None:
    with pytest.raises(SelectorError, match="more than 1024"):
        compile_selector(WORST[kind])


@pytest.mark.parametrize(
    ("text", "weight"),
    [("a = 1", 3), ("a IN ('x', 'y')", 6), ("a LIKE 'x%'", 3), ("a LIKE '%xy%'", 3 + 16), ("a LIKE '_x'", 3 + 16)],
)
def test_the_weight_counts_the_words_and_the_characters_that_are_sought(text: str, weight: int) -> None:
    assert compile_selector(text).weight == weight + 1  # the end counts as well


def test_a_list_of_many_strings_is_allowed() -> None:
    assert compile_selector("a IN (" + ", ".join(f"'{n}'" for n in range(1000)) + ")").matches({"a": "999"}.get)


def test_a_comment_without_its_end() -> None:
    with pytest.raises(SelectorError, match="comment without its end"):
        compile_selector("a = 1 /* and so on")


def test_words_that_were_read_are_not_read_again() -> None:
    text = " OR ".join(f"p{n} = 'x' AND q < 5" for n in range(100))
    other = text.replace("x", "y")
    read_words(other)
    assert calls(lambda: compile_selector(other)) < 0.7 * calls(lambda: compile_selector(text))
    assert compile_selector(other).matches({"p7": "y", "q": 4}.get)


@pytest.mark.parametrize("text", ["a = 'x" + " " * 300, "a = 1 OR " * 1000, "a " * MAX_LENGTH, "a = " + "(" * 300])
def test_what_is_wrong_with_a_long_text_is_reported_as_before(text: str) -> None:
    with pytest.raises(SelectorError) as directly:
        compile_selector(text)
    read_words(text)
    with pytest.raises(SelectorError) as afterwards:
        compile_selector(text)
    assert str(directly.value) == str(afterwards.value)
