"""Hostile bytes: only packets or one of the two errors, and bounded memory and time."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.mqtt import encode, fields, properties, reasons
from enmasse.mqtt.errors import MalformedPacket, MqttError, ProtocolError
from enmasse.mqtt.packets import V5, V311, ConnAck, Connect, Packet, Publish
from enmasse.mqtt.reader import Reader
from tests.mqtt import values
from tests.mqtt.test_malformed import NO, PID, packet, props, s

LIMIT = 5000


def take(reader: Reader, data: bytes) -> list[Packet] | None:
    """The packets, or None after one of the errors. Anything else is raised."""
    try:
        return reader.feed(data)
    except MqttError as error:
        assert isinstance(error, MalformedPacket | ProtocolError)
        assert error.sentence and error.reason >= 0x80
        return None


def reader_of(server: bool, version: int, connected: bool) -> Reader:
    reader = Reader(server, 0 if server else version, LIMIT)
    if connected:
        first: Packet = Connect("c", version=version) if server else ConnAck()
        reader.feed(encode.encode(first, version, server))
    return reader


@given(st.booleans(), st.sampled_from([V311, V5]), st.booleans(), st.lists(st.binary(max_size=200), max_size=5))
def test_random_bytes(server: bool, version: int, connected: bool, pieces: list[bytes]) -> None:
    reader = reader_of(server, version, connected)
    for piece in pieces:
        if take(reader, piece) is None:
            return
        assert reader.held < LIMIT + len(piece)


@given(values.streams(), st.data())
def test_mutated_streams(stream: tuple[int, bool, list[Packet]], data: st.DataObject) -> None:
    version, of_client, packets = stream
    raw = bytearray(b"".join(encode.encode(packet, version, of_client) for packet in packets))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        change = data.draw(st.sampled_from(["set", "insert", "delete", "flip"]))
        if change == "set":
            raw[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
        elif change == "insert":
            raw.insert(at, data.draw(st.integers(0, 255)))
        elif change == "delete" and len(raw) > 1:
            del raw[at]
        else:
            raw[at] ^= 1 << data.draw(st.integers(0, 7))
    got = take(Reader(of_client, 0 if of_client else version), bytes(raw))
    if got and not (of_client and isinstance(got[0], Connect) and got[0].version != version):
        again = b"".join(encode.encode(packet, version, of_client) for packet in got)
        assert Reader(of_client, 0 if of_client else version).feed(again) == got  # what was taken can be said


def test_many_mutations_of_one_of_each() -> None:
    """Every byte of every kind of packet becomes every value that is special, with each cut."""
    rng = random.Random(9)
    for version in (V311, V5):
        none = NO if version == V5 else b""
        kinds = [
            encode.encode(Publish("a/b", b"xyz", 1, packet_id=5), version),
            packet(0x82, PID, none, s("a/+"), b"\1", s("b/#"), b"\0"),
            packet(0xA2, PID, none, s("a/+")),
            packet(0x62, PID),
        ]
        if version == V5:
            user = b"\x26" + s("k") + s("v")
            kinds.append(packet(0x32, s("t"), PID, props(b"\1\1", b"\2\0\0\0\1", b"\3" + s("x"), user), b"p"))
            kinds.append(packet(0xE0, NO, props(b"\x11\0\0\0\1", user)))
        for kind in kinds:
            for at in range(len(kind)):
                for value in (*range(0, 256, 5), 0x7F, 0x80, 0xFF, 0x26):
                    raw = bytearray(kind)
                    raw[at] = value
                    reader = reader_of(True, version, True)
                    cut = rng.randrange(len(raw) + 1)
                    if take(reader, bytes(raw[:cut])) is not None:
                        take(reader, bytes(raw[cut:]))


def test_topics_that_are_all_different_cost_no_memory() -> None:
    reader = reader_of(True, V311, True)
    for round in range(3):
        for first in range(0, 20_000, 500):
            reader.feed(
                b"".join(
                    encode.encode(Publish(f"flood/{round}/{n}" + "x" * 100), V311) for n in range(first, first + 500)
                )
            )
    assert len(fields.topics) <= 4096
    long = encode.encode(Publish("y" * 4000), V311)
    reader.feed(long)
    assert b"y" * 4000 not in fields.topics


@pytest.mark.clause("v5", "2.2.2.2")
def test_a_packet_full_of_properties_is_refused_early() -> None:
    many = b"\x26\0\0\0\0" * (properties.MOST_USER_PROPERTIES + 1)
    reader = Reader()
    reader.feed(encode.encode(Connect("c"), V5, True))
    data = packet(0x30, s("t"), props(many))
    with pytest.raises(ProtocolError) as fault:
        reader.feed(data)
    assert fault.value.reason == reasons.QUOTA_EXCEEDED
    reader = Reader()
    reader.feed(encode.encode(Connect("c"), V5, True))
    (got,) = reader.feed(packet(0x30, s("t"), props(many[5:])))
    assert isinstance(got, Publish) and len(got.properties.user_properties) == properties.MOST_USER_PROPERTIES


def test_a_subscribe_with_too_many_filters_is_refused() -> None:
    for version, none in ((V311, b""), (V5, NO)):
        reader = reader_of(True, version, True)
        reader.max_packet = 1_000_000
        with pytest.raises(ProtocolError) as fault:
            reader.feed(packet(0x82, PID, none, (s("a") + b"\0") * 5000))
        assert fault.value.reason == reasons.QUOTA_EXCEEDED


def test_what_is_not_complete_is_held_once() -> None:
    """A peer that sends its packets in crumbs, or promises much and sends little, costs what it has sent."""
    reader = reader_of(True, V311, True)
    reader.max_packet = 10_000_000
    whole = encode.encode(Publish("t", b"x" * 200_000), V311)
    tracemalloc.start()
    for at in range(0, len(whole) - 2, 2):
        assert reader.feed(whole[at : at + 2]) == []
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert reader.held == len(whole) - len(whole) % 2 - (0 if len(whole) % 2 else 2)
    assert held < 2 * len(whole) and peak < 4 * len(whole)
    reader = reader_of(True, V311, True)
    reader.max_packet = 300_000_000
    tracemalloc.start()
    assert reader.feed(b"\x30\xff\xff\xff\x7f\0\1t") == []
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 10_000
