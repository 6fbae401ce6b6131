"""The choice among many destinations of an address."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.router.routing.addresses.choice import PART, Choice, ChoiceLimits
from services.router.routing.addresses.destination import Destination
from services.router.routing.configuration import BALANCED

LOOKS: Counter[str] = Counter()


class Receiver:
    """A destination with room for `capacity` deliveries; LOOKS counts how often one is asked for its load."""

    windows = 1

    def __init__(self, load: int = 0, ready: bool = True, capacity: int = 10) -> None:
        self.capacity = capacity
        self.ready = ready
        self._load = load

    @property
    def load(self) -> int:
        LOOKS["load"] += 1
        return self._load

    def take(self) -> None:
        self._load += 1

    def settle(self) -> None:
        self._load = 0


def among(receivers: list[Receiver]) -> Choice:
    return Choice(ChoiceLimits(BALANCED), cast("list[Destination]", receivers))


def send(choice: Choice, messages: int) -> None:
    for _ in range(messages):
        cast("Any", choice.pick()).take()


@pytest.mark.parametrize("number", [2, PART, PART + 1, 10 * PART + 3])
def test_each_of_many_gets_its_share(number: int) -> None:
    receivers = [Receiver() for _ in range(number)]
    send(among(receivers), 3 * number)
    assert {each.load for each in receivers} == {3}


def test_a_message_costs_no_look_at_each_of_many() -> None:
    """Loads differ, so that a round is short: that of the few with the least load."""
    receivers = [Receiver(load=number % 9) for number in range(100 * PART)]
    choice = among(receivers)
    LOOKS.clear()
    choice.ready()
    assert LOOKS["load"] <= 2 * PART


@given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=2, max_size=4 * PART))
def test_one_that_can_take_it_now_is_found(states: list[tuple[int, bool]]) -> None:
    """One with room that is ready, if there is any; otherwise one with room, and a full one only among full ones."""
    receivers = [Receiver(load, ready) for load, ready in states]
    found = cast("Receiver", among(receivers).ready())
    roomy = [each for each in receivers if each.load < each.capacity] or receivers
    assert found in ([each for each in roomy if each.ready] or roomy)


def test_those_that_leave_are_not_chosen() -> None:
    receivers = [Receiver() for _ in range(3 * PART)]
    choice = among(receivers)
    send(choice, 2 * PART + 5)
    for each in receivers[PART:]:
        choice.remove(cast("Destination", each))
    for each in receivers:
        each.settle()
    send(choice, 2 * PART)
    assert {each.load for each in receivers[:PART]} == {2} and not any(each.load for each in receivers[PART:])
