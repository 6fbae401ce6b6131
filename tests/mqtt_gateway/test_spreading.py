"""Which clients of a gateway connect again after another one came."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from enmasse.network.spreading import LEAST, Spreading
from enmasse.network.trickle import LEAVING


def test_only_what_came_later_makes_a_surplus() -> None:
    one = Spreading(11.0)
    assert one.take(2, 100, 50, 0.0) == 0, "the first reply: this gateway has no more than the other"
    assert one.take(2, 100, 100, LEAVING) == 0
    began = LEAVING + 20.0
    assert one.take(3, 102, 102, began) == 102 - 38
    one.closed(began + 6.0)
    assert one.take(3, 102, 60, began + 10.0) == 0, "the others have not reported since"
    assert one.take(3, 102, 60, began + 20.0) == 60 - 38
    one.closed(began + 23.0)
    assert one.take(3, 102, 42, began + 40.0) == 0, "few are left"
    assert one.take(3, 102, 90, began + LEAVING) == 0, "clients that come later are where chance has them"
    assert one.take(2, 102, 90, began + 180.0) == 0, "one has left"
    assert one.take(3, 102, 90, began + 190.0) > 0, "and came again"
    assert Spreading(1.0).take(1, 100, 100, 0.0) == 0


def test_clients_spread_that_connected_before_others_came_and_before_any_report() -> None:
    one = Spreading(11.0)
    assert one.take(0, 0, 17, 0.0) == 0
    assert one.take(4, 17, 17, 10.0) == 17 - 5 and one.came


def test_who_states_the_sums_begins_anew_while_another_one_comes() -> None:
    """Its first message states no process."""
    one = Spreading(11.0)
    one.take(1, 100, 100, 0.0)
    assert one.take(0, 0, 100, 10.0) == 0 and not one.came
    assert one.take(2, 100, 100, 11.0) == 44


def test_few_clients_stay() -> None:
    one = Spreading(11.0)
    one.take(1, 10, 10, 0.0)
    assert one.take(2, 10, 10, 10.0) == 0


@given(
    clients=st.lists(st.integers(0, 2000), min_size=1, max_size=5), come=st.integers(1, 3), seed=st.integers(0, 1000)
)
def test_clients_spread_and_none_is_moved_twice(clients: Sequence[int], come: int, seed: int) -> None:
    """Reports every 10 s, each gateway at a time of its own; a closed client comes to any of them by chance."""
    random = Random(seed)
    held = [*clients, *([0] * come)]
    gateways = [Spreading(11.0) for _ in held]
    stay = [*clients, *([0] * come)]  # may be closed: were there before
    reported = list(held)
    for number, each in enumerate(gateways[: len(clients)]):
        each.take(len(clients), sum(clients), held[number], 0.0)
    for step in range(1, 13):
        for number in random.sample(range(len(held)), len(held)):
            now = step * 10.0 + number
            reported[number] = held[number]
            surplus = gateways[number].take(len(held), sum(reported), held[number], now)
            closed = min(surplus, stay[number])
            assert closed <= held[number]
            if surplus:
                gateways[number].closed(now)
            stay[number] -= closed
            held[number] -= closed
            for _ in range(closed):
                held[random.randrange(len(held))] += 1
    assert sum(held) == sum(clients) and min(stay) >= 0
    mean = sum(held) / len(held)
    for number in range(len(clients)):
        assert stay[number] == 0 or held[number] <= mean * 1.5 + 4 * LEAST
