"""Clients of address spaces take turns by space, those that have not logged in together."""

from __future__ import annotations

from itertools import count

import pytest

from enmasse.mqtt import encode
from enmasse.mqtt.packets import V5, ConnAck, Connect, PingReq, PingResp, Publish
from tests.mqtt_gateway.peer import Peer, World

MANY = 100


def _world() -> World:
    """Each client is of the tenant that its name begins with."""
    world = World()
    world.backend.tenant = lambda request: request.client_id.partition("-")[0]
    return world


def _connected(world: World, name: str) -> Peer:
    peer = world.connected(name)
    peer.expect(ConnAck)
    return peer


def _full(world: World) -> None:
    """Each piece of work uses up a share from now on."""
    world.turns.clock = count(1.0).__next__


@pytest.mark.parametrize("size", [10, 3000])
def test_clients_of_a_space_count_as_one_for_another_space(size: int) -> None:
    """A hundred of one have sent before one of another: what they have sent waits, in its order."""
    world = _world()
    peers = [*(_connected(world, f"many-{n}") for n in range(MANY)), _connected(world, "few-0")]
    assert {name: each.connections for name, each in world.turns.tenants.items() if name} == {"many": MANY, "few": 1}
    _full(world)
    for peer in peers:
        for number in range(2):
            peer.send(Publish("a", b"%d" % number + bytes(size), 1, packet_id=number + 1))
    world.turn()
    order = [(client, payload[:1]) for client, _, payload in world.backend.routed]
    assert [client for client, _ in order].index("few-0") <= 3
    assert {client: [b for each, b in order if each == client] for client, _ in order} == {
        f"{name}": [b"0", b"1"] for name in (*(f"many-{n}" for n in range(MANY)), "few-0")
    }
    for peer in peers:
        peer.vanish()
    assert not world.turns.tenants


def test_a_large_read_of_one_client_leaves_another_space_its_turn() -> None:
    world = _world()
    large, other = _connected(world, "many-0"), _connected(world, "few-0")
    _full(world)
    large.send_bytes(encode.encode(Publish("a", b""), V5) * 10_000)
    assert large.paused
    other.send(PingReq())
    assert isinstance(other.expect(PingResp), PingResp)
    assert 0 < len(world.backend.routed) < 1000
    world.turn()
    assert len(world.backend.routed) == 10_000
    assert not large.paused


def test_connecting_clients_leave_those_of_a_space_their_turn() -> None:
    """Strangers, whose space is not known yet, share a turn while there are spaces."""
    world = _world()
    client = _connected(world, "few-0")
    strangers = [world.peer() for _ in range(MANY)]
    _full(world)
    for number, peer in enumerate(strangers):
        peer.send(Connect(f"many-{number}"))
    assert len(world.backend.requests) <= 3
    client.send(PingReq())
    assert isinstance(client.expect(PingResp), PingResp)
    world.turn()
    assert len(world.backend.requests) == MANY + 1


def test_without_spaces_no_time_is_looked_at() -> None:
    world = World()
    peer = world.connected()
    peer.expect(ConnAck)
    stranger = world.peer()
    world.turns.clock = lambda: pytest.fail("the clock was read")
    stranger.send(Connect("b"))
    peer.send(*(Publish("a", b"x") for _ in range(10)))
    assert len(world.backend.routed) == 10
    assert not world.turns.tenants
