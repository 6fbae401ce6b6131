"""Streams of clients, right and slightly wrong, into one gateway: whatever comes, a client gets well-formed packets or
its connection is closed, and another client notices nothing."""

from __future__ import annotations

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from enmasse.mqtt import encode
from enmasse.mqtt.errors import MqttError
from enmasse.mqtt.packets import V5, ConnAck, Packet, PubAck, Publish
from enmasse.mqtt.reader import Reader
from tests.mqtt import values
from tests.mqtt_gateway.peer import World


@st.composite
def hostile(draw: st.DrawFn) -> tuple[int, bytes, list[int]]:
    """(version, bytes of a client from its CONNECT on, where they are cut)."""
    version = draw(st.sampled_from([4, 5]))
    packets: list[Packet] = [draw(values.connects(version)), *draw(st.lists(values.packets(version, True), max_size=8))]
    raw = bytearray(b"".join(encode.encode(packet, version, True) for packet in packets))
    for _ in range(draw(st.integers(0, 3))):
        raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
    return version, bytes(raw), sorted(draw(st.lists(st.integers(0, len(raw)), max_size=4)))


def says(raw: bytes) -> int:
    """The version that its CONNECT has now."""
    reader = Reader()
    with contextlib.suppress(MqttError):
        reader.feed(raw)
    return reader.version


@settings(deadline=None)
@given(st.lists(hostile(), min_size=1, max_size=3), st.booleans())
def test_no_stream_breaks_the_gateway(clients: list[tuple[int, bytes, list[int]]], slow: bool) -> None:
    world = World()
    good = world.connected("good", V5)
    good.expect(ConnAck)
    world.backend.slow = slow
    for version, raw, cuts in clients:
        peer = world.peer(version)
        at = 0
        for cut in [*cuts, len(raw)]:
            peer.send_bytes(raw[at:cut])
            world.one_turn()
            at = cut
        world.pass_time(1)
        if says(raw) == version:
            peer.take()  # raises for what a server must not send
        if not peer.closed:
            peer.vanish()
    world.backend.slow = False
    while world.backend.to_store:
        world.backend.to_store.popleft()()
    good.send(Publish("unharmed", b"x", 1, packet_id=9))
    assert [p for p in good.take() if isinstance(p, PubAck)] == [PubAck(9)]
    assert not good.closed
