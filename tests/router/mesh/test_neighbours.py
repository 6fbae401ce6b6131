"""Neighbours by HELLO: found, silent, lost, and two of one id."""

from __future__ import annotations

import pytest

from services.router.mesh.control_messages import Hello
from services.router.mesh.neighbours import DuplicateRouter, NeighbourRefused, Neighbours

HEARD = ("me",)


@pytest.fixture
def neighbours() -> Neighbours:
    made = Neighbours("me", 100)
    made.add(1, 7)
    return made


def test_router_is_a_neighbour_when_it_has_heard_this_one(neighbours: Neighbours) -> None:
    assert neighbours.seen(1, 0.0) == ()
    assert not neighbours.hello(1, Hello("r1", 5), 0.0)
    assert neighbours.routers() == []
    assert neighbours.seen(1, 0.0) == ("r1",)
    assert neighbours.hello(1, Hello("r1", 5, HEARD), 1.0)
    assert neighbours.costs() == {"r1": 7}
    assert neighbours.link_of("r1") == 1


def hear(neighbours: Neighbours, seconds: float, every: float, *, link: int = 1) -> float:
    """Handle HELLOs that arrive at this interval; return the time of the last one."""
    now = 0.0
    while now + every <= seconds:
        now += every
        neighbours.hello(link, Hello("r1", 5, HEARD), now)
    return now


@pytest.mark.parametrize(("every", "silence"), [(0.5, 1.5), (1.0, 2.0), (1.25, 2.5), (2.0, 3.0)])
def test_neighbour_is_lost_after_twice_its_usual_pause(neighbours: Neighbours, every: float, silence: float) -> None:
    last = hear(neighbours, 60.0, every)
    assert neighbours.expire(last + silence - 0.1) == []
    assert neighbours.seen(1, last + silence - 0.1) == ("r1",)
    assert neighbours.seen(1, last + silence) == ()
    assert neighbours.expire(last + silence) == [(1, "r1")]
    assert (neighbours.routers(), neighbours.links()) == ([], [])


def test_neighbour_that_was_late_has_more_time_for_a_while(neighbours: Neighbours) -> None:
    last = hear(neighbours, 60.0, 0.5) + 1.4
    neighbours.hello(1, Hello("r1", 5, HEARD), last)
    assert neighbours.expire(last + 2.7) == []
    for _ in range(40):
        last += 0.5
        neighbours.hello(1, Hello("r1", 5, HEARD), last)
    assert neighbours.expire(last + 1.5) == [(1, "r1")]


def test_anything_that_comes_is_a_sign_of_life(neighbours: Neighbours) -> None:
    """A HELLO may wait behind a large message."""
    neighbours.hello(1, Hello("r1", 5, HEARD), 0.0)
    for second in range(1, 10):
        neighbours.arrived(1, float(second))
        assert neighbours.expire(float(second)) == []
    neighbours.arrived(2, 9.0)  # has just closed


@pytest.mark.parametrize("more", [False, True], ids=["hellos", "and-other-bytes"])
def test_neighbour_that_no_longer_hears_this_router_is_lost(neighbours: Neighbours, more: bool) -> None:
    neighbours.hello(1, Hello("r1", 5, HEARD), 0.0)
    for second in range(1, 3):
        neighbours.hello(1, Hello("r1", 5), float(second))
        if more:
            neighbours.arrived(1, float(second))
        assert neighbours.expire(float(second)) == []
    neighbours.hello(1, Hello("r1", 5), 3.0)
    assert neighbours.seen(1, 3.0) == ("r1",)
    assert neighbours.expire(3.0) == [(1, "r1")]


def test_neighbour_is_lost_with_its_connection(neighbours: Neighbours) -> None:
    neighbours.hello(1, Hello("r1", 5, HEARD), 0.0)
    neighbours.remove(1)
    assert neighbours.costs() == {}
    assert neighbours.links() == []


def test_second_connection_to_a_neighbour_replaces_the_lost_first(neighbours: Neighbours) -> None:
    neighbours.add(2, 9)
    neighbours.hello(1, Hello("r1", 5, HEARD), 0.0)
    assert not neighbours.hello(2, Hello("r1", 5, HEARD), 0.5)
    assert neighbours.costs() == {"r1": 7}
    neighbours.remove(1)
    assert neighbours.costs() == {"r1": 9}


def test_second_connection_replaces_a_silent_first(neighbours: Neighbours) -> None:
    neighbours.add(2, 9)
    neighbours.hello(1, Hello("r1", 5, HEARD), 0.0)
    neighbours.hello(2, Hello("r1", 5, HEARD), 3.0)
    assert neighbours.expire(3.5) == [(1, "r1")]
    assert neighbours.link_of("r1") == 2


def test_second_process_with_the_id_of_a_neighbour_is_refused(neighbours: Neighbours) -> None:
    neighbours.add(2, 9)
    neighbours.hello(1, Hello("r1", 5, HEARD), 0.0)
    with pytest.raises(DuplicateRouter, match="r1"):
        neighbours.hello(2, Hello("r1", 6, HEARD), 2.0)
    assert neighbours.costs() == {"r1": 7}


def test_restarted_neighbour_is_accepted_when_its_old_connection_is_silent(neighbours: Neighbours) -> None:
    neighbours.add(2, 9)
    neighbours.hello(1, Hello("r1", 5, HEARD), 0.0)
    neighbours.hello(2, Hello("r1", 6, HEARD), 3.5)
    neighbours.expire(3.5)
    assert neighbours.link_of("r1") == 2


def test_another_router_with_the_id_of_this_one_is_refused(neighbours: Neighbours) -> None:
    with pytest.raises(DuplicateRouter, match="me"):
        neighbours.hello(1, Hello("me", 101), 0.0)


def test_connection_to_itself_is_refused(neighbours: Neighbours) -> None:
    with pytest.raises(NeighbourRefused, match="itself") as raised:
        neighbours.hello(1, Hello("me", 100), 0.0)
    assert not isinstance(raised.value, DuplicateRouter)


@pytest.mark.parametrize("hello", [Hello("r2", 5, HEARD), Hello("r1", 6, HEARD)])
def test_connection_belongs_to_one_router(neighbours: Neighbours, hello: Hello) -> None:
    neighbours.hello(1, Hello("r1", 5, HEARD), 0.0)
    with pytest.raises(NeighbourRefused):
        neighbours.hello(1, hello, 1.0)


def test_hello_of_a_closed_connection_has_no_effect(neighbours: Neighbours) -> None:
    neighbours.remove(1)
    assert not neighbours.hello(1, Hello("r1", 5, HEARD), 0.0)
    assert neighbours.routers() == []
