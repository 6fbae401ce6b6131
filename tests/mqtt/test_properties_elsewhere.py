"""Each property of MQTT 5 in each packet that may not have it: refused, and nothing is kept of it (CVE-2023-3592)."""

from __future__ import annotations

import contextlib
import gc
import struct
import tracemalloc
from collections.abc import Callable

import pytest

from enmasse.mqtt import encode
from enmasse.mqtt.errors import MalformedPacket, ProtocolError
from enmasse.mqtt.packets import V5, ConnAck, Connect
from enmasse.mqtt.reader import Reader
from tests.mqtt.test_malformed import PID, connect, packet, props, s

VALUES = {
    1: b"\1", 2: b"\0\0\0\1", 3: s("t"), 8: s("r"), 9: s("c"), 11: b"\1", 17: b"\0\0\0\1", 18: s("i"), 19: b"\0\1",
    21: s("m"), 22: s("d"), 23: b"\1", 24: b"\0\0\0\1", 25: b"\1", 26: s("r"), 28: s("s"), 31: s("r"), 33: b"\0\1",
    34: b"\0\1", 35: b"\0\1", 36: b"\1", 37: b"\1", 38: s("n") + s("v"), 39: b"\0\0\1\0", 40: b"\1", 41: b"\1",
    42: b"\1",
}  # fmt: skip
"""Table 2-4 of MQTT 5: identifiers of all properties, each with a legal value."""
NO_PROPERTY = [0, 4, 5, 10, 16, 20, 27, 32, 43, 126, 127]


Packets = dict[str, tuple[Callable[[bytes], bytes], set[int]]]
CLIENT: Packets = {
    "CONNECT": (lambda values: connect(s("c"), values=values), {17, 21, 22, 23, 25, 33, 34, 38, 39}),
    "will": (lambda values: connect(s("c"), values, s("w"), s(""), flags=6), {1, 2, 3, 8, 9, 24, 38}),
    "PUBLISH": (lambda values: packet(0x30, s("t"), values), {1, 2, 3, 8, 9, 35, 38}),
    "PUBACK": (lambda values: packet(0x40, PID, b"\0", values), {31, 38}),
    "PUBREC": (lambda values: packet(0x50, PID, b"\0", values), {31, 38}),
    "PUBREL": (lambda values: packet(0x62, PID, b"\0", values), {31, 38}),
    "PUBCOMP": (lambda values: packet(0x70, PID, b"\0", values), {31, 38}),
    "SUBSCRIBE": (lambda values: packet(0x82, PID, values, s("a"), b"\0"), {11, 38}),
    "UNSUBSCRIBE": (lambda values: packet(0xA2, PID, values, s("a")), {38}),
    "DISCONNECT": (lambda values: packet(0xE0, b"\0", values), {17, 31, 38}),
    "AUTH": (lambda values: packet(0xF0, b"\x18", props(b"\x15" + s("m") + values[1:])), {21, 22, 31, 38}),
}
"""Packets of a client, and the properties that they may have."""
SERVER: Packets = {
    "CONNACK": (lambda values: packet(0x20, b"\0\0", values),
                {17, 18, 19, 21, 22, 26, 28, 31, 33, 34, 36, 37, 38, 39, 40, 41, 42}),
    "PUBLISH": (lambda values: packet(0x30, s("t"), values), {1, 2, 3, 8, 9, 11, 35, 38}),
    "SUBACK": (lambda values: packet(0x90, PID, values, b"\0"), {31, 38}),
    "UNSUBACK": (lambda values: packet(0xB0, PID, values, b"\0"), {31, 38}),
    "DISCONNECT": (lambda values: packet(0xE0, b"\0", values), {28, 31, 38}),
}  # fmt: skip


def reader(name: str, of_client: bool) -> Reader:
    """Return a reader for which this packet is next."""
    found = Reader(server=of_client, version=V5)
    if name not in ("CONNECT", "will", "CONNACK"):
        found.feed(encode.encode(Connect("c") if of_client else ConnAck(), V5, of_client))
    return found


def property_of(code: int) -> bytes:
    return props(bytes((code,)) + VALUES.get(code, b"\0\0\0\1"))


@pytest.mark.clause("v5", "2.2.2.2")
@pytest.mark.parametrize(("name", "of_client"), [(n, True) for n in CLIENT] + [(n, False) for n in SERVER])
def test_a_property_where_it_is_not_allowed(name: str, of_client: bool) -> None:
    make, allowed = (CLIENT if of_client else SERVER)[name]
    for code in [*VALUES, *NO_PROPERTY]:
        if code not in allowed:
            with pytest.raises((MalformedPacket, ProtocolError)):
                reader(name, of_client).feed(make(property_of(code)))
        elif code not in (21, 22):  # these two want each other
            assert reader(name, of_client).feed(make(property_of(code)))


def test_nothing_is_kept_of_refused_wills() -> None:
    bad = [CLIENT["will"][0](property_of(code)) for code in VALUES if code not in CLIENT["will"][1]]

    def refused() -> int:
        for data in bad:
            with pytest.raises((MalformedPacket, ProtocolError)):
                Reader().feed(data)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    refused()
    before = min(refused() for _ in range(3))
    for _ in range(30):
        after = refused()
    tracemalloc.stop()
    assert after - before < 30 * len(bad) * 16


@pytest.mark.parametrize("first", [b"\x30", b"\x20", b"\x82", b"\xe0", b"\x10"])
def test_a_first_packet_that_promises_much_costs_nothing(first: bytes) -> None:
    """CVE-2023-0809: 256 MiB by the header, then crumbs. What is no CONNECT is refused on its header."""
    found = Reader()
    tracemalloc.start()
    with pytest.raises(ProtocolError) if first != b"\x10" else contextlib.nullcontext():
        found.feed(first + b"\xff\xff\xff\x7f")
    if first == b"\x10":
        for _ in range(1000):
            found.feed(b"abc")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


@pytest.mark.parametrize("name", SERVER)
def test_a_packet_of_servers_from_a_client_and_the_other_way_round(name: str) -> None:
    """CVE-2021-28166: a client sends CONNACK."""
    if name not in CLIENT:
        with pytest.raises((MalformedPacket, ProtocolError)):
            reader(name if name != "CONNACK" else "PUBLISH", True).feed(SERVER[name][0](b"\0"))
    for other in ("CONNECT", "SUBSCRIBE", "UNSUBSCRIBE"):
        with pytest.raises((MalformedPacket, ProtocolError)):
            reader("PUBLISH", False).feed(CLIENT[other][0](b"\0"))


def test_lengths_that_have_no_end() -> None:
    """A remaining length of five bytes (2.1.4)."""
    with pytest.raises(MalformedPacket):
        Reader().feed(b"\x10" + struct.pack(">I", 0xFFFFFFFF) + b"\1")
