"""The sink without Spark: its message-ids, its messages, and what becomes of rows that are not accepted."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import json
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Message as ProtonMessage
from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNull, LessThan

from enmasse.aio.client import connect
from enmasse.amqp.messages.message import Message
from enmasse.spark.options import OptionError
from enmasse.spark.server_options import FileError
from enmasse.spark.sink.encoding import DUPLICATE_ID, ColumnError, Ids, RowMessage, outgoing
from enmasse.spark.sink.sink import Sent, Sink, SinkError
from enmasse.spark.source.browse import AmqpReader
from enmasse.spark.source.selector import selector_of
from enmasse.testing import wait_for
from tests.spark.conftest import DEADLINE, LIMIT, Broker

pytestmark = pytest.mark.timeout(LIMIT)
TYPES = pa.schema(
    [
        ("body", pa.binary()),
        ("subject", pa.string()),
        ("message_id", pa.string()),
        ("application_properties", pa.map_(pa.string(), pa.string())),
    ]
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {"body": st.sampled_from([b"a", b"b", b""]), "subject": st.sampled_from([None, "s"])},
        optional={"application_properties": st.sampled_from([[("k", "1"), ("l", "2")], [("l", "2"), ("k", "1")], []])},
    ),
    max_size=12,
)


def messages(batch: pa.RecordBatch, prefix: str = "0-0", query: str = "q", **how: bool) -> list[RowMessage]:
    return list(outgoing(batch, Ids(prefix, query), **{"routed": False, "duplicate_id": False, **how}))


def rows_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=TYPES)


def ids(rows: list[dict[str, Any]], query: str = "q", batch: str = "3", partition: int = 0) -> list[Any]:
    made = messages(rows_of(rows), f"s-{batch}-{partition}", query)
    return [Message.decode(one.payload).message_id for one in made]


@given(rows=ROWS, seed=st.integers(0))
def test_ids_are_the_same_set_in_any_order_and_no_two_are_equal(rows: list[dict[str, Any]], seed: int) -> None:
    found = ids(rows)
    assert len(set(found)) == len(rows)
    other = rows.copy()
    random.Random(seed).shuffle(other)
    assert set(ids(other)) == set(found)


@given(rows=ROWS)
def test_no_other_query_batch_or_partition_has_the_same_ids(rows: list[dict[str, Any]]) -> None:
    places = [("q", "3", 0), ("r", "3", 0), ("q", "4", 0), ("q", "3", 1), ("q", "31", 0), ("q-3", "3", 0)]
    found = [one for place in places for one in ids(rows, *place)]
    assert len(set(found)) == len(found)


def test_ids_tell_nothing_of_the_next_ones() -> None:
    """The content, the batch and the number of a row can be guessed, and a receiver sees earlier ids: neither the query
    nor a part that another row's id has again is in them."""
    query = "8c6f2c1e-query"
    equal: list[dict[str, Any]] = [{"body": b"a"}] * 2
    found = [*ids(equal, query, "3"), *ids(equal, query, "4"), *ids(equal, "another", "3")]
    assert not any(query in one for one in found)
    assert [one.rpartition("-")[0] for one in found] == ["s-3-0", "s-3-0", "s-4-0", "s-4-0", "s-3-0", "s-3-0"]
    assert len({one.rpartition("-")[2] for one in found}) == len(found)


def test_a_message_id_of_the_row_wins() -> None:
    rows: list[dict[str, Any]] = [
        {"body": b"a", "message_id": "mine"},
        {"body": b"a", "message_id": None},
        {"body": b"a", "message_id": ""},
    ]
    first, second, third = ids(rows)
    assert first == "mine"
    assert len({first, second, third}) == 3
    assert {second, third} == set(ids([{"body": b"a"}] * 2)), "rows with an id of their own are not counted"


def test_columns_become_the_parts_of_a_message() -> None:
    row = {
        "body": "hällo",
        "message_id": "m" * 300,
        "address": "there",
        "subject": "s",
        "reply_to": "answers",
        "correlation_id": None,
        "content_type": "text/plain",
        "priority": 9,
        "ttl": 5000,
    }
    batch = pa.RecordBatch.from_pylist([row])
    (one,) = messages(batch)
    message = Message.decode(one.payload)
    assert message == Message(
        "hällo".encode(),
        durable=True,
        priority=9,
        ttl=5000,
        message_id="m" * 300,
        subject="s",
        reply_to="answers",
        content_type="text/plain",
    )
    (one,) = messages(batch, routed=True)
    assert (one.address, Message.decode(one.payload).to) == ("there", "there")


JSON = pa.schema(
    [
        ("text %", pa.string()),
        ("number", pa.float64()),
        ("whole", pa.int64()),
        ("true", pa.bool_()),
        ("when", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("data", pa.binary()),
        ("list", pa.list_(pa.int32())),
        ("struct", pa.struct([("a", pa.string())])),
    ]
)


@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {
                "text %": st.none() | st.text(),
                "number": st.none() | st.floats(),
                "whole": st.none() | st.integers(-(2**63), 2**63 - 1),
                "true": st.none() | st.booleans(),
                "when": st.none() | st.datetimes(timezones=st.just(dt.UTC)),
                "day": st.none() | st.dates(),
                "data": st.none() | st.binary(),
                "list": st.none() | st.lists(st.integers(0, 9)),
                "struct": st.none() | st.fixed_dictionaries({"a": st.none() | st.text()}),
            }
        ),
        max_size=5,
    )
)
def test_a_row_without_a_body_is_what_json_dumps_makes_of_it(rows: list[dict[str, Any]]) -> None:
    def plain(value: Any) -> Any:
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value.isoformat()

    batch = pa.RecordBatch.from_pylist(rows, schema=JSON)
    found = [Message.decode(one.payload) for one in messages(batch)]
    assert [bytes(one.body).decode() for one in found] == [
        json.dumps({name: row[name] for name in JSON.names}, default=plain) for row in rows
    ]
    assert {one.content_type for one in found} <= {"application/json"}


def test_a_text_takes_the_place_of_a_body_that_is_null() -> None:
    rows = [{"body": None, "text": "t"}, {"body": b"b", "text": "t"}, {"body": None, "text": None}]
    types = pa.schema([("body", pa.binary()), ("text", pa.string())])
    found = [Message.decode(one.payload).body for one in messages(pa.RecordBatch.from_pylist(rows, schema=types))]
    assert found == [b"t", b"b", b'{"body": null, "text": null}']


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("body", [1], '"body" must be a string or binary, not int64'),
        ("subject", [1], '"subject" must be a string, not int64'),
        ("ttl", ["1"], '"ttl" must be a whole number, not string'),
        ("application_properties", ["x"], "a map with strings as keys"),
        ("price", [decimal.Decimal("1.5")], r'"price" \(decimal128.* cannot be sent as JSON'),
    ],
)
def test_a_column_that_cannot_be_sent_is_named(column: str, values: list[Any], said: str) -> None:
    with pytest.raises(ColumnError, match=said):
        messages(pa.record_batch({column: values}))


def send(broker: Broker, rows: list[dict[str, Any]], prefix: str = "q-0-0", **options: str) -> Sent:
    batches = [pa.RecordBatch.from_pylist(rows[:7]), pa.RecordBatch.from_pylist(rows[7:])]
    sink = Sink({"url": broker.url, **{name.lower(): value for name, value in options.items()}}, tuple(rows[0]))
    return asyncio.run(sink.send(iter(batches), Ids(prefix, "q")))


@pytest.mark.parametrize("by", ["address", "option"])
def test_a_batch_that_is_repeated_in_another_order_is_stored_once(broker: Broker, by: str) -> None:
    """By a queue with `duplicates`, or by the sink's option at any queue: what each row carries."""
    if by == "address":
        queue, options = broker.queue_without_duplicates("repeated"), {}
    else:
        queue, options = broker.queue("repeated-too"), {"duplicateId": "true"}
    rows = [{"body": body, "message_id": i} for body, i in [("a", None), ("b", None), ("a", None), ("c", "c1")] * 5]
    for seed in range(3):
        random.Random(seed).shuffle(rows)
        assert send(broker, rows, address=queue, **options) == Sent(len(rows))
    found = Counter(bytes(message.body) for message in broker.receive(queue, 16))
    assert found == {b"a": 10, b"b": 5, b"c": 1}
    assert not broker.depth(queue)


def test_a_duplicate_id_that_was_copied_from_another_message_is_replaced() -> None:
    rows = [{"body": b"a", "application_properties": [("k", "1"), (DUPLICATE_ID, "of another")]}] * 2
    found = [Message.decode(one.payload) for one in messages(rows_of(rows), duplicate_id=True)]
    assert [m.application_properties for m in found] == [{"k": "1", DUPLICATE_ID: m.message_id} for m in found]
    assert len({m.message_id for m in found}) == 2


def test_a_column_routes_rows_to_addresses(broker: Broker) -> None:
    for name in ("left", "right"):
        broker.queue(name)
    rows = [{"body": str(i), "address": "left" if i % 3 else "right"} for i in range(30)]
    assert send(broker, rows) == Sent(30)
    assert [int(bytes(m.body)) for m in broker.receive("right", 10)] == list(range(0, 30, 3))
    assert [int(bytes(m.body)) for m in broker.receive("left", 20)] == [i for i in range(30) if i % 3]


def test_a_row_that_fails_is_named_with_its_reason(broker: Broker) -> None:
    broker.queue("good")
    rows = [{"body": str(i), "address": "good", "message_id": f"m{i}"} for i in range(10)]
    rows[8]["address"] = "nosuch"
    with pytest.raises(SinkError, match=r"row 8 of partition 0 \(message-id 'm8'\) was rejected by 'nosuch' \(amqp:"):
        send(broker, rows)
    rows[8]["address"] = ""
    with pytest.raises(SinkError, match=r'row 8 of partition 0.*the column "address" is empty'):
        send(broker, rows)


def test_rows_that_fail_go_to_the_dead_letter_address_with_the_reason(broker: Broker) -> None:
    for name in ("fine", "dead"):
        broker.queue(name)
    rows: list[dict[str, Any]] = [{"body": str(i), "address": "fine", "ttl": None} for i in range(20)]
    rows[3]["address"], rows[11]["address"], rows[12]["ttl"] = "nosuch", None, -1
    rows[3]["ttl"] = 3_600_000
    assert send(broker, rows, onReject="deadletter", deadLetterAddress="dead") == Sent(17, 3)
    found = broker.receive("dead", 3)
    assert not any(message.ttl for message in found)
    dead = {bytes(message.body): message.properties for message in found}
    assert set(dead) == {b"3", b"11", b"12"}
    assert dead[b"3"]["DeadLetterSource"] == "nosuch"
    assert "amqp:not-found" in dead[b"3"]["DeadLetterReason"]
    assert 'column "address" is empty' in dead[b"11"]["DeadLetterReason"]
    assert 'column "ttl"' in dead[b"12"]["DeadLetterReason"]
    with pytest.raises(SinkError, match=r"row 11 .* could not be sent to 'gone'"):
        send(broker, rows, onReject="deadletter", deadLetterAddress="gone")


def test_a_queue_without_room_is_no_fault_of_a_row(broker: Broker) -> None:
    """The batch fails: its rows do not become dead letters."""
    limit = {"maxSizeBytes": 20_000, "addressFullMessagePolicy": "FAIL"}
    broker.manage("addAddressSettings", "narrow", json.dumps(limit))
    broker.queue("narrow")
    broker.queue("dead-of-narrow")
    rows = [{"body": "x" * 1000}] * 100
    with pytest.raises(SinkError, match="'narrow' has no room"):
        send(broker, rows, address="narrow", onReject="deadletter", deadLetterAddress="dead-of-narrow")
    assert not broker.depth("dead-of-narrow")


def test_a_queue_without_credit_is_waited_for(broker: Broker) -> None:
    limit = {"maxSizeBytes": 20_000, "addressFullMessagePolicy": "BLOCK"}
    broker.manage("addAddressSettings", "slow", json.dumps(limit))
    broker.queue("slow")
    rows = [{"body": f"{i:05}" + "x" * 1000} for i in range(300)]
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(send, broker, rows, address="slow")
        wait_for("the queue to be full", lambda: broker.depth("slow") >= 10, DEADLINE)
        found = broker.receive("slow", 300)
        assert sent.result(DEADLINE) == Sent(300)
    assert [int(bytes(m.body)[:5]) for m in found] == list(range(300))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"onReject": "drop"}, 'option "onReject" must be fail or deadletter'),
        ({"onReject": "deadletter"}, 'the option "deadLetterAddress" is missing'),
        ({"deadLetterAddress": "d"}, '"deadLetterAddress" needs'),
        ({"user": "u"}, 'option "user" needs the option "passwordFile"'),
        ({"passwordFile": "/f"}, 'option "passwordFile" needs the option "user"'),
        ({"url": "amqp://a:secret@h", "user": "u", "passwordFile": "/f"}, "contradict each other"),
        ({"caFile": "/f"}, "write amqps://"),
        ({"url": "amqps://h", "keyFile": "/f"}, 'needs the option "certFile"'),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said) as caught:
        Sink({"address": "a", **{name.lower(): value for name, value in options.items()}})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"user": "u", "passwordFile": "/nosuch/file"}, 'option "passwordFile": /nosuch/file cannot be used'),
        ({"url": "amqps://h", "caFile": "/nosuch/file"}, 'option "caFile": /nosuch/file cannot be used'),
        ({"url": "amqps://h", "certFile": "/nosuch/file"}, 'option "certFile": /nosuch/file cannot be used'),
    ],
)
def test_a_file_that_cannot_be_read_is_named(options: dict[str, str], said: str) -> None:
    sink = Sink({"address": "a", **{name.lower(): value for name, value in options.items()}})
    with pytest.raises(FileError, match=f"amqp sink: {said}"):
        asyncio.run(sink.send(iter([pa.record_batch({"body": ["a"]})]), Ids("q", "q")))


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([EqualTo(("subject",), "it's")], "JMSType = 'it''s'"),
        ([In(("reply_to",), ("a", "b")), EqualTo(("durable",), False)],
         "JMSReplyTo IN ('a', 'b') AND JMSDeliveryMode = 'NON_PERSISTENT'"),
        ([GreaterThan(("priority",), 9)], "JMSPriority >= 9"),
        ([LessThan(("priority",), 3)], "JMSPriority < 3"),
        ([EqualTo(("priority",), 200), EqualTo(("message_id",), "5"), IsNull(("subject",))], ""),
        ([EqualTo(("a", "b"), "x"), EqualTo(("body",), "x")], ""),
        ([EqualTo(("subject",), "x" * 9000), EqualTo(("subject",), "y")], "JMSType = 'y'"),
    ],
)  # fmt: skip
def test_filters_that_a_selector_can_hold_are_given_to_the_server(filters: list[Any], expected: str) -> None:
    assert selector_of(filters) == expected


def test_a_durable_subscription_is_browsed_and_stays_as_it_was(broker: Broker) -> None:
    """Depth, order and redelivery counts; by the name of its queue."""
    broker.manage("createAddress", "news", "MULTICAST")

    async def subscriber(messages: int) -> None:
        """One that gives back what it has taken, as failed."""
        async with connect(broker.url, container_id="reader") as client:
            receiver = await client.receiver("news", credit=messages, durable_name="mine", capabilities=("topic",))
            taken = [await receiver.receive(DEADLINE) for _ in range(messages)]
            for delivery in taken:
                await delivery.modify(failed=True)
            await receiver.detach(DEADLINE)

    asyncio.run(subscriber(0))
    broker.send("news", [ProtonMessage(id=f"m{i}", body=f"n{i}", durable=True) for i in range(6)])
    for messages in (4, 2):
        asyncio.run(subscriber(messages))

    def browsed() -> list[tuple[Any, ...]]:
        reader = AmqpReader({"url": broker.url, "address": "news::reader.mine"})
        rows = [row for batch in reader.read(reader.partitions()[0]) for row in batch.to_pylist()]
        return [(row["text"], row["delivery_count"]) for row in rows]

    expected = [("n0", 2), ("n1", 2), ("n2", 1), ("n3", 1), ("n4", 0), ("n5", 0)]
    wait_for("all to be back", lambda: browsed() == expected, DEADLINE)
    assert browsed() == expected and broker.depth("reader.mine") == 6
