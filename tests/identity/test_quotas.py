"""Limits of a user's connections."""

from __future__ import annotations

import pytest

from enmasse.identity import quotas
from enmasse.identity.permissions import Permissions
from enmasse.identity.principal import Principal
from enmasse.identity.quotas import Quotas
from enmasse.model.users import ConnectionLimits, Granted
from tests.kit.clock import Clock

LIMITS = ConnectionLimits(connections=2, connects_per_second=3)


def admitted(found: Quotas, user: str, times: int, limits: ConnectionLimits = LIMITS) -> int:
    return sum(found.too_often(Principal(user), limits) == "" for _ in range(times))


def test_a_seconds_connects_may_come_at_once_and_no_more() -> None:
    clock = Clock(5000.0)
    found = Quotas(clock)
    assert admitted(found, "alice", 10) == 3
    assert "3 times a second" in found.too_often(Principal("alice"), LIMITS)
    assert admitted(found, "bob", 10) == 3, "other users have their own"
    clock.now += 0.34
    assert admitted(found, "alice", 10) == 1
    clock.now += 100
    assert admitted(found, "alice", 10) == 3
    total = 0
    for _ in range(100):
        clock.now += 0.1
        total += admitted(found, "alice", 5)
    assert 29 <= total <= 33


def test_once_a_second() -> None:
    clock = Clock(5000.0)
    found, once = Quotas(clock), ConnectionLimits(connects_per_second=1)
    assert admitted(found, "alice", 3, once) == 1
    clock.now += 1.0
    assert admitted(found, "alice", 3, once) == 1


def test_without_limits_nothing_is_refused_or_remembered() -> None:
    found = Quotas(Clock(5000.0))
    assert admitted(found, "alice", 1000, ConnectionLimits()) == 1000
    assert found.too_many("alice", ConnectionLimits(), 10**6) == ""
    assert not found._due


def test_connections_up_to_the_limit() -> None:
    found = Quotas(Clock(5000.0))
    assert [bool(found.too_many("alice", LIMITS, others)) for others in range(4)] == [False, False, True, True]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "MAX_USERS", 2)
    found = Quotas(Clock(5000.0))
    for user in ("a", "b", "a", "c"):
        found.too_often(Principal(user), LIMITS)
    assert list(found._due) == ["a", "c"]


def test_the_own_limit_counts_or_the_least_of_the_groups() -> None:
    entries = {
        "alice": Granted(groups=("x", "y", "gone"), limits=ConnectionLimits(connections=7)),
        "@x": Granted(limits=ConnectionLimits(connections=1, connects_per_second=5)),
        "@y": Granted(limits=ConnectionLimits(connects_per_second=4)),
        "@z": Granted(),
    }
    found = Permissions(entries)
    assert found.limits(Principal("alice")) == ConnectionLimits(connections=7, connects_per_second=4)
    assert found.limits(Principal("by token", ("x", "z"))) == entries["@x"].limits
    for other in (Principal("nobody"), Principal("by token", ("z",)), Principal("alice", space="other")):
        assert found.limits(other) == ConnectionLimits()
    assert Permissions(entries, anonymous=True).limits(Principal("alice")) == ConnectionLimits()
