"""Messages (3.2): `Message` to create and read them, `Sections` to forward them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

from enmasse.amqp.codec import encoder
from enmasse.amqp.codec.encoder import ENCODERS, encode_binary, encode_string
from enmasse.amqp.codec.types import Buffer, Decimal32, Decimal64, Decimal128
from enmasse.amqp.messages.scan import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    MESSAGE_ANNOTATIONS,
)
from enmasse.amqp.messages.sections import (
    Header,
    MessageId,
    Properties,
    Sections,
    encode_annotations,
    encode_header,
    encode_properties,
)

__all__ = [
    "Message", "AmqpValue", "AmqpSequence", "Sections", "Header", "Properties", "MessageId",
    "encode_header", "encode_properties", "encode_annotations",
]  # fmt: skip


@dataclass(slots=True)
class AmqpValue:
    """A body of one value (3.2.8); needed only if a bytes value shall not become a data section."""

    value: Any


@dataclass(slots=True)
class AmqpSequence:
    """A body of values in a row (3.2.7)."""

    values: list[Any]


@dataclass(slots=True)
class Message:
    """A message. `Message(b"…")` has a data section, `Message(AmqpSequence([…]))` a sequence, else an amqp-value.

    `ttl` is milliseconds, times are milliseconds since 1970. Keys of annotations become symbols, keys of application
    properties strings; an int message_id or correlation_id becomes a ulong.
    """

    body: Any = None
    durable: bool = field(default=False, kw_only=True)
    priority: int = field(default=4, kw_only=True)
    ttl: int | None = field(default=None, kw_only=True)
    first_acquirer: bool = field(default=False, kw_only=True)
    delivery_count: int = field(default=0, kw_only=True)
    delivery_annotations: dict[Any, Any] = field(default_factory=dict, kw_only=True)
    annotations: dict[Any, Any] = field(default_factory=dict, kw_only=True)
    message_id: MessageId | None = field(default=None, kw_only=True)
    user_id: bytes | None = field(default=None, kw_only=True)
    to: str | None = field(default=None, kw_only=True)
    subject: str | None = field(default=None, kw_only=True)
    reply_to: str | None = field(default=None, kw_only=True)
    correlation_id: MessageId | None = field(default=None, kw_only=True)
    content_type: str | None = field(default=None, kw_only=True)
    content_encoding: str | None = field(default=None, kw_only=True)
    absolute_expiry_time: int | None = field(default=None, kw_only=True)
    creation_time: int | None = field(default=None, kw_only=True)
    group_id: str | None = field(default=None, kw_only=True)
    group_sequence: int | None = field(default=None, kw_only=True)
    reply_to_group_id: str | None = field(default=None, kw_only=True)
    application_properties: dict[str, Any] = field(default_factory=dict, kw_only=True)
    footer: dict[Any, Any] = field(default_factory=dict, kw_only=True)

    def encode(self) -> bytes:
        """Return the message's bytes. Raises TypeError or ValueError, naming the section, for what has no AMQP form."""
        parts = []
        header = _read_header(self)
        if header != _NO_HEADER:
            parts.append(encode_header(Header(*header)))
        if self.delivery_annotations:
            parts.append(encode_annotations(DELIVERY_ANNOTATIONS, self.delivery_annotations))
        if self.annotations:
            parts.append(encode_annotations(MESSAGE_ANNOTATIONS, self.annotations))
        properties = _read_properties(self)
        if properties != _NO_PROPERTIES:
            parts.append(encode_properties(properties))
        if self.application_properties:
            parts.append(_encode_application_properties(self.application_properties))
        body = self.body
        if type(body) is bytes or (isinstance(body, bytes | bytearray | memoryview) and not isinstance(body, _DECIMAL)):
            parts.append(b"\x00\x53\x75")
            parts.append(encode_binary(body))
        elif type(body) is AmqpSequence:
            parts.append(b"\x00\x53\x76")
            parts.append(ENCODERS[list](body.values))
        else:
            value = body.value if type(body) is AmqpValue else body
            parts.append(b"\x00\x53\x77")
            parts.append(ENCODERS[type(value)](value))
        if self.footer:
            parts.append(encode_annotations(FOOTER, self.footer))
        return b"".join(parts)

    @classmethod
    def decode(cls, payload: Buffer) -> Message:
        """Return the message in `payload`. Several data sections become one body, and so do several sequences.

        Raises AmqpError(amqp:decode-error).
        """
        sections = Sections(payload)
        sections.check()
        kind, values = sections.body()
        body: Any = None
        if kind == DATA:
            body = values[0] if len(values) == 1 else b"".join(values)
        elif kind == AMQP_SEQUENCE:
            body = AmqpSequence([item for values_of_one in values for item in values_of_one])
        elif kind == AMQP_VALUE:
            body = AmqpValue(values[0]) if isinstance(values[0], bytes) else values[0]
        return cls(
            body,
            delivery_annotations=sections.delivery_annotations,
            annotations=sections.annotations,
            application_properties=sections.application_properties,
            footer=sections.footer,
            **sections.header._asdict(),
            **sections.properties._asdict(),
        )


_read_header = attrgetter(*Header._fields)
_read_properties = attrgetter(*Properties._fields)
_DECIMAL: Final = (Decimal32, Decimal64, Decimal128)  # values, although their classes are of bytes
_NO_HEADER: Final = tuple(Header())
_NO_PROPERTIES: Final = tuple(Properties())


def _encode_application_properties(properties: Mapping[str, Any]) -> bytes:
    elements = []
    for key, value in properties.items():
        if not isinstance(key, str):
            raise TypeError(f"application-properties: the key {key!r} is not a string")
        elements.append(encode_string(key))
        elements.append(ENCODERS[type(value)](value))
    return b"\x00\x53\x74" + encoder.encoded_map(elements)
