"""Which moment a router that leaves chooses to close a connection."""

from __future__ import annotations

import pytest

from enmasse.network.trickle import SETTLING
from services.router.handing_on import PATIENCE, MovingConnections
from tests.router.world import World

HEARTBEAT = b"\0\0\0\x08\x02\0\0\0"


@pytest.mark.parametrize("settles", [True, False])
def test_what_is_under_way_is_settled_or_waits_no_longer_than_half_a_second(settles: bool) -> None:
    world = World()
    world.send(2)
    moving = MovingConnections(world.router)
    assert (moving.number, moving.progress) == (1, "leaving, 1 of 1 connections")
    assert (moving.begin(5), moving.begin(5)) == (1, 0)
    world.server.receive(HEARTBEAT)
    assert moving.look(0.1)
    world.pump()
    assert world.server.state == "open"
    if settles:
        world.settle(*world.arrived)
        assert not moving.look(0.2)
    else:
        assert not moving.look(SETTLING)
    world.pump()
    assert world.server.finished and moving.begin(5) == 0
    assert world.client.state == "open"  # there is no close
    assert (moving.number, moving.moved) == (0, 1)


def test_a_client_that_is_late_with_its_heartbeat_is_waited_for() -> None:
    """After a close, as for one that does not read, Proton's would notice the end of the socket 16 s later."""
    world = World()
    world.server.tick(0)
    world.server.tick(15_000)
    moving = MovingConnections(world.router)
    moving.begin(1)
    for now in range(1, 29):
        assert moving.look(now)
    world.server.receive(HEARTBEAT)
    assert not moving.look(29)
    world.pump()
    assert world.server.finished and world.client.state == "open"


def test_a_client_that_sends_no_heartbeats_gets_a_close() -> None:
    """It does not look after its connection, and finds the reason later."""
    world = World()
    world.server.tick(0)
    world.server.tick(15_000)
    moving = MovingConnections(world.router)
    moving.begin(1)
    assert not moving.look(PATIENCE)
    world.pump()
    assert world.client.state == "closed" and moving.moved == 1


def test_a_client_that_owes_no_heartbeats_is_not_waited_for() -> None:
    world = World()
    world.server.idle_timeout_ms = 0
    world.server.tick(0)
    moving = MovingConnections(world.router)
    moving.begin(1)
    assert not moving.look(60)
    world.pump()
    assert world.server.finished and world.client.state == "open"


def test_clients_whose_heartbeats_come_together_do_not_end_together() -> None:
    world = World()
    servers = [world.server, *(world.connected()[0] for _ in range(9))]
    moving = MovingConnections(world.router)
    assert moving.begin(10) == 10
    for second in range(10):
        for server in servers:
            if not server.finished:
                server.receive(HEARTBEAT)
        moving.look(second)
        assert moving.moved <= second + 2
    assert moving.moved >= 9
