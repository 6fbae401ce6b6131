"""Single values of AMQP as MQTT has them, and back: text, JSON, correlation data. Pure.

Nothing here raises on what a peer sent: what has no form is left out by those who ask.
"""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from enmasse.amqp.codec.types import Array, Described, Timestamp, ULong

MAX_TEXT = 65535
"""Bytes of a string of MQTT (v5 1.5.4)."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def text_of(value: Any) -> str:
    """Return a value as the text of a user property: a string unchanged, numbers in decimal, times as ISO 8601 (UTC),
    binary as text if it is UTF-8, else in Base64, null as empty text, lists and maps as JSON."""
    if isinstance(value, str):
        return str(value)
    if value is None:
        return ""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, bool | int | float) and not isinstance(value, Timestamp):
        return json_of(value)
    found = _plain(value)
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def json_of(value: Any) -> str:
    """Return a value as JSON: maps as objects (keys as by `text_of`), lists and arrays as arrays, binary in Base64,
    times as ISO 8601, UUIDs as strings, decimals in Base64 of their bytes, numbers JSON has no form for (NaN) as null.
    """
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Timestamp):
        return _time(int(value))
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Described):
        return _plain(value.value)
    if isinstance(value, dict):
        return {text_of(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | Array):
        return [_plain(each) for each in value]
    return str(value)


def _time(milliseconds: int) -> str | int:
    try:
        return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return milliseconds


def legal(text: str) -> bool:
    """MQTT can hold it as a string (v5 1.5.4): no U+0000, no surrogates, 65,535 bytes."""
    if "\0" in text:
        return False
    try:
        return len(text) * 3 <= MAX_TEXT or len(text.encode()) <= MAX_TEXT
    except UnicodeEncodeError:
        return False


# Correlation data. Text is a string on AMQP, other bytes are binary. What else AMQP has begins with a zero byte and a
# letter, so that it keeps its type: L a ulong in decimal, U a UUID, B binary that looks like text.


def correlation_id(data: bytes) -> Any:
    """Return the correlation-id of correlation data."""
    if data[:1] == b"\0" and len(data) > 1:
        kind, rest = data[1:2], data[2:]
        if kind == b"L" and rest.isdigit() and len(rest) <= 20:
            number = int(rest)
            if number < 2**64 and b"%d" % number == rest:
                return ULong(number)
        elif kind == b"U" and len(rest) == 16:
            return UUID(bytes=rest)
        elif kind == b"B" and _marked(rest):
            return rest
    return data.decode() if _like_text(data) else data


def correlation_data(value: Any) -> bytes | None:
    """Return the correlation data of a correlation-id of any type, of which `correlation_id` makes the same again; None
    if MQTT cannot hold it."""
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
        if not _like_text(data):
            return None
    elif isinstance(value, UUID):
        data = b"\0U" + value.bytes
    elif isinstance(value, bytes):
        data = b"\0B" + value if _marked(value) else bytes(value)
    elif isinstance(value, int):
        data = b"\0L%d" % value
    else:
        return None
    return data if len(data) <= MAX_TEXT else None


def _marked(binary: bytes) -> bool:
    """Without the mark it would return as another type."""
    return _like_text(binary) or (binary[:1] == b"\0" and binary[1:2] in (b"L", b"U", b"B"))


def _like_text(data: bytes) -> bool:
    if b"\0" in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
