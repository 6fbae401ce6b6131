"""Every packet that a specification forbids is refused with its reason code, whole or cut anywhere; and what it allows
at the same edge is taken."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from enmasse.mqtt import encode, properties, reasons
from enmasse.mqtt.errors import MalformedPacket, ProtocolError
from enmasse.mqtt.packets import NONE, V5, V311, ConnAck, Connect, Packet, PingReq, Properties, Publish, Will
from enmasse.mqtt.reader import Reader

MALFORMED, PROTOCOL = reasons.MALFORMED_PACKET, reasons.PROTOCOL_ERROR


def packet(head: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return bytes((head,)) + properties.varint(len(body)) + body


def s(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack(">H", len(raw)) + raw


def props(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return properties.varint(len(body)) + body


def connect(
    *rest: bytes, flags: int = 2, name: bytes = b"MQTT", level: int = V5, head: int = 0x10, values: bytes = b"\0"
) -> bytes:
    return packet(head, s(name), bytes((level, flags)), b"\0\0", values if level == V5 else b"", *rest)


PID = b"\0\1"
NO = b"\0"  # no properties


def v3(*numbers: str) -> Any:
    return pytest.mark.clause("v3.1.1", *numbers)


def v5(*numbers: str) -> Any:
    return pytest.mark.clause("v5", *numbers)


def case(name: str, data: bytes, reason: int, *marks: Any) -> Any:
    return pytest.param(data, reason, id=name, marks=marks)


# --- a first packet -------------------------------------------------------------------------------------------------

FIRST = [
    case("publish", packet(0x30, s("t")), PROTOCOL, v3("MQTT-3.1.0-1"), v5("MQTT-3.1.0-1")),
    case("pingreq", packet(0xC0), PROTOCOL, v3("MQTT-3.1.0-1"), v5("MQTT-3.1.0-1")),
    case("auth", packet(0xF0), PROTOCOL, v5("MQTT-3.1.0-1")),
    case("flags", connect(s("c"), head=0x11), MALFORMED, v3("MQTT-2.2.2-1", "MQTT-2.2.2-2"), v5("MQTT-2.1.3-1")),
    case("name", connect(s("c"), name=b"MQTX"), 0x84, v3("MQTT-3.1.2-1"), v5("MQTT-3.1.2-1")),
    case("name-lower", connect(s("c"), name=b"mqtt"), 0x84, v3("MQTT-3.1.2-1"), v5("MQTT-3.1.2-1")),
    case("level-3", connect(s("c"), level=3), 0x84, v3("MQTT-3.1.2-2")),
    case("level-4-of-3.1", connect(s("c"), level=4, name=b"MQIsdp"), 0x84, v3("MQTT-3.1.2-2")),
    case("level-6", connect(s("c"), level=6), 0x84, v5("MQTT-3.1.2-2")),
    case("bridge-of-5", connect(s("c"), level=0x85), 0x84, v5("MQTT-3.1.2-2")),
]
for _level, _mark in ((V311, v3), (V5, v5)):
    _c: dict[str, Any] = {"level": _level}
    _w = b"\0" if _level == V5 else b""  # of the will
    _id = s("c")
    FIRST += [
        case(f"{_level}-reserved", connect(_id, flags=3, **_c), MALFORMED, _mark("MQTT-3.1.2-3")),
        case(
            f"{_level}-will-qos-without-will",
            connect(_id, flags=0x0A, **_c),
            MALFORMED,
            _mark(*(("MQTT-3.1.2-11", "MQTT-3.1.2-13") if _level == V311 else ("MQTT-3.1.2-11",))),
        ),
        case(
            f"{_level}-will-retain-without-will",
            connect(_id, flags=0x22, **_c),
            MALFORMED,
            _mark("MQTT-3.1.2-15" if _level == V311 else "MQTT-3.1.2-13"),
        ),
        case(
            f"{_level}-will-qos-3",
            connect(_id, _w, s("w"), s(""), flags=0x1E, **_c),
            MALFORMED,
            _mark("MQTT-3.1.2-14" if _level == V311 else "MQTT-3.1.2-12"),
        ),
        case(f"{_level}-no-will-there", connect(_id, flags=0x06, **_c), MALFORMED, _mark("MQTT-3.1.2-9")),
        case(
            f"{_level}-will-that-is-not-flagged",
            connect(_id, _w, s("w"), s("x"), **_c),
            MALFORMED,
            *((_mark("MQTT-3.1.2-12"),) if _level == V311 else ()),
        ),
        case(
            f"{_level}-no-user-there",
            connect(_id, flags=0x82, **_c),
            MALFORMED,
            _mark("MQTT-3.1.2-19" if _level == V311 else "MQTT-3.1.2-17"),
        ),
        case(
            f"{_level}-user-that-is-not-flagged",
            connect(_id, s("u"), **_c),
            MALFORMED,
            _mark("MQTT-3.1.2-18" if _level == V311 else "MQTT-3.1.2-16"),
        ),
        case(
            f"{_level}-no-password-there",
            connect(_id, s("u"), flags=0xC2, **_c),
            MALFORMED,
            _mark("MQTT-3.1.2-21" if _level == V311 else "MQTT-3.1.2-19"),
        ),
        case(
            f"{_level}-password-that-is-not-flagged",
            connect(_id, s("u"), s("p"), flags=0x82, **_c),
            MALFORMED,
            _mark("MQTT-3.1.2-20" if _level == V311 else "MQTT-3.1.2-18"),
        ),
        case(f"{_level}-no-client-id", connect(**_c), MALFORMED, _mark("MQTT-3.1.3-3")),
        case(f"{_level}-client-id-not-utf8", connect(s(b"\xff"), **_c), MALFORMED, _mark("MQTT-3.1.3-4")),
        case(
            f"{_level}-user-not-utf8",
            connect(_id, s(b"\xc0\xaf"), flags=0x82, **_c),
            MALFORMED,
            _mark("MQTT-3.1.3-11" if _level == V311 else "MQTT-3.1.3-12"),
        ),
        case(
            f"{_level}-will-topic-not-utf8",
            connect(_id, _w, s(b"\xff"), s(""), flags=6, **_c),
            MALFORMED,
            _mark("MQTT-3.1.3-10" if _level == V311 else "MQTT-3.1.3-11"),
        ),
        case(f"{_level}-will-topic-wildcard", connect(_id, _w, s("a/#"), s(""), flags=6, **_c), MALFORMED),
        case(f"{_level}-will-topic-empty", connect(_id, _w, s(""), s(""), flags=6, **_c), MALFORMED),
        case(f"{_level}-cut", connect(s("client"), **_c)[:1] + b"\x05\0\4MQT", MALFORMED),
    ]
FIRST += [
    case("4-password-alone", connect(s("c"), s("p"), flags=0x42, level=V311), MALFORMED, v3("MQTT-3.1.2-22")),
    case("5-receive-maximum-0", connect(s("c"), values=props(b"\x21\0\0")), PROTOCOL, v5("3.1.2.11.3")),
    case("5-maximum-packet-size-0", connect(s("c"), values=props(b"\x27\0\0\0\0")), PROTOCOL, v5("3.1.2.11.4")),
    case("5-remaining-length-not-minimal", b"\x10\x8e\0" + connect(s("c"))[2:], MALFORMED, v5("MQTT-1.5.5-1")),
    case("5-request-problem-2", connect(s("c"), values=props(b"\x17\2")), PROTOCOL, v5("3.1.2.11.7")),
    case("5-request-response-2", connect(s("c"), values=props(b"\x19\2")), PROTOCOL, v5("3.1.2.11.6")),
    case("5-auth-data-alone", connect(s("c"), values=props(b"\x16\0\1x")), PROTOCOL, v5("3.1.2.11.10")),
    case("5-expiry-twice", connect(s("c"), values=props(b"\x11\0\0\0\1" * 2)), PROTOCOL, v5("3.1.2.11.2")),
    case("5-will-delay-in-connect", connect(s("c"), values=props(b"\x18\0\0\0\1")), MALFORMED, v5("2.2.2.2")),
    case("5-unknown-property", connect(s("c"), values=props(b"\x7f\0")), MALFORMED, v5("2.2.2.2")),
    case("5-properties-too-long", connect(values=b"\x7f"), MALFORMED, v5("2.2.2.1")),
    case("5-property-cut", connect(s("c"), values=props(b"\x11\0")), MALFORMED, v5("2.2.2.2")),
    case("5-user-property-cut", connect(s("c"), values=props(b"\x26" + s("k"))), MALFORMED, v5("MQTT-1.5.7-1")),
    case("5-user-property-nul", connect(s("c"), values=props(b"\x26" + s("k") + s("\0"))), MALFORMED,
         v5("MQTT-1.5.7-1")),
    case("5-length-not-minimal", connect(s("c"), values=b"\x80\0"), MALFORMED, v5("MQTT-1.5.5-1")),
    case("5-no-properties", packet(0x10, s("MQTT"), b"\5\2\0\0"), MALFORMED, v5("MQTT-2.2.2-1")),
    case("5-topic-alias-in-will", connect(s("c"), props(b"\x23\0\1"), s("w"), s(""), flags=6), MALFORMED,
         v5("2.2.2.2")),
    case("5-will-response-wildcard", connect(s("c"), props(b"\x08" + s("a/+")), s("w"), s(""), flags=6), MALFORMED,
         v5("3.1.3.2.6")),
]  # fmt: skip


def split_everywhere(data: bytes, reader: Any, reason: int) -> None:
    """The fault is the same in one piece and in two, cut anywhere."""
    sentences = set()
    for cut in range(len(data)):
        one = reader()
        with pytest.raises((MalformedPacket, ProtocolError)) as fault:
            one.feed(data[:cut])
            one.feed(data[cut:])
        assert fault.value.reason == reason, str(fault.value)
        sentences.add(fault.value.sentence)
    assert len(sentences) == 1


@pytest.mark.parametrize(("data", "reason"), FIRST)
def test_a_wrong_first_packet_is_refused(data: bytes, reason: int) -> None:
    split_everywhere(data, Reader, reason)


def test_a_bridge_of_3_1_1_is_a_client_of_3_1_1() -> None:
    reader = Reader()
    (packet,) = reader.feed(connect(s("c"), level=0x84))
    assert isinstance(packet, Connect)
    assert (packet.version, packet.bridge, reader.version) == (V311, True, V311)
    assert encode.encode(packet, V311, of_client=True) == connect(s("c"), level=0x84)


def test_the_version_is_known_when_the_rest_of_connect_is_wrong() -> None:
    for level in (V311, V5):
        reader = Reader()
        with pytest.raises(MalformedPacket):
            reader.feed(connect(s("c"), level=level, flags=3))
        assert (reader.version, reader.started) == (level, False)


# --- from a client that is connected --------------------------------------------------------------------------------

BOTH: list[tuple[str, int, tuple[bytes, ...], int, tuple[str, ...], tuple[str, ...]]] = [
    # name, head, parts (None: where MQTT 5 has its properties), reason, clauses of 3.1.1, of 5
    ("connect-again", 0x10, (b"\0\4MQTT\4\2\0\0\0\1c",), PROTOCOL, ("MQTT-3.1.0-2",), ("MQTT-3.1.0-2",)),
    ("publish-qos-3", 0x36, (s("t"), PID, NO), MALFORMED, ("MQTT-3.3.1-4",), ("MQTT-3.3.1-4",)),
    ("publish-dup-qos-0", 0x38, (s("t"), NO), MALFORMED, ("MQTT-3.3.1-2",), ("MQTT-3.3.1-2",)),
    ("publish-wildcard", 0x30, (s("a/+"), NO), MALFORMED, ("MQTT-3.3.2-2", "MQTT-4.7.1-1"),
     ("MQTT-3.3.2-2", "MQTT-4.7.0-1")),
    ("publish-hash", 0x30, (s("#"), NO), MALFORMED, ("MQTT-3.3.2-2", "MQTT-4.7.1-1"),
     ("MQTT-3.3.2-2", "MQTT-4.7.0-1")),
    ("publish-topic-not-utf8", 0x30, (s(b"\xff"), NO), MALFORMED, ("MQTT-3.3.2-1", "MQTT-1.5.3-1"),
     ("MQTT-3.3.2-1", "MQTT-1.5.4-1")),
    ("publish-surrogate", 0x30, (s(b"\xed\xa0\x80"), NO), MALFORMED, ("MQTT-1.5.3-1",), ("MQTT-1.5.4-1",)),
    ("publish-nul", 0x30, (s("a\0b"), NO), MALFORMED, ("MQTT-1.5.3-2", "MQTT-4.7.3-2"),
     ("MQTT-1.5.4-2", "MQTT-4.7.3-2")),
    ("publish-id-0", 0x32, (s("t"), b"\0\0", NO), PROTOCOL, ("MQTT-2.3.1-1",), ("MQTT-2.2.1-3",)),
    ("publish-no-id", 0x32, (s("t"),), MALFORMED, ("MQTT-2.3.1-1",), ("MQTT-2.2.1-3",)),
    ("publish-half-id", 0x34, (s("t"), b"\1"), MALFORMED, (), ()),
    ("publish-topic-cut", 0x30, (b"\0\5abc",), MALFORMED, (), ()),
    ("publish-nothing", 0x30, (), MALFORMED, (), ()),
    ("puback-flags", 0x42, (PID,), MALFORMED, ("MQTT-2.2.2-1", "MQTT-2.2.2-2"), ("MQTT-2.1.3-1",)),
    ("puback-id-0", 0x40, (b"\0\0",), PROTOCOL, (), ()),
    ("puback-short", 0x40, (b"\1",), MALFORMED, (), ()),
    ("pubrec-id-0", 0x50, (b"\0\0",), PROTOCOL, (), ()),
    ("pubrel-flags-0", 0x60, (PID,), MALFORMED, ("MQTT-3.6.1-1",), ("MQTT-3.6.1-1",)),
    ("pubrel-flags-3", 0x63, (PID,), MALFORMED, ("MQTT-3.6.1-1",), ("MQTT-3.6.1-1",)),
    ("pubcomp-flags", 0x71, (PID,), MALFORMED, ("MQTT-2.2.2-2",), ("MQTT-2.1.3-1",)),
    ("subscribe-flags", 0x80, (PID, NO, s("a"), b"\0"), MALFORMED, ("MQTT-3.8.1-1",), ("MQTT-3.8.1-1",)),
    ("subscribe-empty", 0x82, (PID, NO), PROTOCOL, ("MQTT-3.8.3-3",), ("MQTT-3.8.3-2",)),
    ("subscribe-id-0", 0x82, (b"\0\0", NO, s("a"), b"\0"), PROTOCOL, ("MQTT-2.3.1-1",), ("MQTT-2.2.1-3",)),
    ("subscribe-no-options", 0x82, (PID, NO, s("a")), MALFORMED, (), ()),
    ("subscribe-qos-3", 0x82, (PID, NO, s("a"), b"\3"), MALFORMED, ("MQTT-3.8.3-4",), ("3.8.3.1",)),
    ("subscribe-reserved", 0x82, (PID, NO, s("a"), b"\x40"), MALFORMED, ("MQTT-3.8.3-4",), ("MQTT-3.8.3-5",)),
    ("subscribe-reserved-2", 0x82, (PID, NO, s("a"), b"\x80"), MALFORMED, ("MQTT-3.8.3-4",), ("MQTT-3.8.3-5",)),
    ("subscribe-not-utf8", 0x82, (PID, NO, s(b"\xff"), b"\0"), MALFORMED, ("MQTT-3.8.3-1",), ("MQTT-3.8.3-1",)),
    ("subscribe-empty-filter", 0x82, (PID, NO, s(""), b"\0"), MALFORMED, ("MQTT-4.7.3-1",), ("MQTT-4.7.3-1",)),
    ("subscribe-hash", 0x82, (PID, NO, s("a#"), b"\0"), MALFORMED, ("MQTT-4.7.1-2",), ("MQTT-4.7.1-1",)),
    ("subscribe-hash-inside", 0x82, (PID, NO, s("a/#/b"), b"\0"), MALFORMED, ("MQTT-4.7.1-2",), ("MQTT-4.7.1-1",)),
    ("subscribe-plus", 0x82, (PID, NO, s("a+/b"), b"\0"), MALFORMED, ("MQTT-4.7.1-3",), ("MQTT-4.7.1-2",)),
    ("unsubscribe-flags", 0xA0, (PID, NO, s("a")), MALFORMED, ("MQTT-3.10.1-1",), ("MQTT-3.10.1-1",)),
    ("unsubscribe-empty", 0xA2, (PID, NO), PROTOCOL, ("MQTT-3.10.3-2",), ("MQTT-3.10.3-2",)),
    ("unsubscribe-id-0", 0xA2, (b"\0\0", NO, s("a")), PROTOCOL, ("MQTT-2.3.1-1",), ("MQTT-2.2.1-3",)),
    ("unsubscribe-not-utf8", 0xA2, (PID, NO, s(b"\xf8")), MALFORMED, ("MQTT-3.10.3-1",), ("MQTT-3.10.3-1",)),
    ("pingreq-flags", 0xC1, (), MALFORMED, ("MQTT-2.2.2-2",), ("MQTT-2.1.3-1",)),
    ("pingreq-body", 0xC0, (b"x",), MALFORMED, (), ()),
    ("disconnect-flags", 0xE1, (), MALFORMED, ("MQTT-3.14.1-1",), ("MQTT-3.14.1-1",)),
    ("reserved-0", 0x00, (), MALFORMED, (), ()),
    ("connack", 0x20, (b"\0\0", NO), PROTOCOL, (), ()),
    ("suback", 0x90, (PID, NO, b"\0"), PROTOCOL, (), ()),
    ("unsuback", 0xB0, (PID, NO), PROTOCOL, (), ()),
    ("pingresp", 0xD0, (), PROTOCOL, (), ()),
]  # fmt: skip
CONNECTED = [
    case(
        f"{version}-{name}",
        packet(head, *(part for part in parts if not (version == V311 and part is NO))),
        reason,
        *([mark(*numbers)] if numbers else []),
    )
    for name, head, parts, reason, old, new in BOTH
    for version, mark, numbers in ((V311, v3, old), (V5, v5, new))
]
CONNECTED += [
    case("4-puback-long", packet(0x40, PID, b"\0"), MALFORMED),
    case("4-disconnect-body", packet(0xE0, b"\0"), MALFORMED),
    case("4-auth", packet(0xF0), MALFORMED),
    case("4-publish-no-topic", packet(0x30, s("")), MALFORMED, v3("MQTT-4.7.3-1")),
    case("4-subscribe-no-local", packet(0x82, PID, s("a"), b"\4"), MALFORMED, v3("MQTT-3.8.3-4")),
    case("4-length-of-5", b"\x30\xff\xff\xff\xff\x01", MALFORMED, v3("2.2.3")),
    case("5-length-of-5", b"\x30\xff\xff\xff\xff\x01", MALFORMED, v5("2.1.4")),
    case("5-length-not-minimal", b"\xc0\x80\0", MALFORMED, v5("MQTT-1.5.5-1")),
    case("5-publish-no-topic-no-alias", packet(0x30, s(""), NO), PROTOCOL, v5("3.3.2.1")),
    case("5-publish-alias-0", packet(0x30, s("t"), props(b"\x23\0\0")), 0x94, v5("MQTT-3.3.2-8")),
    case("5-publish-alias-twice", packet(0x30, s("t"), props(b"\x23\0\1\x23\0\1")), PROTOCOL, v5("3.3.2.3.4")),
    case("5-publish-subscription-id", packet(0x30, s("t"), props(b"\x0b\1")), PROTOCOL, v5("MQTT-3.3.4-6")),
    case("5-publish-format-2", packet(0x30, s("t"), props(b"\1\2")), PROTOCOL, v5("3.3.2.3.2")),
    case("5-publish-format-twice", packet(0x30, s("t"), props(b"\1\1\1\1")), PROTOCOL, v5("3.3.2.3.2")),
    case("5-publish-expiry-twice", packet(0x30, s("t"), props(b"\2\0\0\0\1" * 2)), PROTOCOL, v5("3.3.2.3.3")),
    case("5-publish-response-twice", packet(0x30, s("t"), props((b"\x08" + s("a")) * 2)), PROTOCOL, v5("3.3.2.3.5")),
    case("5-publish-response-wildcard", packet(0x30, s("t"), props(b"\x08" + s("a/#"))), MALFORMED,
         v5("MQTT-3.3.2-14")),
    case("5-publish-response-not-utf8", packet(0x30, s("t"), props(b"\x08" + s(b"\xff"))), MALFORMED,
         v5("MQTT-3.3.2-13")),
    case("5-publish-correlation-twice", packet(0x30, s("t"), props((b"\x09" + s("a")) * 2)), PROTOCOL, v5("3.3.2.3.6")),
    case("5-publish-content-type-not-utf8", packet(0x30, s("t"), props(b"\3" + s(b"\xff"))), MALFORMED,
         v5("MQTT-3.3.2-19")),
    case("5-publish-content-type-twice", packet(0x30, s("t"), props((b"\3" + s("a")) * 2)), PROTOCOL, v5("3.3.2.3.9")),
    case("5-publish-reason-string", packet(0x30, s("t"), props(b"\x1f" + s("a"))), MALFORMED, v5("2.2.2.2")),
    case("5-publish-no-properties", packet(0x30, s("t")), MALFORMED, v5("MQTT-2.2.2-1")),
    case("5-puback-reason", packet(0x40, PID, b"\1"), PROTOCOL, v5("MQTT-3.4.2-1")),
    case("5-puback-reason-of-pubrel", packet(0x40, PID, b"\x92"), PROTOCOL, v5("MQTT-3.4.2-1")),
    case("5-pubrec-reason", packet(0x50, PID, b"\x92"), PROTOCOL, v5("MQTT-3.5.2-1")),
    case("5-pubrel-reason", packet(0x62, PID, b"\x80"), PROTOCOL, v5("MQTT-3.6.2-1")),
    case("5-pubcomp-reason", packet(0x70, PID, b"\x10"), PROTOCOL, v5("MQTT-3.7.2-1")),
    case("5-puback-property", packet(0x40, PID, NO, props(b"\x11\0\0\0\1")), MALFORMED, v5("2.2.2.2")),
    case("5-puback-reason-string-twice", packet(0x40, PID, NO, props((b"\x1f" + s("a")) * 2)), PROTOCOL,
         v5("3.4.2.2.2")),
    case("5-puback-trailing", packet(0x40, PID, NO, NO, b"x"), MALFORMED),
    case("5-subscribe-retain-handling-3", packet(0x82, PID, NO, s("a"), b"\x30"), PROTOCOL, v5("3.8.3.1")),
    case("5-subscribe-id-zero", packet(0x82, PID, props(b"\x0b\0"), s("a"), b"\0"), PROTOCOL, v5("3.8.2.1.2")),
    case("5-subscribe-id-twice", packet(0x82, PID, props(b"\x0b\1\x0b\1"), s("a"), b"\0"), PROTOCOL, v5("3.8.2.1.2")),
    case("5-subscribe-id-5-bytes", packet(0x82, PID, props(b"\x0b\xff\xff\xff\xff\1"), s("a"), b"\0"), MALFORMED,
         v5("1.5.5")),
    case("5-shared-no-local", packet(0x82, PID, NO, s("$share/g/a"), b"\4"), PROTOCOL, v5("MQTT-3.8.3-4")),
    case("5-shared-no-name", packet(0x82, PID, NO, s("$share//a"), b"\0"), MALFORMED, v5("MQTT-4.8.2-1")),
    case("5-shared-no-filter", packet(0x82, PID, NO, s("$share/g"), b"\0"), MALFORMED, v5("MQTT-4.8.2-2")),
    case("5-shared-wildcard-name", packet(0x82, PID, NO, s("$share/+/a"), b"\0"), MALFORMED, v5("MQTT-4.8.2-2")),
    case("5-unsubscribe-property", packet(0xA2, PID, props(b"\x0b\1"), s("a")), MALFORMED, v5("2.2.2.2")),
    case("5-disconnect-reason", packet(0xE0, b"\x8e"), PROTOCOL, v5("MQTT-3.14.2-1")),
    case("5-disconnect-reason-1", packet(0xE0, b"\1"), PROTOCOL, v5("MQTT-3.14.2-1")),
    case("5-disconnect-server-reference", packet(0xE0, NO, props(b"\x1c" + s("x"))), MALFORMED, v5("2.2.2.2")),
    case("5-disconnect-expiry-twice", packet(0xE0, NO, props(b"\x11\0\0\0\1" * 2)), PROTOCOL, v5("3.14.2.2.2")),
    case("5-auth-flags", packet(0xF1, b"\x18", props(b"\x15" + s("m"))), MALFORMED, v5("MQTT-3.15.1-1")),
    case("5-auth-reason", packet(0xF0, b"\x80", props(b"\x15" + s("m"))), PROTOCOL, v5("MQTT-3.15.2-1")),
    case("5-auth-no-method", packet(0xF0, b"\x18", NO), PROTOCOL, v5("3.15.2.2.2")),
    case("5-auth-empty", packet(0xF0), PROTOCOL, v5("MQTT-3.15.2-1")),
]  # fmt: skip


@pytest.mark.parametrize(("data", "reason"), CONNECTED)
def test_a_wrong_packet_of_a_client_is_refused(data: bytes, reason: int, request: pytest.FixtureRequest) -> None:
    version = V311 if "[4-" in request.node.name else V5
    good = encode.encode(Publish("t", b"x", 1, packet_id=9), version)

    def connected() -> Reader:
        reader = Reader()
        reader.feed(encode.encode(Connect("c", version=version), version, True))
        assert reader.feed(good) == [Publish("t", b"x", 1, packet_id=9)]
        return reader

    split_everywhere(data, connected, reason)


# --- from a server --------------------------------------------------------------------------------------------------

SERVER = [
    case("4-suback-first", packet(0x90, PID, b"\0"), PROTOCOL, v3("MQTT-3.2.0-1")),
    case("5-suback-first", packet(0x90, PID, NO, b"\0"), PROTOCOL, v5("MQTT-3.2.0-1")),
    case("4-connack-flags", packet(0x20, b"\2\0"), MALFORMED),
    case("5-connack-flags", packet(0x20, b"\2\0", NO), MALFORMED, v5("MQTT-3.2.2-1")),
    case("4-connack-code", packet(0x20, b"\0\6"), MALFORMED),
    case("5-connack-code", packet(0x20, b"\0\1", NO), PROTOCOL, v5("MQTT-3.2.2-8")),
    case("5-connack-of-3.1.1", packet(0x20, b"\0\1"), 0x84, v5("MQTT-2.2.2-1")),
    case("4-connack-present-and-refused", packet(0x20, b"\1\2"), PROTOCOL, v3("MQTT-3.2.2-4")),
    case("5-connack-present-and-refused", packet(0x20, b"\1\x87", NO), PROTOCOL, v5("MQTT-3.2.2-6")),
    case("5-connack-maximum-qos-2", packet(0x20, b"\0\0", props(b"\x24\2")), PROTOCOL, v5("3.2.2.3.4")),
    case("5-connack-will-delay", packet(0x20, b"\0\0", props(b"\x18\0\0\0\1")), MALFORMED, v5("2.2.2.2")),
    case("4-connect", packet(0x10), PROTOCOL),
]
AFTER = [
    case("5-connack-again", packet(0x20, b"\0\0", NO), PROTOCOL, v5("MQTT-3.2.0-2")),
    case("4-suback-code", packet(0x90, PID, b"\3"), PROTOCOL, v3("MQTT-3.9.3-2")),
    case("5-suback-code", packet(0x90, PID, NO, b"\3"), PROTOCOL, v5("MQTT-3.9.3-2")),
    case("5-suback-empty", packet(0x90, PID, NO), PROTOCOL, v5("MQTT-3.8.4-6")),
    case("5-unsuback-code", packet(0xB0, PID, NO, b"\1"), PROTOCOL, v5("MQTT-3.11.3-2")),
    case("5-unsuback-empty", packet(0xB0, PID, NO), PROTOCOL, v5("MQTT-3.11.3-1")),
    case("4-unsuback-long", packet(0xB0, PID, NO), MALFORMED),
    case("4-disconnect", packet(0xE0), PROTOCOL),
    case("5-disconnect-with-will", packet(0xE0, b"\4"), PROTOCOL, v5("MQTT-3.14.2-1")),
    case("5-disconnect-expiry", packet(0xE0, NO, props(b"\x11\0\0\0\1")), PROTOCOL, v5("MQTT-3.14.2-2")),
    case("5-subscribe", packet(0x82, PID, NO, s("a"), b"\0"), PROTOCOL),
    case("4-pingreq", packet(0xC0), PROTOCOL),
    case("5-subscription-id-0", packet(0x30, s("t"), props(b"\x0b\0")), PROTOCOL, v5("3.3.2.3.8")),
    case("5-auth-reason", packet(0xF0, b"\x19", props(b"\x15" + s("m"))), PROTOCOL, v5("MQTT-3.15.2-1")),
]  # fmt: skip


@pytest.mark.parametrize(("data", "reason"), SERVER)
def test_a_wrong_first_packet_of_a_server_is_refused(data: bytes, reason: int, request: pytest.FixtureRequest) -> None:
    version = V311 if "[4-" in request.node.name else V5
    split_everywhere(data, lambda: Reader(server=False, version=version), reason)


@pytest.mark.parametrize(("data", "reason"), AFTER)
def test_a_wrong_packet_of_a_server_is_refused(data: bytes, reason: int, request: pytest.FixtureRequest) -> None:
    version = V311 if "[4-" in request.node.name else V5

    def connected() -> Reader:
        reader = Reader(server=False, version=version)
        reader.feed(encode.encode(ConnAck(), version))
        return reader

    split_everywhere(data, connected, reason)


# --- what is right at the same edges --------------------------------------------------------------------------------


def taken(version: int, *data: bytes) -> list[Packet]:
    reader = Reader()
    reader.feed(encode.encode(Connect("c", version=version), version, True))
    return reader.feed(b"".join(data))


@v3("MQTT-1.5.3-3")
@v5("MQTT-1.5.4-3")
def test_a_byte_order_mark_is_kept() -> None:
    (got,) = taken(V311, packet(0x30, s("\ufeffa\ufeff")))
    assert isinstance(got, Publish) and got.topic == "\ufeffa\ufeff"


@v3("MQTT-4.7.3-3")
@v5("MQTT-4.7.3-3")
def test_the_longest_topic_is_taken() -> None:
    for version, none in ((V311, b""), (V5, NO)):
        (got,) = taken(version, packet(0x30, s("é" * 32767 + "x"), none))
        assert isinstance(got, Publish) and len(got.topic.encode()) == 65535


@v3("MQTT-2.3.1-5")
@v5("MQTT-2.2.1-2")
def test_a_publish_of_qos_0_has_no_packet_id() -> None:
    assert taken(V311, packet(0x31, s("t"), b"\0\7x")) == [Publish("t", b"\0\7x", 0, True)]
    assert taken(V5, packet(0x30, s("t"), NO, b"\0\7")) == [Publish("t", b"\0\7")]
    assert encode.encode(Publish("t", b"x", packet_id=5), V311) == packet(0x30, s("t"), b"x")


@v3("MQTT-3.1.3-6")
@v5("MQTT-3.1.3-6")
def test_an_empty_client_id_is_a_client_id() -> None:
    for level in (V311, V5):
        (got,) = Reader().feed(connect(s(""), level=level))
        assert isinstance(got, Connect) and got.client_id == "" and got.version == level


@v5("3.1.2.9")
def test_mqtt_5_has_a_password_without_a_user() -> None:
    (got,) = Reader().feed(connect(s("c"), s(b"\xff\0"), flags=0x42))
    assert isinstance(got, Connect) and got.password == b"\xff\0" and got.username is None


@v3("MQTT-3.1.3-1", "MQTT-3.1.2-9", "MQTT-3.1.2-19", "MQTT-3.1.2-21")
@v5("MQTT-3.1.3-1", "MQTT-3.1.2-9", "MQTT-3.1.2-17", "MQTT-3.1.2-19")
def test_the_fields_of_connect_come_in_their_order() -> None:
    for level, none in ((V311, b""), (V5, props(b"\x18\0\0\0\7"))):
        data = connect(s("id"), none, s("w/t"), s("bye"), s("user"), s("pass"), flags=0xEE, level=level)
        (got,) = Reader().feed(data)
        will = Will("w/t", b"bye", 1, True, Properties(will_delay=7) if level == V5 else NONE)
        assert got == Connect("id", True, 0, "user", b"pass", will, version=level)
        assert encode.encode(got, level, True) == data


def test_short_forms_of_mqtt_5() -> None:
    short = taken(V5, packet(0x40, PID), packet(0x40, PID, b"\x10"), packet(0xE0), packet(0xE0, b"\4"))
    assert [getattr(p, "reason", None) for p in short] == [0, 0x10, 0, 4]
    long = taken(V5, packet(0x40, PID, NO, NO), packet(0xE0, NO, NO))
    assert long == taken(V5, packet(0x40, PID), packet(0xE0))


@v3("2.2.3")
def test_3_1_1_does_not_forbid_a_long_form_of_the_remaining_length() -> None:
    reader = Reader()
    data = connect(s("c"), level=V311)
    (got,) = reader.feed(data[:1] + bytes((data[1] | 0x80, 0x80, 0x80, 0)) + data[2:])
    assert got == Connect("c", version=V311)
    assert reader.feed(b"\xc0\x80\0") == [PingReq()]


@v5("MQTT-3.3.2-17", "MQTT-3.3.2-18", "MQTT-3.1.3-10")
def test_the_order_of_user_properties_is_kept() -> None:
    pairs = [("z", "1"), ("a", "2"), ("z", "1"), ("", "")]
    (got,) = taken(V5, packet(0x30, s("t"), props(*(b"\x26" + s(k) + s(v) for k, v in pairs))))
    assert isinstance(got, Publish) and got.properties.user_properties == tuple(pairs)
    assert encode.encode(got, V5) == packet(0x30, s("t"), props(*(b"\x26" + s(k) + s(v) for k, v in pairs)))


# --- another protocol ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "server", "said"),
    [
        (b"AMQP\x00\x01\x00\x00", False, "another protocol, AMQP, which has a port of its own"),
        (b"AMQP\x03\x01\x00\x00", True, "another protocol, AMQP, which"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", False, "another protocol, HTTP.*: it began with 'HTTP/1.1'"),
        (b"\x15\x03\x01\x00\x02\x02\x46", False, "TLS, and expects it on this port: name the server as mqtts://"),
        (b"GET / HTTP/1.1\r\n\r\n", True, "another protocol, HTTP"),
        (b"POST / HTTP/1.1\r\n\r\n", True, "another protocol, HTTP"),
        (b"CONNECT\naccept-version:1.2\n\n\0", True, "another protocol, STOMP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", True, "TLS, and this port is without"),
    ],
)
def test_a_peer_that_speaks_another_protocol_is_told_so(data: bytes, server: bool, said: str) -> None:
    with pytest.raises((MalformedPacket, ProtocolError), match=f"the peer speaks {said}"):
        Reader(server=server).feed(data)
