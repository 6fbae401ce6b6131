"""Shares of a limit: processes that learn late what they may use never use more than the limit in all."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enmasse.identity.allowances import Allowances
from enmasse.identity.principal import Principal
from enmasse.model import feeds
from enmasse.model.tenants.plans import SpaceLimits
from enmasse.model.tenants.shares import OF_USERS, SharedLimit, Sharer, Use, split, split_rate
from tests.router.world import Clock

ALICE = Principal("alice", space="one")
KEY = "connections/one"


def spaces(connections: int) -> feeds.Spaces:
    return {"one": feeds.ReachedSpace(plan="small", limits=SpaceLimits(connections=connections))}


class Process:
    """Allowances of one process, and messages on their way from and to the configuration service."""

    def __init__(self, clock: Clock, limit: int, *, of_user: bool) -> None:
        own = limit if of_user else None
        self.allowances = Allowances(clock.call_later, lambda _: own)  # type: ignore[arg-type]  # the test's clock returns no timer
        if of_user:
            self.allowances.limit_users([])
        else:
            self.allowances.configure(spaces(limit))
        self.allowances.connected()
        self.up: list[feeds.UsageReport] = []
        self.down: list[feeds.Shares] = []
        self.number = self.seen = 0
        """Of the service's last message, and of the report that it has taken last."""
        self.open = 0

    def arrive(self) -> None:
        """A client opens a connection, is refused, or has to wait."""
        if self.allowances.wait(ALICE, lambda: None) or self.allowances.refusal(ALICE):
            return
        self.allowances.entered(ALICE)
        self.open += 1

    def report(self) -> None:
        if (report := self.allowances.report()) is not None:
            self.up.append(report)


class Service:
    """The configuration service with one limit, while the test decides when a message arrives."""

    def __init__(self, limit: int, key: str) -> None:
        self.limit = limit
        self.key = key
        self.shared: SharedLimit[Process] = SharedLimit(rate=False)

    def take(self, process: Process, report: feeds.UsageReport) -> None:
        process.seen = report.number
        told = self.shared.remove(process, self.limit) if report.removed else set()
        for use in report.uses.values():
            assert use.limit in (None, self.limit)
            told |= self.shared.report(process, use, report.seen, self.limit)
        for each in told & self.shared.parts.keys():
            each.number += 1
            part = self.shared.parts[each]
            part.sent = each.number
            share = feeds.Share(part.given, self.shared.used)
            each.down.append(feeds.Shares(number=each.number, seen=each.seen, shares={self.key: share}))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 12), st.integers(2, 4), st.integers(0, 2**32), st.booleans())
def test_processes_that_learn_late_never_have_more_than_the_limit(
    limit: int, count: int, seed: int, of_user: bool
) -> None:
    """Any order of arrivals, departures and deliveries of messages; at the end exactly the limit is used. `of_user`:
    the limit is that of the user's entry, not of a plan."""
    rng, clock = random.Random(seed), Clock()
    service = Service(limit, f"{OF_USERS}/one/alice" if of_user else KEY)
    processes = [Process(clock, limit, of_user=of_user) for _ in range(count)]

    def deliver(process: Process) -> None:
        if process.up:
            service.take(process, process.up.pop(0))
        if process.down:
            process.allowances.take(process.down.pop(0))

    for _ in range(150):
        process = rng.choice(processes)
        action = rng.randrange(5)
        if action == 0 and process.open:
            process.open -= 1
            process.allowances.left(ALICE)
        elif action in (1, 2):
            process.arrive()
        elif action == 3:
            process.report()
        else:
            deliver(process)
        assert sum(each.open for each in processes) <= limit
    only = processes[0]  # the others' clients come no more, and it gets what they have to spare
    for _ in range(60 + 4 * limit):
        only.arrive()
        for process in processes:
            process.report()
            while process.up or process.down:
                deliver(process)
    assert sum(each.open for each in processes) == limit


@pytest.mark.parametrize("ends", [True, False])
def test_a_login_waits_a_moment_for_the_room_of_a_connection_that_ends_elsewhere(ends: bool) -> None:
    """As that of a client that was moved here: the limit is used up until the other process has reported the end."""
    clock, service = Clock(), Service(1, KEY)
    here, there = (Process(clock, 1, of_user=False) for _ in range(2))

    def exchange() -> None:
        for _ in range(3):
            for each in (here, there):
                each.report()
                while each.up:
                    service.take(each, each.up.pop(0))
            for each in (here, there):
                while each.down:
                    each.allowances.take(each.down.pop(0))

    answers: list[str] = []
    assert there.allowances.wait(ALICE, lambda: there.allowances.entered(ALICE))
    exchange()
    assert not there.allowances.wait(ALICE, lambda: None), "nobody else can make room"
    assert here.allowances.wait(ALICE, lambda: answers.append(here.allowances.refusal(ALICE)))
    exchange()
    assert not answers
    if ends:
        there.allowances.left(ALICE)
        exchange()
        assert answers == [""]
    else:
        clock.later[-1]()  # the moment has passed
        assert answers[0].startswith("1 of 1 connections")


def test_a_limit_below_what_is_used_lets_nothing_new_in_until_less_is_used() -> None:
    one, other = Sharer(Use(6, share=8)), Sharer(Use(4, wanted=1, share=4))
    parts = [one, other]
    split(5, parts)
    assert (one.given, other.given) == (3, 2)
    other.sent = one.sent = 1
    one.report(Use(0, share=8), 0)
    other.report(Use(4, wanted=1, share=2), 1)
    split(5, parts)
    assert (one.given, other.given) == (0, 2), "the other share counts until the process has taken a smaller one"
    one.sent = 2
    one.report(Use(0), 2)
    split(5, parts)
    assert other.given == 5


@pytest.mark.parametrize(
    ("uses", "shares"),
    [
        ([Use(0)], [100]),
        ([Use(90, 500), Use(0)], [95, 5]),
        ([Use(500, 500), Use(500, 500)], [50, 50]),
        ([Use(20), Use(80, 300)], [20, 80]),
    ],
)
def test_a_rate_goes_where_the_traffic_is(uses: list[Use], shares: list[int]) -> None:
    parts = [Sharer(use) for use in uses]
    split_rate(100, parts)
    assert [part.given for part in parts] == shares


def test_processes_know_what_is_used_of_a_limit_that_is_exceeded() -> None:
    """They state it to clients that they refuse."""
    limit: SharedLimit[str] = SharedLimit(rate=False)
    assert limit.report("a", Use(2, share=2), 0, 2) >= {"a"}
    assert limit.report("b", Use(1), 0, 2) == {"a", "b"}
    assert limit.report("a", Use(1, share=2), 0, 2) == {"a", "b"} and limit.used == 2
