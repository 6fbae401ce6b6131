"""Messages whose body is JSON text in an amqp-value section (docs/contracts.md): encoded without a copy too many."""

from __future__ import annotations

import proton

from enmasse.control.errors import DECODE_ERROR, AmqpError
from enmasse.control.link import Delivery

CONTENT_TYPE = "application/json"


def encode(subject: str | None, body: bytes) -> bytes:
    """The message with this JSON text (UTF-8) as body (OASIS AMQP 1.0 part 3: properties, amqp-value string)."""
    head = _heads.get(subject)
    if head is None:
        message = proton.Message(body="")
        if subject is not None:
            message.subject = subject
        message.content_type = CONTENT_TYPE
        # The encoding ends with the section `amqp-value` and its empty string: descriptor 00 53 77, then a1 00.
        head = bytes(message.encode())[:-2]
        assert head.endswith(b"\x00\x53\x77")
        _heads[subject] = head
    return b"".join((head, b"\xb1", len(body).to_bytes(4, "big"), body))


_heads: dict[str | None, bytes] = {}


def decode(delivery: Delivery) -> tuple[str | None, bytes]:
    """Subject, and the JSON text of the body. Raises AmqpError(amqp:decode-error) where the body is no text."""
    message = delivery.message
    body = message.body
    if isinstance(body, str):
        return message.subject, body.encode("utf-8", "surrogatepass")
    if isinstance(body, (bytes, memoryview)):
        return message.subject, bytes(body)
    raise AmqpError(DECODE_ERROR, "the body must be JSON text: a string in an amqp-value section")
