"""Rows of Arrow batches as the bytes of AMQP messages, column by column: no dictionary and no message object a row.

Columns used if present: `body` (binary or string), `text` (a string, instead of a `body` that is null), `message_id`,
`address`, `subject`, `reply_to`, `correlation_id`, `content_type`, `application_properties`, `priority`, `ttl`
(milliseconds). A row without a body is sent as JSON, with all its columns. Messages are durable.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from hashlib import blake2b
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple

import pyarrow as pa

from enmasse.amqp.codec import encoder
from enmasse.amqp.codec.encoder import ENCODERS, encode_binary, encode_string, encode_symbol
from enmasse.amqp.messages.sections import Header, encode_header
from enmasse.spark.errors import QueryError

NULL = b"\x40"
DUPLICATE_ID = "_AMQ_DUPL_ID"
"""Application property by which brokers recognise a repeated message (docs/contracts.md)."""
NO_PROPERTIES = (None,) * 5
LONGEST_KEPT = 1024
"""Characters of the properties that are remembered with their encoded form."""
KEY = "enmasse_key"
"""Column that `enmasse.spark.repeatable` adds: rows that have the same are in one partition."""
STRINGS = ("message_id", "address", "subject", "reply_to", "correlation_id", "content_type")
NUMBERS = {"priority": 255, "ttl": (1 << 32) - 1}
"""Most that these columns can hold (AMQP 1.0, 3.2.1)."""


class ColumnError(QueryError):
    """A column has a type that the sink cannot send."""


class RowError(Exception):
    """A row cannot be sent as a message: the text gives the reason."""


class RowMessage(NamedTuple):
    """Message of a row. `address`: unless the sink's option names it; `error`: why it cannot be sent."""

    payload: bytes
    message_id: str
    address: str | None
    error: str = ""


class Ids:
    """Message-ids of rows: `<prefix>-<hash>`. Receivers know rows and ids sent so far, and cannot foresee the next.

    `prefix` names the batch, and the partition unless the rows have a KEY; `secret` is the query: see `ids_of_task` in
    `enmasse.spark.sink.sink`. `hash` is of these, the message's content, its KEY and its number among equal rows: the
    ids are the same set in any order of the rows.
    """

    def __init__(self, prefix: str, secret: str) -> None:
        self._prefix = prefix
        self._key = blake2b(f"{len(prefix)} {prefix}{secret}".encode("utf-8", "surrogatepass")).digest()
        self._equal: dict[bytes, int] = {}

    def of(self, content: bytes) -> str:
        """Return the id of the next message with this content."""
        digest = blake2b(content, digest_size=16).digest()
        n = self._equal.get(digest, 0)
        self._equal[digest] = n + 1
        return f"{self._prefix}-{blake2b(b'%b %d' % (digest, n), digest_size=16, key=self._key).hexdigest()}"


def as_json(value: Any) -> Any:
    """Return a value of a row that JSON does not know in its JSON form. Raises TypeError if it has none."""
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else json.dumps(value)


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _any(value: Any) -> str:
    return json.dumps(value, default=as_json)


def _map(value: list[tuple[Any, Any]]) -> str:
    return json.dumps(dict(value), default=as_json)


def json_encoder(kind: pa.DataType) -> Callable[[Any], str]:
    """Return what writes a value of this type that is not null as JSON, like `json.dumps`."""
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind):
        return encode_basestring_ascii
    if types.is_boolean(kind):
        return _boolean
    if types.is_integer(kind):
        return str
    if types.is_floating(kind):
        return _number
    return _map if types.is_map(kind) else _any


def json_rows(batch: pa.RecordBatch) -> Iterator[str]:
    """Yield each row as a JSON object. Raises ColumnError for a type without a JSON form."""
    form = "{" + ", ".join(json.dumps(name).replace("%", "%%") + ": %s" for name in batch.schema.names) + "}"
    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        write = json_encoder(field.type)
        try:
            columns.append(["null" if value is None else write(value) for value in column.to_pylist()])
        except TypeError as error:
            raise ColumnError(
                f'amqp sink: column "{field.name}" ({field.type}) cannot be sent as JSON: {error}. Cast it'
            ) from None
    for row in zip(*columns, strict=True):
        yield form % row


@lru_cache(maxsize=1024)
def _header(priority: int, ttl: int | None) -> bytes:
    return encode_header(Header(durable=True, priority=priority, ttl=ttl))


def _properties(*values: str | None) -> tuple[bytes, ...]:
    """Return the encoded fields of the properties section behind the message-id (3.2.4): `to`, `subject`, `reply_to`,
    `correlation_id`, `content_type`."""
    if values == NO_PROPERTIES:
        return ()
    short = sum(len(value) for value in values if value is not None) <= LONGEST_KEPT
    return (kept_properties if short else _encoded_properties)(*values)


def _encoded_properties(
    to: str | None, subject: str | None, reply_to: str | None, correlation_id: str | None, content_type: str | None
) -> tuple[bytes, ...]:
    fields = [
        NULL if value is None else encode_string(value) for value in (None, to, subject, reply_to, correlation_id)
    ]
    fields.append(NULL if content_type is None else encode_symbol(content_type))
    while fields and fields[-1] is NULL:
        fields.pop()
    return tuple(fields)


kept_properties = lru_cache(maxsize=1024)(_encoded_properties)


def _application_properties(pairs: list[tuple[str, Any]]) -> bytes:
    elements = []
    for key, value in sorted(dict(pairs).items()):
        elements.append(encode_string(key))
        elements.append(ENCODERS[type(value)](value))
    return b"\x00\x53\x74" + encoder.encoded_map(elements) if elements else b""


def outgoing(batch: pa.RecordBatch, ids: Ids, *, routed: bool, duplicate_id: bool) -> Iterator[RowMessage]:
    """Yield the rows of a batch as messages.

    `routed`: the column `address` names the address of each message. `duplicate_id`: messages carry their id as
    DUPLICATE_ID too. Raises ColumnError.
    """
    count = batch.num_rows
    keys = _values(batch, KEY)
    if keys is not None:
        batch = batch.drop_columns(KEY)
    columns = {name: _values(batch, name) for name in ("body", *STRINGS, *NUMBERS, "application_properties")}
    absent = [None] * count
    bodies = columns["body"]
    texts = _values(batch, "text") if bodies is not None else None
    rows: Iterator[str] | None = None
    if bodies is None or (batch["body"].null_count and texts is None) or (texts is not None and None in texts):
        rows = json_rows(batch)
    others = ("subject", "reply_to", "correlation_id", "content_type", *NUMBERS, "application_properties")
    values = [columns[name] or absent for name in others]
    leading = (keys or absent, bodies or absent, texts or absent)
    for key, body, text, message_id, address, *rest in zip(
        *leading, columns["message_id"] or absent, columns["address"] or absent, *values, strict=True
    ):
        as_row = next(rows) if rows is not None else ""
        if body is None:
            body = text
        if body is None:
            body, rest[3] = as_row, "application/json"
        try:
            yield _message(ids, duplicate_id, key, body, message_id, _target(address) if routed else None, *rest)
        except (RowError, ValueError, TypeError, OverflowError) as error:
            body = body if isinstance(body, bytes) else str(body).encode("utf-8", "replace")
            yield RowMessage(_bare(body), message_id or "", None, str(error))


def _message(
    ids: Ids,
    duplicate_id: bool,
    key: int | None,
    body: bytes | str,
    message_id: str | None,
    address: str | None,
    subject: str | None,
    reply_to: str | None,
    correlation_id: str | None,
    content_type: str | None,
    priority: int | None,
    ttl: int | None,
    pairs: list[tuple[str, Any]] | None,
) -> RowMessage:
    fields = _properties(address, subject, reply_to, correlation_id, content_type)
    if priority is not None or ttl is not None:
        for name, value in (("priority", priority), ("ttl", ttl)):
            if value is not None and not 0 <= value <= NUMBERS[name]:
                raise RowError(f'column "{name}" must be from 0 to {NUMBERS[name]}, not {value}')
    if pairs:  # the id of a sender whose message became the row: here it would count for the job's user
        pairs = [pair for pair in pairs if pair[0] != DUPLICATE_ID]
    properties = _application_properties(pairs) if pairs else b""
    data = b"\x00\x53\x75" + encode_binary(body.encode() if isinstance(body, str) else body)
    header = _header(4 if priority is None else priority, ttl)
    if not message_id:
        without = b"\x00\x53\x73" + encoder.encoded_list([NULL, *fields]) if fields else b""
        content = (header, without, properties, data)
        message_id = ids.of(b"".join(content if key is None else (b"%d " % key, *content)))
    section = b"\x00\x53\x73" + encoder.encoded_list([encode_string(message_id), *fields])
    if duplicate_id:
        properties = _application_properties([*(pairs or ()), (DUPLICATE_ID, message_id)])
    return RowMessage(b"".join((header, section, properties, data)), message_id, address)


def _target(address: str | None) -> str:
    if not address:
        raise RowError('the column "address" is empty')
    return address


def _bare(body: bytes) -> bytes:
    """Return a durable message with this body, for the dead-letter address."""
    return _header(4, None) + b"\x00\x53\x75" + encode_binary(body)


def _values(batch: pa.RecordBatch, name: str) -> list[Any] | None:
    """Return the values of a column; None if the batch has no such column. Raises ColumnError for a wrong type."""
    at = batch.schema.get_field_index(name)
    if at < 0:
        return None
    kind, types = batch.schema.field(at).type, pa.types
    if types.is_null(kind):
        return None
    if name == "application_properties":
        good, wanted = types.is_map(kind) and types.is_string(kind.key_type), "a map with strings as keys"
    elif name in NUMBERS or name == KEY:
        good, wanted = types.is_integer(kind), "a whole number"
    else:
        text = types.is_string(kind) or types.is_large_string(kind)
        binary = name == "body" and (types.is_binary(kind) or types.is_large_binary(kind))
        good, wanted = text or binary, "a string or binary" if name == "body" else "a string"
    if not good:
        raise ColumnError(f'amqp sink: column "{name}" must be {wanted}, not {kind}. Cast it or leave it out')
    values: list[Any] = batch.column(at).to_pylist()
    return values
