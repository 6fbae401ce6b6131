"""How many processes their load has: the rules, and the controller that measures."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.process.process_bounds import ProcessBounds, parse
from enmasse.supervisor.autoscale import CROWDED, DOWN_AFTER, IDLE, UP_AFTER, Autoscale
from enmasse.supervisor.autoscaler import EVERY, Autoscaler
from enmasse.supervisor.children.child import Child
from enmasse.supervisor.children.replicas import Replicas


def after(rules: Autoscale, count: int, busy: float, connections: int, seconds: float) -> tuple[int, float] | None:
    """The number that is decided, and when, with a constant load for so long."""
    for step in range(int(seconds / EVERY) + 1):
        if (found := rules.take(step * EVERY, count, busy, connections)) is not None:
            return found.number, step * EVERY
    return None


@pytest.mark.parametrize(
    ("count", "busy", "connections", "decided"),
    [
        (1, 0.9, 10, (2, UP_AFTER)),
        (4, 3.9, 10, None),  # that are the most
        (1, 0.1, CROWDED + 1, (2, UP_AFTER)),
        (2, 0.3, 10, (1, DOWN_AFTER)),
        (2, 0.3, CROWDED, None),
        (2, IDLE + 0.1, 10, None),
        (1, 0.0, 0, None),
        (6, 0.5, 0, (4, 0.0)),  # the bounds are others now
    ],
)
def test_what_is_decided(count: int, busy: float, connections: int, decided: tuple[int, float] | None) -> None:
    assert after(Autoscale(ProcessBounds(1, 4)), count, busy, connections, 200) == decided


def test_a_short_peak_has_no_process_come() -> None:
    rules = Autoscale(ProcessBounds(1, 4))
    for step in range(100):
        assert rules.take(step * EVERY, 1, 0.99 if step % 4 else 0.1, 0) is None


@given(
    bounds=st.tuples(st.integers(1, 8), st.integers(1, 8)).map(lambda two: ProcessBounds(min(two), max(two))),
    begin=st.integers(1, 8), work=st.floats(0, 10), hop=st.floats(0, 3), connections=st.integers(0, 60_000),
    noise=st.lists(st.floats(0.85, 1.15), min_size=1, max_size=40),
)  # fmt: skip
def test_a_constant_load_never_has_a_process_come_and_go(
    bounds: ProcessBounds, begin: int, work: float, hop: float, connections: int, noise: list[float]
) -> None:
    """`work`: in processors, with one process; `hop`: how much more it is for what goes over two, spread by chance."""
    rules, count = Autoscale(bounds), bounds.nearest(begin)
    counts = [count]
    for step in range(2000):
        needed = work * (1 + hop * (count - 1) / count) * noise[step % len(noise)]
        decision = rules.take(step * EVERY, count, min(needed, count), connections)
        if decision is not None:
            assert decision.reason and abs(decision.number - count) == 1
            count = decision.number
            counts.append(count)
    assert all(bounds.least <= each <= bounds.most for each in counts)
    steps = {after - before for before, after in pairwise(counts)}
    assert len(steps) <= 1, counts


@pytest.mark.parametrize(("text", "bounds"), [("2", (2, 2)), ("1..4", (1, 4)), ("3..3", (3, 3)), ("0", (0, 0))])
def test_bounds_as_they_are_written(text: str, bounds: tuple[int, int]) -> None:
    assert parse(text) == bounds and parse(str(parse(text))) == bounds


@pytest.mark.parametrize("text", ["", "4..1", "1..", "..4", "-1", "1...4", "a", "1..99999", "\u0662", "1 .. 4"])
def test_what_are_no_bounds(text: str) -> None:
    with pytest.raises(ValueError, match="expected a number"):
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
