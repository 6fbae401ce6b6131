"""Which wills there are, by a book alone and by a model of it."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.mqtt_lwt.wills import State, Turned, Will, WillBook

GRACE = 5.0
_ids = count(1)


def will(key: str = "c", delay: float = 0) -> Will:
    return Will(f"w{next(_ids)}", key, "to", 1, delay, 10)


def book() -> WillBook:
    made = WillBook(GRACE)
    made.resume(0)
    return made


def due(turned: Turned) -> list[str]:
    assert not turned.delayed
    return [will.id for will in turned.due]


@pytest.mark.clause("v5", "MQTT-3.1.2-8")
def test_a_lost_client_s_will_is_due_and_one_that_ended_well_has_none() -> None:
    wills = book()
    first, second, third = will("a"), will("b"), will("c")
    for one in (first, second, third):
        assert wills.put(one, 1) is None
    assert due(wills.lose("a", 1, 1)) == [first.id]
    assert wills.clear("b", 1) is second
    assert [one.id for one in wills.detached(1)] == [third.id]
    assert [one.id for one in wills] == [first.id] and first.state is State.DUE
    assert wills.clear("a", 1) is None, "what is due is not taken back"
    wills.remove(first)
    assert len(wills) == wills.bytes.used == 0 and wills.next_time() is None


def test_one_that_comes_again_within_the_grace_time_triggers_nothing() -> None:
    wills = book()
    old, gone, cleared = will("again"), will("gone"), will("cleared")
    for one in (old, gone, cleared):
        wills.put(one, 1)
    wills.lost(1, 10)
    new = will("again")
    assert wills.put(new, 2) is old
    assert wills.clear("cleared", 2) is cleared
    assert wills.next_time() == 15
    assert due(wills.pass_time(14.9, 100)) == []
    assert due(wills.pass_time(15, 100)) == [gone.id]
    assert new.state is State.HELD and wills.next_time() is None


def test_the_grace_time_runs_only_while_clients_can_come() -> None:
    wills = book()
    held, orphan = will("held"), will("orphan")
    wills.put(held, 1)
    wills.put(orphan, 2)
    wills.lost(2, 10)
    wills.suspend()
    wills.lost(1, 11)
    assert wills.next_time() is None
    assert due(wills.pass_time(1000, 100)) == []
    wills.resume(2000)
    assert wills.next_time() == 2005
    assert sorted(due(wills.pass_time(2005, 100))) == sorted([held.id, orphan.id])


@pytest.mark.clause("v5", "MQTT-3.1.3-9")
def test_the_delay_runs_from_the_loss_and_ends_when_the_client_comes() -> None:
    wills = book()
    one, other, third = will("a", 60), will("b", 60), will("c", 60)
    for each in (one, other, third):
        wills.put(each, 1)
    assert wills.lose("a", 1, 100) == Turned([one], [])
    assert wills.lose("a", 1, 130) == Turned([], []), "told again: the delay does not begin again"
    wills.lost(1, 110)
    assert wills.pass_time(115, 100) == Turned([other, third], [])
    assert wills.clear("c", 2) is third
    assert due(wills.pass_time(160, 100)) == [one.id]
    assert due(wills.pass_time(170, 100)) == [other.id]


def test_the_delay_ends_with_the_session() -> None:
    wills = book()
    waits, held, orphan = will("waits", 60), will("held", 60), will("orphan", 60)
    wills.put(waits, 1)
    wills.put(held, 1)
    wills.put(orphan, 3)
    wills.lose("waits", 1, 100)
    wills.lost(3, 100)
    assert due(wills.session_ended("orphan", 2, 101)) == [], "it has come again within the grace time"
    assert due(wills.session_ended("waits", 2, 101)) == [waits.id]
    assert due(wills.session_ended("held", 2, 101)) == [held.id], "its connection was taken over"
    assert wills.put(will("waits"), 2) is None
    assert wills.put(will("orphan"), 2) is orphan


def test_one_that_is_to_connect_elsewhere_has_the_grace_time_for_it() -> None:
    wills = book()
    back, gone, stays = will("back"), will("gone"), will("stays")
    for one in (back, gone, stays):
        wills.put(one, 1)
    for key in ("back", "gone"):
        wills.moved(key, 1, 100)
    assert due(wills.session_ended("back", 2, 101)) == [], "it begins another session, and was not lost"
    assert wills.put(will("back"), 2) is back
    assert due(wills.pass_time(104.9, 100)) == []
    assert due(wills.pass_time(105, 100)) == [gone.id]
    assert stays.state is State.HELD


def test_the_end_of_the_session_may_move_and_it_may_be_deleted() -> None:
    wills = book()
    sooner, later, waits, orphan, back = (will(key, 60) for key in ("sooner", "later", "waits", "orphan", "back"))
    for one in (sooner, later, waits, back):
        wills.put(one, 1)
    wills.put(orphan, 3)
    assert due(wills.lose("sooner", 1, 100, 0)) == [sooner.id]
    assert wills.lose("later", 1, 100, 120) == Turned([later], [])
    assert wills.lose("waits", 1, 100) == Turned([waits], [])
    wills.lost(3, 100)
    assert due(wills.session_deleted("back", 101)) == [], "it is of another session"
    assert due(wills.session_deleted("waits", 101)) == [waits.id]
    assert due(wills.session_deleted("orphan", 101)) == [orphan.id]
    assert due(wills.pass_time(219, 100)) == []
    assert due(wills.pass_time(220, 100)) == [later.id]


def test_a_delay_shorter_than_the_grace_time_is_over_with_it() -> None:
    wills = book()
    one = will("a", 3)
    wills.put(one, 1)
    wills.lost(1, 10)
    assert due(wills.pass_time(15, 100)) == [one.id]


def test_what_a_link_says_of_a_client_that_another_has_taken_over_is_late() -> None:
    wills = book()
    old, new = will(), will()
    wills.put(old, 1)
    wills.put(new, 2)
    assert due(wills.lose("c", 1, 1)) == [] and wills.clear("c", 1) is None
    assert wills.detached(1) == []
    assert due(wills.failed(1, 2)) == []
    newest = will()
    assert wills.put(newest, 1) is new, "the client has come back to the first"
    assert wills.clear("c", 2) is None
    assert due(wills.lose("c", 1, 3)) == [newest.id]


def test_a_client_that_is_lost_and_comes_again_has_two_wills_for_a_moment() -> None:
    wills = book()
    old, new = will(), will()
    wills.put(old, 1)
    assert due(wills.lose("c", 1, 1)) == [old.id]
    assert wills.put(new, 1) is None
    assert wills.detached(1) == [new]
    assert [one.id for one in wills] == [old.id]


def test_thousands_at_a_time_come_in_portions() -> None:
    wills = book()
    for number in range(5000):
        wills.put(will(f"c{number}"), 1)
    wills.lost(1, 0)
    portions = []
    while (portion := wills.pass_time(GRACE, 500)).due:
        portions.append(len(portion.due))
    assert portions == [500] * 10


class Books(RuleBasedStateMachine):
    """The book, restarted now and then from what its caller has stored; beside it what each client's will must be."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.book = book()
        self.stored: dict[str, tuple[Will, float | None]] = {}
        self.published: list[str] = []
        self.must: dict[str, str] = {}  # client → id of its will
        self.lost: set[str] = set()  # ids of those whose clients are known to be lost without a delay
        self.never: set[str] = set()  # ids of those that must not be published
        self.held: dict[str, int] = {}  # client → link

    def turned(self, turned: Turned) -> None:
        for one in turned.delayed:
            assert one.at is not None
            self.stored[one.id] = (one, one.at)
        for one in turned.due:
            self.stored[one.id] = (one, self.now)

    @rule(key=st.sampled_from("abc"), link=st.integers(1, 3), delay=st.sampled_from([0, 0, 2, 60]))
    def put(self, key: str, link: int, delay: float) -> None:
        one = will(key, delay)
        replaced = self.book.put(one, link)
        if replaced is not None:
            del self.stored[replaced.id]
            self.never.add(replaced.id)
        self.stored[one.id] = (one, None)
        self.must[key], self.held[key] = one.id, link

    @rule(key=st.sampled_from("abc"))
    def clear(self, key: str) -> None:
        gone = self.book.clear(key, self.held.get(key, 9))
        if gone is not None:
            del self.stored[gone.id]
            self.never.add(gone.id)
            assert self.must.pop(key) == gone.id

    @rule(key=st.sampled_from("abc"))
    def lose(self, key: str) -> None:
        turned = self.book.lose(key, self.held.get(key, 9), self.now)
        self.turned(turned)
        for one in turned.due:
            assert self.must.pop(key) == one.id
            self.lost.add(one.id)

    @rule(link=st.integers(1, 3), how=st.sampled_from(["detached", "failed", "lost"]))
    def end(self, link: int, how: str) -> None:
        if how == "detached":
            for gone in self.book.detached(link):
                del self.stored[gone.id]
                self.never.add(gone.id)
                del self.must[gone.key]
        elif how == "failed":
            turned = self.book.failed(link, self.now)
            self.turned(turned)
            for one in turned.due:
                assert self.must.pop(one.key) == one.id
                self.lost.add(one.id)
        else:
            self.book.lost(link, self.now)

    @rule(seconds=st.sampled_from([0.5, 3.0, 6.0, 100.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        while (turned := self.book.pass_time(self.now, 2)) != Turned([], []):
            self.turned(turned)
            for one in turned.due:
                assert self.must.pop(one.key) == one.id
                self.lost.add(one.id)

    @rule()
    def publish(self) -> None:
        for one in [one for one in self.book if one.state is State.DUE]:
            assert one.id in self.lost
            self.book.remove(one)
            del self.stored[one.id]
            self.published.append(one.id)

    @rule()
    def restart(self) -> None:
        self.book = WillBook(GRACE)
        for one, at in self.stored.values():
            fresh = Will(one.id, one.key, one.to, one.qos, one.delay, one.size)
            self.book.restore(fresh, None if at is None else at - self.now, self.now)
        self.stored = {one.id: (one, self.stored[one.id][1]) for one in self.book}
        self.book.resume(self.now)

    @precondition(lambda self: self.must)
    @rule()
    def away(self) -> None:
        self.book.suspend()
        self.book.resume(self.now)

    @invariant()
    def nothing_is_lost_nothing_is_twice(self) -> None:
        there = {one.id for one in self.book}
        assert there == set(self.stored)
        assert len(self.published) == len(set(self.published))
        assert not self.never & set(self.published)
        assert self.lost <= there | set(self.published)
        assert set(self.must.values()) <= there
        assert self.book.bytes.used == 10 * len(there)


Books.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestBooks = Books.TestCase
