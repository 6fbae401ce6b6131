"""Packets are the same after encoding and reading them, however the stream is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.mqtt import encode
from enmasse.mqtt.errors import MqttError
from enmasse.mqtt.packets import V5, V311, Connect, Packet, Publish
from enmasse.mqtt.reader import Reader
from tests.mqtt import values


def _reader(version: int, of_client: bool) -> Reader:
    return Reader(server=True) if of_client else Reader(server=False, version=version)


@given(values.streams())
def test_what_is_encoded_is_read_again(stream: tuple[int, bool, list[Packet]]) -> None:
    version, of_client, packets = stream
    data = b"".join(encode.encode(packet, version, of_client) for packet in packets)
    assert _reader(version, of_client).feed(data) == packets


@given(values.streams(), st.lists(st.integers(0, 30_000), max_size=12))
def test_any_split_of_the_stream_gives_the_same_packets(
    stream: tuple[int, bool, list[Packet]], cuts: list[int]
) -> None:
    version, of_client, packets = stream
    data = b"".join(encode.encode(packet, version, of_client) for packet in packets)
    reader = _reader(version, of_client)
    found: list[Packet] = []
    at = 0
    for cut in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
        found += reader.feed(data[at:cut])
        at = cut
    assert found == packets
    assert reader.held == 0


@given(values.streams())
def test_byte_by_byte(stream: tuple[int, bool, list[Packet]]) -> None:
    version, of_client, packets = stream
    reader = _reader(version, of_client)
    for packet in packets:
        data = encode.encode(packet, version, of_client)
        for at in range(len(data) - 1):
            assert reader.feed(data[at : at + 1]) == []
        assert reader.feed(data[-1:]) == [packet]


@given(st.sampled_from([V311, V5]), values.publishes(V311, True))
def test_quick_encoders_say_the_same(version: int, packet: Publish) -> None:
    none = b"\0" if version == V5 else b""
    flags = packet.retain | packet.qos << 1 | packet.dup << 3
    topic = encode.topic_field(packet.topic)
    wanted = encode.encode(packet, version)
    assert encode.publish(flags, topic, packet.packet_id, none, packet.payload) == wanted


def test_packets_before_a_fault_are_handed_over() -> None:
    reader = Reader()
    good = Publish("t", b"1", 1, packet_id=7)
    data = encode.encode(Connect("c"), V5, True) + encode.encode(good, V5, True)
    with pytest.raises(MqttError) as fault:
        reader.feed(data + b"\xff\xff")
    assert fault.value.packets == [Connect("c"), good]


@pytest.mark.parametrize(("version", "room", "clause"), [(V5, 993, "v5 MQTT-3.2.2-15"), (V311, 994, "")])
def test_the_size_of_a_packet_is_refused_before_its_body(version: int, room: int, clause: str) -> None:
    """Only MQTT 5 has a clause for it."""
    reader = Reader(max_packet=1000)
    reader.feed(encode.encode(Connect("c", version=version), version, True))
    exact = encode.encode(Publish("t", b"x" * room), version, True)
    assert len(exact) == 1000
    assert len(reader.feed(exact)) == 1
    with pytest.raises(MqttError) as fault:
        reader.feed(b"\x30\xe6\x07")
    assert (fault.value.reason, fault.value.clause) == (0x95, clause)
