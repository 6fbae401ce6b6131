"""Permissions: examples, and properties against a slow model that reads the rules one by one."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enmasse.identity.permissions import Decision, Permissions, Rule, expanded
from enmasse.identity.principal import Principal
from enmasse.model.permission_words import OPERATIONS, Operation
from enmasse.model.users import Effect, Granted, Permission, pattern_error, user_name_error

ALICE = Principal("alice")


def allow(*addresses: str, operations: tuple[Operation, ...] = ("send", "recv")) -> Permission:
    return Permission(effect="allow", operations=operations, addresses=addresses)


def deny(*addresses: str, operations: tuple[Operation, ...] = ("send", "recv")) -> Permission:
    return Permission(effect="deny", operations=operations, addresses=addresses)


def of(*permissions: Permission, **groups: Permission) -> Permissions:
    """Return permissions of alice, who belongs to the groups, and of these."""
    entries = {"@" + name: Granted(permissions=(permission,)) for name, permission in groups.items()}
    return Permissions({"alice": Granted(groups=tuple(groups), permissions=permissions), **entries})


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("a", ["a"], ["a/b", "b", "", "A", "a/"]),
        ("a/b", ["a/b", "a.b"], ["a", "a/b/c", "a/b.c"]),
        ("a/#", ["a", "a/b", "a.b", "a/b/c", "a/"], ["ab", "b/a"]),
        ("a.*", ["a/b", "a.b"], ["a", "a/b/c", "b/a"]),
        ("*", ["a"], ["a/b", "a.b", "$lwt", "_topo", "!!a"]),
        ("#", ["a", "a/b"], ["$lwt", "$subctrl", "_topo/0/r/temp", "!!a", "!!a/b", "!!a.b"]),
        ("$subctrl", ["$subctrl"], ["$lwt"]),
        ("$a/#", ["$a", "$a/b"], ["a/b"]),
    ],
)
def test_a_pattern_allows_exactly_the_names_that_it_matches(
    pattern: str, matching: list[str], others: list[str]
) -> None:
    permissions = of(allow(pattern))
    assert [name for name in matching if not permissions.decide(ALICE, "send", name).allowed] == []
    assert [name for name in others if permissions.decide(ALICE, "send", name).allowed] == []
    assert not permissions.decide(ALICE, "view", matching[0]).allowed


def test_deny_wins_wherever_it_stands_and_the_decision_names_the_rule() -> None:
    permissions = of(allow("#"), deny("secret/#"), staff=deny("a", operations=("recv",)), open=allow("secret/x"))
    assert permissions.decide(ALICE, "send", "secret.x") == Decision(
        False, Rule("alice.permissions.1", deny("secret/#"))
    )
    assert permissions.decide(ALICE, "recv", "a").rule == ("@staff.permissions.0", deny("a", operations=("recv",)))
    assert permissions.decide(ALICE, "send", "a").rule == ("alice.permissions.0", allow("#"))
    assert permissions.decide(ALICE, "manage", "a") == Decision(False, None)


def test_without_permissions_nothing_is_allowed() -> None:
    for found in (of(), Permissions({}), Permissions({"alice": Granted(groups=("gone",))})):
        for operation in OPERATIONS:
            for name in ("a", "a/b", "$lwt", ""):
                assert not found.rights(ALICE).decide(operation, name).allowed


def test_deny_of_everything_includes_the_names_of_the_suite() -> None:
    assert not of(allow("$subctrl"), deny("#")).decide(ALICE, "send", "$subctrl").allowed


def test_groups_of_a_user_with_an_entry_are_those_of_the_entry() -> None:
    permissions = Permissions({"alice": Granted(groups=("a",)), "@a": Granted(permissions=(allow("x"),)),
                               "@b": Granted(permissions=(allow("y"),))})  # fmt: skip
    told = Principal("alice", ("b",))
    assert permissions.decide(told, "send", "x").allowed
    assert not permissions.decide(told, "send", "y").allowed
    by_token = Principal("token", ("b", "gone"))
    assert permissions.decide(by_token, "send", "y").allowed
    assert not permissions.knows("token")
    assert not permissions.knows("@a")
    assert not permissions.decide(Principal("@a"), "send", "x").allowed


def test_a_user_of_another_space_has_no_permission() -> None:
    assert not of(allow("#")).decide(Principal("alice", space="other"), "send", "a").allowed


def test_an_anonymous_suite_permits_everything() -> None:
    permissions = Permissions({}, anonymous=True)
    assert permissions.decide(Principal("anonymous"), "manage", "$x").allowed
    assert permissions.covers(Principal("anonymous"), "recv", "#").allowed


@pytest.mark.parametrize(
    ("user", "pattern", "expected"),
    [
        ("alice", "devices/${user}/#", "devices/alice/#"),
        ("a/b", "devices/${user}/#", "devices/a%2Fb/#"),
        ("a.b", "devices/${user}", "devices/a%2Eb"),
        ("#", "devices/${user}", "devices/%23"),
        ("*", "devices/${user}", "devices/%2A"),
        ("+", "x-${user}/*", "x-%2B/*"),
        ("${user}", "x/${user}/${user}", "x/${user}/${user}"),
        ("$subctrl", "${user}/#", "%24subctrl/#"),
        ("!!a", "${user}/#", "%21!a/#"),
        ("_bob", "devices/${user}", "devices/_bob"),
        ("a%2Fb", "${user}", "a%252Fb"),
    ],
)
def test_the_name_of_a_user_becomes_one_literal_word_of_a_pattern(user: str, pattern: str, expected: str) -> None:
    assert expanded(pattern, user) == expected


@pytest.mark.parametrize(
    ("filter", "expected"),
    [("a/+", True), ("a/#", True), ("a/+/c/#", True), ("a/b", True), ("+", False), ("#", False), ("+/b", False)],
)
def test_a_filter_is_covered_or_refused(filter: str, expected: bool) -> None:
    assert of(allow("a/#")).covers(ALICE, "recv", filter).allowed is expected


def test_a_filter_that_reaches_a_denied_name_is_refused() -> None:
    permissions = of(allow("a/#"), deny("a/x/secret"))
    assert permissions.covers(ALICE, "recv", "a/+").allowed
    assert permissions.covers(ALICE, "recv", "a/+/open").allowed
    for filter in ("a/#", "a/+/secret", "a/x/+", "a/+/+"):
        assert permissions.covers(ALICE, "recv", filter).rule == ("alice.permissions.1", deny("a/x/secret"))


# --- properties -------------------------------------------------------------------------------------------------------

WORDS = ["a", "b", "$s", ""]
FRESH = "other"  # in no rule
names = st.lists(st.sampled_from([*WORDS, FRESH]), min_size=1, max_size=4)
separators = st.sampled_from(["/", "."])


@st.composite
def patterns(draw: st.DrawFn, words: tuple[str, ...] = (*WORDS, "${user}")) -> str:
    first = draw(st.lists(st.sampled_from(words), max_size=2))
    text: str = draw(separators).join([*first, draw(st.sampled_from(["a", "b", "*", "#"]))])
    return text if pattern_error(text) is None else "a"


@st.composite
def rules(draw: st.DrawFn, words: tuple[str, ...] = (*WORDS, "${user}")) -> Permission:
    effect: Effect = draw(st.sampled_from(["allow", "allow", "deny"]))
    kinds: list[Operation] = ["send", "recv"]
    operations = tuple(draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=2, unique=True)))
    addresses = draw(st.lists(patterns(words), min_size=1, max_size=3))
    return Permission(effect=effect, operations=operations, addresses=tuple(addresses))


def matches(pattern: str, user: str, name: str, effect: str) -> bool:
    """Return whether a pattern matches a name, by a regular expression."""
    parts = []
    for index, word in enumerate(re.split(r"[./]", pattern)):
        lead = "[./]" if index else ""
        if word == "#":
            parts.append(f"({lead}.*)?" if index else ".*")
        else:
            parts.append(lead + ("[^./]*" if word == "*" else re.escape(word.replace("${user}", user))))
    if effect == "allow" and pattern[0] in "*#" and name[:1] in ("$", "_"):
        return False
    return re.fullmatch("".join(parts), name) is not None


def permitted(permissions: list[Permission], user: str, operation: Operation, name: str) -> bool:
    """Return whether some rule allows and no rule denies."""
    effects = {
        permission.effect
        for permission in permissions
        for pattern in permission.addresses
        if operation in permission.operations and matches(pattern, user, name, permission.effect)
    }
    return effects == {"allow"}


@given(st.lists(rules(), max_size=4), names, separators, st.sampled_from(["a", "b", "alice"]))
@settings(max_examples=500)
def test_decisions_are_those_of_the_model(given: list[Permission], split: list[str], dot: str, user: str) -> None:
    half = len(given) // 2
    permissions = Permissions({
        user: Granted(groups=("g",), permissions=tuple(given[:half])), "@g": Granted(permissions=tuple(given[half:]))
    })  # fmt: skip
    name = dot.join(split)
    for _ in range(2):  # also the answer that is kept
        decision = permissions.decide(Principal(user), "send", name)
        assert decision.allowed is permitted(given, user, "send", name)
        assert permissions.rights(Principal(user)).allows("send", name) is decision.allowed


filters = st.lists(st.sampled_from(["a", "b", "+"]), max_size=3).flatmap(
    lambda first: st.sampled_from(["a", "+", "#"]).map(lambda last: "/".join([*first, last]))
)
NAMES = ["/".join(split) for n in range(1, 6) for split in itertools.product(["a", "b", FRESH], repeat=n)]


def filtered(filter: str) -> list[str]:
    """Return the names that a filter matches."""
    text = "/".join("[^/]+" if word == "+" else re.escape(word) for word in filter.split("/")).replace("/\\#", "(/.*)?")
    found = re.compile(text.replace("\\#", ".*"))
    return [name for name in NAMES if found.fullmatch(name)]


@given(st.lists(rules(("a", "b")), max_size=4), filters)
@settings(max_examples=300, deadline=None)
def test_a_filter_is_covered_if_every_name_is_allowed(given: list[Permission], filter: str) -> None:
    permissions = Permissions({"alice": Granted(permissions=tuple(given))})
    every = all(permitted(given, "alice", "recv", name) for name in filtered(filter))
    assert permissions.covers(ALICE, "recv", filter).allowed is every


@given(st.text(max_size=8).filter(lambda name: user_name_error(name) is None), patterns())
def test_no_name_of_a_user_widens_a_pattern(user: str, pattern: str) -> None:
    found = expanded(pattern, user)
    assert len(re.split(r"[./]", found)) == len(re.split(r"[./]", pattern))
    assert pattern_error(found.replace("${", "")) is None
    assert found.endswith(("#", "*")) == pattern.endswith(("#", "*"))
    assert not (pattern.startswith("${user}") and found.startswith(("$", "_")))
