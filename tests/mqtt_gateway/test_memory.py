"""The limit of the memory that clients keep waiting, and which client is closed at it."""

from __future__ import annotations

import pytest

from enmasse.model.mqtt_limits import Limits
from enmasse.mqtt import encode, reasons
from enmasse.mqtt.packets import V5, V311, Connect, PubAck, Publish, SubAck, Subscribe, Subscription, Will
from enmasse.testing import wait_for
from services.mqtt_gateway.interfaces import Delivery
from services.mqtt_gateway.protocol.memory import LITTLE
from tests.mqtt_gateway.live import Raw, live
from tests.mqtt_gateway.peer import Peer, World

MIB = 1 << 20
CONNECT = encode.encode(Connect("c", password=bytes(20_000), will=Will("w", bytes(20_000))), V5)


def _begin(peer: Peer, size: int, part: int) -> None:
    """The first `part` bytes of a PUBLISH with `size` bytes of payload."""
    data = encode.encode(Publish("a", bytes(size)), V5)[:part]
    for start in range(0, len(data), 50_000):
        peer.send_bytes(data[start : start + 50_000])
        peer.world.turn()


@pytest.mark.parametrize("version", [V311, V5])
def test_output_that_clients_do_not_read_is_bounded_and_other_clients_are_served(version: int) -> None:
    memory = 6 * MIB
    with live(Limits(memory=memory, stall_seconds=600, max_packet=MIB)) as gateway:
        held = gateway.gateway.server_state.memory
        deaf = [Raw(gateway.ports["mqtt"], version, buffer=4096).connect(f"deaf-{number}") for number in range(12)]
        with (
            Raw(gateway.ports["mqtt"]).connect("source") as source,
            Raw(gateway.ports["mqtt"]).connect("hears") as hears,
        ):
            for each in (*deaf, hears):
                each.send(Subscribe(1, (Subscription("flood", 1),)))
                each.next(SubAck)
            for number in range(1, 25):
                source.send(Publish("flood", bytes(400_000), 1, packet_id=number))
                source.next(PubAck)
                hears.send(PubAck(hears.next(Publish).packet_id))
                assert gateway.inside(lambda: held.total) <= memory + 14 * LITTLE
            assert gateway.clients < 14
        for each in deaf:
            each.socket.close()
        wait_for("all of it is freed", lambda: not gateway.inside(lambda: held.total))


def test_what_was_sent_and_is_not_acknowledged_holds_no_payload() -> None:
    world = World()
    peer = world.connected("slow")
    peer.send(Subscribe(1, (Subscription("#", 2),)))
    peer.take()
    for qos in (1, 2):
        delivery = Delivery("a", bytes(10_000), qos, identity=str(qos), source="s")
        peer.session.unsettled[str(qos)] = delivery
        peer.session.deliveries.deliver(delivery)
        assert len(peer.expect(Publish).payload) == 10_000
        assert delivery.payload == b""
    assert world.server_state.memory.total == 0


def test_the_largest_holder_is_closed_first_and_a_new_client_is_served() -> None:
    world = World(Limits(memory=MIB, max_packet=MIB))
    large, small = world.connected("large"), world.connected("small")
    for peer, part in ((large, 600_000), (small, 300_000)):
        peer.take()
        _begin(peer, 700_000, part)
    late = world.connected("late")
    late.take()
    late.send_bytes(encode.encode(Publish("a", bytes(300_000), 1, packet_id=1), V5))
    world.turn()
    assert late.expect(PubAck).packet_id == 1
    large.expect_end(reasons.QUOTA_EXCEEDED)
    assert not small.closed


def test_of_two_that_hold_as_much_the_older_is_closed() -> None:
    world = World(Limits(memory=MIB, max_packet=MIB))
    peers = [world.connected(name) for name in ("young", "old")]
    for peer in reversed(peers):
        peer.take()
        _begin(peer, 700_000, 400_000)
        world.pass_time(1)
    late = world.connected("late")
    late.take()
    _begin(late, 700_000, 400_000)
    assert [peer.closed for peer in (*peers, late)] == [False, True, False]


def test_256_clients_that_stop_within_a_packet_do_not_keep_another_from_sending() -> None:
    world = World(Limits(max_packet=MIB))
    hoarders = [world.connected(f"h{number}") for number in range(256)]
    for peer in hoarders:
        _begin(peer, MIB - 100, MIB - 5000)
    late = world.connected("late")
    late.take()
    for number in range(1, 21):
        late.send_bytes(encode.encode(Publish("a", bytes(300_000), 1, packet_id=number), V5))
        world.turn()
        assert late.expect(PubAck).packet_id == number
    assert sum(peer.closed for peer in hoarders) <= 2
    world.pass_time(60)
    assert all(peer.closed for peer in hoarders)
    assert world.server_state.memory.total == 0


@pytest.mark.parametrize(("size", "seconds"), [(100, 20), (320_000, 29), (1_000_000, 50)])
def test_the_time_for_a_packet_grows_with_its_size(size: int, seconds: int) -> None:
    world = World(Limits(packet_seconds=20, max_packet=MIB))
    peer = world.connected()
    peer.take()
    _begin(peer, size, 50)
    world.pass_time(seconds - 1)
    assert not peer.closed
    world.pass_time(3)
    peer.expect_end(reasons.MALFORMED_PACKET)


def test_a_peer_without_a_session_gives_way_too() -> None:
    world = World(Limits(memory=MIB, max_packet=MIB))
    world.at_once = False
    opening = world.connected("opening")
    for _ in range(10):
        opening.send_bytes(bytes(100_000))
    world.peer().send_bytes(CONNECT[:-1])
    world.turn()
    assert not opening.closed
    late = world.peer()
    late.send_bytes(CONNECT[:-1])
    world.turn()
    assert opening.closed
    assert not late.closed
    world.opening.pop()()
    assert world.server_state.memory.total <= MIB
    assert not world.server_state.opening
