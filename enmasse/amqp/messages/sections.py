"""The sections of an encoded message (3.2), found lazily and decoded on demand: for routers and brokers.

    s = Sections(payload)
    s.header.durable, s.properties.to, s.application_properties …    decodes just that section, once
    s.begin(PROPERTIES), s.encoded(HEADER), s.decoded(PROPERTIES)    where it is, its bytes, its value of any type
    s.bare                                                           what no intermediary may change
    s.front(header, annotations)                                     another front for the same bare message

Nothing after the section asked for is looked at, so the first piece of a long message will do. Bytes that are not AMQP
raise AmqpError(amqp:decode-error) when, and only when, they are come upon; `check()` walks over everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple
from uuid import UUID

from enmasse.amqp.codec import codec, encoder
from enmasse.amqp.codec.codec import DECODERS, MAX_DEPTH, Decoder, cut_short
from enmasse.amqp.codec.composite import (
    ADDRESS,
    BINARY,
    BOOLEAN,
    STRING,
    SYMBOL,
    TIMESTAMP,
    UBYTE,
    UINT,
    FieldKind,
    encode_fields,
)
from enmasse.amqp.codec.encoder import NULL, encode_string
from enmasse.amqp.codec.errors import AmqpError, malformed
from enmasse.amqp.codec.types import Buffer, Symbol, ULong
from enmasse.amqp.messages.scan import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    NAMES,
    PROPERTIES,
    after,
    field_at,
    list_head,
    section_at,
)

_END: Final = 0x79

MessageId = int | UUID | bytes | str


class Header(NamedTuple):
    """Section header (3.2.1). `ttl` is milliseconds, None: unlimited."""

    durable: bool = False
    priority: int = 4
    ttl: int | None = None
    first_acquirer: bool = False
    delivery_count: int = 0


class Properties(NamedTuple):
    """3.2.4. Times are milliseconds since 1970. An id keeps its type: ULong, UUID, bytes or str."""

    message_id: MessageId | None = None
    user_id: bytes | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: MessageId | None = None
    content_type: Symbol | None = None
    content_encoding: Symbol | None = None
    absolute_expiry_time: int | None = None
    creation_time: int | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None


FOREVER: Final = 2**62
"""Milliseconds: a longer time is this one."""


def milliseconds(value: object, name: str) -> int:
    """Return a time or duration of a message, as brokers and gateways read it; 0 if absent or not above 0. Raises
    AmqpError (amqp:invalid-field)."""
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool):
        raise AmqpError("amqp:invalid-field", f"{name} is a number of milliseconds, not {type(value).__name__}")
    return max(0, min(value, FOREVER))


def _decode_id(buf: Buffer, pos: int, end: int, depth: int) -> tuple[Any, int]:
    code = buf[pos]
    if code not in (0x44, 0x53, 0x80, 0x98, 0xA0, 0xB0, 0xA1, 0xB1):
        raise malformed(f"a ulong, uuid, binary or string expected, 0x{code:02x} found")
    return DECODERS[code](buf, pos + 1, end, depth)


def _encode_id(value: MessageId) -> bytes:
    if isinstance(value, str):
        return encode_string(value)
    if isinstance(value, int):
        return encoder.encode_ulong(value)
    if isinstance(value, UUID | bytes):
        return encoder.encode(value)
    raise ValueError(f"{value!r} is not an int, UUID, bytes or str")


def _encode_user_id(value: bytes | str) -> bytes:
    return encoder.encode_binary(value.encode() if isinstance(value, str) else value)


ID: Final = FieldKind(_decode_id, _encode_id)
_HEADER_KINDS = (BOOLEAN, UBYTE, UINT, BOOLEAN, UINT)
_PROPERTIES_KINDS = (
    ID,
    FieldKind(BINARY.decode, _encode_user_id),
    ADDRESS,
    STRING,
    ADDRESS,
    ID,
    SYMBOL,
    SYMBOL,
    TIMESTAMP,
    TIMESTAMP,
    STRING,
    UINT,
    STRING,
)
_HEADER_DECODERS = tuple(kind.decode for kind in _HEADER_KINDS)
_PROPERTIES_DECODERS = tuple(kind.decode for kind in _PROPERTIES_KINDS)
_PROPERTIES_ENCODERS = tuple(kind.encode for kind in _PROPERTIES_KINDS)
NO_HEADER: Final = Header()
NO_PROPERTIES: Final = Properties()


def _section_fields(
    buf: Buffer, pos: int, end: int, section: str, defaults: tuple[Any, ...], decoders: tuple[Decoder, ...]
) -> list[Any]:
    """The fields of a section that is a list, the ones left out or null at their defaults."""
    count, pos, stop = list_head(buf, pos, end, section)
    if count > len(decoders):
        raise malformed(f"{section}: {count} fields, there are {len(decoders)}")
    values = list(defaults)
    index = 0
    try:
        for index in range(count):
            if pos >= stop:
                raise cut_short(pos)
            if buf[pos] == 0x40:
                pos += 1
            else:
                values[index], pos = decoders[index](buf, pos, stop, MAX_DEPTH)
    except AmqpError as error:
        name = (Header if section == "header" else Properties)._fields[index]
        raise malformed(f"{section}: {name.replace('_', '-')}: {error.description}") from None
    if pos != stop:
        raise malformed(f"{section}: {stop - pos} bytes too many after the last field")
    return values


@lru_cache(maxsize=1024)
def _decode_header(encoded: bytes) -> Header:
    """Most headers are one of a few."""
    return Header(*_section_fields(encoded, 0, len(encoded), "header", NO_HEADER, _HEADER_DECODERS))


@lru_cache(maxsize=1024)
def encode_header(header: Header) -> bytes:
    """Return the header section; nothing at all for one that has only defaults. Raises ValueError naming the wrong
    field."""
    elements = [
        NULL if value == default else _encode_field("header", name, kind, value)
        for name, kind, value, default in zip(Header._fields, _HEADER_KINDS, header, NO_HEADER, strict=True)
    ]
    while elements and elements[-1] is NULL:
        elements.pop()
    return b"\x00\x53\x70" + encoder.encoded_list(elements) if elements else b""


def _encode_field(section: str, name: str, kind: FieldKind, value: Any) -> bytes:
    try:
        return kind.encode(value)
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{section}: {name.replace('_', '-')}: {error}") from error


def encode_properties(values: tuple[Any, ...]) -> bytes:
    """Return the properties section from its thirteen values; empty without any value.

    Raises ValueError or TypeError that names the property.
    """
    try:
        elements = [
            NULL if value is None else encode(value) for value, encode in zip(values, _PROPERTIES_ENCODERS, strict=True)
        ]
    except (TypeError, ValueError, AttributeError):
        for name, kind, value in zip(Properties._fields, _PROPERTIES_KINDS, values, strict=True):
            if value is not None:
                _encode_field("properties", name, kind, value)
        raise
    while elements and elements[-1] is NULL:
        elements.pop()
    return b"\x00\x53\x73" + encoder.encoded_list(elements) if elements else b""


def encode_annotations(section: int, annotations: Mapping[Any, Any]) -> bytes:
    """Return a section of annotations (or the footer): keys are symbols, or ulongs; empty without annotations."""
    return bytes((0x00, 0x53, section)) + encode_fields(annotations) if annotations else b""


class Sections:
    """Positions of the sections of `payload` (a view on it, no copy); sections are decoded when read, once."""

    __slots__ = (
        "_annotations",
        "_application_properties",
        "_begins",
        "_decoded",
        "_header",
        "_last",
        "_properties",
        "_values",
        "payload",
    )

    def __init__(self, payload: Buffer) -> None:
        self.payload = payload
        self._begins: list[int] = []  # of the header and each section behind it, as far as known: see `begin`
        self._values: dict[int, int] = {}  # section -> where its value begins; of the last one its end is not known
        self._last = HEADER - 1  # the last section come upon
        self._decoded: dict[int, Any] | None = None
        self._header: Header | None = None
        self._properties: Properties | None = None
        self._annotations: dict[Any, Any] | None = None
        self._application_properties: dict[str, Any] | None = None

    def _walk(self, section: int) -> None:
        """Find the sections up to `section`, or to the first later one if the message lacks it."""
        buf, last, begins, values = self.payload, self._last, self._begins, self._values
        end = len(buf)
        value = values.get(last, 0)
        while last < section:
            pos = after(buf, value, end) if begins else 0
            if pos + 3 < end and buf[pos] == 0x00 and buf[pos + 1] == 0x53 and last < buf[pos + 2] < DATA:
                found, value = buf[pos + 2], pos + 3  # section_at, without a call
            elif pos < end:
                found, value = section_at(buf, pos, end)
            else:
                found, value = _END, end
            if found > last and not (last >= DATA and found < FOOTER):
                while last < found:
                    begins.append(pos)
                    last += 1
                values[found] = value
                self._last = found
            elif found != last or found not in (DATA, AMQP_SEQUENCE):
                raise malformed(f"the section {NAMES[found]} at byte {pos} follows {NAMES[last]}")

    def begin(self, section: int) -> int:
        """Return where `section` begins; where the sections before it end if the message has none.

        Raises AmqpError(amqp:decode-error), as all of these do.
        """
        if self._last < section:
            self._walk(section)
        return self._begins[section - HEADER]

    def positions(self) -> list[int]:
        """Return `begin` of the five sections before the body, and of the body."""
        if self._last < DATA:
            self._walk(DATA)
        return self._begins[: DATA - HEADER + 1]

    def encoded(self, section: int) -> bytes:
        """Return the bytes of a section before the body, empty if the message has none."""
        end = self.begin(section + 1)
        return bytes(self.payload[self._begins[section - HEADER] : end])

    def decoded(self, section: int) -> Any:
        """Return the value of a section before the body, whatever its type; None if the message has none."""
        known = self._decoded
        if known is None:
            known = self._decoded = {}
        elif section in known:
            return known[section]
        end = self.begin(section + 1)
        pos = self._values.get(section, -1)
        value = None
        if pos >= 0:
            value, stop = codec.decode(self.payload, pos, end)
            if stop != end:
                raise malformed(f"{NAMES[section]}: {end - stop} bytes too many")
        known[section] = value
        return value

    def value_at(self, section: int) -> int:
        """Return the beginning of the value of `section`; -1 if the message has none."""
        if self._last < section:
            self._walk(section)
        return self._values.get(section, -1)

    def _map(self, section: int) -> dict[Any, Any]:
        pos = self.value_at(section)
        if pos < 0:
            return {}
        buf = self.payload
        if pos >= len(buf):
            raise cut_short(pos)
        if buf[pos] not in (0xC1, 0xD1):
            raise malformed(f"{NAMES[section]}: a map expected, 0x{buf[pos]:02x} found")
        value: dict[Any, Any] = DECODERS[buf[pos]](buf, pos + 1, len(buf), MAX_DEPTH)[0]
        for key in value:
            if not isinstance(key, str) and (type(key) is not ULong or section == APPLICATION_PROPERTIES):
                raise malformed(f"{NAMES[section]}: {key!r} cannot be a key")
        return value

    @property
    def header(self) -> Header:
        """The header, with the defaults of the specification for what is absent."""
        header = self._header
        if header is None:
            pos = self.value_at(HEADER)
            if pos < 0:
                header = NO_HEADER
            else:
                header = _decode_header(bytes(self.payload[pos : codec.skip(self.payload, pos, len(self.payload))]))
            self._header = header
        return header

    @property
    def delivery_annotations(self) -> dict[Any, Any]:
        """The delivery annotations, empty without any."""
        return self._map(DELIVERY_ANNOTATIONS)

    @property
    def annotations(self) -> dict[Any, Any]:
        """The message annotations. Do not change the dict."""
        if self._annotations is None:
            self._annotations = self._map(MESSAGE_ANNOTATIONS)
        return self._annotations

    @property
    def properties(self) -> Properties:
        """The properties, None for what is absent."""
        properties = self._properties
        if properties is None:
            pos = self.value_at(PROPERTIES)
            if pos < 0:
                properties = NO_PROPERTIES
            else:
                buf = self.payload
                properties = Properties(
                    *_section_fields(buf, pos, len(buf), "properties", NO_PROPERTIES, _PROPERTIES_DECODERS)
                )
            self._properties = properties
        return properties

    @property
    def to(self) -> str | None:
        """properties.to alone, the other properties passed over."""
        to: str | None = self._field(2, ADDRESS) if self._properties is None else self._properties.to
        return to

    @property
    def message_id(self) -> MessageId | None:
        """properties.message-id alone, the other properties passed over."""
        found: MessageId | None = self._field(0, ID) if self._properties is None else self._properties.message_id
        return found

    def _field(self, index: int, kind: FieldKind) -> Any:
        """One field of the properties; what is before it is passed over, what follows is not looked at."""
        pos = self.value_at(PROPERTIES)
        if pos < 0:
            return None
        buf, end = self.payload, len(self.payload)
        pos, stop = field_at(buf, pos, end, index, "properties")
        return None if pos < 0 else kind.decode(buf, pos, stop, MAX_DEPTH)[0]

    @property
    def application_properties(self) -> dict[str, Any]:
        """The application properties, empty without any. Do not change the dict."""
        if self._application_properties is None:
            self._application_properties = self._map(APPLICATION_PROPERTIES)
        return self._application_properties

    @property
    def footer(self) -> dict[Any, Any]:
        """The footer, empty without one."""
        return self._map(FOOTER)

    def body(self) -> tuple[int, list[Any]]:
        """Return the kind of the body (DATA, AMQP_SEQUENCE, AMQP_VALUE; 0: none) and the values of its sections.

        Raises AmqpError(amqp:decode-error).
        """
        if self._last < DATA:
            self._walk(DATA)
        buf, end = self.payload, len(self.payload)
        kind = next((code for code in (DATA, AMQP_SEQUENCE, AMQP_VALUE) if code in self._values), 0)
        values: list[Any] = []
        if not kind:
            return 0, values
        pos = self._values[kind]
        while True:
            if pos >= end:
                raise cut_short(pos)
            code = buf[pos]
            if (kind == DATA and code not in (0xA0, 0xB0)) or (
                kind == AMQP_SEQUENCE and code not in (0x45, 0xC0, 0xD0)
            ):
                raise malformed(f"{NAMES[kind]}: 0x{code:02x} found at byte {pos}")
            value, pos = DECODERS[code](buf, pos + 1, end, MAX_DEPTH)
            values.append(value)
            if pos >= end:
                return kind, values
            found, pos = section_at(buf, pos, end)
            if found == FOOTER:
                return kind, values
            if found != kind or kind == AMQP_VALUE:
                raise malformed(f"section 0x{found:02x} follows {NAMES[kind]}, at byte {pos}")

    @property
    def encoded_body(self) -> bytes:
        """The sections of the body as they came, without the footer."""
        return bytes(self.payload[self.begin(DATA) : self.begin(FOOTER)])

    def check(self) -> None:
        """Walk over the whole message: its sections are the right ones, in order, and whole."""
        self._walk(_END)

    @property
    def bare(self) -> bytes:
        """The bare message (3.2), footer included: what is passed on as it came."""
        return bytes(self.payload[self.begin(PROPERTIES) :])

    @property
    def content(self) -> bytes:
        """The bare message (3.2) without the footer: properties, application properties and body as they came."""
        return bytes(self.payload[self.begin(PROPERTIES) : self.begin(FOOTER)])

    def front(self, header: Header | None = None, annotations: Mapping[Any, Any] | None = None) -> bytes:
        """Return the sections before `bare`: this header and these message annotations, by default those the message
        has.

        Delivery annotations are for one hop: they are left out.
        """
        if annotations is None:
            encoded = self.encoded(MESSAGE_ANNOTATIONS)
        else:
            encoded = encode_annotations(MESSAGE_ANNOTATIONS, annotations)
        return encode_header(self.header if header is None else header) + encoded

    def replace_annotations(self, annotations: Mapping[Any, Any]) -> bytes:
        """Return the message with these message annotations instead of its own (none: without the section), the rest as
        it came."""
        start, rest = self.begin(MESSAGE_ANNOTATIONS), self.begin(PROPERTIES)
        encoded = encode_annotations(MESSAGE_ANNOTATIONS, annotations)
        return b"".join((self.payload[:start], encoded, self.payload[rest:]))
