"""Files of several address spaces together: what is in force of each, and that none changes another."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enmasse.model.configuration import Applied, AppliedState, apply
from enmasse.model.merged import Content, Unreadable
from enmasse.model.names import AddressName
from enmasse.model.tenants.tenancy import TenantState
from tests.configserv.test_edits import change, write

FLAVORS = {
    "q": {"type": "queue", "templateName": "queue-persisted"},
    "q2": {"type": "queue", "templateName": "queue-inmemory"},
    "t": {"type": "topic", "templateName": "topic-inmemory"},
}
QUEUE, TOPIC, ANYCAST = {"type": "queue", "flavor": "q"}, {"type": "topic", "flavor": "t"}, {"type": "anycast"}
SPACES: dict[str, Any] = {"one": {}, "two": {}}


def file(value: Any) -> Content:
    return value if value is None or isinstance(value, bytes | Unreadable) else json.dumps(value, indent=1).encode()


def files(**more: Any) -> dict[str, Content]:
    """The contents of an installation with two spaces; a keyword is a path with `__` for `/`, without `.json`."""
    found = {"addresses": {"a": QUEUE}, "flavors": FLAVORS, "spaces": SPACES, "spaces__one__addresses": {"a": TOPIC}}
    found |= {"spaces__two__addresses": {"a": ANYCAST, "b": QUEUE}, **more}
    return {f"{name.replace('__', '/')}.json": file(value) for name, value in found.items()}


def applied(before: Applied | None = None, **more: Any) -> Applied:
    return apply(files(**more), before or Applied())


def types(found: Applied) -> dict[str, str]:
    return {name: address.type for name, address in found.state.addresses.items()}


def told(found: Applied) -> list[str]:
    return [str(problem) for problem in found.problems]


def restarted(found: Applied) -> Applied:
    """What a service that starts again has, of the stored state."""
    state = msgspec.json.decode(msgspec.json.encode(found.state), type=AppliedState)
    return Applied(state=state)


ALL = {"a": "queue", "!!one/a": "topic", "!!two/a": "anycast", "!!two/b": "queue"}


def test_equal_names_in_spaces_are_several_addresses() -> None:
    found = applied()
    assert types(found) == ALL and found.problems == [] and sorted(found.changed) == sorted(ALL)
    assert set(found.state.config) == {name for name, content in files().items() if content is not None}


def test_addresses_name_each_other_inside_their_space() -> None:
    entries = {"a": {**QUEUE, "deadletter": "dead", "expiry": "late"}, "dead": QUEUE, "late": QUEUE}
    found = applied(spaces__one__addresses=entries, addresses={"dead": TOPIC})
    assert found.problems == []
    one = found.state.addresses[AddressName("!!one/a")]
    assert (one.deadletter, one.expiry) == ("!!one/dead", "!!one/late")
    again = apply(files(spaces__one__addresses=entries, addresses={"dead": TOPIC}), restarted(found))
    assert (again.state, again.changed) == (found.state, [])
    (problem,) = told(applied(addresses={"dead": QUEUE}, spaces__one__addresses={"a": {**QUEUE, "expiry": "dead"}}))
    assert problem.startswith("spaces/one/addresses.json:5: a.expiry: there is no valid address 'dead'")


def test_each_space_has_its_topic_for_other_topics_of_mqtt() -> None:
    default = {"d": {**TOPIC, "mqttDefault": True}}
    found = applied(addresses=default, spaces__one__addresses=default, spaces__two__addresses=default)
    assert found.problems == [] and list(found.state.addresses) == ["d", "!!one/d", "!!two/d"]


BROKEN: dict[str, Any] = {
    "a comma too many": b'{"a": {},}',
    "empty": b"",
    "unreadable": Unreadable("Input/output error"),
    "gone": None,
}


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("what", ["addresses", "users", "issuers"])
@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_of_a_space_hurts_that_space_alone(content: Any, what: str, restart: bool) -> None:
    good: Any = {
        "spaces__one__users": {"alice": {"permissions": [{"allow": ["send"], "addresses": ["a"]}]}},
        "spaces__one__issuers": {"sso": {"issuer": "https://sso.example.com", "audience": "x"}},
    }
    two = {"a": ANYCAST, "new": QUEUE}
    before = applied(**good)
    assert before.problems == []
    broken = {**good, f"spaces__one__{what}": content}
    now = applied(restarted(before) if restart else before, **broken, spaces__two__addresses=two)
    assert types(now) == {"a": "queue", "!!one/a": "topic", "!!two/a": "anycast", "!!two/new": "queue"}
    assert tenants(now).spaces["one"] == tenants(before).spaces["one"]
    assert tenants(now).spaces["one"].users and tenants(now).spaces["one"].issuers
    (problem,) = now.problems
    assert problem.file == f"spaces/one/{what}.json" and "what applied before stays" in problem.reason
    assert sorted(now.changed) == ["!!two/b", "!!two/new"]
    mended = applied(now, **good, spaces__two__addresses=two)
    assert mended.problems == [] and mended.changed == []


def tenants(found: Applied) -> TenantState:
    assert found.state.tenants is not msgspec.UNSET
    return found.state.tenants


@pytest.mark.parametrize("content", [{"a": {"type": "queue"}}, b'{"a": {"type": "anycast"}, "a": {}}', {"a": 1}])
def test_an_invalid_entry_of_a_space_keeps_its_last_version(content: Any) -> None:
    found = applied(applied(), spaces__one__addresses=content)
    assert types(found) == ALL and found.changed == [] and [each.entry for each in found.problems] == ["a"]


def test_an_entry_that_is_no_address_fails_in_its_space() -> None:
    found = applied(spaces__one__addresses={"a": TOPIC, "x": {"type": "queue", "flavor": "nix"}})
    assert list(found.failed) == ["!!one/x"] and types(found) == ALL
    (problem,) = found.problems
    assert (problem.file, problem.entry, problem.field) == ("spaces/one/addresses.json", "x", "flavor")


@pytest.mark.parametrize("name", ["!!two/x", "!!x", "/!!two/x", "$x", "amqp:x", "a" * 508])
def test_no_name_leaves_its_space(name: str) -> None:
    found = applied(spaces__one__addresses={"a": TOPIC, name: QUEUE})
    assert types(found) == ALL and len(found.problems) == 1 and list(found.failed) == [f"!!one/{name}"]


def test_an_edit_touches_what_it_changes() -> None:
    before = applied()
    now = applied(before, spaces__two__addresses={"a": ANYCAST, "b": QUEUE, "c": TOPIC})
    assert now.changed == ["!!two/c"] and now.judged["one"].full is before.judged["one"].full
    assert list(now.state.addresses) == [*ALL, "!!two/c"]
    now = applied(now, addresses={"a": ANYCAST}, spaces__two__addresses={"a": ANYCAST, "b": QUEUE, "c": TOPIC})
    assert now.changed == ["a"]


def test_spaces_come_and_go() -> None:
    now = applied(spaces={"one": {}})
    assert types(now) == {"a": "queue", "!!one/a": "topic"}
    (problem,) = told(now)
    assert problem.startswith("spaces/two: there is no valid address space of this name in spaces.json")
    now = applied(now, spaces={"two": {}, "three": {}}, spaces__one__addresses=None)
    assert types(now) == {"a": "queue", "!!two/a": "anycast", "!!two/b": "queue"} and now.problems == []
    assert (
        sorted(now.changed) == ["!!one/a", "!!two/a", "!!two/b"] and "spaces/one/addresses.json" not in now.state.config
    )
    assert isinstance(now.state.tenants, TenantState) and now.state.tenants.ending.keys() == {"one"}
    gone = msgspec.structs.replace(now.state.tenants, ending={})  # nothing is left of it
    again = applied(restarted(now), spaces={"two": {}, "three": {}}, spaces__one__addresses=None)
    assert (again.state, again.changed) == (msgspec.structs.replace(now.state, tenants=gone), [])


@pytest.mark.parametrize("content", [b"{,}", Unreadable("no"), None, {"one": {"x": 1}, "two": {}}])
def test_what_is_wrong_in_the_list_of_spaces_removes_none(content: Any) -> None:
    before = applied()
    now = applied(before, spaces=content)
    assert types(now) == ALL and now.changed == [] and [each.file for each in now.problems] == ["spaces.json"]


def test_addresses_are_not_known_before_the_list_of_spaces_is() -> None:
    """So that controllers take none away whose space may be in the file."""
    now = applied(spaces=b"{,}")
    assert not now.state.complete
    assert applied(now).state.complete
    assert applied(spaces=None).state.complete


def test_a_flavor_that_a_space_uses_does_not_vanish() -> None:
    entries = {"a": {"type": "queue", "flavor": "q2"}}
    before = applied(spaces__one__addresses=entries)
    fewer = {"q": FLAVORS["q"], "t": FLAVORS["t"]}
    now = applied(before, spaces__one__addresses=entries, flavors=fewer)
    assert now.changed == [] and "q2" in now.state.flavors
    assert told(now)[0].startswith("flavors.json: q2: is still used by '!!one/a'")
    more = {**entries, "b": entries["a"]}
    now = applied(now, spaces__one__addresses=more, flavors=fewer)
    assert list(now.failed) == ["!!one/b"] and any("no longer in flavors.json" in line for line in told(now))
    now = applied(now, spaces__one__addresses={"a": QUEUE}, flavors=fewer)
    assert now.problems == [] and "q2" not in now.state.flavors


def test_a_brokered_space_gives_its_addresses_the_flavor() -> None:
    one = {"one": {"type": "brokered", "flavor": "q2"}, "two": {}}
    entries = {
        "a": {"type": "queue"},
        "b": {"type": "topic"},
        "c": {**QUEUE},
        "d": ANYCAST,
        "e": {**QUEUE, "flavor": "q2"},
    }
    found = applied(spaces=one, spaces__one__addresses=entries)
    of = {name: found.state.addresses[AddressName(f"!!one/{name}")] for name in "abe"}
    assert {(each.flavor, each.brokered) for each in of.values()} == {("q2", True)}
    assert of["b"].written() == {"type": "topic"}
    assert [each.partition(": ")[2][:30] for each in told(found)] == [
        "c.flavor: all addresses of thi", "d.type: must be queue or topic",
    ]  # fmt: skip
    assert not found.state.addresses[AddressName("!!two/b")].brokered
    # The type stays; a space that states no flavor keeps the one that its addresses have.
    entry: dict[str, str]
    for entry in ({}, {"type": "brokered"}):
        again = applied(restarted(found), spaces={**one, "one": entry}, spaces__one__addresses=entries)
        assert {name: again.state.addresses[AddressName(f"!!one/{name}")] for name in "abe"} == of
        assert any("one.type: it is 'brokered', and that" in each for each in told(again)) == (not entry)
    first = applied(spaces={**one, "one": {"type": "brokered"}}, spaces__one__addresses={"a": {"type": "queue"}})
    assert first.state.addresses[AddressName("!!one/a")].flavor == "q"
    gone = applied(found, spaces=one, spaces__one__addresses=entries, flavors={"q": FLAVORS["q"], "t": FLAVORS["t"]})
    assert any("is still used by '!!one/a'" in each for each in told(gone))


def test_the_plan_of_a_brokered_space_says_which_flavor_it_may_have() -> None:
    plans = {
        "s": {"kind": "space", "addressPlans": ["small"], "flavors": []},
        "small": {"kind": "address", "type": "queue", "flavor": "q2", "maxSize": 1000},
    }
    one = {"one": {"type": "brokered", "plan": "s"}, "two": {}}
    found = applied(plans=plans, spaces=one, spaces__one__addresses={"a": {"plan": "small"}, "b": {"type": "topic"}})
    a, b = (found.state.addresses[AddressName(f"!!one/{name}")] for name in "ab")
    assert (a.flavor, a.max_size, b.flavor, told(found)) == ("q2", 1000, "q2", [])


def test_without_spaces_nothing_is_stored_of_them() -> None:
    contents = {name: content for name, content in files().items() if not name.startswith("spaces")}
    assert b"tenants" not in msgspec.json.encode(apply(contents, Applied()).state)


# -- plans -------------------------------------------------------------------------------------------------------------
PLANS: dict[str, Any] = {
    "q-small": {
        "kind": "address",
        "type": "queue",
        "flavor": "q",
        "maxSize": 1000,
        "messageTtl": {"minimum": 10, "maximum": 100},
        "credits": {"broker": 0.25},
    },
    "direct": {"kind": "address", "type": "anycast", "credits": {"router": 0.5}},
    "other": {"kind": "address", "type": "topic", "flavor": "t"},
    "small": {
        "kind": "space",
        "addressPlans": ["q-small", "direct"],
        "flavors": ["q"],
        "limits": {"addresses": 3, "addressesByType": {"anycast": 1}},
    },
}


def planned(
    entries: Mapping[str, Any], before: Applied | None = None, limits: Mapping[str, Any] | None = None, **more: Any
) -> Applied:
    """Space `one` has the plan `small` and these addresses."""
    small = PLANS["small"] if limits is None else {**PLANS["small"], **limits}
    return applied(
        before,
        plans={**PLANS, "small": small, **more},
        spaces={"one": {"plan": "small"}, "two": {}},
        spaces__one__addresses=entries,
    )


def in_one(found: Applied) -> dict[str, Any]:
    return {
        name.removeprefix("!!one/"): msgspec.to_builtins(address)
        for name, address in found.state.addresses.items()
        if name.startswith("!!one/")
    }


PLANNED = {"plan": "q-small"}


def test_a_plan_limits_the_users_of_its_spaces() -> None:
    """Those in force stay, groups do not count, and a larger plan lets in what the file has."""

    def users(*names: str) -> dict[str, Any]:
        return {name: {} for name in names}

    def names(now: Applied) -> list[str]:
        assert now.state.tenants is not msgspec.UNSET
        return list(now.state.tenants.spaces["one"].users or {})

    def having(*of_one: str, most: int, before: Applied | None = None) -> Applied:
        contents = {"plans": {**PLANS, "small": {**PLANS["small"], "limits": {"users": most}}}}
        return applied(
            before,
            spaces={"one": {"plan": "small"}, "two": {}},
            spaces__one__users=users(*of_one),
            spaces__one__addresses={},
            **contents,
        )

    now = having("@staff", "a", "b", "c", most=2)
    assert names(now) == ["@staff", "a", "b"]
    assert [line for line in told(now) if "users" in line] == [
        "spaces/one/users.json:5: c: 2 of 2 users of the plan 'small' are used: remove one, or ask for another plan of "
        "the space"
    ]
    now = having("@staff", "c", "a", "b", most=1, before=now)
    assert names(now) == ["@staff", "a", "b"], "a smaller plan removes nothing"
    now = having("@staff", "c", "b", most=1, before=now)
    assert names(now) == ["@staff", "b"]
    now = having("@staff", "c", "b", most=2, before=now)
    assert names(now) == ["@staff", "c", "b"] and now.problems == []


def test_a_plan_gives_what_an_address_does_not_state() -> None:
    found = planned({"a": PLANNED, "b": {**PLANNED, "maxSize": 10, "messageTtl": {"maximum": 50}, "type": "queue"}})
    expected = {**QUEUE, "plan": "q-small", "maxSize": 1000, "messageTtl": {"minimum": 10, "maximum": 100}}
    assert found.problems == [] and in_one(found) == {
        "a": expected,
        "b": {**expected, "maxSize": 10, "messageTtl": {"minimum": 10, "maximum": 50}},
    }
    assert planned(in_one(found), found).changed == []


@pytest.mark.parametrize("kind", ["anycast", "multicast"])
def test_an_address_without_a_broker_needs_no_plan_and_is_bounded_by_its_type(kind: str) -> None:
    without: dict[str, Any] = {"limits": {}, "flavors": [], "addressPlans": ["q-small"]}
    found = planned({"a": {"type": kind}}, limits=without)
    assert not found.problems and set(in_one(found)) == {"a"}
    found = planned({"a": {"type": kind}}, limits={**without, "limits": {"addressesByType": {kind: 0}}})
    assert "0 of 0 addresses of type" in str(found.problems[0]) and not in_one(found)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"plan": "nix"}, ".plan: no address plan 'nix' for this space; there are direct, q-small"),
        (
            {"plan": "q-smal"},
            ".plan: no address plan 'q-smal' for this space; there are direct, q-small (did you mean 'q-",
        ),
        ({"plan": "other"}, ".plan: no address plan 'other' for this space"),
        ({"plan": 7}, ".plan: no address plan '7'"),
        ({"plan": "q-small", "type": "topic"}, ".type: contradicts the plan 'q-small', which has 'queue'"),
        ({"plan": "q-small", "flavor": "q2"}, ".flavor: contradicts the plan 'q-small', which has 'q'"),
        ({"plan": "q-small", "multicast": True}, ".multicast: contradicts type 'queue'"),
        ({"plan": "q-small", "maxSize": 1001}, ".maxSize: 1001 is more than the 1000 bytes of the plan"),
        ({"plan": "q-small", "messageTtl": {"maximum": 101}}, ".messageTtl.maximum: 101 is more than the 100 milli"),
        ({"plan": "q-small", "messageTtl": {"minimum": 9}}, ".messageTtl.minimum: 9 is less than the 10 milliseconds"),
        ({"plan": "q-small", "messageTtl": {"maximum": 5}}, ".messageTtl: with the bounds of the plan"),
        ({"type": "queue", "flavor": "q2"}, ".flavor: the plan 'small' of the space has no flavor 'q2'; it has"),
        ({"type": "topic", "flavor": "t"}, ".flavor: the plan 'small' of the space has no flavor 't'"),
        ({"plan": "q-small", "x": 1}, ".x: unknown key"),
        (
            {"type": "queue"},
            ".flavor: is missing: a queue needs one, or a plan; the plan 'small' of the space: it has the flavors q, "
            "and the address plans direct, q-small",
        ),
    ],
)
def test_an_address_has_to_keep_to_its_plan(entry: Any, expected: str) -> None:
    found = planned({"a": QUEUE, "x": entry})
    (problem,) = told(found)
    assert problem.startswith("spaces/one/addresses.json:") and f": x{expected}" in problem
    assert list(in_one(found)) == ["a"] and list(found.failed) == ["!!one/x"]


def test_plans_are_for_spaces_that_have_one() -> None:
    found = applied(addresses={"a": {"plan": "direct"}}, plans=PLANS, spaces__two__addresses={"x": {"plan": "direct"}})
    (problem,) = told(found)
    assert (problem.startswith("addresses.json:") and "a.plan: unknown key" in problem) or "a.store_and" in problem
    assert types(found) == {"!!one/a": "topic", "!!two/x": "anycast"}


def reasons(found: Applied) -> dict[str | None, str]:
    return {problem.entry: problem.reason for problem in found.problems}


def test_addresses_beyond_the_plan_fail_in_the_order_of_the_file() -> None:
    found = planned(dict.fromkeys("abcde", QUEUE))
    assert list(in_one(found)) == ["a", "b", "c"]
    assert set(found.failed) == {"!!one/d", "!!one/e"}
    text = "3 of 3 addresses of the plan 'small' are used: remove one, or ask for another plan of the space"
    assert reasons(found) == {"d": text, "e": text}
    assert {failed.reason for failed in found.failed.values()} == {text}
    earlier = planned(dict.fromkeys("xabc", QUEUE), found)  # those in force stay
    assert list(in_one(earlier)) == ["a", "b", "c"] and reasons(earlier) == {"x": text}
    moved = planned(dict.fromkeys("xab", QUEUE), earlier)
    assert list(in_one(moved)) == ["x", "a", "b"] and moved.problems == []


def test_addresses_of_a_type_are_limited() -> None:
    found = planned({"a": ANYCAST, "b": {"plan": "direct"}, "c": QUEUE})
    assert list(in_one(found)) == ["a", "c"]
    assert reasons(found)["b"].startswith("1 of 1 addresses of type anycast of the plan 'small' are used: remove one")
    now = planned({"a": ANYCAST, "c": ANYCAST}, found)
    assert in_one(now) == {"a": ANYCAST, "c": QUEUE} and list(reasons(now)) == ["c"]
    swapped = planned({"a": QUEUE, "c": ANYCAST}, planned({"a": ANYCAST, "c": QUEUE}))
    assert in_one(swapped) == {"a": QUEUE, "c": ANYCAST}, "in the order of the file"


def test_credits_are_limited() -> None:
    limits = {"limits": {}, "creditLimits": {"router": 0.5, "broker": 0.5, "aggregate": 0.75}}
    found = planned({"a": PLANNED, "b": PLANNED, "c": PLANNED, "d": QUEUE}, limits=limits)
    assert list(in_one(found)) == ["a", "b", "d"]
    assert reasons(found) == {
        "c": "0.5 of 0.5 broker credits of the plan 'small' are used, and it takes 0.25: remove one, or ask for another"
        " plan of the space"
    }
    found = planned({"a": PLANNED, "b": PLANNED, "x": {"plan": "direct"}}, limits=limits)
    assert reasons(found)["x"].startswith(
        "0.5 of 0.75 aggregate credits of the plan 'small' are used, and it takes 0.5"
    )


@pytest.mark.parametrize("restart", [False, True])
def test_a_smaller_plan_refuses_what_is_new_and_drops_nothing(restart: bool) -> None:
    before = planned(dict.fromkeys("abc", QUEUE))
    smaller = {"limits": {"addresses": 1}}
    now = planned(dict.fromkeys("abc", QUEUE), restarted(before) if restart else before, smaller)
    assert list(in_one(now)) == ["a", "b", "c"] and now.problems == []
    now = planned(dict.fromkeys("xabc", QUEUE), now, smaller)
    assert list(in_one(now)) == ["a", "b", "c"]
    assert reasons(now)["x"].startswith("3 of 1 addresses of the plan 'small' are used")
    now = planned({"a": {**QUEUE, "maxSize": 5}, "b": QUEUE}, now, smaller)
    assert now.problems == [] and in_one(now)["a"]["maxSize"] == 5, "what takes no more may change"
    assert list(in_one(planned({"b": QUEUE}, now, smaller))) == ["b"]


def test_what_names_a_queue_beyond_the_plan_fails_too() -> None:
    found = planned({"a": {**QUEUE, "deadletter": "d"}, "b": QUEUE, "c": QUEUE, "d": QUEUE})
    assert list(in_one(found)) == ["b", "c"] and set(reasons(found)) == {"a", "d"}


def test_a_plan_in_use_does_not_vanish() -> None:
    before = planned({"a": PLANNED})
    now = applied(before, plans={}, spaces={"one": {"plan": "small"}, "two": {}}, spaces__one__addresses={"a": PLANNED})
    assert in_one(now) == in_one(before)
    (problem,) = told(now)
    assert problem.startswith("spaces.json:3: one.plan: no valid plan 'small' of kind 'space'")
    over = {"a": PLANNED, **dict.fromkeys("bcd", QUEUE)}
    now = applied(now, plans=None, spaces={"one": {"plan": "small"}, "two": {}}, spaces__one__addresses=over)
    assert list(in_one(now)) == ["a", "b", "c"], "its limits hold"
    assert any(line.startswith("plans.json: is missing; what applied before stays") for line in told(now))


@settings(max_examples=200)
@given(st.integers(0, 2**64), st.sampled_from((None, 1, 2)), st.booleans())
def test_edits_in_a_space_have_the_outcome_of_the_whole_file(seed: int, indent: int | None, plan: bool) -> None:
    choose = random.Random(seed)
    entries: list[tuple[str, Any]] = [("dead", QUEUE), ("n1", TOPIC), ("n2", ANYCAST)]
    small = {"kind": "space", "addressPlans": ["q-small"], "limits": {"addresses": 5, "addressesByType": {"topic": 2}}}
    common: dict[str, Any] = {"plans": {**PLANS, "small": small}, "spaces": {"one": {"plan": "small"} if plan else {}}}
    found = applied(**common, spaces__two__addresses=None, spaces__one__addresses=write(entries, indent, False))
    for _ in range(8):
        for _ in range(choose.choice((0, 1, 1, 2))):
            change(entries, choose)
            if choose.random() < 0.2 and entries:
                entries[-1] = entries[-1][0], PLANNED
        contents = files(**common, spaces__two__addresses=None, spaces__one__addresses=write(entries, indent, False))
        now = apply(contents, found)
        one = msgspec.structs.replace(found.judged["one"], plain=False)
        whole = apply(contents, msgspec.structs.replace(found, judged={"one": one}))
        assert list(now.state.addresses.items()) == list(whole.state.addresses.items())
        assert (now.state, now.failed, now.problems) == (whole.state, whole.failed, whole.problems)
        assert sorted(now.changed) == sorted(whole.changed)
        found = now
