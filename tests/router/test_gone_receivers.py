"""A receiver ends while large messages of a broker wait for it on a routed link: the broker is read again."""

from __future__ import annotations

import pytest

from enmasse.amqp.link import Sender
from tests.router.test_drains import World

SIZE = 400_000
LARGE = b"\x00\x53\x75\xb0" + SIZE.to_bytes(4, "big") + bytes(SIZE)
MESSAGES = 40
"""More than the router takes from a broker before it stops reading: 8 MiB."""


def waiting_for_a_deaf_client() -> World:
    """A broker has sent large messages over a routed link to a client that has credit for them and does not read."""
    world = World("routed")
    world.client.far.set_blocked(True)
    world.receiver.grant(MESSAGES)
    world.run()
    (session,) = world.broker.near.sessions()
    (link,) = session.links
    assert isinstance(link, Sender)
    for _ in range(MESSAGES):
        link.send(LARGE, object())
    world.run()
    return world


@pytest.mark.parametrize("end", ["detach", "end of the session", "loss of the connection", "detach of the broker"])
def test_what_waits_for_an_ended_receiver_occupies_nothing_of_the_brokers_connection(end: str) -> None:
    world = waiting_for_a_deaf_client()
    held = world.broker.far.held
    assert held.streamed > 1 << 20
    (session,) = world.broker.near.sessions()
    match end:
        case "detach":
            world.receiver.detach()
        case "end of the session":
            world.receiver.session.end()
        case "loss of the connection":
            world.client.far.transport_closed()
        case _:
            (link,) = session.links
            link.detach()
    world.run()
    assert (held.streamed, held.paused) == (0, False)
    assert all(not each.incoming.crowded for each in world.broker.far.sessions())
    assert session.links == []
