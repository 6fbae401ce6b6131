"""Which moment a router that leaves chooses to close a connection."""

from __future__ import annotations

import pytest

from enmasse.network.trickle import SETTLING
from services.router.handing_on import MovingConnections
from tests.router.world import World


@pytest.mark.parametrize("settles", [True, False])
def test_what_is_under_way_is_settled_or_waits_no_longer_than_half_a_second(settles: bool) -> None:
    world = World()
    world.send(2)
    moving = MovingConnections(world.router)
    assert (moving.number, moving.progress) == (1, "leaving, 1 of 1 connections")
    assert (moving.begin(5), moving.begin(5)) == (1, 0)
    moving.look(0.1)
    world.pump()
    assert world.server.state == "open"
    if settles:
        world.settle(*world.arrived)
        moving.look(0.2)
    else:
        moving.look(SETTLING)
    world.pump()
    assert world.server.finished and moving.begin(5) == 0
    assert world.client.state == "open"  # there is no close
    assert (moving.number, moving.moved) == (0, 1)


def test_a_client_that_sends_no_heartbeats_gets_a_close() -> None:
    """It does not look after its connection, and finds the reason later."""
    world = World()
    world.server.tick(0)
    world.server.tick(4_000)
    moving = MovingConnections(world.router)
    moving.begin(1)
    moving.look(60.0)
    world.pump()
    assert world.client.state == "closed" and moving.moved == 1
