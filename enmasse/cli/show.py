"""Messages as text and as JSON, and text as messages."""

from __future__ import annotations

import base64
import json
from typing import Any

from enmasse.amqp.message import AmqpSequence, AmqpValue, Message
from enmasse.amqp.types import Array, Described

_PROPERTIES = (
    "user_id", "to", "subject", "reply_to", "correlation_id", "content_type", "content_encoding",
    "absolute_expiry_time", "creation_time", "group_id", "group_sequence", "reply_to_group_id",
)  # fmt: skip


def as_json(message: Message) -> str:
    """Return one line: body, durable, ttl …; what is not set is left out."""
    found: dict[str, Any] = {"body": plain(message.body), "durable": message.durable, "id": plain(message.message_id)}
    found |= {name: plain(value) for name in _PROPERTIES if (value := getattr(message, name)) is not None}
    if message.ttl is not None:
        found["ttl"] = message.ttl
    if message.priority != 4:
        found["priority"] = message.priority
    if message.delivery_count:
        found["delivery_count"] = message.delivery_count
    found["properties"] = plain(message.application_properties)
    if message.annotations:
        found["annotations"] = plain(message.annotations)
    return json.dumps(found, ensure_ascii=False)


def as_text(message: Message) -> str:
    """Return the body: text unchanged, other types as JSON."""
    body = plain(message.body)
    return body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)


def plain(value: Any) -> Any:
    """Return an AMQP value as JSON: binary as text if it is UTF-8, else {"base64": …}; unknown types as text."""
    if isinstance(value, AmqpValue):
        return plain(value.value)
    if isinstance(value, AmqpSequence):
        return plain(value.values)
    if isinstance(value, Described):
        return plain(value.value)
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(data).decode("ascii")}
    if isinstance(value, dict):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Array):
        return [plain(item) for item in value.values]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # JSON has no infinity, no NaN
    return str(value)


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
