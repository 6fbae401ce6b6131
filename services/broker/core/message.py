"""A message as the broker keeps it, and the few things it must know of its encoded form.

The payload is passed on as it came. Only the sections in front of the body are looked at, and of those only what
decides about storing and delivering: header, the delivery annotations (dropped: they are for one hop), the scheduling
annotations, absolute-expiry-time. (AMQP 1.0 part 3, section 3.2.)
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from struct import Struct
from typing import TYPE_CHECKING, Any

from enmasse.amqp.codec import decode, encode
from enmasse.amqp.errors import AmqpError
from enmasse.amqp.types import Described, Symbol, Timestamp, UByte, UInt, ULong

if TYPE_CHECKING:
    from services.broker.core.address import Address

HEADER, DELIVERY_ANNOTATIONS, ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = 0x70, 0x71, 0x72, 0x73, 0x74
DUPLICATE_ID = "_AMQ_DUPL_ID"
DUPLICATE_MARK = b"_AMQ_DUPL_ID"

_u32 = Struct("!I").unpack_from
_MAX_CACHED_HEADERS = 1024
_FOREVER = 2**62
_MAX_KEY = 128
_SHORT = 2048  # bytes that are searched through sooner than taken apart


STORED, DURABLE, REWRITE, PARTLY = 1, 2, 4, 8
PRIORITY_SHIFT = 4


class Message:
    """One message in the broker; several queues share it, each holding one of its `refs`.

    `id` grows with arrival and is the store's id where the message is STORED. `payload` is None while the bytes are
    out of memory: in the store, or in the pager at `place`. `expires` is in milliseconds since 1970, 0 = never.
    `flags`: STORED (the store holds it), DURABLE (header), REWRITE (its front is made anew when sent), PARTLY (the
    store holds it only for some of its queues and may forget it before the others), priority in the upper four bits.
    `owner` is the address whose size it counts to. Kept small: queues hold thousands (see backlog).
    """

    __slots__ = ("expires", "flags", "id", "owner", "payload", "place", "refs", "size")

    def __init__(
        self, id: int, payload: bytes | None, size: int, flags: int, expires: int, owner: Address, refs: int
    ) -> None:
        self.id = id
        self.payload = payload
        self.size = size
        self.flags = flags
        self.expires = expires
        self.owner = owner
        self.refs = refs
        self.place: int | None = None


class Front:
    """What stands in front of the body. Times in milliseconds (0 = absent, ttl -1 = absent).

    `flags` are those of the Message it becomes; `simple`: there is nothing but these flags to be seen to; `bare`:
    there are no application properties either.
    """

    __slots__ = (
        "absolute_expiry",
        "bare",
        "delivery_delay",
        "delivery_time",
        "durable",
        "flags",
        "priority",
        "simple",
        "ttl",
    )

    def __init__(
        self,
        durable: bool,
        priority: int,
        ttl: int,
        rewrite: bool,
        absolute_expiry: int = 0,
        delivery_time: int = 0,
        delivery_delay: int = 0,
        bare: bool = False,
    ) -> None:
        self.bare = bare
        self.durable = durable
        self.priority = priority
        self.ttl = ttl
        self.absolute_expiry = absolute_expiry
        self.delivery_time = delivery_time
        self.delivery_delay = delivery_delay
        self.flags = (DURABLE if durable else 0) | (REWRITE if rewrite else 0) | priority << PRIORITY_SHIFT
        self.simple = ttl < 0 and not (absolute_expiry or delivery_time or delivery_delay)


_PLAIN = Front(False, 4, -1, False)
_headers: dict[bytes, Front] = {}
# The last front that was read, for the next message will often begin with the same bytes: these bytes, up to the body
# or into the properties, and where the number of properties stands (0: the body follows at once); then what the message
# is, and what it is where the body follows the properties.
_last: tuple[bytes, int, Front, Front] = (b"\xff", 0, _PLAIN, _PLAIN)
_NO_EXPIRY = 8  # properties up to and without absolute-expiry-time
_BODIES = frozenset((b"\x00\x53\x75", b"\x00\x53\x76", b"\x00\x53\x77"))


def read_front(payload: bytes) -> Front:
    """Raises AmqpError (amqp:decode-error) where the sections in front of the body are not well formed."""
    global _last
    begin, count_at, front, bare = _last
    if payload.startswith(begin):
        if not count_at:
            return bare
        if len(payload) > count_at and payload[count_at] <= _NO_EXPIRY:
            after = count_at + payload[count_at - 1]
            return bare if payload[after : after + 3] in _BODIES else front
    front = _PLAIN
    pos = 0
    if payload[:3] == b"\x00\x53\x70":
        pos = section_end(payload, 0)
        head = payload[:pos]
        cached = _headers.get(head)
        front = cached if cached is not None else _read_header(head)
    # Most messages go on with the body, or with short properties and the body: nothing to see there.
    if payload[pos : pos + 4] == b"\x00\x53\x73\x45":
        pos += 4  # an empty list: no properties, as Proton says it
    rest = payload[pos : pos + 6]
    if rest[:2] == b"\x00\x53" and len(rest) > 2:
        bare = Front(front.durable, front.priority, front.ttl, bool(front.flags & REWRITE), bare=True)
        if rest[:3] in _BODIES:
            _last = (payload[: pos + 3], 0, front, bare)
            return bare
        if rest[2] == PROPERTIES and len(rest) == 6 and rest[3] == 0xC0 and rest[5] <= _NO_EXPIRY:
            _last = (payload[: pos + 4], pos + 5, front, bare)
            return read_front(payload)
    elif not rest:
        return front
    return _read_rest(payload, pos, front)


def section_end(payload: bytes, pos: int) -> int:
    """Where the list or map section that begins at `pos` ends (its descriptor in the short form)."""
    try:
        code = payload[pos + 3]
        if code == 0xC0 or code == 0xC1:
            end = pos + 5 + payload[pos + 4]
        elif code == 0xD0 or code == 0xD1:
            end = pos + 8 + _u32(payload, pos + 4)[0]
        elif code == 0x45:
            end = pos + 4
        else:
            end = decode(payload, pos)[1]
    except (IndexError, ValueError) as error:
        raise AmqpError("amqp:decode-error", "a message section is cut off") from error
    except Exception as error:
        if isinstance(error, AmqpError):
            raise
        raise AmqpError("amqp:decode-error", "a message section is cut off") from error
    if end > len(payload):
        raise AmqpError("amqp:decode-error", "a message section is cut off")
    return end


def _read_header(head: bytes) -> Front:
    fields = _list(decode(head)[0])
    fields += [None] * (5 - len(fields))
    durable, priority, ttl, _, count = fields[:5]
    front = Front(  # any integer may come, whatever the types should be
        durable is True,
        max(0, min(9, priority)) if isinstance(priority, int) else 4,
        min(ttl, _FOREVER) if isinstance(ttl, int) else -1,
        isinstance(ttl, int) or bool(count) or not (priority is None or isinstance(priority, UByte)),
    )
    if len(_headers) >= _MAX_CACHED_HEADERS:
        _headers.clear()
    _headers[head] = front
    return front


def _list(value: Any) -> list[Any]:
    inner = value.value if isinstance(value, Described) else value
    return list(inner) if isinstance(inner, list) else []


def _map(value: Any) -> dict[Any, Any]:
    inner = value.value if isinstance(value, Described) else value
    return dict(inner) if isinstance(inner, dict) else {}


def _read_rest(payload: bytes, pos: int, front: Front) -> Front:
    rewrite = bool(front.flags & REWRITE)
    expiry = time = delay = 0
    end = len(payload)
    while pos < end:
        if payload[pos : pos + 2] != b"\x00\x53":
            # An unusual descriptor (ulong in full, or a symbol): look at the value itself.
            value, after = decode(payload, pos)
            code = _section_code(value)
        else:
            code = payload[pos + 2] if pos + 2 < end else 0
            if code >= 0x75:
                break
            after = section_end(payload, pos)
            value = None
        if code == DELIVERY_ANNOTATIONS:
            rewrite = True
        elif code == ANNOTATIONS:
            if payload.find(b"x-opt-delivery-", pos, after) >= 0:
                annotations = _map(value if value is not None else decode(payload, pos)[0])
                time = _integer(annotations.get("x-opt-delivery-time"))
                delay = _integer(annotations.get("x-opt-delivery-delay"))
        elif code == PROPERTIES:
            few = value is None and payload[pos + 3] == 0xC0 and after > pos + 5 and payload[pos + 5] <= _NO_EXPIRY
            if not few:
                fields = _list(value if value is not None else decode(payload, pos)[0])
                expiry = _integer(fields[8]) if len(fields) > 8 else 0
        elif code == HEADER:
            rewrite = True  # a header in an unusual encoding is made anew
            front = _read_header(payload[pos:after])
        else:
            break
        pos = after
    return Front(front.durable, front.priority, front.ttl, rewrite, expiry, time, delay)


_SECTION_NAMES = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
}


def _section_code(value: Any) -> int:
    if not isinstance(value, Described):
        raise AmqpError("amqp:decode-error", "a message consists of described sections")
    descriptor = value.descriptor
    if isinstance(descriptor, str):
        return _SECTION_NAMES.get(descriptor, 0)
    return descriptor if isinstance(descriptor, int) else 0


def _integer(value: Any) -> int:
    return max(0, min(value, _FOREVER)) if isinstance(value, int) and not isinstance(value, bool) else 0


def split(payload: bytes) -> tuple[dict[int, Any], int]:
    """The decoded sections in front of the body by their code, and where the body begins."""
    sections: dict[int, Any] = {}
    pos = 0
    end = len(payload)
    while pos < end:
        if payload[pos : pos + 2] == b"\x00\x53" and pos + 2 < end and payload[pos + 2] >= 0x75:
            break
        value, after = decode(payload, pos)
        code = _section_code(value)
        if not HEADER <= code <= APPLICATION_PROPERTIES:
            break
        sections[code] = value.value
        pos = after
    return sections, pos


def duplicate_id(payload: bytes, by_message_id: bool) -> bytes | None:
    """The id by which a resent message is recognised: the property `_AMQ_DUPL_ID`, else the message-id if asked for."""
    marked = may_be_marked(payload)
    if not marked and not by_message_id:
        return None
    sections, _ = split(payload)
    properties = sections.get(APPLICATION_PROPERTIES)
    if marked and isinstance(properties, dict) and properties.get(DUPLICATE_ID) is not None:
        value = properties[DUPLICATE_ID]
        return _short_key(value if type(value) is bytes else str(value).encode())
    if by_message_id:
        fields = sections.get(PROPERTIES)
        if isinstance(fields, list) and fields and fields[0] is not None:
            return _short_key(b"\x00m" + bytes(encode(fields[0])))
    return None


def _short_key(key: bytes) -> bytes:
    """Keys are remembered in memory and on disk by the thousand, and come from anybody."""
    return key if len(key) <= _MAX_KEY else b"\x00h" + sha256(key).digest()


def may_be_marked(payload: bytes) -> bool:
    """Whether the property of duplicate_id may be there: a quick look, which may be wrong about that but not about its
    absence."""
    if len(payload) <= _SHORT:
        return payload.find(DUPLICATE_MARK) >= 0
    pos = 0
    end = len(payload) - 2
    while pos < end and payload[pos : pos + 2] == b"\x00\x53" and HEADER <= payload[pos + 2] <= APPLICATION_PROPERTIES:
        pos = section_end(payload, pos)
    return payload.find(DUPLICATE_MARK, 0, pos) >= 0 or payload[pos : pos + 2] != b"\x00\x53"


def to_address(payload: bytes) -> str | None:
    """properties.to, None where absent."""
    fields = split(payload)[0].get(PROPERTIES)
    if isinstance(fields, list) and len(fields) > 2 and isinstance(fields[2], str):
        return fields[2]
    return None


def destination_type(payload: bytes) -> int | None:
    """The annotation `x-opt-jms-dest` of a message to the anonymous relay: 0 queue, 1 topic, 2 and 3 temporary ones."""
    if payload.find(b"x-opt-jms-dest") < 0:
        return None
    annotations = split(payload)[0].get(ANNOTATIONS)
    value = annotations.get("x-opt-jms-dest") if isinstance(annotations, dict) else None
    return int(value) if isinstance(value, int) else None


@lru_cache(maxsize=256)
def header(durable: bool, priority: int, ttl: int, delivery_count: int) -> bytes:
    """An encoded header section; ttl -1 = absent. first-acquirer is told where this is not the first delivery."""
    fields = [
        durable,
        UByte(priority) if priority != 4 else None,
        UInt(min(ttl, 0xFFFFFFFF)) if ttl >= 0 else None,
        False if delivery_count else None,
        UInt(min(delivery_count, 0xFFFFFFFF)) if delivery_count else None,
    ]
    return bytes(encode(Described(ULong(HEADER), fields)))


def outgoing(payload: bytes, durable: bool, priority: int, ttl: int, delivery_count: int) -> bytes:
    """The payload with a header that says what holds now, and without delivery annotations."""
    pos = 0
    end = len(payload)
    while pos < end:
        if payload[pos : pos + 2] == b"\x00\x53":
            if pos + 2 >= end or payload[pos + 2] > DELIVERY_ANNOTATIONS:
                break
            pos = section_end(payload, pos)
        else:
            value, after = decode(payload, pos)
            if _section_code(value) not in (HEADER, DELIVERY_ANNOTATIONS):
                break
            pos = after
    return header(durable, priority, ttl, delivery_count) + payload[pos:]


def moved(payload: bytes, durable: bool, priority: int, original: dict[str, Any]) -> bytes:
    """A copy for a dead-letter or expiry address: fresh header, no expiry, annotations say where it came from."""
    sections, body = split(payload)
    parts = [header(durable, priority, -1, 0)]
    annotations = dict(sections.get(ANNOTATIONS) or {})
    for key in ("x-opt-delivery-time", "x-opt-delivery-delay"):
        annotations.pop(key, None)
    annotations.update((Symbol(key), value) for key, value in original.items() if value is not None)
    parts.append(bytes(encode(Described(ULong(ANNOTATIONS), annotations))))
    properties = sections.get(PROPERTIES)
    if isinstance(properties, list):
        if len(properties) > 8:
            properties[8] = None
        parts.append(bytes(encode(Described(ULong(PROPERTIES), properties))))
    if APPLICATION_PROPERTIES in sections:
        parts.append(bytes(encode(Described(ULong(APPLICATION_PROPERTIES), sections[APPLICATION_PROPERTIES]))))
    return b"".join(parts) + payload[body:]


def original_annotations(payload: bytes, queue: str, address: str, routing_type: str) -> dict[str, Any]:
    """x-opt-ORIG-*: kept from an earlier move where present, so that they name the first place."""
    sections, _ = split(payload)
    known = sections.get(ANNOTATIONS)
    if isinstance(known, dict) and "x-opt-ORIG-ADDRESS" in known:
        return {}
    fields = sections.get(PROPERTIES)
    message_id = fields[0] if isinstance(fields, list) and fields else None
    return {
        "x-opt-ORIG-QUEUE": queue,
        "x-opt-ORIG-ADDRESS": address,
        "x-opt-ORIG-MESSAGE-ID": message_id,
        "x-opt-ORIG-ROUTING-TYPE": UByte(1 if routing_type == "ANYCAST" else 0),
    }


def actual_expiry(now_ms: int) -> dict[str, Any]:
    return {"x-opt-ACTUAL-EXPIRY": Timestamp(now_ms)}
