"""Users from the feed of changes, and live logins of theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.identity.enforcer import Enforcer
from enmasse.identity.login import LONGEST_WAIT, Login
from enmasse.identity.permissions import Permissions
from enmasse.identity.principal import ANONYMOUS, Principal
from enmasse.identity.user_directory import UserDirectory
from enmasse.model.feeds import GrantedUser, PermissionChanges
from enmasse.model.users import ConnectionLimits, Permission

SEND = Permission(effect="allow", operations=("send",), addresses=("a",))
RECV = Permission(effect="allow", operations=("recv",), addresses=("a",))


def user(*groups: str, credentials: str = "1", permissions: tuple[Permission, ...] = ()) -> GrantedUser:
    return GrantedUser(groups=groups, credentials=credentials, permissions=permissions)


def login(name: str, *groups: str, credentials: str | None = "1", **more: Any) -> Login:
    return Login(Principal(name, groups), credentials, **more)


def full(**users: GrantedUser) -> PermissionChanges:
    return PermissionChanges(users={name.replace("group_", "@"): each for name, each in users.items()})


def change(*removed: str, **users: GrantedUser) -> PermissionChanges:
    found = full(**users)
    return PermissionChanges(full=False, users=found.users, removed=list(removed))


class Time:
    """Seconds, and calls that are to come."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def later(self, seconds: float, call: Callable[[], None]) -> Any:
        found = self.now + seconds, call
        self.calls.append(found)
        calls = self.calls

        class Timer:
            def cancel(self) -> None:
                calls.remove(found)

        return Timer()

    def go_to(self, now: float) -> None:
        self.now = now
        due = [each for each in self.calls if each[0] <= now]
        self.calls[:] = [each for each in self.calls if each[0] > now]
        for _, call in due:
            call()


def live(*logins: Login, time: Time | None = None) -> tuple[Enforcer[str], list[str]]:
    """Logins by the names of their users, and those that are to be looked at."""
    time = time or Time()
    visited: list[str] = []
    found: Enforcer[str] = Enforcer(UserDirectory(lambda: time.now), visited.append, time.later, lambda: time.now)
    for each in logins:
        found.enter(each.principal.name, each)
    return found, visited


@pytest.mark.parametrize(
    ("given", "body", "reason"),
    [
        (login("alice"), change(bob=user()), ""),
        (login("alice"), change(alice=user(credentials="2")), "the password of alice has changed"),
        (login("alice"), change("alice"), "the user alice was removed"),
        (login("alice", certified=True), change(alice=user(credentials="2")), ""),
        (login("alice", certified=True), change("alice"), "the user alice was removed"),
        (login("alice", expires=1000), change(), "the login of alice has expired"),
        (login("carol", credentials=None), change("alice"), ""),
        (login("carol", credentials=None, expires=999), change(), "the login of carol has expired"),
        (login(ANONYMOUS, credentials=None), change(), "clients without credentials are not allowed"),
        (login(ANONYMOUS, credentials=None), change(anonymous=user(credentials="")), ""),
        (login("alice", expires=1), PermissionChanges(anonymous=True), ""),
    ],
)
def test_why_a_login_no_longer_holds(given: Login, body: PermissionChanges, reason: str) -> None:
    users = UserDirectory(lambda: 1000.0)
    users.take(full(alice=user()))
    users.take(body)
    assert users.loss(given) == reason


def test_only_logins_that_are_concerned_are_looked_at() -> None:
    found, _ = live(login("alice"), login("bob", "g"), login("carol", "h", credentials=None), login("dave"))
    everyone = ["alice", "bob", "carol", "dave"]
    assert found.take(full(alice=user(), bob=user("g"), dave=user())) == everyone
    assert found.take(full(alice=user(), bob=user("g"), dave=user())) == []
    assert found.take(change(alice=user("x"))) == ["alice"]
    assert found.take(change("dave")) == ["dave"]
    assert found.take(change(group_g=user())) == ["bob"]
    assert found.take(change(group_h=user())) == ["carol"]  # of its token
    assert found.take(change("@x", erin=user())) == ["alice"]
    assert found.take(PermissionChanges(full=False, anonymous=True)) == everyone


def test_rights_are_the_same_object_until_other_rules_apply() -> None:
    users = UserDirectory()
    users.take(full(alice=user("g"), group_g=user(permissions=(SEND,))))
    alice, bob = Principal("alice"), Principal("bob", ("g",))
    rights = users.rights(alice), users.rights(bob)
    for body in (change(alice=user("g", credentials="2")), change(group_x=user()), change(dave=user())):
        users.take(body)  # nobody asks for the rights in between
    assert users.rights(alice) is rights[0] and users.rights(bob) is rights[1]
    users.take(change(group_g=user(permissions=(RECV,))))
    for principal, before in zip((alice, bob), rights, strict=True):
        now = users.rights(principal)
        assert now is not None and before is not None
        assert (before.allows("send", "a"), now.allows("send", "a"), now.allows("recv", "a")) == (True, False, True)


ENTRIES = st.builds(
    user, st.sampled_from(["g", "h"]), permissions=st.sampled_from([(), (SEND,), (RECV,), (SEND, RECV)])
)
NAMES = ("alice", "bob", "@g", "@h")


@given(st.lists(st.dictionaries(st.sampled_from(NAMES), ENTRIES), max_size=6), st.booleans())
def test_changes_lead_to_the_same_rights_as_all_users(states: list[dict[str, GrantedUser]], asks: bool) -> None:
    users, before = UserDirectory(), dict[str, GrantedUser]()
    principals = [Principal(name, ("g",)) for name in ("alice", "bob", "carol")]
    for number, now in enumerate(states):
        changed = {name: each for name, each in now.items() if before.get(name) != each}
        users.take(
            PermissionChanges(
                full=not number,
                users=changed if number else now,
                removed=[name for name in before if name not in now] if number else [],
            )
        )
        before = now
        if asks or number == len(states) - 1:
            fresh = Permissions(now)
            for principal in principals:
                assert users.permissions.rights(principal).rules == fresh.rights(principal).rules
                assert users.permissions.limits(principal) == fresh.limits(principal)


def test_a_login_is_looked_at_when_it_expires() -> None:
    time = Time()
    found, visited = live(login("alice", expires=3000), login("bob", expires=1500), time=time)
    time.go_to(1000 + LONGEST_WAIT)
    assert visited == ["bob"]
    found.leave("alice", login("alice"))
    time.go_to(1000 + 2 * LONGEST_WAIT)
    assert (visited, time.calls) == (["bob"], [])
    found.enter("alice", login("alice", expires=10), 5.0)
    assert visited == ["bob"]
    time.go_to(time.now + 5)
    assert visited == ["bob", "alice"]


def test_a_login_that_takes_the_place_of_another_is_counted_once() -> None:
    time = Time()
    found, visited = live(login("alice", expires=2000), time=time)
    limits = ConnectionLimits(connections=1)
    found.take(full(alice=GrantedUser(credentials="1", limits=limits)))
    assert found.too_many(login("alice"), "alice") == ""
    assert found.too_many(login("alice"), "other").startswith("alice has 1 of 1 connections")
    found.hold("alice", login("alice"))
    time.go_to(2000)
    assert visited == ["alice"]  # the one that is live is still looked after
    found.enter("alice", login("alice"))
    assert time.calls == []
    found.leave("alice", login("alice"))
    assert found.too_many(login("alice"), "other") == ""
