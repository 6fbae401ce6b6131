"""Rates of a space at one router, with a clock of the test: what came beyond the rate is paid for by time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from enmasse.identity.allowances import Allowances
from enmasse.identity.space_rates import BURST, TICK
from enmasse.model.feeds import ReachedSpace
from enmasse.model.tenants.plans import SpaceLimits
from services.router.routing.connection_rates import ConnectionRates

RATE = 1000


class Timers:
    """A clock whose timers the test fires."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, what: Callable[[], None]) -> None:
        self.due.append(what)

    def call_later(self, delay: float, what: Callable[[], None]) -> Any:
        self.due.append(what)

    def tick(self) -> None:
        self.now += TICK
        due, self.due = self.due, []
        for call in due:
            call()


class Held:
    throttled = False

    def throttle(self, throttled: bool) -> None:
        self.throttled = throttled


class Amqp:
    def __init__(self) -> None:
        self.bytes_in = 0
        self.held = Held()


class Client:
    """A connection of a client, as the rates see it."""

    def __init__(self, space: str) -> None:
        self.space, self.prefix = space, f"!!{space}/"
        self.amqp = Amqp()
        self.links: dict[int, Any] = {}
        self.ended_in = 0
        self.closed = False

    def send(self, messages: int, size: int = 100) -> None:
        self.ended_in += messages
        self.amqp.bytes_in += messages * size


class Rates(NamedTuple):
    """Rates of the space one, and clients of it and of another space."""

    timers: Timers
    allowances: Allowances
    sends: Client
    receives: Client
    other: Client

    def tick(self) -> None:
        """Pass a tick, in which the receiver says something, but sends no message."""
        self.receives.amqp.bytes_in += 10
        self.timers.tick()


def rates(**limits: Any) -> Rates:
    timers = Timers()
    allowances = Allowances(timers.call_later, lambda _: None)
    clients = [Client("one"), Client("one"), Client("two")]
    made = ConnectionRates(dict(enumerate(clients)), allowances, timers)  # type: ignore[arg-type]  # as the rates see them
    made.start()
    assert not timers.due, "without limits there is nothing to look at"
    allowances.configure({"one": ReachedSpace(plan="p", limits=SpaceLimits(**limits)), "two": ReachedSpace()})
    made.start()
    return Rates(timers, allowances, *clients)


@pytest.mark.parametrize(
    ("limits", "messages", "size"),
    [({"messages_per_second": RATE}, 10, 1), ({"bytes_per_second": 100 * RATE}, 10, 100)],
)
def test_who_sends_more_than_the_rate_is_not_read_until_time_has_paid(
    limits: dict[str, int], messages: int, size: int
) -> None:
    world = rates(**limits)
    for _ in range(100):
        world.tick()
        assert not world.sends.amqp.held.throttled
    sent, begun = 0, world.timers.now
    for _ in range(400):
        if not world.sends.amqp.held.throttled:
            world.sends.send(20 * messages, size)
            sent += 20 * messages
        world.other.send(1000)
        world.tick()
        assert not world.receives.amqp.held.throttled and not world.other.amqp.held.throttled
    allowed = RATE * (world.timers.now - begun + BURST)
    assert allowed - RATE * BURST - 20 * messages <= sent <= allowed + 20 * messages


def test_a_smaller_share_counts_and_without_a_limit_everything_is_read_again() -> None:
    world = rates(messages_per_second=RATE)
    world.sends.send(10 * RATE)
    world.tick()
    assert world.sends.amqp.held.throttled
    for _ in range(20):
        world.tick()
    report = world.allowances.report()
    assert report is not None and report.uses["messagesPerSecond/one"].wanted == RATE
    world.allowances.configure({"one": ReachedSpace()})
    world.tick()
    assert not world.sends.amqp.held.throttled and not world.timers.due
