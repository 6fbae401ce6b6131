"""Live state: what followers get sums up to what is, in bounded memory, however they take it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from enmasse.amqp.messages.sections import Sections
from enmasse.live_state import MAX_EVENTS, MAX_REMOVED, ROWS, LivePublisher, Merged, Rows
from tests.router.world import Clock


class Follower:
    """Takes messages while it has credit."""

    def __init__(self) -> None:
        self.credit = 0
        self.sizes: list[int] = []
        self.full = 0
        self.merged = Merged()

    @property
    def ready(self) -> bool:
        return self.credit > 0

    def reply(self, payload: bytes) -> None:
        self.credit -= 1
        sections = Sections(payload)
        assert sections.properties.subject == "enmasse.live_state"
        body = json.loads(sections.body()[1][0])
        self.full += body["full"]
        self.sizes.append(sum(len(body.get(kind, ())) for kind in ("a", "b")))
        self.merged.apply(body)


class World:
    """A publisher with rows that the test sets, and a clock of its own."""

    def __init__(self) -> None:
        self.truth: dict[str, dict[str, Any]] = {"a": {}, "b": {}}
        self.followers: list[Follower] = []
        self.clock = Clock()
        self.rows = Rows("x", "router", lambda: 5.0)
        self.publisher = LivePublisher(self.rows, self.look, lambda: self.followers, self.clock)

    def look(self) -> Iterator[None]:
        for kind, rows in self.truth.items():
            for id, row in rows.items():
                self.rows.put(kind, id, row)
                yield
        for kind, id in [key for key in self.rows._rows if key[1] not in self.truth[key[0]]]:
            self.rows.drop(kind, id)

    def second(self) -> None:
        self.publisher.start()
        self.clock.run()

    def follow(self, credit: int = 0) -> Follower:
        follower = Follower()
        follower.credit = credit
        self.followers.append(follower)
        return follower

    def shown(self, follower: Follower) -> dict[str, dict[str, Any]]:
        return {kind: follower.merged.kinds.get(kind, {}) for kind in self.truth}


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("ab"), st.integers(0, 9), st.integers(0, 3)),
        st.tuples(st.just("drop"), st.sampled_from("ab"), st.integers(0, 9)),
        st.tuples(st.just("credit"), st.integers(0, 2), st.integers(1, 2)),
        st.tuples(st.just("event"), st.integers(0, 9)),
        st.tuples(st.just("second")),
        st.tuples(st.just("follow")),
        st.tuples(st.just("leave"), st.integers(0, 2)),
    ),
    max_size=60,
)


@given(_STEPS)
def test_messages_sum_up_to_the_truth_for_each_follower(steps: list[tuple[Any, ...]]) -> None:
    world = World()
    for step in steps:
        match step:
            case ("put", kind, id, value):
                world.truth[kind][str(id)] = {"value": value}
            case ("drop", kind, id):
                world.truth[kind].pop(str(id), None)
            case ("credit", which, n) if which < len(world.followers):
                world.followers[which].credit += n
            case ("event", n):
                world.rows.event({"id": "x", "n": n})
            case ("follow",):
                world.follow()
            case ("leave", which) if which < len(world.followers):
                del world.followers[which]
            case ("second",):
                world.second()
            case _:
                pass
    for follower in world.followers:
        follower.credit = 100
    world.second()
    for follower in world.followers:
        assert world.shown(follower) == world.truth
        assert follower.merged.complete
        assert follower.merged.events == world.followers[0].merged.events


def test_a_slow_follower_gets_the_newest_state_once_it_takes() -> None:
    world = World()
    fast, slow = world.follow(credit=1000), world.follow()
    for n in range(50):
        world.truth["a"]["row"] = {"value": n}
        world.second()
    assert len(fast.sizes) == 50 and not slow.sizes
    slow.credit = 1
    world.second()
    assert slow.sizes == [1]
    assert world.shown(slow) == world.truth == world.shown(fast)


def test_a_message_has_a_bounded_number_of_rows_and_the_last_one_completes_the_state() -> None:
    world = World()
    world.truth["a"] = {str(n): {"value": n} for n in range(3 * ROWS + 1)}
    follower = world.follow(credit=3)
    world.second()
    assert follower.sizes == [ROWS] * 3 and not follower.merged.complete
    follower.credit = 3
    world.second()
    assert follower.sizes == [ROWS] * 3 + [1] and follower.full == 1
    assert follower.merged.complete and world.shown(follower) == world.truth


def test_a_follower_that_never_takes_costs_no_more_while_rows_come_and_go() -> None:
    world = World()
    world.follow()
    taking = world.follow(credit=10)
    world.second()
    for n in range(MAX_REMOVED + 100):
        world.rows.put("a", str(n), {})
        world.rows.drop("a", str(n))
    for n in range(2 * MAX_EVENTS):
        world.rows.event({"id": "x", "n": n})
    assert len(world.rows) == 0
    assert len(world.rows._removed) == MAX_REMOVED and len(world.rows._events) == MAX_EVENTS
    world.truth["a"]["new"] = {"value": 1}
    taking.credit = 100
    world.second()
    assert taking.full == 2  # removals that it had not taken were forgotten
    assert world.shown(taking) == world.truth


def test_without_a_follower_nothing_is_looked_at_or_kept() -> None:
    world = World()
    world.truth["a"]["row"] = {"value": 1}
    world.second()
    assert len(world.rows) == 0
    world.follow(credit=1)
    world.second()
    assert len(world.rows) == 1
    world.followers.clear()
    world.second()
    assert len(world.rows) == 0


def test_a_restarted_process_has_another_run_and_its_state_replaces_the_old_one() -> None:
    before, after = World(), World()
    before.truth["a"]["old"] = {"value": 1}
    after.truth["a"]["new"] = {"value": 1}
    follower = before.follow(credit=10)
    before.second()
    run = follower.merged.run
    after.followers.append(follower)
    after.second()
    assert follower.merged.run != run
    assert after.shown(follower) == after.truth


def test_a_look_that_fails_is_repeated_a_second_later() -> None:
    world = World()
    follower = world.follow(credit=10)
    look, failures = world.publisher._look, [1]

    def failing() -> Iterator[None]:
        if failures:
            failures.pop()
            raise RuntimeError("once")
        return look()

    world.publisher._look = failing
    later: list[Callable[[], None]] = []
    world.clock.call_later = lambda delay, what: later.append(what)  # type: ignore[method-assign]  # the clock of this test keeps what it is given
    world.truth["a"]["row"] = {"value": 1}
    world.second()
    assert not follower.sizes
    later.pop()()
    world.clock.run()
    assert world.shown(follower) == world.truth
