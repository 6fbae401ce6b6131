"""Messages of `$mqtt/…` and `$subctrl` as bytes: what a request says, and what an answer is."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from enmasse.amqp.codec.encoder import encode_string
from enmasse.amqp.messages.message import Message
from enmasse.amqp.messages.scan import AMQP_VALUE, DATA
from enmasse.amqp.messages.sections import MessageId, Sections, encode_properties

STORE_AWAY = "nothing can be stored at the moment: try again later"
"""Text for clients in place of a StoreError, which names places on the server: that is for the log and for health."""
STORE_FULL = "there is no space to store anything: an operator has to make room"
"""Text for clients if the store is full."""
FAILED = "a fault of the service, which is in its log"
_NO_PROPERTIES = (None,) * 13


class Request(NamedTuple):
    """`body`: of an amqp-value its value, of data its bytes."""

    subject: str
    correlation: MessageId | None
    reply_to: str | None
    body: Any


def read(data: bytes) -> Request:
    """Return the request that a message contains. Raises AmqpError."""
    sections = Sections(data)
    properties = sections.properties
    kind, values = sections.body()
    body = values[0] if kind == AMQP_VALUE else b"".join(values) if kind == DATA else None
    return Request(properties.subject or "", properties.correlation_id, properties.reply_to, body)


def json_answer(subject: str, body: Any, correlation: MessageId | None = None, to: str | None = None) -> bytes:
    """JSON text in an amqp-value string."""
    properties = (None, None, to, subject, None, correlation, *_NO_PROPERTIES[6:])
    text = encode_string(msgspec.json.encode(body).decode())
    return encode_properties(properties) + b"\x00\x53\x77" + text


def answer(
    subject: str, body: Any, correlation: MessageId | None, to: str, application: dict[str, Any] | None = None
) -> bytes:
    """Any body. Raises ValueError, TypeError if it has no AMQP form."""
    message = Message(body, subject=subject, correlation_id=correlation, to=to)
    message.application_properties = application or {}
    return message.encode()
