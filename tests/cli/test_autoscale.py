"""How many processes their load has: the rules, and the controller that measures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.process.process_bounds import ProcessBounds, parse
from enmasse.supervisor.autoscale import ALONE_AFTER, CROWDED, DOWN_AFTER, IDLE, LONGEST, UP_AFTER, Autoscale
from enmasse.supervisor.autoscaler import EVERY, Autoscaler
from enmasse.supervisor.children.child import Child
from enmasse.supervisor.children.replicas import Replicas


def after(
    rules: Autoscale, busy: Sequence[float], connections: int, seconds: float, begin: float = 0
) -> tuple[int, float] | None:
    """The number that is decided, and when, with a constant load for so long."""
    for step in range(int(seconds / EVERY) + 1):
        if (found := rules.take(begin + step * EVERY, busy, connections)) is not None:
            return found.number, step * EVERY
    return None


@pytest.mark.parametrize(
    ("busy", "connections", "decided"),
    [
        ((0.9,), 10, (2, UP_AFTER)),
        ((0.95,) * 4, 10, None),  # that are the most
        ((0.1,), CROWDED + 1, (2, UP_AFTER)),
        ((0.15, 0.15), 10, (1, DOWN_AFTER)),
        ((0.15, 0.15), CROWDED, None),
        ((IDLE, 0.1), 10, None),
        ((0.9, 0.1), 10, (3, ALONE_AFTER)),  # one of them alone
        ((0.5, 0.25, 0.0), 10, (2, DOWN_AFTER)),
        ((0.45, 0.0, 0.3), 10, None),  # with all the work of the last one, the first would be busy
        ((0.0,), 0, None),
        ((0.1,) * 6, 0, (4, 0.0)),  # the bounds are others now
    ],
)
def test_what_is_decided(busy: Sequence[float], connections: int, decided: tuple[int, float] | None) -> None:
    assert after(Autoscale(ProcessBounds(1, 4)), busy, connections, 200) == decided


def test_a_short_peak_has_no_process_come() -> None:
    rules = Autoscale(ProcessBounds(1, 4))
    for step in range(100):
        assert rules.take(step * EVERY, [0.99 if step % 4 else 0.1], 0) is None


def test_one_busy_client_has_one_process_come_beside_its_own_and_no_more() -> None:
    """A process more does not relieve the one that this client is at; it goes when there is less work."""
    rules = Autoscale(ProcessBounds(1, 8))
    assert after(rules, (0.9, 0.0), 1, 100) == (3, ALONE_AFTER)
    for number, work in enumerate((0.9, 0.6)):
        assert after(rules, (work, 0.0, 0.0), 1, 900, 1000 * (number + 1)) is None
    assert after(rules, (0.3, 0.0, 0.0), 1, 900, 3000) == (2, DOWN_AFTER)


def test_who_comes_and_goes_with_its_load_has_the_number_change_ever_more_rarely() -> None:
    """As busy as it takes for one more, then still until one goes, and again."""
    rules, count, changed = Autoscale(ProcessBounds(1, 4)), 1, []
    now, day = 0.0, 24 * 3600
    while now < day:
        if decision := rules.take(now, [0.99 if count == 1 else 0.0] * count, 0):
            count = decision.number
            changed.append(now)
        now += EVERY
    assert len([moment for moment in changed if moment < 3600]) <= 2 * 6
    assert 0 < len([moment for moment in changed if moment > day - 4 * 3600]) <= 2 * 4
    later = now + 2 * LONGEST
    rules.forget()
    assert after(rules, (0.0, 0.0), 0, 2 * DOWN_AFTER, later) == (1, DOWN_AFTER)  # it stayed away for long


@given(
    bounds=st.tuples(st.integers(1, 8), st.integers(1, 8)).map(lambda two: ProcessBounds(min(two), max(two))),
    begin=st.integers(1, 8), clients=st.lists(st.floats(0, 1), max_size=20), even=st.floats(0, 8),
    hop=st.floats(0, 3), connections=st.integers(0, 60_000), chance=st.randoms(use_true_random=False),
    noise=st.lists(st.floats(0.85, 1.15), min_size=1, max_size=40),
)  # fmt: skip
def test_a_constant_load_never_has_a_process_come_and_go(
    bounds: ProcessBounds, begin: int, clients: list[float], even: float, hop: float, connections: int,
    chance: Random, noise: list[float],
) -> None:  # fmt: skip
    """`clients`: work of single ones, in processors, with one process; `even`: that of many small ones; `hop`: how much
    more it is for what goes over two, spread by chance. Clients spread by their number when a process comes; those of
    one that goes go anywhere."""
    rules, count = Autoscale(bounds), bounds.nearest(begin)
    counts = [count]
    placed = spread(clients, count, chance)
    for step in range(2000):
        more = (1 + hop * (count - 1) / count) * noise[step % len(noise)]
        decision = rules.take(step * EVERY, [min(1.0, (even / count + sum(own)) * more) for own in placed], connections)
        if decision is not None:
            assert decision.reason and abs(decision.number - count) == 1
            if decision.number > count:
                placed = spread(clients, decision.number, chance)
            else:
                for each in placed.pop():
                    chance.choice(placed).append(each)
            count = decision.number
            counts.append(count)
    assert all(bounds.least <= each <= bounds.most for each in counts)
    steps = {after - before for before, after in pairwise(counts)}
    assert len(steps) <= 1, counts


def spread(clients: list[float], count: int, chance: Random) -> list[list[float]]:
    """The work of the clients at each of so many processes, which have as many of them."""
    shuffled = chance.sample(clients, len(clients))
    return [shuffled[number::count] for number in range(count)]


@pytest.mark.parametrize(("text", "bounds"), [("2", (2, 2)), ("1..4", (1, 4)), ("3..3", (3, 3)), ("0", (0, 0))])
def test_bounds_as_they_are_written(text: str, bounds: tuple[int, int]) -> None:
    assert parse(text) == bounds and parse(str(parse(text))) == bounds


@pytest.mark.parametrize("text", ["", "4..1", "1..", "..4", "-1", "1...4", "a", "1..99999", "\u0662", "1 .. 4"])
def test_what_are_no_bounds(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected (a number|the least)"):
        parse(text)


class Fake:
    """A process of a group."""

    leaving = False

    def __init__(self, name: str) -> None:
        self.spec = SimpleNamespace(name=name, leave_within=0)
        self.pid, self.ready, self.counts = int(name[-1]) + 1000, True, {"clients": 7}

    def start(self) -> None: ...


def group(file: Path) -> Replicas:
    return Replicas(
        "router", 8, file, lambda name: cast("Child", Fake(name)), lambda name: None, lambda: None
    )  # fmt: skip


def test_the_controller_has_a_process_come_once_all_are_ready_and_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = 0.0
    monkeypatch.setattr("enmasse.supervisor.children.os_process.worked", lambda pid: at * 0.9)
    routers = group(tmp_path / "scale-router.json")
    routers.start()
    autoscaler = Autoscaler(routers)

    def looks(seconds: float) -> None:
        nonlocal at
        until = at + seconds
        while at < until:
            at += EVERY
            autoscaler.look(at)

    looks(60)
    assert routers.count == 1 and autoscaler.sentence == ""  # one number, by hand
    assert routers.scale(ProcessBounds(1, 3)) == (True, "router runs 1..3 processes, as their load needs from now on")
    assert not routers.scale(ProcessBounds(1, 9))[0] and not routers.scale(ProcessBounds(0, 2))[0]
    looks(UP_AFTER + 2 * EVERY)
    assert routers.count == 2
    assert autoscaler.sentence == "by load 1..3: 2 now, because they are busy for 90% of the time on average"
    newest = cast("Any", routers.children[-1])
    newest.ready = False
    looks(60)
    assert routers.count == 2  # the new one is not ready yet
    newest.ready = True
    looks(60)
    assert routers.count == 3
    again = group(tmp_path / "scale-router.json")  # the next run of the suite
    assert (again.count, again.bounds) == (3, (1, 3))
    assert again.scale(ProcessBounds(3, 3))[0] and again.bounds.fixed
