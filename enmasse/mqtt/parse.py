"""One function per packet type: the body of a packet, whole, becomes a value of `packets`; the reader's slow way.

Each takes (flags, cursor, version, of_client): the low bits of the first byte, the body, V311 or V5, and whether a
client sent it. Each raises MalformedPacket or ProtocolError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from enmasse.first_bytes import as_text
from enmasse.mqtt import properties, reasons
from enmasse.mqtt.errors import MalformedPacket, ProtocolError, UnsupportedVersion
from enmasse.mqtt.fields import EMPTY, FieldCursor
from enmasse.mqtt.packets import (
    BRIDGE,
    NONE,
    V5,
    V31,
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
    Subscription,
    UnsubAck,
    Unsubscribe,
    Will,
)
from enmasse.mqtt.topics import fault_of_filter, parse_share

MOST_FILTERS: Final = 4096
"""In one SUBSCRIBE or UNSUBSCRIBE."""

Parser: TypeAlias = Callable[[int, FieldCursor, int, bool], Packet]


def _packet_id(body: FieldCursor) -> int:
    packet_id = body.u16()
    if not packet_id:
        raise ProtocolError(f"{body.packet}: packet identifier 0", "v3.1.1 MQTT-2.3.1-1, v5 MQTT-2.2.1-3")
    return packet_id


def read_level(body: FieldCursor) -> int:
    """Protocol name and level of a CONNECT: V311 or V5. Clients of MQTT 3.1 (name MQIsdp, level 3), whose packets are
    the same, are served as those of 3.1.1. Brokers that connect as a bridge, such as mosquitto, set a bit of the level
    beside it. Raises UnsupportedVersion for another level."""
    name = body.binary()
    if name == b"MQIsdp":
        level = body.u8()
        if level not in (V31, V31 | BRIDGE):
            raise UnsupportedVersion(f"CONNECT: protocol level {level} of MQIsdp is not served; 3 is")
        return V311
    if name != b"MQTT":
        raise ProtocolError(
            f"CONNECT: the protocol name is {as_text(name[:20])}, not 'MQTT'",
            "v3.1.1 MQTT-3.1.2-1, v5 MQTT-3.1.2-1",
            reasons.UNSUPPORTED_PROTOCOL_VERSION,
        )
    level = body.u8()
    if level not in (V311, V311 | BRIDGE, V5):
        raise UnsupportedVersion(f"CONNECT: protocol level {level} is not served; 4 (3.1.1) and 5 are")
    return level & ~BRIDGE


def connect(flags: int, body: FieldCursor, version: int, of_client: bool) -> Connect:
    """From the connect flags on (3.1.2.3); `read_level` was there before. Raises MalformedPacket."""
    bridge = bool(body.data[body.pos - 1] & BRIDGE)
    bits = body.u8()
    if bits & 0x01:
        raise MalformedPacket("CONNECT: the reserved connect flag is set", "v3.1.1 MQTT-3.1.2-3, v5 MQTT-3.1.2-3")
    has_will, qos = bits & 0x04, bits >> 3 & 0x03
    if not has_will and bits & 0x38:
        raise MalformedPacket(
            "CONNECT: will QoS or will retain without the will flag",
            "v3.1.1 MQTT-3.1.2-13, MQTT-3.1.2-15, v5 MQTT-3.1.2-11, MQTT-3.1.2-13",
        )
    if qos == 3:
        raise MalformedPacket("CONNECT: will QoS 3", "v3.1.1 MQTT-3.1.2-14, v5 MQTT-3.1.2-12")
    if version == V311 and bits & 0xC0 == 0x40:
        raise MalformedPacket("CONNECT: a password without a user name", "v3.1.1 MQTT-3.1.2-22")
    keep_alive = body.u16()
    values = properties.read(body, properties.CONNECT) if version == V5 else NONE
    client_id = body.text("the client identifier")
    will = None
    if has_will:
        of_will = properties.read(body, properties.WILL) if version == V5 else NONE
        topic = body.topic("the will topic")
        will = Will(topic, body.binary(), qos, bool(bits & 0x20), of_will)
    username = body.text("the user name") if bits & 0x80 else None
    password = body.binary() if bits & 0x40 else None
    body.done()
    return Connect(client_id, bool(bits & 0x02), keep_alive, username, password, will, values, version, bridge)


def connect_client_id(body: FieldCursor, version: int) -> str:
    """Client identifier of a CONNECT whose rest may be missing; `read_level` was there before. Raises
    MalformedPacket."""
    body.u8()
    body.u16()
    if version == V5:
        properties.read(body, properties.CONNECT)
    return body.text("the client identifier")


def connack(flags: int, body: FieldCursor, version: int, of_client: bool) -> ConnAck:
    """Read the body of a CONNACK. Raises MalformedPacket."""
    bits, reason = body.u8(), body.u8()
    if bits & 0xFE:
        raise MalformedPacket("CONNACK: reserved acknowledge flags are set", "v5 MQTT-3.2.2-1")
    if reason and bits:
        raise ProtocolError("CONNACK: session present with a refusal", "v3.1.1 MQTT-3.2.2-4, v5 MQTT-3.2.2-6")
    if version == V311:
        if reason > reasons.V3_NOT_AUTHORIZED:
            raise MalformedPacket(f"CONNACK: return code {reason} is reserved", "v3.1.1 3.2.2.3")
        values = NONE
    else:
        if not body.left() and reason <= reasons.V3_NOT_AUTHORIZED:
            raise ProtocolError(
                f"CONNACK of MQTT 3.1.1 ({reasons.v3_name(reason)}): this server does not serve MQTT 5",
                "v5 3.2.2.3",
                reasons.UNSUPPORTED_PROTOCOL_VERSION,
            )
        _known(reason, reasons.CONNACK, "CONNACK", "v5 MQTT-3.2.2-8")
        values = properties.read(body, properties.CONNACK)
    body.done()
    return ConnAck(bool(bits), reason, values)


def publish(flags: int, body: FieldCursor, version: int, of_client: bool) -> Publish:
    """Read the body of a PUBLISH. Raises MalformedPacket."""
    qos = flags >> 1 & 0x03
    if qos == 3:
        raise MalformedPacket("PUBLISH: QoS 3", "v3.1.1 MQTT-3.3.1-4, v5 MQTT-3.3.1-4")
    if flags & 0x08 and not qos:
        raise MalformedPacket("PUBLISH: DUP at QoS 0", "v3.1.1 MQTT-3.3.1-2, v5 MQTT-3.3.1-2")
    size = body.u16()
    body.pos -= 2
    if size or version == V311:
        topic = body.topic("the topic")
    else:
        body.pos += 2
        topic = ""
    packet_id = _packet_id(body) if qos else 0
    values = NONE
    if version == V5:
        values = properties.read(body, properties.PUBLISH_OF_CLIENT if of_client else properties.PUBLISH_OF_SERVER)
        if not size and values.topic_alias is None:
            raise ProtocolError("PUBLISH: neither a topic nor a topic alias", "v5 3.3.2.1")
    payload = body.data[body.pos : body.stop]
    return Publish(topic, payload, qos, bool(flags & 1), bool(flags & 8), packet_id, values)


def _ack(body: FieldCursor, version: int, codes: frozenset[int], clause: str) -> tuple[int, int, Properties]:
    packet_id = _packet_id(body)
    reason, values = 0, NONE
    if version == V5 and body.left():
        reason = body.u8()
        _known(reason, codes, body.packet, clause)
        if body.left():
            values = properties.read(body, properties.ACK)
    body.done()
    return packet_id, reason, values


def puback(flags: int, body: FieldCursor, version: int, of_client: bool) -> PubAck:
    """Read the body of a PUBACK. Raises MalformedPacket."""
    return PubAck(*_ack(body, version, reasons.PUBACK, "v5 MQTT-3.4.2-1"))


def pubrec(flags: int, body: FieldCursor, version: int, of_client: bool) -> PubRec:
    """Read the body of a PUBREC. Raises MalformedPacket."""
    return PubRec(*_ack(body, version, reasons.PUBREC, "v5 MQTT-3.5.2-1"))


def pubrel(flags: int, body: FieldCursor, version: int, of_client: bool) -> PubRel:
    """Read the body of a PUBREL. Raises MalformedPacket."""
    return PubRel(*_ack(body, version, reasons.PUBREL, "v5 MQTT-3.6.2-1"))


def pubcomp(flags: int, body: FieldCursor, version: int, of_client: bool) -> PubComp:
    """Read the body of a PUBCOMP. Raises MalformedPacket."""
    return PubComp(*_ack(body, version, reasons.PUBCOMP, "v5 MQTT-3.7.2-1"))


def subscribe(flags: int, body: FieldCursor, version: int, of_client: bool) -> Subscribe:
    """Read the body of a SUBSCRIBE. Raises MalformedPacket."""
    packet_id = _packet_id(body)
    values = properties.read(body, properties.SUBSCRIBE) if version == V5 else NONE
    found: list[Subscription] = []
    while body.pos < body.stop:
        filter = _filter(body, len(found))
        bits = body.u8()
        if bits & 0x03 == 3:
            raise MalformedPacket("SUBSCRIBE: QoS 3", "v3.1.1 MQTT-3.8.3-4, v5 3.8.3.1")
        if version == V311:
            if bits & 0xFC:
                raise MalformedPacket("SUBSCRIBE: reserved bits beside the QoS are set", "v3.1.1 MQTT-3.8.3-4")
            found.append(Subscription(filter, bits))
            continue
        if bits & 0xC0:
            raise MalformedPacket("SUBSCRIBE: reserved bits of the options are set", "v5 MQTT-3.8.3-5")
        if bits & 0x30 == 0x30:
            raise ProtocolError("SUBSCRIBE: retain handling 3", "v5 3.8.3.1")
        if filter.startswith("$share"):
            _check_share(filter, bits)
        found.append(Subscription(filter, bits & 3, bool(bits & 4), bool(bits & 8), bits >> 4))
    if not found:
        raise ProtocolError("SUBSCRIBE: no topic filter", "v3.1.1 MQTT-3.8.3-3, v5 MQTT-3.8.3-2")
    return Subscribe(packet_id, tuple(found), values)


def _check_share(filter: str, bits: int) -> None:
    try:
        share = parse_share(filter)
    except ValueError as error:
        raise MalformedPacket(
            f"SUBSCRIBE: the shared subscription {filter[:100]!r} {error}", "v5 MQTT-4.8.2-1, MQTT-4.8.2-2"
        ) from None
    if share is not None and bits & 4:
        raise ProtocolError("SUBSCRIBE: no local on a shared subscription", "v5 MQTT-3.8.3-4")


def _filter(body: FieldCursor, before: int) -> str:
    if before >= MOST_FILTERS:
        raise ProtocolError(f"{body.packet}: more than {MOST_FILTERS} topic filters", "", reasons.QUOTA_EXCEEDED)
    filter = body.text("a topic filter")
    fault = fault_of_filter(filter)
    if fault is not None:
        if not filter:
            clause = EMPTY
        elif "#" in fault:
            clause = "v3.1.1 MQTT-4.7.1-2, v5 MQTT-4.7.1-1"
        else:
            clause = "v3.1.1 MQTT-4.7.1-3, v5 MQTT-4.7.1-2"
        raise MalformedPacket(f"{body.packet}: the topic filter {filter[:100]!r} {fault}", clause)
    return filter


def suback(flags: int, body: FieldCursor, version: int, of_client: bool) -> SubAck:
    """Read the body of a SUBACK. Raises MalformedPacket."""
    packet_id = _packet_id(body)
    values = properties.read(body, properties.ACK) if version == V5 else NONE
    codes = tuple(body.data[body.pos : body.stop])
    if not codes:
        raise ProtocolError("SUBACK: no code", "v5 MQTT-3.8.4-6")
    legal = reasons.SUBACK if version == V5 else _V3_SUBACK
    if not legal.issuperset(codes):
        raise ProtocolError("SUBACK: a reserved code", "v3.1.1 MQTT-3.9.3-2, v5 MQTT-3.9.3-2")
    return SubAck(packet_id, codes, values)


_V3_SUBACK: Final = frozenset(b"\x00\x01\x02\x80")


def unsubscribe(flags: int, body: FieldCursor, version: int, of_client: bool) -> Unsubscribe:
    """Read the body of a UNSUBSCRIBE. Raises MalformedPacket."""
    packet_id = _packet_id(body)
    values = properties.read(body, properties.UNSUBSCRIBE) if version == V5 else NONE
    filters: list[str] = []
    while body.pos < body.stop:
        filters.append(_filter(body, len(filters)))
    if not filters:
        raise ProtocolError("UNSUBSCRIBE: no topic filter", "v3.1.1 MQTT-3.10.3-2, v5 MQTT-3.10.3-2")
    return Unsubscribe(packet_id, tuple(filters), values)


def unsuback(flags: int, body: FieldCursor, version: int, of_client: bool) -> UnsubAck:
    """Read the body of a UNSUBACK. Raises MalformedPacket."""
    packet_id = _packet_id(body)
    if version == V311:
        body.done()
        return UnsubAck(packet_id)
    values = properties.read(body, properties.ACK)
    codes = tuple(body.data[body.pos : body.stop])
    if not codes:
        raise ProtocolError("UNSUBACK: no code", "v5 MQTT-3.11.3-1")
    if not reasons.UNSUBACK.issuperset(codes):
        raise ProtocolError("UNSUBACK: a reserved code", "v5 MQTT-3.11.3-2")
    return UnsubAck(packet_id, codes, values)


def pingreq(flags: int, body: FieldCursor, version: int, of_client: bool) -> PingReq:
    """Read the body of a PINGREQ. Raises MalformedPacket."""
    body.done()
    return PingReq()


def pingresp(flags: int, body: FieldCursor, version: int, of_client: bool) -> PingResp:
    """Read the body of a PINGRESP. Raises MalformedPacket."""
    body.done()
    return PingResp()


def disconnect(flags: int, body: FieldCursor, version: int, of_client: bool) -> Disconnect:
    """Read the body of a DISCONNECT. Raises MalformedPacket."""
    reason, values = 0, NONE
    if version == V5 and body.left():
        reason = body.u8()
        codes = reasons.DISCONNECT_OF_CLIENT if of_client else reasons.DISCONNECT_OF_SERVER
        _known(reason, codes, "DISCONNECT", "v5 MQTT-3.14.2-1")
        if body.left():
            allowed = properties.DISCONNECT_OF_CLIENT if of_client else properties.DISCONNECT_OF_SERVER
            values = properties.read(body, allowed)
    body.done()
    return Disconnect(reason, values)


def auth(flags: int, body: FieldCursor, version: int, of_client: bool) -> Auth:
    """Read the body of a AUTH. Raises MalformedPacket."""
    if version == V311:
        raise MalformedPacket("packet type 15 is reserved", "v3.1.1 2.2.1")
    short = not body.left()  # is success without properties
    reason = 0 if short else body.u8()
    values = NONE if short else properties.read(body, properties.AUTH)
    _known(reason, reasons.AUTH_OF_CLIENT if of_client else reasons.AUTH_OF_SERVER, "AUTH", "v5 MQTT-3.15.2-1")
    if values.auth_method is None and not short:
        raise ProtocolError("AUTH: no authentication method", "v5 3.15.2.2.2")
    body.done()
    return Auth(reason, values)


def _known(reason: int, codes: frozenset[int], packet: str, clause: str) -> None:
    if reason not in codes:
        raise ProtocolError(f"{packet}: it cannot have reason code 0x{reason:02x}", clause)


# by packet type: name, flags it must have (None: they mean something), sent by (client, server), parser
TYPES: Final[dict[int, tuple[str, int | None, bool, bool, Parser]]] = {
    1: ("CONNECT", 0, True, False, connect),
    2: ("CONNACK", 0, False, True, connack),
    3: ("PUBLISH", None, True, True, publish),
    4: ("PUBACK", 0, True, True, puback),
    5: ("PUBREC", 0, True, True, pubrec),
    6: ("PUBREL", 2, True, True, pubrel),
    7: ("PUBCOMP", 0, True, True, pubcomp),
    8: ("SUBSCRIBE", 2, True, False, subscribe),
    9: ("SUBACK", 0, False, True, suback),
    10: ("UNSUBSCRIBE", 2, True, False, unsubscribe),
    11: ("UNSUBACK", 0, False, True, unsuback),
    12: ("PINGREQ", 0, True, False, pingreq),
    13: ("PINGRESP", 0, False, True, pingresp),
    14: ("DISCONNECT", 0, True, True, disconnect),
    15: ("AUTH", 0, True, True, auth),
}
