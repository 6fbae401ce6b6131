"""Messages as lines of text and of JSON, objects as KEY=VALUE, and arguments as application properties."""

from __future__ import annotations

import json
from typing import Any

from enmasse.amqp.messages.jsonform import plain, to_json
from enmasse.amqp.messages.message import AmqpValue, Message


def as_json(message: Message, payload: bytes | None = None) -> str:
    """Return the object of a message on one line. `payload`: its bytes, for bodies of several sections."""
    return json.dumps(to_json(message, payload), ensure_ascii=False)


def as_text(message: Message) -> str:
    """Return the body: text unchanged, other types as JSON."""
    body = plain(message.body)
    return body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)


def as_bytes(message: Message) -> bytes:
    """Return the body: binary unchanged, other types as the bytes of their text."""
    body = message.body.value if isinstance(message.body, AmqpValue) else message.body
    return bytes(body) if isinstance(body, bytes | bytearray | memoryview) else as_text(message).encode()


def pairs(given: dict[str, Any]) -> str:
    """Return an object of JSON as KEY=VALUE …: text unchanged, other values as JSON."""
    found = ((key, value if isinstance(value, str) else json.dumps(value)) for key, value in given.items())
    return " ".join(f"{key}={value}" for key, value in found)


def properties_from(texts: tuple[str, ...]) -> dict[str, Any]:
    """KEY=VALUE … as application properties: VALUE is a JSON scalar, else a string. Raises ValueError."""
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ValueError(f"expected KEY=VALUE, got {text!r}")
        try:
            decoded = json.loads(value)
        except ValueError:
            decoded = value
        found[key] = decoded if isinstance(decoded, str | int | float) or decoded is None else value
    return found
