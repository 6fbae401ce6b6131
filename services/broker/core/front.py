"""Sections of an encoded message before its body: reading and rewriting them.

The payload is passed on unchanged. Only the sections before the body are read, and of these only what decides about
storing and delivering: header, the delivery annotations (dropped: they are for one hop), the scheduling
annotations, absolute-expiry-time. (AMQP 1.0 part 3, section 3.2.)
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any

from enmasse.amqp.codec import cut_short, decode, encode
from enmasse.amqp.errors import RESOURCE_LIMIT_EXCEEDED, AmqpError, malformed
from enmasse.amqp.scan import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    may_hold,
    section_at,
)
from enmasse.amqp.scan import after as value_end
from enmasse.amqp.sections import FOREVER, milliseconds
from enmasse.amqp.types import Described, Symbol, UByte, UInt, ULong
from services.broker.core.stored_message import DURABLE, PRIORITY_SHIFT, REWRITE

DUPLICATE_ID = "_AMQ_DUPL_ID"
ORIGINAL_ADDRESS = "x-opt-ORIG-ADDRESS"
DUPLICATE_MARK = b"_AMQ_DUPL_ID"

_MAX_CACHED = 1024
_SHORT_ANNOTATIONS = 256  # bytes of those that are remembered
_MAX_KEY = 128
_SHORT = 2048  # bytes up to which a search is faster than going through the sections


class Front:
    """Statements of the sections before the body. Times in milliseconds (0 = absent, ttl -1 = absent).

    `flags`: of the StoredMessage made of it. `simple`: no expiry and no scheduling, the flags are all that matters.
    `bare`: there are no application properties.
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
_annotations: dict[bytes, tuple[int, int]] = {}
# A cache of one, because consecutive messages often begin alike: the leading bytes of the last message (up to the body,
# or up to the size of the properties); the position of the count of properties, 0 if the body follows these bytes; the
# Front of such a message; its Front if it has no application properties.
_last: tuple[bytes, int, Front, Front] = (b"\xff", 0, _PLAIN, _PLAIN)
_NO_EXPIRY = 8  # properties up to and without absolute-expiry-time
_SHORT_MAP = b"\x00\x53\x74\xc1"  # application properties
_AT_ONCE = (0, 0)  # delivery time and delay: none
_ANNOTATIONS = frozenset((b"\x00\x53\x72\xc1", b"\x00\x53\x72\xd1"))
_BODIES = frozenset((b"\x00\x53\x75", b"\x00\x53\x76", b"\x00\x53\x77"))


def read_front(payload: bytes) -> Front:
    """Raises AmqpError (amqp:decode-error, amqp:invalid-field) if the sections before the body are malformed.

    Sections that the broker may have to rewrite are decoded. Of short properties and application properties, which
    are passed on unchanged, only the size is checked.
    """
    global _last
    begin, count_at, front, bare = _last
    if payload.startswith(begin):
        if not count_at:
            return bare
        if len(payload) > count_at and payload[count_at] <= _NO_EXPIRY:
            after = count_at + payload[count_at - 1]
            following = payload[after : after + 5]
            if following[:3] in _BODIES:
                return bare
            if len(following) == 5 and following[:4] == _SHORT_MAP:
                end = after + 5 + following[4]
                if payload[end : end + 3] in _BODIES:
                    return front
            if after > len(payload):
                raise cut_short(after)
            return _read_rest(payload, after, front, PROPERTIES)
    front = _PLAIN
    pos = 0
    if payload[:3] == b"\x00\x53\x70":
        pos = value_end(payload, 3, len(payload))
        head = payload[:pos]
        cached = _headers.get(head)
        front = cached if cached is not None else _read_header(head)
    # Most messages continue with the body, or with short properties and the body: nothing to decode. Before these those
    # of one kind have the same annotations.
    before = pos
    if payload[pos : pos + 4] in _ANNOTATIONS:
        after = value_end(payload, pos + 3, len(payload))
        if _read_annotations(payload[pos:after]) == _AT_ONCE:
            pos = after
    start = pos
    if payload[pos : pos + 4] == b"\x00\x53\x73\x45":
        pos += 4  # an empty list: no properties, as Proton writes it
    rest = payload[pos : pos + 6]
    if rest[:2] == b"\x00\x53" and len(rest) > 2:
        bare = Front(front.durable, front.priority, front.ttl, bool(front.flags & REWRITE), bare=True)
        if rest[:3] in _BODIES:
            _last = (payload[: pos + 3], 0, front, bare)
            return bare
        if pos == start and rest[2] == PROPERTIES and len(rest) == 6 and rest[3] == 0xC0 and rest[5] <= _NO_EXPIRY:
            value_end(payload, pos + 3, len(payload))
            _last = (payload[: pos + 4], pos + 5, front, bare)
            return read_front(payload)
    elif not payload:
        raise malformed("a message consists of sections, and this one is empty")
    return _read_rest(payload, before, front, HEADER if before else 0)


def _read_header(head: bytes) -> Front:
    fields = list(_list(decode(head)[0], "header"))
    fields += [None] * (5 - len(fields))
    durable, priority, ttl, _, count = fields[:5]
    if not (durable is None or isinstance(durable, bool)):
        raise malformed("header: durable is not a boolean")
    for name, value in (("priority", priority), ("ttl", ttl), ("delivery-count", count)):
        if not (value is None or isinstance(value, int)) or isinstance(value, bool):
            raise malformed(f"header: {name} is not a number")
    front = Front(  # any integer may come, whatever the types should be
        durable is True,
        max(0, min(9, priority)) if isinstance(priority, int) else 4,
        min(ttl, FOREVER) if isinstance(ttl, int) else -1,
        isinstance(ttl, int) or bool(count) or not (priority is None or isinstance(priority, UByte)),
    )
    if len(_headers) >= _MAX_CACHED:
        _headers.clear()
    _headers[head] = front
    return front


def _list(value: Any, section: str) -> list[Any]:
    inner = value.value if isinstance(value, Described) else value
    if not isinstance(inner, list):
        raise malformed(f"{section}: not a list")
    return inner


def _map(value: Any, section: str) -> dict[Any, Any]:
    inner = value.value if isinstance(value, Described) else value
    if not isinstance(inner, dict):
        raise malformed(f"{section}: not a map")
    return inner


def _read_rest(payload: bytes, pos: int, front: Front, last: int) -> Front:
    """The sections from `pos` on, of which `last` is the one before (0: none). Each comes once at most, in order."""
    rewrite = bool(front.flags & REWRITE)
    expiry = time = delay = 0
    end = len(payload)
    while pos < end:
        code, value = section_at(payload, pos, end)
        if code >= DATA:
            break
        if code <= last:
            raise malformed(f"a section 0x{code:02x} has no place at byte {pos} of a message")
        after = value_end(payload, value, end)
        if code == HEADER:
            rewrite = True  # a header in an unusual encoding is rewritten
            front = _read_header(payload[pos:after])
        elif code == DELIVERY_ANNOTATIONS:
            rewrite = True
            _map(_section(payload, pos, after), "delivery-annotations")
        elif code == MESSAGE_ANNOTATIONS:
            time, delay = _read_annotations(payload[pos:after])
        elif code == PROPERTIES:
            if not (payload[value] == 0xC0 and after > value + 2 and payload[value + 2] <= _NO_EXPIRY):
                fields = _list(_section(payload, pos, after), "properties")
                expiry = milliseconds(fields[8], "absolute-expiry-time") if len(fields) > 8 else 0
        elif payload[value] not in (0xC1, 0xD1):
            _map(_section(payload, pos, after), "application-properties")
        last = code
        pos = after
    return Front(front.durable, front.priority, front.ttl, rewrite, expiry, time, delay)


def _section(payload: bytes, pos: int, end: int) -> Any:
    """The value of the section that takes these bytes exactly."""
    value, after = decode(payload, pos, end)
    if after != end:
        raise malformed(f"{end - after} bytes too many in the message section at byte {pos}")
    return value


def _read_annotations(section: bytes) -> tuple[int, int]:
    """x-opt-delivery-time and x-opt-delivery-delay of the message annotations, 0 = absent."""
    found = _annotations.get(section)
    if found is None:
        annotations = _map(_section(section, 0, len(section)), "message-annotations")
        found = (
            milliseconds(annotations.get("x-opt-delivery-time"), "x-opt-delivery-time"),
            milliseconds(annotations.get("x-opt-delivery-delay"), "x-opt-delivery-delay"),
        )
        if len(section) <= _SHORT_ANNOTATIONS:
            if len(_annotations) >= _MAX_CACHED:
                _annotations.clear()
            _annotations[section] = found
    return found


def split(payload: bytes) -> tuple[dict[int, Any], int]:
    """The decoded sections in front of the body by their code, and where the body begins. Raises AmqpError."""
    sections: dict[int, Any] = {}
    pos = 0
    end = len(payload)
    while pos < end:
        code, value = section_at(payload, pos, end)
        if code >= DATA:
            break
        sections[code], pos = decode(payload, value)
    return sections, pos


def readable(payload: bytes) -> dict[int, Any]:
    """Return the sections as `split` gives them; an empty dict if they cannot be decoded."""
    try:
        return split(payload)[0]
    except AmqpError:
        return {}


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
    """Return the key, or a hash of a long one: thousands are kept in memory and on disk, and clients choose them."""
    return key if len(key) <= _MAX_KEY else b"\x00h" + sha256(key).digest()


def may_be_marked(payload: bytes) -> bool:
    """Whether the property of duplicate_id may be there: a quick look, which may be wrong about that but not about its
    absence."""
    if len(payload) <= _SHORT:
        return payload.find(DUPLICATE_MARK) >= 0
    return may_hold(payload, DUPLICATE_MARK, HEADER, APPLICATION_PROPERTIES)


def to_address(payload: bytes) -> str | None:
    """properties.to, None if absent."""
    fields = split(payload)[0].get(PROPERTIES)
    if isinstance(fields, list) and len(fields) > 2 and isinstance(fields[2], str):
        return fields[2]
    return None


def destination_type(payload: bytes) -> int | None:
    """The annotation `x-opt-jms-dest` of a message to the anonymous relay: 0 queue, 1 topic, 2 and 3 temporary ones."""
    if payload.find(b"x-opt-jms-dest") < 0:
        return None
    annotations = split(payload)[0].get(MESSAGE_ANNOTATIONS)
    value = annotations.get("x-opt-jms-dest") if isinstance(annotations, dict) else None
    return int(value) if isinstance(value, int) else None


@lru_cache(maxsize=256)
def header(durable: bool, priority: int, ttl: int, delivery_count: int) -> bytes:
    """An encoded header section; ttl -1 = absent. first-acquirer is set if this is not the first delivery."""
    fields = [
        durable,
        UByte(priority) if priority != 4 else None,
        UInt(min(ttl, 0xFFFFFFFF)) if ttl >= 0 else None,
        False if delivery_count else None,
        UInt(min(delivery_count, 0xFFFFFFFF)) if delivery_count else None,
    ]
    return bytes(encode(Described(ULong(HEADER), fields)))


def outgoing(payload: bytes, durable: bool, priority: int, ttl: int, delivery_count: int) -> bytes:
    """The payload with a header of what holds now, and without delivery annotations. Raises AmqpError if what
    stands there cannot be read (which `read_front` does not let in)."""
    pos = 0
    end = len(payload)
    while pos < end:
        code, value = section_at(payload, pos, end)
        if code > DELIVERY_ANNOTATIONS:
            break
        pos = value_end(payload, value, end)
    return header(durable, priority, ttl, delivery_count) + payload[pos:]


def moved(payload: bytes, durable: bool, priority: int, original: dict[str, Any]) -> bytes:
    """A copy for a dead-letter or expiry address: a new header, no expiry, annotations with where it came from. One
    that cannot be read is kept whole in the body (data) of such a copy."""
    try:
        sections, body = split(payload)
        annotations = dict(sections.get(MESSAGE_ANNOTATIONS) or {})
        for key in ("x-opt-delivery-time", "x-opt-delivery-delay"):
            annotations.pop(key, None)
        parts = _front_of_moved(durable, priority, annotations, original)
        properties = sections.get(PROPERTIES)
        if isinstance(properties, list):
            if len(properties) > 8:
                properties[8] = None
            parts.append(bytes(encode(Described(ULong(PROPERTIES), properties))))
        if APPLICATION_PROPERTIES in sections:
            parts.append(bytes(encode(Described(ULong(APPLICATION_PROPERTIES), sections[APPLICATION_PROPERTIES]))))
        return b"".join(parts) + payload[body:]
    except (AmqpError, TypeError, ValueError):
        parts = _front_of_moved(durable, priority, {}, original)
        return b"".join(parts) + bytes(encode(Described(ULong(DATA), payload)))


def annotated(payload: bytes, annotations: Mapping[str, Any], limit: int = 0) -> bytes:
    """The payload with these message annotations, which take the place of those of the same keys. Raises AmqpError if
    what stands there cannot be read (which `read_front` does not let in), or if all annotations together have more
    bytes than `limit` (0 = no limit)."""
    pos = start = after = 0
    end = len(payload)
    known: dict[Any, Any] = {}
    while pos < end:
        code, value = section_at(payload, pos, end)
        if code > MESSAGE_ANNOTATIONS:
            break
        after = value_end(payload, value, end)
        if code == MESSAGE_ANNOTATIONS:
            known = _map(_section(payload, pos, after), "message-annotations")
        else:
            start = after
        pos = after
    known = known | {Symbol(key): value for key, value in annotations.items()}
    section = bytes(encode(Described(ULong(MESSAGE_ANNOTATIONS), known)))
    if limit and len(section) > limit:
        raise AmqpError(RESOURCE_LIMIT_EXCEEDED, f"message-annotations of {len(section)} bytes, {limit} may be")
    return payload[:start] + section + payload[max(start, after) :]


def _front_of_moved(durable: bool, priority: int, known: dict[Any, Any], original: dict[str, Any]) -> list[bytes]:
    annotations = known | {Symbol(key): value for key, value in original.items() if value is not None}
    return [header(durable, priority, -1, 0), bytes(encode(Described(ULong(MESSAGE_ANNOTATIONS), annotations)))]


def original_annotations(payload: bytes, queue: str, address: str, routing_type: str) -> dict[str, Any]:
    """x-opt-ORIG-*: kept from an earlier move if present, so that they name the first place."""
    sections = readable(payload)
    known = sections.get(MESSAGE_ANNOTATIONS)
    if isinstance(known, dict):
        if "x-opt-ORIG-QUEUE" in known:
            return {}
        address = known.get(ORIGINAL_ADDRESS, address)  # a divert's
    fields = sections.get(PROPERTIES)
    message_id = fields[0] if isinstance(fields, list) and fields else None
    return {
        "x-opt-ORIG-QUEUE": queue,
        ORIGINAL_ADDRESS: address,
        "x-opt-ORIG-MESSAGE-ID": message_id,
        "x-opt-ORIG-ROUTING-TYPE": UByte(1 if routing_type == "ANYCAST" else 0),
    }


def actual_expiry(now_ms: int) -> dict[str, Any]:
    return {"x-opt-ACTUAL-EXPIRY": now_ms}
