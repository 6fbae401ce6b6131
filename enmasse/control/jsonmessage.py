"""Messages whose body is JSON text in an amqp-value section (docs/contracts.md): encoded without superfluous copies."""

from __future__ import annotations

import proton

from enmasse.control.errors import DECODE_ERROR, ControlError
from enmasse.control.link import Delivery
from enmasse.control.link import decode as decode_message

CONTENT_TYPE = "application/json"
_VALUE = b"\x00\x53\x77"
"""Descriptor of the section amqp-value (OASIS AMQP 1.0 part 3.2.8)."""
_NULL = b"\x40"
_FRONT = 1024
"""Bytes at the beginning of a message in which the body is looked for."""


def encode(subject: str | None, body: bytes) -> bytes:
    """Return the message with this JSON text (UTF-8) as body (OASIS AMQP 1.0 part 3: properties, amqp-value string)."""
    head = _heads.get(subject)
    if head is None:
        message = proton.Message(body="")
        if subject is not None:
            message.subject = subject
        message.content_type = CONTENT_TYPE
        # The encoding ends with the section `amqp-value` and its empty string: descriptor 00 53 77, then a1 00.
        head = bytes(message.encode())[:-2]
        assert head.endswith(_VALUE)
        _heads[subject] = head
    return b"".join((head, b"\xb1", len(body).to_bytes(4, "big"), body))


_heads: dict[str | None, bytes] = {}


def decode(delivery: Delivery) -> tuple[str | None, bytes | memoryview]:
    """Subject, and the JSON text of the body. Raises ControlError(amqp:decode-error) if the body is no text."""
    at = _long_text(delivery.data)
    if at:
        return decode_message(delivery.data[:at] + _NULL).subject, memoryview(delivery.data)[at + 5 :]
    message = delivery.message
    return message.subject, _text(message.body)


def body(delivery: Delivery) -> bytes | memoryview:
    """Return the JSON text of the body. Raises ControlError(amqp:decode-error) if that is no text."""
    at = _long_text(delivery.data)
    return memoryview(delivery.data)[at + 5 :] if at else _text(delivery.message.body)


def _text(found: object) -> bytes:
    if isinstance(found, str):
        return found.encode("utf-8", "surrogatepass")
    if isinstance(found, (bytes, memoryview)):
        return bytes(found)
    raise ControlError(DECODE_ERROR, "the body must be JSON text: a string in an amqp-value section")


def _long_text(data: bytes) -> int:
    """Position of the string in an amqp-value section at the end of the message; 0 if the section has another form.

    Snapshots have megabytes: decoding them to str and encoding them to bytes again would take noticeable time.
    """
    at = data.find(_VALUE + b"\xb1", 0, _FRONT) + len(_VALUE)
    if at < len(_VALUE) or int.from_bytes(data[at + 1 : at + 5], "big") != len(data) - at - 5:
        return 0
    return at
