"""Columns made of many messages together against those of each message by the codec: they must be the same."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proton import Message as ProtonMessage
from proton import symbol, ulong

from enmasse.amqp.codec.types import Symbol, ULong
from enmasse.amqp.messages.message import AmqpSequence, AmqpValue, Message
from enmasse.spark.schema.columns import Messages, decoded
from enmasse.spark.schema.message_columns import batch, row
from enmasse.spark.spool.segment import SpoolChunk


def chunk_of(payloads: list[bytes], first: int = 7) -> SpoolChunk:
    """As a reader of segments gives it: something stands between the messages, and before the first one."""
    data, begins, ends = b"", [], []
    for payload in payloads:
        data += b"\xa1" * 16
        begins.append(len(data))
        data += payload
        ends.append(len(data))
    return SpoolChunk(first, 0, data, begins, ends, [1_700_000_000_000 + n for n in range(len(payloads))])


def same(payloads: list[bytes]) -> pa.RecordBatch:
    """The batch of messages, which is the one that is made of them one by one."""
    chunk = chunk_of(payloads)
    fast, slow = decoded(chunk), batch([row(record) for record in chunk.records()])
    fast.validate(full=True)
    assert fast.schema == slow.schema
    assert fast.to_pylist() == slow.to_pylist()
    return fast


def text(most: int) -> st.SearchStrategy[str]:
    return st.one_of(st.text("abc-0", max_size=most), st.text(max_size=most), st.just("x" * 300))


ids = st.one_of(
    st.none(), text(6), st.integers(0, 2**64 - 1).map(ULong), st.integers(0, 300).map(ULong), st.binary(max_size=4),
    st.uuids(),
)  # fmt: skip
simple = st.one_of(st.none(), st.booleans(), st.integers(-(2**40), 2**40), text(5), st.floats(), st.binary(max_size=4))
times = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(0, 2_000_000_000_000))
bodies = st.one_of(
    st.binary(max_size=12), text(8).map(str.encode), text(8), text(8).map(AmqpValue), simple,
    st.binary(max_size=5).map(AmqpValue), st.lists(simple, max_size=2).map(AmqpSequence),
    st.dictionaries(text(3), simple, max_size=2), st.just(b"\xc3\xa9" * 200),
)  # fmt: skip
symbols = st.one_of(st.none(), st.sampled_from(["text/plain", "application/json", ""]).map(Symbol))
messages = st.builds(
    Message,
    bodies,
    durable=st.booleans(),
    priority=st.integers(0, 255),
    ttl=st.one_of(st.none(), st.integers(0, 5)),
    delivery_count=st.integers(0, 2**32 - 1),
    delivery_annotations=st.dictionaries(st.sampled_from(["x-a", "x-b"]), simple, max_size=1),
    annotations=st.dictionaries(st.sampled_from(["x-a", "x-b"]), simple, max_size=2),
    message_id=ids,
    user_id=st.one_of(st.none(), st.binary(max_size=4)),
    to=st.one_of(st.none(), text(5)),
    subject=st.one_of(st.none(), text(5)),
    reply_to=st.one_of(st.none(), text(5)),
    correlation_id=ids,
    content_type=symbols,
    content_encoding=symbols,
    absolute_expiry_time=times,
    creation_time=times,
    group_id=st.one_of(st.none(), text(3)),
    group_sequence=st.one_of(st.none(), st.integers(0, 2**32 - 1)),
    reply_to_group_id=st.one_of(st.none(), text(3)),
    application_properties=st.dictionaries(text(3), simple, max_size=3),
    footer=st.dictionaries(st.just("x-f"), simple, max_size=1),
).map(Message.encode)


@settings(max_examples=150, deadline=None)
@given(st.lists(messages, max_size=6))
def test_messages_of_any_kind_give_the_rows_of_the_codec(payloads: list[bytes]) -> None:
    same(payloads)


@settings(max_examples=300, deadline=None)
@given(st.lists(messages, min_size=1, max_size=4), st.randoms(use_true_random=False))
@pytest.mark.slow
def test_spoilt_messages_give_the_rows_of_the_codec(payloads: list[bytes], chance: random.Random) -> None:
    """Bytes that a hostile sender may send: changed, left out, put in, cut off."""
    spoilt = []
    for payload in payloads:
        data = bytearray(payload)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(data) + 1)
            how = chance.randrange(4)
            if how == 0 and at < len(data):
                data[at] = chance.choice(
                    (0, 1, 0x40, 0x45, 0x53, 0x75, 0xA0, 0xA1, 0xB1, 0xC0, 0xD0, 0xFF, data[at] ^ 1)
                )
            elif how == 1:
                del data[at : at + chance.randint(1, 4)]
            elif how == 2:
                data[at:at] = bytes((chance.randrange(256),))
            else:
                del data[at:]
        spoilt.append(bytes(data))
    same(spoilt + payloads)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=5))
def test_bytes_that_are_no_messages_give_the_rows_of_the_codec(payloads: list[bytes]) -> None:
    same(payloads)
    same([b"\x00\x53\x73" + payload for payload in payloads])


def test_maps_and_lists_are_json() -> None:
    bodies = [{"sequence": 17159, "é": [True, None, b"x"]}, AmqpValue([1, 2.5]), AmqpSequence([{"a": ULong(1)}])]
    found = same([Message(body).encode() for body in bodies])
    texts = ['{"sequence": 17159, "é": [true, null, "x"]}', "[1, 2.5]", '[{"a": 1}]']
    assert found["text"].to_pylist() == texts
    assert found["body"].to_pylist() == [text.encode() for text in texts]


def json_of(n: int) -> bytes:
    return b'{"device": "d%d", "temperature": %d}' % (n, n)


def of_ours(n: int) -> bytes:
    return Message(
        json_of(n), durable=True, message_id=f"m{n}", to="telemetry", content_type=Symbol("application/json"),
        creation_time=1_764_000_000_000 + n, application_properties={"device": f"d{n}", "n": n},
    ).encode()  # fmt: skip


def of_proton(n: int) -> bytes:
    message = ProtonMessage(id=ulong(n), durable=True, address="telemetry", body=json_of(n).decode(), subject="é")
    message.properties, message.content_type, message.creation_time = {"unit": "C"}, symbol("text/plain"), n
    return bytes(message.encode())


def of_a_gateway(n: int) -> bytes:
    return Message(
        json_of(n), durable=True, priority=4, ttl=1000, annotations={"x-opt-retain-message": n % 2 == 0}, to="a/b",
        message_id=uuid.UUID(int=n) if n == 3 else ULong(n), group_id="g", group_sequence=n,
    ).encode()  # fmt: skip


@pytest.mark.parametrize("make", [of_ours, of_proton, of_a_gateway])
def test_messages_of_usual_clients_are_read_together(make: Any) -> None:
    payloads = [make(n) for n in range(300)]
    same(payloads)
    others = {3} if make is of_a_gateway else set()  # a UUID
    assert {n for n, unusual in enumerate(Messages(chunk_of(payloads)).unusual) if unusual} == others


def test_a_time_that_no_column_can_hold_makes_an_error_of_its_row_alone() -> None:
    payloads = [Message(b"x", creation_time=time).encode() for time in (5, 253_402_300_800_000, -(2**63), None)]
    good, late, early, none = same(payloads).to_pylist()
    assert good["creation_time"] == dt.datetime(1970, 1, 1, 0, 0, 0, 5000, dt.UTC) and none["creation_time"] is None
    assert "creation-time" in late["error"] and "creation-time" in early["error"]
    assert late["body"] == payloads[1] and good["error"] is None


def test_a_large_message_is_read() -> None:
    large = Message(b"x" * (50 << 20), to="a").encode()
    made = decoded(chunk_of([of_ours(1), large, of_ours(2)]))
    assert [len(body) for body in made.column("body").to_pylist()] == [len(json_of(1)), 50 << 20, len(json_of(2))]
