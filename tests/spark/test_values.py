"""The column `value`: bodies as bytes, text or fields, and the reason in `error` where one does not fit."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from enmasse.amqp.messages.message import AmqpValue, Message
from enmasse.spark.datasource import AmqpDataSource
from enmasse.spark.options import OptionError
from enmasse.spark.schema.columns import decoded
from enmasse.spark.schema.ddl import fault
from enmasse.spark.schema.message_columns import ARROW
from enmasse.spark.schema.value_column import Values
from enmasse.spark.source.source import SpoolRange
from enmasse.spark.spool.segment import SpoolChunk
from enmasse.spark.spool.spool import SpoolWriter

READING = t.StructType(
    [
        t.StructField("device", t.StringType()),
        t.StructField("time", t.TimestampType()),
        t.StructField("temperature", t.DoubleType()),
        t.StructField("n", t.IntegerType()),
    ]
)


def batch_of(bodies: list[Any]) -> pa.RecordBatch:
    data, begins, ends = b"", [], []
    for body in bodies:
        begins.append(len(data))
        data += body if isinstance(body, bytearray) else Message(body).encode()
        ends.append(len(data))
    return decoded(SpoolChunk(0, 0, data, begins, ends, [1] * len(bodies)))


def columns(type: t.DataType) -> t.StructType:
    return t.StructType([*(t.StructField(name, t.StringType()) for name in ARROW.names), t.StructField("value", type)])


def made(format: str, type: t.DataType, bodies: list[Any]) -> tuple[list[Any], list[str | None]]:
    """Value and error of each body."""
    values: Values = pickle.loads(pickle.dumps(Values(format, columns(type))))  # as executors get it
    batch = values.added(batch_of(bodies))
    batch.validate(full=True)
    assert batch.schema.names == [*ARROW.names, "value"]
    return batch.column("value").to_pylist(), batch.column("error").to_pylist()


NO_MESSAGE = bytearray(b"no message")


def test_binary_is_the_body_as_it_came() -> None:
    values, errors = made("binary", t.BinaryType(), [b"\xff", "text", None, NO_MESSAGE])
    assert values == [b"\xff", b"text", None, None]
    assert errors[:3] == [None] * 3 and errors[3] is not None


def test_text_is_a_body_in_utf8() -> None:
    values, errors = made("text", t.StringType(), ["é".encode(), "text", None, b"\xff", NO_MESSAGE])
    assert values == ["é", "text", None, None, None]
    assert errors[:4] == [None, None, None, "body: not text in UTF-8"] and errors[4] is not None


def test_json_is_the_fields_of_the_schema() -> None:
    good = {"device": "d", "time": "2026-01-02T03:04:05+01:00", "temperature": 21, "n": 1, "more": [1]}
    bodies = [json.dumps(good), json.dumps({"device": None}), AmqpValue(json.dumps({"n": -5})), "{}"]
    values, errors = made("json", READING, bodies)
    nothing = dict.fromkeys(READING.names)
    assert values == [
        {"device": "d", "time": dt.datetime(2026, 1, 2, 2, 4, 5, tzinfo=dt.UTC), "temperature": 21.0, "n": 1},
        nothing,
        {**nothing, "n": -5},
        nothing,
    ]
    assert errors == [None] * 4


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("no json", "malformed"),
        ("[1]", "Expected `object`, got `array`"),
        ('{"temperature": "21"}', "Expected `float | null`, got `str` - at `$.temperature`"),
        ('{"n": 2147483648}', "Expected `int` <= 2147483647 - at `$.n`"),
        ('{"time": "yesterday"}', "RFC3339"),
        ('{"time": "2026-01-02T03:04:05"}', "with a timezone component - at `$.time`"),
        ("[" * 100_000, ""),
        (b"\xff", "malformed"),
        (None, "the message has none"),
    ],
)
def test_json_that_does_not_fit_is_an_error_of_its_row_alone(body: Any, said: str) -> None:
    values, errors = made("json", READING, ['{"n": 1}', body, '{"n": 2}'])
    assert values[1] is None and errors[1] is not None and errors[1].startswith("body: ") and said in errors[1]
    assert [value["n"] for value in (values[0], values[2])] == [1, 2] and errors[0] is errors[2] is None


def test_json_of_any_type_that_spark_can_have_of_it() -> None:
    inner = t.StructType([t.StructField("a", t.LongType()), t.StructField("b", t.ArrayType(t.StringType()))])
    type = t.StructType(
        [
            t.StructField("one", inner),
            t.StructField("many", t.ArrayType(inner)),
            t.StructField("named", t.MapType(t.StringType(), inner)),
            t.StructField("price", t.DecimalType(5, 2)),
            t.StructField("day", t.DateType()),
            t.StructField("local", t.TimestampNTZType()),
            t.StructField("small", t.ByteType()),
            t.StructField("yes", t.BooleanType()),
            t.StructField("raw", t.BinaryType()),
        ]
    )
    one = {"a": 1, "b": ["x", None]}
    body = {
        "one": one, "many": [one, None, {}], "named": {"k": one}, "price": "123.45", "day": "2026-01-02",
        "local": "2026-01-02T03:04:05", "small": -128, "yes": True, "raw": "AAH/",
    }  # fmt: skip
    wrong = {**body, "price": "123456.789"}  # a number, but with more digits than the column has
    values, errors = made("json", type, [json.dumps(body), json.dumps(wrong), "{}"])
    assert values[0] == {
        "one": one, "many": [one, None, {"a": None, "b": None}], "named": [("k", one)],
        "price": decimal.Decimal("123.45"), "day": dt.date(2026, 1, 2), "local": dt.datetime(2026, 1, 2, 3, 4, 5),
        "small": -128, "yes": True, "raw": b"\x00\x01\xff",
    }  # fmt: skip
    assert values[1] is None and errors[1] is not None and errors[0] is errors[2] is None
    assert values[2] == dict.fromkeys(type.names)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bodyFormat": "xml"}, "must be binary, text, json, not 'xml'"),
        ({"bodyFormat": "json"}, 'needs the option "schema"'),
        ({"bodyFormat": "text", "schema": "a int"}, "is for .*json"),
        (
            {"bodyFormat": "json", "schema": "device strng"},
            "option \"schema\": 'strng' is no type. Did you mean .string",
        ),
        (
            {"bodyFormat": "json", "schema": "a array<struct<b: map<string, itn>>>"},
            "'itn' is no type. Did you mean 'int'",
        ),
        ({"bodyFormat": "json", "schema": "a int, b"}, "'b' is no column"),
        ({"bodyFormat": "json", "schema": "a array<int"}, "write array<…>"),
        ({"bodyFormat": "json", "schema": "a " + "array<" * 500}, "write array<…>"),
        ({"schema": "a int"}, "is for .*json"),
        ({"bodyFormat": "json", "schema": "a: int b: string"}, "after int comes 'b: string': write a comma"),
        ({"bodyFormat": "json", "schema": "a array<int> b string"}, "after array<…> comes 'b string': write a comma"),
        ({"bodyFormat": "json", "schema": "struct<a:int>"}, "write the fields alone, as in CREATE TABLE"),
        ({"bodyFormat": "json", "schema": '{"type": "struct", "fields": []}'}, "write the fields alone"),
        ({"bodyFormat": "json", "schema": "a int, b string, a int"}, "the field a is there twice"),
    ],
)
def test_formats_that_cannot_be_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=f"amqp source: .*{said}"):
        AmqpDataSource({"address": "a", "spool": "s", **options}).schema()


TWICE = t.StructType([t.StructField("a", t.LongType()), t.StructField("a", t.LongType())])


@pytest.mark.parametrize(
    ("more", "wanted", "said"),
    [
        ({"bodyFormat": "text"}, [("device", t.StringType())], 'no column "device"; there are offset, .*, value$'),
        ({}, [("value", t.StringType())], 'no column "value"'),
        ({"bodyFormat": "text"}, [("partition", t.IntegerType())], 'no column "partition"'),
        ({}, [("offset", t.IntegerType())], 'column "offset" is bigint, not int'),
        ({}, [("application_properties", t.StringType())], "is map<string,string>, not string"),
        ({"bodyFormat": "text"}, [("value", t.BinaryType())], 'column "value" is text, not binary'),
        ({"bodyFormat": "json"}, [("value", t.StringType())], 'column "value" is struct<.*, not string'),
        ({"bodyFormat": "json"}, [("value", columns(t.DayTimeIntervalType()))], "is interval"),
        ({"bodyFormat": "json"}, [("value", TWICE)], "has the field 'a' twice"),
    ],
)
def test_columns_that_a_message_does_not_have_are_refused(
    more: dict[str, str], wanted: list[tuple[str, t.DataType]], said: str
) -> None:
    with pytest.raises(OptionError, match=said):
        AmqpDataSource({"address": "a", "spool": "s", **more}).streamReader(schema(wanted)).initialOffset()


def test_schemas_as_spark_takes_them_are_not_refused() -> None:
    good = (
        "id BIGINT NOT NULL, `odd, name` decimal(10, 2) COMMENT 'a, <b', at: timestamp_ntz, "
        "m map<string, array<int>>, s struct<a: int, b: struct<c string>>, e struct<>, "
        't timestamp without time zone, i interval day to second, c char(3) not null comment "it\'s, so", '
        "d array<int> NOT NULL COMMENT 'x', f string COLLATE UTF8_LCASE"
    )
    assert fault(good) is None


@pytest.mark.parametrize("more", [{}, {"receivers": "1"}, {"bodyFormat": "binary"}])
def test_a_stream_has_the_columns_that_a_query_asks_for_in_its_order(tmp_path: Path, more: dict[str, str]) -> None:
    writer = SpoolWriter(tmp_path)
    writer.append(Message("first", subject="s").encode(), 1)
    writer.sync()
    writer.close()
    wanted: list[tuple[str, t.DataType]] = [("subject", t.StringType()), ("offset", t.LongType())]
    wanted += [("application_properties", t.MapType(t.StringType(), t.StringType())), ("arrived", t.TimestampType())]
    expected: dict[str, Any] = {"subject": ["s"], "offset": [0], "application_properties": [[]]}
    if "receivers" in more:
        wanted.insert(0, ("partition", t.IntegerType()))
        expected["partition"] = [0]
    if "bodyFormat" in more:
        wanted.insert(1, ("value", t.BinaryType()))
        expected["value"] = [b"first"]
    source = AmqpDataSource({"address": "a", "spool": str(tmp_path), **more})
    reader: Any = pickle.loads(pickle.dumps(source.streamReader(schema(wanted))))
    (batch,) = reader.read(SpoolRange(0, 1))
    assert batch.schema.names == [name for name, _ in wanted]
    assert {name: batch.column(name).to_pylist() for name in expected} == expected


def schema(columns: list[tuple[str, t.DataType]]) -> t.StructType:
    return t.StructType([t.StructField(*column) for column in columns])
