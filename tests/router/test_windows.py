"""How much of a queue is under way to its receivers at once. A router in memory, between clients and a broker."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from enmasse.amqp.codec.performatives import ACCEPTED, Source, Target
from enmasse.amqp.link import FIRST, SECOND, Receiver, Sender
from tests.router.test_drains import World

WINDOW = 250
MOST = 4 * WINDOW
"""For a receiver that settles in a second step."""


class Queue(World):
    """A queue with more messages than anyone takes. Receivers whose names begin with `stuck` settle nothing."""

    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()
        super().__init__("queue")
        self.receiver.detach(closed=True)
        self.client.on_delivery = self.delivered  # type: ignore[method-assign]  # this queue decides who settles
        self.broker.on_outcomes = self.stored_outcomes  # type: ignore[method-assign]  # the peer does not settle
        self.run()
        self.put(100_000)

    def delivered(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        self.taken[link.name] += 1
        if not link.name.startswith("stuck"):
            link.session.settle(delivery_id, ACCEPTED)

    def stored_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
        """The broker settles what it has stored; a receiver that settles first has done so already."""
        if not settled:
            link.settle(tokens)

    def seconds(self, count: int) -> None:
        """Let time pass: after a while credit no longer waits for what is not settled."""
        for _ in range(count):
            self.clock.now += 1.0
            self.router.watch.start()
            self.run()

    def attach(self, name: str, mode: int, credit: int) -> Receiver:
        receiver = self.client.near.begin().attach_receiver(name, Source(address="a"), Target(), rcv_settle_mode=mode)
        receiver.credit_window = credit
        self.run()
        return receiver


@pytest.mark.parametrize(
    ("mode", "credit", "taken"),
    [(FIRST, 10, 10), (FIRST, 2000, WINDOW), (SECOND, 10, 10), (SECOND, 750, 750), (SECOND, 9000, MOST)],
)
def test_a_receiver_that_settles_in_a_second_step_is_sent_what_it_asks_for_up_to_four_windows(
    mode: int, credit: int, taken: int
) -> None:
    world = Queue()
    world.attach("stuck", mode, credit)
    assert world.taken["stuck"] == taken


@pytest.mark.parametrize(
    "stuck",
    [
        (FIRST,), (SECOND, FIRST), (FIRST,) * 17, (FIRST, SECOND) * 10,
        *(pytest.param(stuck, marks=pytest.mark.slow) for stuck in ((SECOND,), (SECOND,) * 6, (FIRST,) * 30)),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("last", "mode"),
    [
        pytest.param(True, FIRST, id="last-0"),
        pytest.param(False, SECOND, id="first-1"),
        pytest.param(True, SECOND, id="last-1", marks=pytest.mark.slow),
        pytest.param(False, FIRST, id="first-0", marks=pytest.mark.slow),
    ],
)
def test_receivers_that_settle_nothing_hold_their_windows_and_another_one_continues(
    stuck: tuple[int, ...], mode: int, last: bool
) -> None:
    world = Queue()
    if not last:
        world.attach("busy", mode, 2000)
    for n, each in enumerate(stuck):
        world.attach(f"stuck{n}", each, 9000)
    if last:
        world.attach("busy", mode, 2000)
    before = world.taken["busy"]
    world.seconds(15)
    assert world.taken["busy"] > before + 1000
    held = sum(taken for name, taken in world.taken.items() if name != "busy")
    assert held < sum(WINDOW if each == FIRST else MOST for each in stuck) + WINDOW


def test_two_receivers_that_settle_in_a_second_step_share_a_queue() -> None:
    world = Queue()
    world.attach("one", SECOND, 1000)
    world.attach("two", SECOND, 1000)
    world.taken.clear()
    world.seconds(5)
    assert min(world.taken.values()) * 2 > max(world.taken.values()) > 1000
