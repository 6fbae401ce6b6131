"""Packets to bytes, both versions. `encode` does any packet; the others do what is hot, one join each.

All raise ValueError for a packet that the specification forbids: a mistake of the caller, not of a peer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from enmasse.mqtt import properties
from enmasse.mqtt.packets import (
    BRIDGE,
    NONE,
    V5,
    V311,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
)
from enmasse.mqtt.properties import binary, string, varint
from enmasse.mqtt.topics import fault_of_filter, fault_of_topic, parse_share

PINGRESP: Final = b"\xd0\0"
VERSION_REFUSED: Final = b"\x20\2\0\1"
"""CONNACK for a protocol level that is not served (v3.1.1 MQTT-3.1.2-2), in the form of 3.1.1, which clients of all
versions but 5 know: a mosquitto bridge, for example, falls back to a lower level only on this return code."""

PUBACK: Final = 0x40
PUBREC: Final = 0x50
PUBREL: Final = 0x62
PUBCOMP: Final = 0x70


def ack(head: int, packet_id: int) -> bytes:
    """Return a PUBACK, PUBREC, PUBREL or PUBCOMP (`head` is one of these names) that says success, in both versions."""
    return b"%c\2%c%c" % (head, packet_id >> 8, packet_id & 0xFF)


def topic_field(topic: str) -> bytes:
    """Return a topic as it stands in a PUBLISH: what callers keep for a topic they send to often. Raises ValueError."""
    fault = fault_of_topic(topic)
    if fault is not None:
        raise ValueError(f"the topic {topic[:100]!r} {fault}")
    return string(topic, "the topic")


_MOST_WRITTEN: Final = 1024

_written: dict[Properties, bytes] = {}


def publish_properties(values: Properties) -> bytes:
    """Return the properties of a PUBLISH to a client of MQTT 5, encoded; those that come often are encoded once. For
    3.1.1 it is b"" instead."""
    if values is NONE:
        return b"\0"
    found = _written.get(values)
    if found is None:
        found = properties.write(values, properties.PUBLISH_OF_SERVER)
        if len(found) <= 128:
            if len(_written) >= _MOST_WRITTEN:
                _written.clear()
            _written[values] = found
    return found


def publish(flags: int, topic: bytes, packet_id: int, values: bytes, payload: bytes) -> bytes:
    """Return a PUBLISH from its encoded parts. `flags`: retain 1, QoS 1 is 2, QoS 2 is 4, DUP 8; `topic`: of
    topic_field; `packet_id`: 0 at QoS 0; `values`: of publish_properties, b"" for 3.1.1. Nothing is checked. Raises
    ValueError only if it would be longer than a packet can be."""
    head, size = 0x30 | flags, len(topic) + len(values) + len(payload)
    if not flags & 6:
        if size < 0x80:
            return b"%c%c%b%b%b" % (head, size, topic, values, payload)
        if size < 0x4000:
            return b"%c%c%c%b%b%b" % (head, size & 0x7F | 0x80, size >> 7, topic, values, payload)
        return b"".join((b"%c" % head, varint(size), topic, values, payload))
    size += 2
    high, low = packet_id >> 8, packet_id & 0xFF
    if size < 0x80:
        return b"%c%c%b%c%c%b%b" % (head, size, topic, high, low, values, payload)
    if size < 0x4000:
        first, second = size & 0x7F | 0x80, size >> 7
        return b"%c%c%c%b%c%c%b%b" % (head, first, second, topic, high, low, values, payload)
    return b"".join((b"%c" % head, varint(size), topic, b"%c%c" % (high, low), values, payload))


def encode(packet: Packet, version: int, of_client: bool = False) -> bytes:
    """Any packet, as a server sends it, or a client (`of_client`): they may carry different properties. A reason and
    properties are left out for 3.1.1, which has neither. Raises ValueError for what must not be sent."""
    found: Any = _ENCODERS.get(type(packet))
    if found is None:
        raise ValueError(f"{type(packet).__name__} is no packet")
    head, body = found(packet, version, of_client)
    return b"".join((bytes((head,)), varint(len(body)), body))


def _packet_id(value: int) -> bytes:
    if not 0 < value < 0x10000:
        raise ValueError(f"packet identifier {value}; 1 to 65535 are possible")
    return value.to_bytes(2, "big")


def _connect(packet: Connect, version: int, of_client: bool) -> tuple[int, bytes]:
    will = packet.will
    flags = packet.clean << 1
    if packet.version == V311 and packet.password is not None and packet.username is None:
        raise ValueError("MQTT 3.1.1 has no password without a user name")
    if will is not None:
        _check_qos(will.qos)
        flags |= 4 | will.qos << 3 | will.retain << 5
    flags |= (packet.password is not None) << 6 | (packet.username is not None) << 7
    if not 0 <= packet.keep_alive <= 0xFFFF:
        raise ValueError(f"keep alive {packet.keep_alive}; 0 to 65535 are possible")
    v5 = packet.version == V5
    level = packet.version | BRIDGE if packet.bridge else packet.version
    parts = [b"\0\4MQTT", bytes((level, flags)), packet.keep_alive.to_bytes(2, "big")]
    if v5:
        parts.append(properties.write(packet.properties, properties.CONNECT))
    parts.append(string(packet.client_id, "the client identifier"))
    if will is not None:
        if v5:
            parts.append(properties.write(will.properties, properties.WILL))
        parts += (topic_field(will.topic), binary(will.payload, "the payload of the will"))
    if packet.username is not None:
        parts.append(string(packet.username, "the user name"))
    if packet.password is not None:
        parts.append(binary(packet.password, "the password"))
    return 0x10, b"".join(parts)


def _connack(packet: ConnAck, version: int, of_client: bool) -> tuple[int, bytes]:
    body = bytes((packet.session_present, packet.reason))
    if version == V5:
        body += properties.write(packet.properties, properties.CONNACK)
    return 0x20, body


def _check_qos(qos: int) -> None:
    if qos not in (0, 1, 2):
        raise ValueError(f"QoS {qos}; 0, 1 and 2 are possible")


def _publish(packet: Publish, version: int, of_client: bool) -> tuple[int, bytes]:
    _check_qos(packet.qos)
    if packet.dup and not packet.qos:
        raise ValueError("DUP at QoS 0")
    if packet.topic or version == V311 or packet.properties.topic_alias is None:
        topic = topic_field(packet.topic)
    else:
        topic = b"\0\0"
    values = b""
    if version == V5:
        allowed = properties.PUBLISH_OF_CLIENT if of_client else properties.PUBLISH_OF_SERVER
        values = properties.write(packet.properties, allowed)
    identifier = _packet_id(packet.packet_id) if packet.qos else b""
    head = 0x30 | packet.dup << 3 | packet.qos << 1 | packet.retain
    return head, b"".join((topic, identifier, values, packet.payload))


def _acknowledgement(head: int) -> Callable[[Any, int, bool], tuple[int, bytes]]:
    def encoder(packet: PubAck | PubRec | PubRel | PubComp, version: int, of_client: bool) -> tuple[int, bytes]:
        body = _packet_id(packet.packet_id)
        if version == V5 and (packet.reason or packet.properties is not NONE):
            body += bytes((packet.reason,))
            if packet.properties is not NONE:
                body += properties.write(packet.properties, properties.ACK)
        return head, body

    return encoder


def _check_filter(filter: str) -> None:
    fault = fault_of_filter(filter)
    if fault is not None:
        raise ValueError(f"the topic filter {filter[:100]!r} {fault}")


def _subscribe(packet: Subscribe, version: int, of_client: bool) -> tuple[int, bytes]:
    if not packet.subscriptions:
        raise ValueError("SUBSCRIBE needs a topic filter")
    parts = [_packet_id(packet.packet_id)]
    if version == V5:
        parts.append(properties.write(packet.properties, properties.SUBSCRIBE))
    for one in packet.subscriptions:
        _check_filter(one.filter)
        _check_qos(one.qos)
        options = one.qos
        if version == V5:
            if parse_share(one.filter) is not None and one.no_local:
                raise ValueError("no local on a shared subscription")
            if one.retain_handling not in (0, 1, 2):
                raise ValueError(f"retain handling {one.retain_handling}; 0, 1 and 2 are possible")
            options |= one.no_local << 2 | one.retain_as_published << 3 | one.retain_handling << 4
        parts += (string(one.filter, "the topic filter"), bytes((options,)))
    return 0x82, b"".join(parts)


def _suback(packet: SubAck, version: int, of_client: bool) -> tuple[int, bytes]:
    values = properties.write(packet.properties, properties.ACK) if version == V5 else b""
    codes = packet.codes
    if version == V311:
        codes = tuple(code if code < 0x80 else 0x80 for code in codes)
    return 0x90, _packet_id(packet.packet_id) + values + bytes(codes)


def _unsubscribe(packet: Unsubscribe, version: int, of_client: bool) -> tuple[int, bytes]:
    if not packet.filters:
        raise ValueError("UNSUBSCRIBE needs a topic filter")
    parts = [_packet_id(packet.packet_id)]
    if version == V5:
        parts.append(properties.write(packet.properties, properties.UNSUBSCRIBE))
    for filter in packet.filters:
        _check_filter(filter)
        parts.append(string(filter, "the topic filter"))
    return 0xA2, b"".join(parts)


def _unsuback(packet: UnsubAck, version: int, of_client: bool) -> tuple[int, bytes]:
    if version == V311:
        return 0xB0, _packet_id(packet.packet_id)
    values = properties.write(packet.properties, properties.ACK)
    return 0xB0, _packet_id(packet.packet_id) + values + bytes(packet.codes)


def _pingreq(packet: PingReq, version: int, of_client: bool) -> tuple[int, bytes]:
    return 0xC0, b""


def _pingresp(packet: PingResp, version: int, of_client: bool) -> tuple[int, bytes]:
    return 0xD0, b""


def _disconnect(packet: Disconnect, version: int, of_client: bool) -> tuple[int, bytes]:
    if version == V311:
        if not of_client:
            raise ValueError("a server has no DISCONNECT in MQTT 3.1.1: it closes the connection")
        return 0xE0, b""
    allowed = properties.DISCONNECT_OF_CLIENT if of_client else properties.DISCONNECT_OF_SERVER
    if packet.properties is NONE:
        return 0xE0, bytes((packet.reason,)) if packet.reason else b""
    return 0xE0, bytes((packet.reason,)) + properties.write(packet.properties, allowed)


def _auth(packet: Auth, version: int, of_client: bool) -> tuple[int, bytes]:
    if version == V311:
        raise ValueError("MQTT 3.1.1 has no AUTH")
    return 0xF0, bytes((packet.reason,)) + properties.write(packet.properties, properties.AUTH)


_ENCODERS: Final[dict[type, Callable[[Any, int, bool], tuple[int, bytes]]]] = {
    Connect: _connect,
    ConnAck: _connack,
    Publish: _publish,
    PubAck: _acknowledgement(PUBACK),
    PubRec: _acknowledgement(PUBREC),
    PubRel: _acknowledgement(PUBREL),
    PubComp: _acknowledgement(PUBCOMP),
    Subscribe: _subscribe,
    SubAck: _suback,
    Unsubscribe: _unsubscribe,
    UnsubAck: _unsuback,
    PingReq: _pingreq,
    PingResp: _pingresp,
    Disconnect: _disconnect,
    Auth: _auth,
}
