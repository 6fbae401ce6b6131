"""Another kind of destination: an address and the senders take it as they take receivers. A mesh will add one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import RELEASED, Source, Target
from services.router.routing.addresses.address import RoutedAddress
from services.router.routing.addresses.choice import Choice
from services.router.routing.addresses.deliveries import Source as Origin
from services.router.routing.addresses.deliveries import Token
from services.router.routing.configuration import BALANCED, CLOSEST, MULTICAST
from services.router.routing.connection import RouterConnection
from services.router.routing.links.in_link import InLink
from services.router.routing.links.streaming import HIGH_WATER
from tests.router.world import World


class Neighbour:
    """Stands for the link to a neighbouring router: keeps what it gets, and settles when the test wants it."""

    capacity = 250
    windows = 1
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
    def room(self) -> int:
        return 0

    @property
    def load(self) -> int:
        return len(self.held)

    names_senders = False

    def tag(self, source: Origin) -> bytes | None:
        return None

    presettled = 0

    def send_run(self, payloads: Sequence[bytes], tokens: Sequence[Token] | None, mark: bytes = b"") -> int:
        return 0

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
    address.add_neighbour(neighbour)
    return world, neighbour


class FromNeighbour(InLink):
    """What comes from a neighbouring router goes to local destinations only."""

    def choice_in(self, address: RoutedAddress) -> Choice:
        return address.local


def with_two_neighbours(treatment: str = BALANCED) -> tuple[World, Neighbour, RoutedAddress]:
    """The same, and the sender is a neighbour too."""
    world, neighbour = with_neighbour()
    address = world.router.addresses.get("M0a")
    assert address is not None
    client = next(link for link in world.record.links.values() if isinstance(link, InLink))
    address.remove_in(client)
    del world.record.links[client.identity]
    link = client.link
    link.context = FromNeighbour(world.record, link, address)
    world.record.add(link.context)
    address.add_in(link.context)
    address.treat_as(treatment)
    world.pump()
    return world, neighbour, address


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


@pytest.mark.parametrize("treatment", [BALANCED, CLOSEST, MULTICAST])
def test_what_comes_from_a_neighbour_does_not_go_to_one(treatment: str) -> None:
    world, neighbour, _ = with_two_neighbours(treatment)
    world.send(10)
    assert (len(world.arrived), neighbour.load) == (10, 0)


@pytest.mark.parametrize("treatment", [BALANCED, MULTICAST])
def test_what_comes_from_a_neighbour_in_pieces_does_not_go_to_one(treatment: str) -> None:
    world, neighbour, _ = with_two_neighbours(treatment)
    body = 3 * HIGH_WATER
    world.sender.send(b"\x00\x53\x75\xb0" + body.to_bytes(4) + bytes(body), object())
    for _ in range(100):
        world.pump()
    assert (len(world.arrived), neighbour.load) == (1, 0)


def test_what_waits_for_a_local_receiver_is_not_handed_to_a_neighbour() -> None:
    world, neighbour, address = with_two_neighbours()
    world.receiver.credit_window = 0
    world.receiver.drain_credit()
    world.pump()
    world.send(3)
    address.relieve(neighbour)
    address.relieve_all()
    assert neighbour.load == 0 and not world.arrived
    world.receiver.credit_window = 10
    world.pump()
    assert len(world.arrived) == 3


def test_a_neighbour_has_credit_only_while_there_is_a_local_receiver() -> None:
    world, _, address = with_two_neighbours()
    assert world.sender.credit > 0
    world.receiver.detach()
    world.pump()
    address.park(next(iter(address.ins)))
    address.unpark()
    world.pump()
    assert world.sender.credit == 0
    session: Any = world.receiver.session
    again = session.attach_receiver("again", Source(address="a"), Target())
    again.credit_window = 10
    world.pump()
    assert world.sender.credit > 0


def test_the_closest_is_a_local_receiver_as_long_as_one_has_credit() -> None:
    world, neighbour = with_neighbour()
    address = world.router.addresses.get("M0a")
    assert address is not None
    address.treat_as(CLOSEST)
    world.send(10)
    assert (len(world.arrived), neighbour.load) == (10, 0)
    world.receiver.credit_window = 0
    world.receiver.drain_credit()
    world.pump()
    world.send(5)
    assert (len(world.arrived), neighbour.load) == (10, 5)
