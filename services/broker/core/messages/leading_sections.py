"""Sections of an encoded message before its body: what they state about storing and delivering, and rewriting them.

The payload is passed on unchanged. Only the sections before the body are read, and of these only what decides about
storing and delivering: header, the delivery annotations (dropped: they are for one hop), the scheduling
annotations, absolute-expiry-time. (AMQP 1.0 part 3, section 3.2.)
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, TypeVar

from enmasse.amqp.codec.codec import decode, encode
from enmasse.amqp.codec.errors import RESOURCE_LIMIT_EXCEEDED, AmqpError, malformed
from enmasse.amqp.codec.types import Described, Symbol, UByte, UInt, ULong
from enmasse.amqp.messages.scan import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    NAMES,
    PROPERTIES,
    may_hold,
)
from enmasse.amqp.messages.sections import FOREVER, Sections, milliseconds
from enmasse.identity.annotations import (
    ACTUAL_EXPIRY,
    DELIVERY_DELAY,
    DELIVERY_TIME,
    JMS_DESTINATION,
    OF_BROKERS_FACTS,
    ORIGINAL_ADDRESS,
    ORIGINAL_MESSAGE_ID,
    ORIGINAL_QUEUE,
    ORIGINAL_ROUTING_TYPE,
    RETAINED_BY,
)
from enmasse.identity.senders import OPERATOR, SERVICE, in_service_id, of_operator
from services.broker.core.messages.stored_message import DURABLE, PRIORITY_SHIFT, REWRITE
from services.broker.keys import key_of

T = TypeVar("T")

DUPLICATE_ID = "_AMQ_DUPL_ID"
DUPLICATE_MARKS = (DUPLICATE_ID.encode(),)
_JMS_DESTINATION = (JMS_DESTINATION.encode(),)

_MAX_CACHED = 1024
_SHORT_ANNOTATIONS = 256  # bytes of those that are remembered
_MAX_KEY = 128
_SHORT_BEGIN = 512  # bytes of `_last`
_MOST_KEPT = 64 << 10  # bytes of a message whose sections are remembered


class LeadingSections:
    """Statements of the sections before the body. Times in milliseconds (0 = absent, ttl -1 = absent).

    `flags`: of the StoredMessage made of it. `simple`: no expiry, no scheduling and no `claims`, the flags are all that
    matters. `bare`: there are no application properties. `claims`: annotations that only brokers and the subscription
    service may state.
    """

    __slots__ = (
        "absolute_expiry",
        "bare",
        "claims",
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
        claims: bool = False,
        bare: bool = False,
    ) -> None:
        self.bare = bare
        self.claims = claims
        self.durable = durable
        self.priority = priority
        self.ttl = ttl
        self.absolute_expiry = absolute_expiry
        self.delivery_time = delivery_time
        self.delivery_delay = delivery_delay
        self.flags = (DURABLE if durable else 0) | (REWRITE if rewrite else 0) | priority << PRIORITY_SHIFT
        self.simple = ttl < 0 and not (absolute_expiry or delivery_time or delivery_delay or claims)


BothForms = tuple[LeadingSections, LeadingSections]
"""Sections of messages that differ in application properties alone: with them, and without (`bare`)."""

_USUAL_HEADER = b"\x00\x53\x70"
_EMPTY_PROPERTIES = b"\x00\x53\x73\x45"
_SHORT_PROPERTIES = b"\x00\x53\x73\xc0"
_APPLICATION_PROPERTIES = b"\x00\x53\x74"
_SHORT_MAP = _APPLICATION_PROPERTIES + b"\xc1"
_LONG_MAP = _APPLICATION_PROPERTIES + b"\xd1"
_BODIES = frozenset((b"\x00\x53\x75", b"\x00\x53\x76", b"\x00\x53\x77"))
_NO_EXPIRY = 8  # properties up to and without absolute-expiry-time
_SEAL = RETAINED_BY.encode()
_AT_ONCE = (0, 0, False)  # delivery time and delay: none, and no claims

_PLAIN = (LeadingSections(False, 4, -1, False), LeadingSections(False, 4, -1, False, bare=True))
_headers: dict[bytes, BothForms] = {b"": _PLAIN}
_annotations: dict[bytes, tuple[int, int, bool]] = {b"": _AT_ONCE}
# A cache of one, because consecutive messages often begin alike: the leading bytes of the last message (up to the body,
# to the application properties, or to the size of short properties); 0 if the body follows, `~` the position of the
# application properties, or the position of the count of properties; BothForms of such messages.
_last: tuple[bytes, int, BothForms] = (b"\xff", 0, _PLAIN)
_sections = Sections(b"")  # of the message that was looked at last


def sections_of(payload: bytes) -> Sections:
    """Return the sections of a message. They are found and decoded once for all that look at the message one after the
    other: its publisher, its route, the selectors of consumers, its sending."""
    global _sections
    sections = _sections
    if sections.payload is not payload:
        sections = Sections(payload)
        if len(payload) <= _MOST_KEPT:
            _sections = sections
    return sections


def read_sections(payload: bytes) -> LeadingSections:
    """Return what the sections before the body state. Sections that the broker may have to rewrite are decoded. Of
    short properties and application properties, which are passed on unchanged, only the size is checked.

    Raises AmqpError (amqp:decode-error, amqp:invalid-field) if the sections before the body are malformed.
    """
    begin, count_at, fronts = _last
    if payload.startswith(begin):
        if not count_at:
            return fronts[1]
        if count_at < 0:
            after = ~count_at
        elif len(payload) > count_at:
            after = count_at + payload[count_at - 1]
            if payload[count_at] > _NO_EXPIRY:
                fronts = _expiring(fronts, decode(payload, count_at - 2, after)[0])
        else:
            return _read_all(payload)
        following = payload[after : after + 8]
        kind = following[:4]
        if kind == _LONG_MAP:
            after += 8 + int.from_bytes(following[4:])
        elif kind == _SHORT_MAP:
            after += 5 + sum(following[4:5])
        elif kind[:3] in _BODIES:
            return fronts[1]
        if payload[after : after + 3] in _BODIES:
            return fronts[0]
    return _read_all(payload)


def _read_all(payload: bytes) -> LeadingSections:
    """`read_sections` of a message that does not begin as the last one."""
    global _last
    sections = sections_of(payload)
    _, hops, notes, at, end, body = sections.positions()
    if not payload:
        raise malformed("a message consists of sections, and this one is empty")
    header, annotations = payload[:hops], payload[notes:at]
    fronts = _headers.get(header) or _read_header(sections, header)
    if notes > hops:
        _of_type(dict, sections, DELIVERY_ANNOTATIONS)
    time, delay, claims = _annotations.get(annotations) or _read_annotations(sections, annotations)
    usual = end > at + 5 and payload[at : at + 4] == _SHORT_PROPERTIES
    if body > end and payload[sections.value_at(APPLICATION_PROPERTIES)] not in (0xC1, 0xD1):
        _of_type(dict, sections, APPLICATION_PROPERTIES)
    rewrite = notes > hops or _SEAL in annotations
    if rewrite or time or delay or claims:
        fronts = _fronts(fronts[0], rewrite, 0, time, delay, claims)
    if at <= _SHORT_BEGIN:
        if usual:
            _last = (payload[: at + 4], at + 5, fronts)
        elif end == at or payload[at:end] == _EMPTY_PROPERTIES:
            following = payload[end : end + 3]
            if following in _BODIES or following == _APPLICATION_PROPERTIES:
                _last = (payload[: end + 3], 0 if following in _BODIES else ~end, fronts)
    if end > at and not (usual and payload[at + 5] <= _NO_EXPIRY):
        fronts = _expiring(fronts, _of_type(list, sections, PROPERTIES))
    return fronts[body == end]


def _read_header(sections: Sections, encoded: bytes) -> BothForms:
    fields = list(_of_type(list, sections, HEADER))
    fields += [None] * (5 - len(fields))
    durable, priority, ttl, _, count = fields[:5]
    if not (durable is None or isinstance(durable, bool)):
        raise malformed("header: durable is not a boolean")
    for name, value in (("priority", priority), ("ttl", ttl), ("delivery-count", count)):
        if not (value is None or isinstance(value, int)) or isinstance(value, bool):
            raise malformed(f"header: {name} is not a number")
    usual = encoded.startswith(_USUAL_HEADER) and (priority is None or isinstance(priority, UByte))
    front = LeadingSections(  # any integer may come, whatever the types should be
        durable is True,
        max(0, min(9, priority)) if isinstance(priority, int) else 4,
        min(ttl, FOREVER) if isinstance(ttl, int) else -1,
        isinstance(ttl, int) or bool(count) or not usual,
    )
    if len(_headers) >= _MAX_CACHED:
        _headers.clear()
        _headers[b""] = _PLAIN
    fronts = _headers[encoded] = _fronts(front)
    return fronts


def _fronts(
    header: LeadingSections, rewrite: bool = False, expiry: int = 0, time: int = 0, delay: int = 0, claims: bool = False
) -> BothForms:
    """Return BothForms of messages with what this header states, and these times and claims."""
    durable, priority, ttl = header.durable, header.priority, header.ttl
    rewrite = rewrite or bool(header.flags & REWRITE)
    return (
        LeadingSections(durable, priority, ttl, rewrite, expiry, time, delay, claims),
        LeadingSections(durable, priority, ttl, rewrite, expiry, time, delay, claims, bare=True),
    )


def _expiring(fronts: BothForms, properties: list[Any]) -> BothForms:
    """Return BothForms of messages with these properties as well. Raises AmqpError for a wrong type."""
    expiry = milliseconds(properties[8], "absolute-expiry-time") if len(properties) > 8 else 0
    if not expiry:
        return fronts
    front = fronts[0]
    return _fronts(front, False, expiry, front.delivery_time, front.delivery_delay, front.claims)


def _of_type(wanted: type[T], sections: Sections, section: int) -> T:
    """Return the value of a section. Raises AmqpError if it cannot be decoded or is of another type."""
    value = sections.decoded(section)
    if not isinstance(value, wanted):
        raise malformed(f"{NAMES[section]}: not a {'map' if wanted is dict else 'list'}")
    return value


def _read_annotations(sections: Sections, encoded: bytes) -> tuple[int, int, bool]:
    """Return x-opt-delivery-time and x-opt-delivery-delay of the message annotations, 0 = absent, and whether there are
    claims."""
    annotations = _of_type(dict, sections, MESSAGE_ANNOTATIONS)
    found = (
        milliseconds(annotations.get(DELIVERY_TIME), DELIVERY_TIME),
        milliseconds(annotations.get(DELIVERY_DELAY), DELIVERY_DELAY),
        any(map(OF_BROKERS_FACTS.has, annotations)),
    )
    if len(encoded) <= _SHORT_ANNOTATIONS:
        if len(_annotations) >= _MAX_CACHED:
            _annotations.clear()
            _annotations[b""] = _AT_ONCE
        _annotations[encoded] = found
    return found


def readable(payload: bytes, section: int) -> Any:
    """Return the value of a section; None if the message has none, or cannot be decoded."""
    try:
        return sections_of(payload).decoded(section)
    except AmqpError:
        return None


_SHORT_STRING: Final = 0xA1
_KEY_OF_ID: Final = bytes((_SHORT_STRING, len(DUPLICATE_ID))) + DUPLICATE_ID.encode()
# Short application properties of the last message whose id is a short string at their end, up to the text of the id;
# and whether it is all they have.
_up_to_id: bytes = b"\xff"
_id_alone: bool = False


def _with_id(payload: bytes) -> tuple[int, int, int] | None:
    """Return where the application properties begin, the id in them, and the body, of a message that `read_sections`
    has read and that states its id as the one before: then the rest of its properties is known to be well-formed."""
    begin, count_at, _ = _last
    if not count_at or not payload.startswith(begin):
        return None
    if count_at < 0:
        at = ~count_at
    elif len(payload) > count_at:
        at = count_at + payload[count_at - 1]
    else:
        return None
    id_at = at + len(_up_to_id)
    end = id_at + _up_to_id[-1]
    if payload.startswith(_up_to_id, at) and payload[end : end + 3] in _BODIES and payload[id_at:end].isascii():
        return at, id_at, end
    return None


def _note_id(sections: Sections, properties: dict[Any, Any]) -> None:
    """Remember how the properties of this message begin if they end with its id."""
    global _up_to_id, _id_alone
    encoded, id = sections.encoded(APPLICATION_PROPERTIES), properties[DUPLICATE_ID]
    if next(reversed(properties)) != DUPLICATE_ID or type(id) is not str or len(encoded) > _SHORT_BEGIN:
        return
    text = id.encode()
    if 0 < len(text) <= _MAX_KEY and encoded.endswith(_KEY_OF_ID + bytes((_SHORT_STRING, len(text))) + text):
        _up_to_id, _id_alone = encoded[: -len(text)], len(properties) == 1


def duplicate_id(payload: bytes, by_message_id: bool) -> bytes | None:
    """Return the id by which a resent message is recognised: the property `_AMQ_DUPL_ID`, else the message-id if
    `by_message_id`. Raises AmqpError if these cannot be decoded."""
    if may_hold(payload, DUPLICATE_MARKS):
        if (found := _with_id(payload)) is not None:
            return payload[found[1] : found[2]]
        properties = sections_of(payload).decoded(APPLICATION_PROPERTIES)
        value = properties.get(DUPLICATE_ID) if isinstance(properties, dict) else None
        if value is not None:
            _note_id(sections_of(payload), properties)
            return _short_key(value if type(value) is bytes else str(value).encode())
    if by_message_id:
        fields = sections_of(payload).decoded(PROPERTIES)
        if isinstance(fields, list) and fields and fields[0] is not None:
            return _short_key(b"\x00m" + bytes(encode(fields[0])))
    return None


def duplicate_key(payload: bytes, by_message_id: bool, sender: bytes) -> bytes | None:
    """Return the key of a message's `duplicate_id` for its sender; None without an id. Raises AmqpError."""
    id = duplicate_id(payload, by_message_id)
    if id is None:
        return None
    if sender == SERVICE:
        sender, id = in_service_id(id)
    elif sender == OPERATOR:
        fields = sections_of(payload).decoded(PROPERTIES)
        user = fields[1] if isinstance(fields, list) and len(fields) > 1 else None
        sender = of_operator(bytes(user) if isinstance(user, bytes) else b"")
    return key_of(sender, id)


def without_duplicate_id(payload: bytes) -> bytes:
    """Return the message of a service without the property `_AMQ_DUPL_ID`, which is for the broker alone. Raises
    AmqpError."""
    if (found := _with_id(payload)) is not None and _id_alone:
        return payload[: found[0]] + payload[found[2] :]
    sections = sections_of(payload)
    properties = sections.decoded(APPLICATION_PROPERTIES)
    if not isinstance(properties, dict) or DUPLICATE_ID not in properties:
        return payload
    rest = {name: value for name, value in properties.items() if name != DUPLICATE_ID}
    begin, end = sections.begin(APPLICATION_PROPERTIES), sections.begin(DATA)
    encoded = bytes(encode(Described(ULong(APPLICATION_PROPERTIES), rest))) if rest else b""
    return payload[:begin] + encoded + payload[end:]


def _short_key(key: bytes) -> bytes:
    """Return the key, or a hash of a long one: thousands are kept in memory and on disk, and clients choose them."""
    return key if len(key) <= _MAX_KEY else b"\x00h" + sha256(key).digest()


def destination_type(payload: bytes) -> int | None:
    """Return the annotation `x-opt-jms-dest` of a message to the anonymous relay: 0 queue, 1 topic, 2 and 3 temporary
    ones."""
    if not may_hold(payload, _JMS_DESTINATION):
        return None
    annotations = sections_of(payload).decoded(MESSAGE_ANNOTATIONS)
    value = annotations.get(JMS_DESTINATION) if isinstance(annotations, dict) else None
    return int(value) if isinstance(value, int) else None


@lru_cache(maxsize=256)
def header(durable: bool, priority: int, ttl: int, delivery_count: int) -> bytes:
    """Return an encoded header section; ttl -1 = absent. first-acquirer is set if this is not the first delivery."""
    fields = [
        durable,
        UByte(priority) if priority != 4 else None,
        UInt(min(ttl, 0xFFFFFFFF)) if ttl >= 0 else None,
        False if delivery_count else None,
        UInt(min(delivery_count, 0xFFFFFFFF)) if delivery_count else None,
    ]
    return bytes(encode(Described(ULong(HEADER), fields)))


def outgoing(
    payload: bytes, durable: bool, priority: int, ttl: int, delivery_count: int, *, sealed: bool = False
) -> bytes:
    """Return the payload with its present header, without delivery annotations, and without the seal of a retained
    message unless `sealed`. Raises AmqpError if these sections cannot be decoded (which `read_sections` does not let
    in)."""
    sections = sections_of(payload)
    head, begin = header(durable, priority, ttl, delivery_count), sections.begin(MESSAGE_ANNOTATIONS)
    if not sealed and is_sealed(payload):
        annotations = dict(sections.annotations)
        if annotations.pop(RETAINED_BY, None) is not None:
            begin = sections.begin(PROPERTIES)
            if annotations:
                head += bytes(encode(Described(ULong(MESSAGE_ANNOTATIONS), annotations)))
    return head + payload[begin:]


def is_sealed(payload: bytes) -> bool:
    """Return whether the message may hold a seal, so that its front has to be rewritten when it is sent."""
    return may_hold(payload, (_SEAL,))


def moved(payload: bytes, durable: bool, priority: int, original: dict[str, Any]) -> bytes:
    """Return a copy for a dead-letter or expiry address: with a new header, no expiry, and annotations that name its
    origin. A message that cannot be decoded is kept whole in the body (data) of the copy."""
    try:
        sections = sections_of(payload)
        for section in range(HEADER, DATA):
            sections.decoded(section)
        annotations = dict(sections.decoded(MESSAGE_ANNOTATIONS) or {})
        for key in (DELIVERY_TIME, DELIVERY_DELAY):
            annotations.pop(key, None)
        parts = _front_of_moved(durable, priority, annotations, original)
        properties = sections.decoded(PROPERTIES)
        if isinstance(properties, list):
            properties = [None if at == 8 else value for at, value in enumerate(properties)]
            parts.append(bytes(encode(Described(ULong(PROPERTIES), properties))))
        return b"".join(parts) + payload[sections.begin(APPLICATION_PROPERTIES) :]
    except (AmqpError, TypeError, ValueError):
        parts = _front_of_moved(durable, priority, {}, original)
        return b"".join(parts) + bytes(encode(Described(ULong(DATA), payload)))


def annotated(payload: bytes, annotations: Mapping[str, Any], limit: int = 0) -> bytes:
    """Return the payload with these message annotations, which replace those of the same keys. Raises AmqpError if the
    existing ones cannot be decoded (which `read_sections` does not let in), or if all annotations together have more
    bytes than `limit` (0 = no limit)."""
    sections = sections_of(payload)
    known = _of_type(dict, sections, MESSAGE_ANNOTATIONS) if sections.encoded(MESSAGE_ANNOTATIONS) else {}
    return _with_annotations(payload, known | {Symbol(key): value for key, value in annotations.items()}, limit)


def without_claims(payload: bytes) -> bytes:
    """Return the payload without the annotations that only brokers and the subscription service may state. Raises
    AmqpError if the annotations cannot be decoded (which `read_sections` does not let in)."""
    stated = _of_type(dict, sections_of(payload), MESSAGE_ANNOTATIONS)
    return _with_annotations(payload, OF_BROKERS_FACTS.without(stated))


def _with_annotations(payload: bytes, annotations: Mapping[Any, Any], limit: int = 0) -> bytes:
    section = bytes(encode(Described(ULong(MESSAGE_ANNOTATIONS), annotations))) if annotations else b""
    if limit and len(section) > limit:
        raise AmqpError(RESOURCE_LIMIT_EXCEEDED, f"message-annotations of {len(section)} bytes, {limit} may be")
    sections = sections_of(payload)
    return payload[: sections.begin(MESSAGE_ANNOTATIONS)] + section + payload[sections.begin(PROPERTIES) :]


def _front_of_moved(durable: bool, priority: int, known: dict[Any, Any], original: dict[str, Any]) -> list[bytes]:
    annotations = known | {Symbol(key): value for key, value in original.items() if value is not None}
    return [header(durable, priority, -1, 0), bytes(encode(Described(ULong(MESSAGE_ANNOTATIONS), annotations)))]


def original_annotations(payload: bytes, queue: str, address: str, routing_type: str) -> dict[str, Any]:
    """x-opt-ORIG-*: kept from an earlier move if present, so that they name the first place."""
    known = readable(payload, MESSAGE_ANNOTATIONS)
    if isinstance(known, dict):
        if ORIGINAL_QUEUE in known:
            return {}
        address = known.get(ORIGINAL_ADDRESS, address)  # a divert's
    fields = readable(payload, PROPERTIES)
    message_id = fields[0] if isinstance(fields, list) and fields else None
    return {
        ORIGINAL_QUEUE: queue,
        ORIGINAL_ADDRESS: address,
        ORIGINAL_MESSAGE_ID: message_id,
        ORIGINAL_ROUTING_TYPE: UByte(1 if routing_type == "ANYCAST" else 0),
    }


def actual_expiry(now_ms: int) -> dict[str, Any]:
    """Return the annotation of a message that has expired at this time (milliseconds since 1970)."""
    return {ACTUAL_EXPIRY: now_ms}
