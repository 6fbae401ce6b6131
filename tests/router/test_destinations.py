"""Another kind of destination: an address and the senders take it as they take receivers. A mesh will add one."""

from __future__ import annotations

from typing import Any

from enmasse.amqp.errors import AmqpError
from enmasse.amqp.performatives import RELEASED
from services.router.routing.connection import RouterConnection
from services.router.routing.deliveries import Token
from tests.router.world import World


class Neighbour:
    """Stands for the link to a neighbouring router: keeps what it gets, and settles when the test wants it."""

    capacity = 250
    direct = False

    def __init__(self, connection: RouterConnection) -> None:
        self.connection = connection
        self.held: list[Token] = []
        self.sent = 0
        self.full = False

    @property
    def ready(self) -> bool:
        return not self.full

    @property
    def load(self) -> int:
        return len(self.held)

    def pass_on(self, payload: bytes, token: Token) -> bool:
        raise AssertionError("it is not direct")

    def offer(self, payload: Any, token: Token | None, message_format: int) -> None:
        assert token is not None and bytes(payload)
        self.held.append(token)
        self.sent += 1

    def reply(self, payload: bytes) -> bool:
        return False

    def detach(self, error: AmqpError | None = None) -> None:
        raise AssertionError("nobody takes it away")

    def settle(self, state: Any) -> int:
        """Settle what it holds; returns how many."""
        held, self.held = self.held, []
        for source, delivery_id in held:
            source.settle(delivery_id, state)
            source.count(state)
        return len(held)


def with_neighbour() -> tuple[World, Neighbour]:
    """A router whose address `a` has a receiver here and one behind a neighbour."""
    world = World()
    neighbour = Neighbour(world.record)
    address = world.router.addresses.get("M0a")
    assert address is not None
    address.add_out(neighbour)
    return world, neighbour


def test_deliveries_are_balanced_over_a_receiver_and_a_neighbour() -> None:
    world, neighbour = with_neighbour()
    world.send(10)
    assert len(world.arrived) + neighbour.load == 10
    assert min(len(world.arrived), neighbour.load) >= 4


def test_its_outcomes_are_the_senders() -> None:
    world, neighbour = with_neighbour()
    world.send(10)
    released = neighbour.settle(RELEASED)
    world.settle(*world.arrived)
    total = world.router.totals()
    assert released >= 4 and (total.accepted, total.released) == (10 - released, released)


def test_what_is_not_ready_gets_nothing_while_another_has_room() -> None:
    world, neighbour = with_neighbour()
    neighbour.full = True
    world.send(10)
    assert (len(world.arrived), neighbour.load) == (10, 0)


def test_the_last_destination_takes_the_senders_credit_along() -> None:
    world, neighbour = with_neighbour()
    address = world.router.addresses.get("M0a")
    assert address is not None
    world.receiver.detach()
    world.pump()
    assert world.sender.credit > 0
    address.remove_out(neighbour)
    world.pump()
    assert world.sender.credit == 0
