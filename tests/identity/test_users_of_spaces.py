"""Users of several address spaces from one feed of changes: each space's are apart, whatever their names."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.identity.enforcer import Enforcer
from enmasse.identity.login import Login
from enmasse.identity.permissions import Permissions
from enmasse.identity.principal import ANONYMOUS, Principal, named
from enmasse.identity.user_directory import UserDirectory
from enmasse.model.feeds import GrantedUser, PermissionChanges, ReachedSpace
from enmasse.model.users import ConnectionLimits, Permission
from tests.identity.test_enforcer import Time, user

SEND = Permission(effect="allow", operations=("send",), addresses=("#",))
RECV = Permission(effect="allow", operations=("recv",), addresses=("a",))
SPACES = {"one": ReachedSpace(hosts=("one.example",)), "two": ReachedSpace(tokens=True)}


def body(entries: dict[str, GrantedUser], *removed: str, full: bool = False, **more: Any) -> PermissionChanges:
    """Return a message of the feed; entries by full names."""
    return PermissionChanges(
        full=full,
        users={name: each for name, each in entries.items() if not name.startswith("!!")},
        in_spaces={name: each for name, each in entries.items() if name.startswith("!!")},
        removed=list(removed),
        **{"spaces": SPACES, **more},
    )


def directory(entries: dict[str, GrantedUser], **more: Any) -> UserDirectory:
    users = UserDirectory(lambda: 1000.0)
    users.take(body(entries, full=True, **more))
    return users


def rules(users: UserDirectory, principal: Principal) -> tuple[Any, ...]:
    found = users.rights(principal)
    assert found is not None
    return found.rules


def test_equal_names_in_two_spaces_are_two_users() -> None:
    users = directory(
        {
            "alice": user(permissions=(SEND,)),
            "!!one/alice": user("g", permissions=(RECV,), credentials="2"),
            "!!one/@g": user(permissions=(SEND,)),
            "@g": user(),
        }
    )
    alice = [Principal("alice"), Principal("alice", space="one"), Principal("alice", space="two")]
    assert [len(rules(users, each)) for each in alice] == [1, 2, 0]
    assert [users.entry("alice", each.space) is not None for each in alice] == [True, True, False]
    assert users.entry("@g", "one") is None
    for principal, credentials, reason in (
        (alice[0], "1", ""),
        (alice[0], "2", "the password of alice has changed"),
        (alice[1], "2", ""),
        (alice[1], "1", "the password of alice has changed"),
        (alice[2], "1", "the user alice was removed"),
        (Principal("alice", space="none"), "1", "the user alice was removed"),
        (Principal("alice", space="none"), None, "the user alice was removed"),
        (Principal("token", space="two"), None, ""),
    ):
        assert users.loss(Login(principal, credentials)) == reason, (principal, credentials)


def test_the_default_space_may_be_open_and_no_other_is() -> None:
    users = directory({"!!one/alice": user(permissions=(RECV,))}, anonymous=True)
    nobody = [Principal(ANONYMOUS, space=space) for space in ("default", "one", "two", "none")]
    assert [users.is_open(each.space) for each in nobody] == [True, False, False, False]
    assert users.rights(nobody[0]) is None
    for each in nobody[1:]:
        found = users.rights(each)
        assert found is not None and not found.allows("send", "a")
        assert users.loss(Login(each)) == "clients without credentials are not allowed"
    assert rules(users, Principal("alice", space="one"))


def test_hosts_mean_spaces() -> None:
    users = directory({})
    assert users.hosts == {"one": "one", "one.example": "one", "two": "two"}
    users.take(body({}, spaces={}))
    assert users.hosts == {}
    assert directory({}, spaces=msgspec.UNSET).hosts == {}


def test_only_the_logins_of_a_space_are_looked_at() -> None:
    found: Enforcer[str] = Enforcer(UserDirectory(lambda: 1000.0), lambda _: None, Time().later, lambda: 1000.0)
    for full_name in ("alice", "!!one/alice", "!!two/alice", "!!two/bob"):
        alice = named(full_name)
        found.enter(full_name, Login(Principal(alice.name, ("g",), alice.space), None))
    everyone = ["alice", "!!one/alice", "!!two/alice", "!!two/bob"]
    assert found.take(body({"alice": user("g")}, full=True)) == everyone
    assert found.take(body({"!!one/alice": user("g")})) == ["!!one/alice"]
    assert found.take(body({"alice": user("g", credentials="2")})) == ["alice"]
    assert found.take(body({"!!two/@g": user()})) == ["!!two/alice", "!!two/bob"]
    assert found.take(body({"@g": user()})) == ["alice"]
    assert found.take(body({}, "!!two/@g")) == ["!!two/alice", "!!two/bob"]
    assert found.take(body({}, spaces={"one": SPACES["one"]})) == everyone  # a space is gone


def test_limits_count_in_each_space() -> None:
    limited = GrantedUser(limits=ConnectionLimits(connections=1, connects_per_second=1), credentials="1")
    found: Enforcer[str] = Enforcer(UserDirectory(lambda: 1000.0), lambda _: None, Time().later, lambda: 1000.0)
    found.take(body({"alice": limited, "!!one/alice": limited}, full=True))
    logins = [Login(Principal("alice", space=space), "1") for space in ("default", "one")]
    for number, each in enumerate(logins):
        assert found.too_many(each, "k") == found.too_often(each) == ""
        found.enter(str(number), each)
    for each in logins:
        assert found.too_many(each, "k").startswith("alice has 1 of 1 connections")
        assert found.too_often(each).startswith("alice may connect 1 times a second")
        found.leave(str(logins.index(each)), each)
        assert found.too_many(each, "k") == ""


ENTRIES = st.builds(user, st.sampled_from(["g", "h"]), permissions=st.sampled_from([(), (SEND,), (RECV,)]))
NAMES = tuple(prefix + name for prefix in ("", "!!one/", "!!two/") for name in ("alice", "bob", "@g"))
States = list[tuple[dict[str, GrantedUser], list[str]]]


STATE = st.tuples(st.dictionaries(st.sampled_from(NAMES), ENTRIES), st.lists(st.sampled_from(["one", "two"])))


@given(st.lists(STATE, max_size=5))
def test_changes_lead_to_the_same_rights_as_all_users(states: States) -> None:
    users, before = UserDirectory(), dict[str, GrantedUser]()
    for number, (entries, spaces) in enumerate(states):
        now = {name: each for name, each in entries.items() if named(name).space in ("default", *spaces)}
        known = {space: SPACES[space] for space in spaces}
        changed = {name: each for name, each in now.items() if before.get(name) != each}
        gone = [name for name in before if name not in now]
        if number:
            users.take(body(changed, *gone, spaces=known))
        else:
            users.take(body(now, full=True, spaces=known))
        before = now
        for space in ("default", "one", "two"):
            those = {named(name).name: each for name, each in now.items() if named(name).space == space}
            fresh = Permissions(those, space=space)
            for name in ("alice", "bob", "carol"):
                principal = Principal(name, ("g",), space)
                assert rules(users, principal) == fresh.rights(principal).rules


@pytest.mark.parametrize("space", ["default", "one"])
def test_permissions_of_one_space_are_none_of_another(space: str) -> None:
    other = "one" if space == "default" else "default"
    for anonymous in (True, False):
        permissions = Permissions({"alice": user(permissions=(SEND,))}, anonymous=anonymous, space=space)
        assert permissions.decide(Principal("alice", space=space), "send", "a").allowed
        assert not permissions.decide(Principal("alice", space=other), "send", "a").allowed


def test_messages_without_spaces_are_as_before() -> None:
    """And earlier versions read what they know of the others."""
    plain = msgspec.json.encode(PermissionChanges(users={"a": user()}))
    assert b"spaces" not in plain
    earlier = msgspec.defstruct("Earlier", [("users", dict[str, GrantedUser]), ("removed", list[str])])
    found: Any = msgspec.json.decode(
        msgspec.json.encode(body({"a": user(), "!!one/a": user()}, "!!one/b", "c")), type=earlier
    )
    assert list(found.users) == ["a"] and found.removed == ["!!one/b", "c"]
