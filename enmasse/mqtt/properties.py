"""The properties of MQTT 5 on the wire (v5 2.2.2): which has which type, in which packet it may stand, how often."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from operator import attrgetter
from struct import Struct
from typing import Any, Final, NamedTuple, get_type_hints

from enmasse.mqtt import reasons
from enmasse.mqtt.errors import MalformedPacket, ProtocolError
from enmasse.mqtt.fields import FieldCursor, cut_short, text_of, topic_of
from enmasse.mqtt.on_wire import BINARY, FLAG, PAIR, TEXT, TOPIC, U16, U32, VARINT, In
from enmasse.mqtt.packets import NONE, Properties
from enmasse.mqtt.topics import fault_of_text, fault_of_topic

MOST_USER_PROPERTIES: Final = 1000
"""In one packet; each costs its reader some 200 bytes while it is 5 on the wire."""
MOST_SUBSCRIPTION_IDS: Final = 10_000
BIGGEST_VARINT: Final = 268_435_455

_u16 = Struct(">H")
_u32 = Struct(">I")


class Property(NamedTuple):
    """A field of `Properties`, and what its type states there."""

    code: int
    kind: int
    field: str
    title: str
    clause: str
    zero: bool
    packets: In


def _table() -> tuple[Property, ...]:
    found = []
    for field, hint in get_type_hints(Properties, include_extras=True).items():
        code, kind, title, packets, clause, zero = hint.__metadata__[0]
        found.append(Property(code, kind, field, title, clause, zero, packets))
    return tuple(found)


TABLE: Final = _table()
_OF_CODE: Final = {p.code: p for p in TABLE}


def _allowed(packet: In) -> Mapping[int, Property]:
    return {each.code: each for each in TABLE if packet in each.packets}


# which packet may carry which (v5 2.2.2.2, table 2-4)
WILL: Final = _allowed(In.WILL)
PUBLISH_OF_CLIENT: Final = _allowed(In.PUBLISH_OF_CLIENT)
PUBLISH_OF_SERVER: Final = _allowed(In.PUBLISH_OF_SERVER)
CONNECT: Final = _allowed(In.CONNECT)
CONNACK: Final = _allowed(In.CONNACK)
ACK: Final = _allowed(In.ACK)
SUBSCRIBE: Final = _allowed(In.SUBSCRIBE)
UNSUBSCRIBE: Final = _allowed(In.UNSUBSCRIBE)
DISCONNECT_OF_CLIENT: Final = _allowed(In.DISCONNECT_OF_CLIENT)
DISCONNECT_OF_SERVER: Final = _allowed(In.DISCONNECT_OF_SERVER)
AUTH: Final = _allowed(In.AUTH)


_MOST_BLOCKS: Final = 1024
_LONGEST_BLOCK: Final = 127

blocks: dict[bytes, Properties] = {}
"""Bytes of recent properties of PUBLISH → properties: devices repeat them with every message. At most 1,024
of at most 127 bytes, and values that cannot change."""


_NUMBERS: Final = {FLAG: (1, 1), U16: (0xFFFF, 2), U32: (0xFFFF_FFFF, 4)}  # the largest, bytes
_CODES: Final = {p.code: bytes((p.code,)) for p in TABLE}
_ALL: Final = (
    WILL, PUBLISH_OF_CLIENT, PUBLISH_OF_SERVER, CONNECT, CONNACK, ACK, SUBSCRIBE, UNSUBSCRIBE, DISCONNECT_OF_CLIENT,
    DISCONNECT_OF_SERVER, AUTH,
)  # fmt: skip


def _getter(codes: Collection[int]) -> Callable[[Properties], tuple[Any, ...]]:
    """Take the values of these properties as a tuple."""
    fields = [p.field for p in TABLE if p.code in codes]
    if len(fields) == 1:
        get = attrgetter(fields[0])
        return lambda properties: (get(properties),)
    return attrgetter(*fields)


_GETTERS: Final = {id(a): (_getter(a), _getter([p.code for p in TABLE if p.code not in a])) for a in _ALL}


def read(cursor: FieldCursor, allowed: Mapping[int, Property]) -> Properties:
    """Return the properties at the cursor, which stands behind them afterwards. Raises MalformedPacket or
    ProtocolError."""
    if allowed is not PUBLISH_OF_CLIENT:
        return _read(cursor, allowed)
    begin = cursor.pos
    values = _read(cursor, allowed)
    if cursor.pos - begin <= _LONGEST_BLOCK:
        if len(blocks) >= _MOST_BLOCKS:
            blocks.clear()
        blocks[cursor.data[begin + 1 : cursor.pos]] = values
    return values


def _read(cursor: FieldCursor, allowed: Mapping[int, Property]) -> Properties:
    size = cursor.varint()
    if not size:
        return NONE
    packet, data, pos = cursor.packet, cursor.data, cursor.pos
    stop = pos + size
    if stop > cursor.stop:
        raise MalformedPacket(f"{packet}: its properties end behind its end")
    cursor.pos = stop
    values: dict[str, Any] = {}
    user: list[tuple[str, str]] = []
    ids: list[int] = []
    while pos < stop:
        code = data[pos]
        pos += 1
        found = allowed.get(code)
        if found is None:
            raise _not_allowed(code, packet)
        _, kind, field, title, _, zero, _ = found
        value: Any
        if kind == FLAG:
            if pos + 1 > stop:
                raise cut_short(packet)
            value = data[pos]
            pos += 1
            if value > 1:
                raise ProtocolError(f"{packet}: {title} is {value}; 0 and 1 are possible")
        elif kind == U32:
            if pos + 4 > stop:
                raise cut_short(packet)
            value = _u32.unpack_from(data, pos)[0]
            pos += 4
        elif kind == U16:
            if pos + 2 > stop:
                raise cut_short(packet)
            value = _u16.unpack_from(data, pos)[0]
            pos += 2
        elif kind == VARINT:
            inner = FieldCursor(packet, data, pos, stop)
            value = inner.varint()
            pos = inner.pos
        else:
            raw, pos = _bytes_at(data, pos, stop, packet)
            if kind == TEXT:
                value = text_of(raw, packet, title)
            elif kind == BINARY:
                value = raw
            elif kind == TOPIC:
                value = topic_of(raw, packet, title)
            else:
                if len(user) >= MOST_USER_PROPERTIES:
                    raise ProtocolError(
                        f"{packet}: more than {MOST_USER_PROPERTIES} user properties", "", reasons.QUOTA_EXCEEDED
                    )
                second, pos = _bytes_at(data, pos, stop, packet)
                user.append((text_of(raw, packet, title), text_of(second, packet, title)))
                continue
        if not zero and not value:
            reason = reasons.TOPIC_ALIAS_INVALID if code == 35 else None
            raise ProtocolError(f"{packet}: {title} is 0", found.clause, reason)
        if code == 11 and allowed is PUBLISH_OF_SERVER:
            if len(ids) >= MOST_SUBSCRIPTION_IDS:
                raise ProtocolError(f"{packet}: too many subscription identifiers", "", reasons.QUOTA_EXCEEDED)
            ids.append(value)
            continue
        if field in values:
            raise ProtocolError(f"{packet}: {title} stands there twice", "v5 2.2.2.2")
        values[field] = (value,) if code == 11 else value
    if user:
        values["user_properties"] = tuple(user)
    if ids:
        values["subscription_ids"] = tuple(ids)
    if "auth_data" in values and "auth_method" not in values:
        raise ProtocolError(f"{packet}: authentication data without an authentication method", "v5 3.1.2.11.10")
    return Properties(**values)


def _bytes_at(data: bytes, pos: int, stop: int, packet: str) -> tuple[bytes, int]:
    begin = pos + 2
    if begin > stop:
        raise cut_short(packet)
    end = begin + (data[pos] << 8 | data[pos + 1])
    if end > stop:
        raise cut_short(packet)
    return data[begin:end], end


def _not_allowed(code: int, packet: str) -> MalformedPacket | ProtocolError:
    known = _OF_CODE.get(code)
    if known is None:
        return MalformedPacket(f"{packet}: there is no property 0x{code:02x}", "v5 2.2.2.2")
    if packet == "PUBLISH" and code == 11:
        return ProtocolError("PUBLISH: a client gives no subscription identifier", "v5 MQTT-3.3.4-6")
    if packet == "DISCONNECT" and code == 17:
        return ProtocolError("DISCONNECT: a server gives no session expiry interval", "v5 MQTT-3.14.2-2")
    return MalformedPacket(f"{packet}: {known.title} does not belong there", "v5 2.2.2.2")


def write(properties: Properties, allowed: Mapping[int, Property]) -> bytes:
    """Return the properties with their length before them. Raises ValueError for one that the packet cannot carry or
    that has no such value."""
    if properties is NONE:
        return b"\0"
    mine, others = _GETTERS[id(allowed)]
    if others(properties) != others(NONE):
        wrong = [p.title for p in TABLE if p.code not in allowed and getattr(properties, p.field)]
        raise ValueError(f"{wrong[0]} does not belong in this packet")
    parts: list[bytes] = []
    for (code, kind, _, title, _, zero, _), value in zip(allowed.values(), mine(properties), strict=True):
        if value is None or value == ():
            continue
        if not zero and (value == 0 or (code == 11 and 0 in value)):
            raise ValueError(f"{title} is 0")
        if kind == PAIR:
            for name, text in value:
                parts += (b"\x26", string(name, title), string(text, title))
        elif kind == VARINT:
            if len(value) > 1 and allowed is SUBSCRIBE:
                raise ValueError("a SUBSCRIBE has one subscription identifier")
            for one in value:
                parts += (b"\x0b", varint(one))
        else:
            parts += (_CODES[code], _value(kind, value, title))
    body = b"".join(parts)
    return varint(len(body)) + body


def _value(kind: int, value: Any, title: str) -> bytes:
    if kind == TEXT:
        return string(value, title)
    if kind == TOPIC:
        fault = fault_of_topic(value)
        if fault is not None:
            raise ValueError(f"{title} {fault}")
        return string(value, title)
    if kind == BINARY:
        return binary(value, title)
    most, size = _NUMBERS[kind]
    if not 0 <= value <= most:
        raise ValueError(f"{title} is {value}; 0 to {most} are possible")
    return int(value).to_bytes(size, "big")


def varint(value: int) -> bytes:
    """Return a variable byte integer (v5 1.5.5), also the remaining length (2.1.4). Raises ValueError beyond
    268,435,455."""
    if 0 <= value < 0x80:
        return bytes((value,))
    if 0 <= value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if 0 <= value <= BIGGEST_VARINT:
        if value < 0x20_0000:
            return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80, value >> 21))
    raise ValueError(f"{value} does not fit a variable byte integer (0 to {BIGGEST_VARINT})")


def string(text: str, what: str) -> bytes:
    """Length and UTF-8. Raises ValueError for what is no MQTT string."""
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raw = b""
    size = len(raw)
    if size > 0xFFFF or "\0" in text or (text and not raw):
        raise ValueError(f"{what} {fault_of_text(text)}")
    return size.to_bytes(2, "big") + raw


def binary(value: bytes, what: str) -> bytes:
    """Return binary data with its length. Raises ValueError if it is too long."""
    if len(value) > 0xFFFF:
        raise ValueError(f"{what} has {len(value)} bytes, at most 65535 are possible")
    return len(value).to_bytes(2, "big") + value
