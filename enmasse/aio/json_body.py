"""JSON bodies of messages between processes of the suite (docs/contracts.md): a string in an amqp-value section."""

from __future__ import annotations

from typing import TypeVar

from enmasse.amqp.messages.sections import Sections
from enmasse.storage.decoding import decode

S = TypeVar("S")


def json_body(payload: bytes, kind: type[S]) -> S:
    """Return the body of a message, of the type `kind`. Raises AmqpError if it is malformed, ValueError."""
    _, values = Sections(payload).body()
    text = values[0] if values else None
    if not isinstance(text, str | bytes):
        raise ValueError("the body must be JSON text: a string in an amqp-value section")
    return decode(text, kind)
