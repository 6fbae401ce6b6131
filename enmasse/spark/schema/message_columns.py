"""The columns of a message: which there are, and what one message has in them.

`enmasse.spark.schema.columns` makes the same of many messages at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from enmasse.amqp.codec.errors import AmqpError, malformed
from enmasse.amqp.codec.types import Array
from enmasse.amqp.messages.jsonform import plain
from enmasse.amqp.messages.message import AmqpSequence, AmqpValue, Message
from enmasse.spark.spool.segment import SpoolRecord

DDL = (
    "offset bigint, arrived timestamp, message_id string, correlation_id string, address string, subject string, "
    "reply_to string, content_type string, creation_time timestamp, durable boolean, priority int, "
    "delivery_count bigint, application_properties map<string,string>, body binary, text string, error string"
)

ARROW = pa.schema(
    [
        ("offset", pa.int64()),
        ("arrived", pa.timestamp("us", tz="UTC")),
        ("message_id", pa.string()),
        ("correlation_id", pa.string()),
        ("address", pa.string()),
        ("subject", pa.string()),
        ("reply_to", pa.string()),
        ("content_type", pa.string()),
        ("creation_time", pa.timestamp("us", tz="UTC")),
        ("durable", pa.bool_()),
        ("priority", pa.int32()),
        ("delivery_count", pa.int64()),
        ("application_properties", pa.map_(pa.string(), pa.string())),
        ("body", pa.binary()),
        ("text", pa.string()),
        ("error", pa.string()),
    ]
)
TIMES = (-62_135_596_800_000, 253_402_300_799_999)
"""Milliseconds since 1970: Spark's timestamps are of the years 1 to 9999."""


def body_columns(body: Any) -> tuple[bytes | None, str | None]:
    """Return (binary, text) of a body: data unchanged, with its text if it is UTF-8; a map or a list as JSON; another
    value as its text."""
    if isinstance(body, AmqpValue):
        body = body.value
    elif isinstance(body, AmqpSequence):
        body = body.values
    if body is None:
        return None, None
    if isinstance(body, (bytes, bytearray, memoryview)):
        data = bytes(body)
        try:
            return data, data.decode()
        except UnicodeDecodeError:
            return data, None
    text = json.dumps(plain(body), ensure_ascii=False) if isinstance(body, (dict, list, tuple, Array)) else str(body)
    return text.encode(), text


def texts(properties: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return application properties as texts."""
    return [(str(key), str(value)) for key, value in (properties or {}).items()]


def decoded_message(payload: bytes) -> Message:
    """Return the message in `payload`. Raises AmqpError if it does not decode, or if no column can hold it."""
    message = Message.decode(payload)
    if not TIMES[0] <= (message.creation_time or 0) <= TIMES[1]:
        raise malformed(f"properties: creation-time: {message.creation_time} ms is out of range")
    return message


def row(record: SpoolRecord) -> tuple[Any, ...]:
    """Return one record as the values of ARROW's columns. A message that does not decode is a row with `error`."""
    arrived = record.arrived_ms * 1000
    try:
        m = decoded_message(record.message)
    except AmqpError as error:
        return (record.offset, arrived, *[None] * 11, record.message, None, str(error))
    body, text = body_columns(m.body)
    return (
        record.offset,
        arrived,
        None if m.message_id is None else str(m.message_id),
        None if m.correlation_id is None else str(m.correlation_id),
        m.to,
        m.subject,
        m.reply_to,
        m.content_type,
        None if m.creation_time is None else int(m.creation_time) * 1000,
        bool(m.durable),
        m.priority,
        m.delivery_count,
        texts(m.application_properties),
        body,
        text,
        None,
    )


def batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    """Return rows as one Arrow batch."""
    columns: Any = zip(*rows, strict=True) if rows else [[] for _ in ARROW]
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, ARROW, strict=True)], schema=ARROW)
