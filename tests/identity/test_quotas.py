"""Limits of a user's connections."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from enmasse.clock import Timer
from enmasse.identity import quotas
from enmasse.identity.allowances import Allowances
from enmasse.identity.permissions import Permissions
from enmasse.identity.principal import Principal
from enmasse.identity.quotas import Quotas
from enmasse.model import feeds
from enmasse.model.names import DEFAULT_SPACE
from enmasse.model.tenants.shares import CONNECTS, SharedLimit
from enmasse.model.users import ConnectionLimits, Granted
from tests.kit.clock import Clock

LIMITS = ConnectionLimits(connections=2, connects_per_second=3)
KEY = f"{CONNECTS}/{DEFAULT_SPACE}/alice"


class Process:
    """A process with the limits of users. `timers`: what it does after REPORT."""

    def __init__(self, clock: Clock) -> None:
        self.timers: list[Callable[[], None]] = []
        self.allowances = Allowances(self._later, lambda _: None)
        self.quotas = Quotas(clock, self.allowances, self._later)

    def _later(self, seconds: float, call: Callable[[], None]) -> Timer:
        assert seconds == quotas.REPORT
        self.timers.append(call)
        return None  # type: ignore[return-value]  # nothing here cancels one


def limits_of(clock: Clock) -> Quotas:
    return Process(clock).quotas


class Service:
    """The configuration service, and the messages between it and processes, which arrive at once."""

    def __init__(self, *processes: Process) -> None:
        self._processes = processes
        self.shared: SharedLimit[Process] = SharedLimit(rate=True)
        self._number = 0
        for each in processes:
            each.allowances.connected()

    def exchange(self) -> None:
        for each in self._processes:
            report = each.allowances.report()
            if report is None:
                continue
            if KEY in report.removed:
                self._tell(self.shared.remove(each, self.shared.stated))
            elif (use := report.uses.get(KEY)) is not None:
                self._tell(self.shared.report(each, use, report.seen, use.limit))

    def _tell(self, processes: set[Process]) -> None:
        for each in processes:
            self._number += 1
            part = self.shared.parts[each]
            part.sent = self._number
            share = feeds.Share(part.given, self.shared.used)
            each.allowances.take(feeds.Shares(number=self._number, seen=self._number, shares={KEY: share}))

    def second(self, clock: Clock) -> None:
        clock.now += 1.0
        for each in self._processes:
            timers, each.timers = each.timers, []
            for call in timers:
                call()
        self.exchange()


def admitted(found: Quotas, user: str, times: int, limits: ConnectionLimits = LIMITS) -> int:
    return sum(found.too_often(Principal(user), limits) == "" for _ in range(times))


def test_a_seconds_connects_may_come_at_once_and_no_more() -> None:
    clock = Clock(5000.0)
    found = limits_of(clock)
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
    found, once = limits_of(clock), ConnectionLimits(connects_per_second=1)
    assert admitted(found, "alice", 3, once) == 1
    clock.now += 1.0
    assert admitted(found, "alice", 3, once) == 1


def test_without_limits_nothing_is_refused_or_remembered() -> None:
    found = limits_of(Clock(5000.0))
    assert admitted(found, "alice", 1000, ConnectionLimits()) == 1000
    assert not found._levels


@pytest.mark.parametrize("rate", [1, 2, 30])
def test_processes_share_the_rate_of_a_user(rate: int) -> None:
    """A user that tries everywhere all the time gets the rate once; one that uses a single process has it there."""
    clock, limits = Clock(5000.0), ConnectionLimits(connects_per_second=rate)
    processes = [Process(clock) for _ in range(3)]
    service = Service(*processes)
    counts = []
    for _ in range(120):
        counts.append(0)
        for each in processes:
            counts[-1] += admitted(each.quotas, "alice", 50, limits)
            service.exchange()
        service.second(clock)
    assert counts[0] <= 3 * rate, "none had its share yet"
    assert 0.7 * rate * 100 <= sum(counts[20:]) <= 1.1 * rate * 100
    alone = []
    for _ in range(60):
        alone.append(admitted(processes[0].quotas, "alice", 50, limits))
        service.exchange()
        service.second(clock)
    assert 0.7 * rate * 40 <= sum(alone[20:]) <= 1.1 * rate * 40
    assert list(service.shared.parts) == processes[:1], "shares of the others are given back"
    for _ in range(quotas.IDLE + 1):
        service.second(clock)
    assert not service.shared.parts and not processes[0].allowances._accounts and not processes[0].timers


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "MAX_USERS", 2)
    found = limits_of(Clock(5000.0))
    for user in ("a", "b", "a", "c"):
        found.too_often(Principal(user), LIMITS)
    assert list(found._levels) == ["a", "c"]


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
