"""What a hostile sender can do to a query that reads its messages, and to what the query sends on."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from enmasse.amqp.messages.message import Message
from enmasse.spark.schema import columns
from enmasse.spark.sink import encoding
from enmasse.spark.sink.encoding import DUPLICATE_ID, Ids, outgoing
from tests.spark.test_columns import of_ours, same

VALUE = b"\x00\x53\x77"
SURROGATE = b"\x73\x00\x00\xd8\x00"
LARGE = 100_000
"""Bytes of a section; a message may have more."""


def properties(value: bytes) -> bytes:
    """An application property of this encoded value."""
    pair = b"\xa1\x01k" + value
    return b"\x00\x53\x74\xd1" + struct.pack(">II", 4 + len(pair), 2) + pair


def array(constructor: bytes, count: int) -> bytes:
    """An array whose elements have no bytes."""
    return b"\xf0" + struct.pack(">II", 4 + len(constructor), count) + constructor


def lists(depth: int) -> bytes:
    """Lists in lists."""
    value = b"\x40"
    for _ in range(depth):
        value = b"\xd0" + struct.pack(">II", 4 + len(value), 1) + value
    return value


@pytest.mark.parametrize(
    "payload",
    [
        VALUE + SURROGATE,
        properties(SURROGATE) + VALUE + b"\x40",
        VALUE + b"\x73\x00\x11\x00\x00",
        VALUE + b"\xa1\x03\xed\xa0\x80",
        VALUE + b"\xa3\x02\xc3\xa9",
        VALUE + lists(3000),
        VALUE + b"\x00\x40" * 4000 + b"\x40",
        VALUE + array(b"\x40", 2**32 - 1),
        VALUE + array(b"\x41", 2**31),
        VALUE + array(b"\x43", 2**30),
        VALUE + array(b"\x45", 2**31),
        VALUE + b"\xd0" + struct.pack(">II", 8, 2**32 - 1) + b"\x40" * 4,
        properties(array(b"\x45", 2**31)) + VALUE + b"\x40",
    ],
    ids=lambda payload: payload[:12].hex(),
)
def test_a_message_that_no_column_can_hold_is_an_error_of_its_row_alone(payload: bytes) -> None:
    first, bad, last = same([of_ours(1), payload, of_ours(2)]).to_pylist()
    assert bad["error"].startswith("amqp:decode-error") and bad["body"] == payload
    assert [row["message_id"] for row in (first, last)] == ["m1", "m2"] and first["error"] is last["error"] is None


def test_large_sections_are_not_remembered() -> None:
    """Each is another one: an executor kept 293 KiB of such a message, of up to 4,096 of them."""
    columns.kept_front.cache_clear()
    columns.kept_properties.cache_clear()
    encoding.kept_properties.cache_clear()
    for n in range(3):
        text = f"{n}{'x' * LARGE}"
        payload = Message(b"", annotations={"x-n": text}, application_properties={"k": text}, subject=text).encode()
        (row,) = same([payload]).to_pylist()
        assert row["application_properties"] == [("k", text)] and row["subject"] == text
        (sent,) = made({"body": b"", "subject": text})
        assert sent.subject == text
    kept = (columns.kept_front, columns.kept_properties, encoding.kept_properties)
    assert [each.cache_info().currsize for each in kept] == [0, 0, 0]


def made(row: dict[str, Any], *, routed: bool = False, duplicate_id: bool = False) -> list[Message]:
    """Messages of a row."""
    types: dict[str, pa.DataType] = {"body": pa.binary(), "application_properties": pa.map_(pa.string(), pa.string())}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in row])
    batch = pa.RecordBatch.from_pylist([row], schema=schema)
    found = outgoing(batch, Ids("0-0", "query"), routed=routed, duplicate_id=duplicate_id)
    return [Message.decode(each.payload) for each in found]


@pytest.mark.parametrize("duplicate_id", [False, True])
def test_a_senders_duplicate_id_is_not_sent_on_in_the_jobs_name(duplicate_id: bool) -> None:
    """At the source's address it counted for the sender alone. Of the job it would use up the id of another sender,
    whose row the broker then takes for a repeat."""
    row = {"body": b"a", "application_properties": [(DUPLICATE_ID, "device-17-42"), ("k", "1")]}
    (sent,) = made(row, duplicate_id=duplicate_id)
    assert sent.application_properties == {"k": "1"} | ({DUPLICATE_ID: sent.message_id} if duplicate_id else {})


def test_where_a_sender_says_that_its_message_goes_counts_only_for_a_sink_that_is_routed_by_rows() -> None:
    row = {"body": b"a", "address": "secret/door"}
    assert [made(row, routed=routed)[0].to for routed in (False, True)] == [None, "secret/door"]
