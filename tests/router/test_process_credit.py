"""Credit of a process of the suite that sends for many clients: their outcomes may take longer than one client's, but
no more waits in the router. A router in memory."""

from __future__ import annotations

import pytest

from enmasse.amqp.codec.performatives import Source, Target
from enmasse.amqp.messages.message import Message
from services.router.routing.links.in_link import FURTHER, PLENTY
from tests.router.world import World, gateway_rights

WINDOW = 250
MOST = (1 + FURTHER) * WINDOW
MANY = 3 * MOST


def all_windows(count: int) -> bool:
    """Credit is topped up in steps of half a window."""
    return MOST - WINDOW // 2 < count <= MOST


class Sending(World):
    """A receiver that settles nothing, with credit for `credit` messages, and a sender, of a gateway if it is a
    `process`."""

    def __init__(self, credit: int, process: bool = True) -> None:
        super().__init__()
        self.receiver.drain_credit()
        self.pump()
        self.receiver.grant(credit)
        self.sender.detach()
        self.pump()
        if process:
            self.record.rights = gateway_rights()
        self.sender = self.client.begin().attach_sender("g", Source(), Target(address="a"))
        self.pump()

    def send_while_credit(self, most: int = MANY, settled: bool = False, size: int = 1) -> int:
        """Send messages until there is no credit, in turns; returns their number."""
        count = 0
        while self.sender.credit > 0 and count < most:
            for _ in range(min(16, self.sender.credit, most - count)):
                self.sender.send(Message(b"x" * size).encode(), object(), settled=settled)
                count += 1
            self.pump()
            assert self.sender.credit <= WINDOW
        return count


def test_process_has_several_windows_under_way_to_receivers_with_credit() -> None:
    world = Sending(MANY)
    count = world.send_while_credit()
    assert count == len(world.arrived)
    assert all_windows(count)


def test_client_has_one_window_under_way() -> None:
    world = Sending(MANY, process=False)
    assert world.send_while_credit() == len(world.arrived) == WINDOW


def test_no_more_than_a_window_of_a_process_waits_for_a_receiver_without_credit() -> None:
    world = Sending(100)
    assert world.send_while_credit() - len(world.arrived) <= WINDOW
    assert len(world.arrived) == 100


@pytest.mark.parametrize("size", [2000, 200_000])
def test_large_messages_of_a_process_are_under_way_within_one_window(size: int) -> None:
    world = Sending(MANY)
    world.send_while_credit(WINDOW // 2)
    assert world.send_while_credit(size=size) <= WINDOW


def test_settlements_let_a_process_send_as_many_further_messages() -> None:
    world = Sending(MANY)
    world.send_while_credit()
    world.settle(*world.arrived)
    assert world.sender.credit == WINDOW
    assert all_windows(world.send_while_credit())


def test_process_goes_on_after_a_receiver_without_credit_has_settled() -> None:
    world = Sending(100)
    world.send_while_credit()
    world.receiver.grant(MANY)
    world.pump()
    world.settle(*world.arrived)
    assert all_windows(world.send_while_credit())


def test_presettled_messages_of_a_process_come_within_one_window() -> None:
    world = Sending(MANY)
    world.send_while_credit(WINDOW // 2)  # some without an outcome among them
    assert world.send_while_credit(MOST, settled=True) == MOST
    assert world.sender.credit <= WINDOW


def test_messages_wait_for_their_receiver_only() -> None:
    world = Sending(0)
    session = world.client.begin()
    other = session.attach_receiver("other", Source(address="b"), Target())
    world.pump()
    sender = session.attach_sender("to-other", Source(), Target(address="b"))
    world.pump()
    got: list[bytes] = []
    other.on_delivery = lambda link, delivery_id, settled, payload, *_: got.append(payload)
    sender.send(Message(b"other").encode(), object())
    world.send_while_credit(3)
    other.grant(10)
    world.pump()
    assert len(got) == 1
    assert not world.arrived


class Spreading(Sending):
    """Two receivers with credit for `credit` messages each, and a gateway's sender."""

    def __init__(self, credit: int) -> None:
        super().__init__(credit)
        other = self.client.begin().attach_receiver("r2", Source(address="a"), Target())
        other.on_delivery = self.receiver.on_delivery
        self.pump()
        other.grant(credit)
        self.pump()

    def send_together(self, count: int, size: int = 1) -> None:
        """Send settled messages, so that they are read together."""
        for _ in range(count):
            self.sender.send(Message(b"x" * size).encode(), settled=True)
        self.pump()


def test_settled_messages_of_a_process_to_several_receivers_with_plenty_of_room_come_in_several_windows() -> None:
    world = Spreading(PLENTY * MOST)
    world.send_together(WINDOW)
    assert world.sender.credit > MOST - WINDOW // 2
    world.send_together(world.sender.credit)
    assert world.sender.credit > MOST // 2
    assert len(world.arrived) == world.sender.deliveries


@pytest.mark.parametrize(
    ("room", "size"), [(PLENTY * MOST // 2, 1), (PLENTY * MOST, 2000)], ids=["little room", "large messages"]
)
def test_settled_messages_of_a_process_come_within_one_window(room: int, size: int) -> None:
    world = Spreading(room)
    world.send_together(WINDOW, size)
    assert world.sender.credit == WINDOW


def test_window_of_a_process_is_one_again_when_receivers_have_less_room() -> None:
    world = Spreading(PLENTY * MOST)
    world.send_together(WINDOW)
    assert world.sender.credit > WINDOW
    while world.sender.deliveries < 7 * MOST:
        world.send_together(world.sender.credit)
    assert world.sender.credit <= WINDOW
    assert len(world.arrived) == world.sender.deliveries
