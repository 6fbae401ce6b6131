"""The column `value`: the bodies of messages in the form that the options `bodyFormat` and `schema` ask for.

A body that does not fit has null there and the reason in `error`; `body` has its bytes in any case.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

from enmasse.spark.options import OptionError
from enmasse.spark.schema.ddl import fault
from enmasse.spark.schema.message_columns import ARROW, DDL
from enmasse.spark.versions import IN_UTC

PARTITION, PARTITIONED = "partition", "receivers"
"""Column with the partition of the spool, and the option that adds it, in lower case."""
FORMATS = ("binary", "text", "json")
TYPES: dict[str, type[t.DataType]] = {"binary": t.BinaryType, "text": t.StringType}
NO_TEXT = "body: not text in UTF-8"
NO_BODY = "body: the message has none"
SIMPLE: dict[type[t.DataType], Any] = {
    t.StringType: str,
    t.BooleanType: bool,
    t.FloatType: float,
    t.DoubleType: float,
    t.DateType: dt.date,
    t.TimestampType: Annotated[dt.datetime, msgspec.Meta(tz=True)],
    t.TimestampNTZType: Annotated[dt.datetime, msgspec.Meta(tz=False)],
    t.DecimalType: decimal.Decimal,
    t.BinaryType: bytes,
}
BITS = {t.ByteType: 8, t.ShortType: 16, t.IntegerType: 32, t.LongType: 64}


def format_of(options: Mapping[str, str]) -> str:
    """Return the option `bodyFormat`, empty without it. Raises OptionError, also if `schema` does not go with it."""
    given = options.get("bodyformat", "").lower()
    if given and given not in FORMATS:
        raise OptionError(f'amqp source: option "bodyFormat" must be {", ".join(FORMATS)}, not {given!r}')
    if given != "json" and "schema" in options:
        raise OptionError('amqp source: the option "schema" is for .option("bodyFormat", "json")')
    return given


def columns_of(options: Mapping[str, str]) -> str:
    """Return all columns as Spark's DDL. Raises OptionError."""
    kinds = {"": "", "binary": ", value binary", "text": ", value string"}
    format = format_of(options)
    if format == "json" and not options.get("schema"):
        raise OptionError(
            'amqp source: bodyFormat "json" needs the option "schema": .option("schema", "device string, …")'
        )
    if format == "json" and (wrong := fault(options["schema"])) is not None:
        raise OptionError(f'amqp source: option "schema": {wrong}')
    value = f", value struct<{options['schema']}>" if format == "json" else kinds[format]
    return DDL + value + (f", {PARTITION} int" if PARTITIONED in options else "")


def chosen(options: Mapping[str, str], columns: t.StructType) -> tuple[str, ...]:
    """Return the names of the columns that a query asks for. Raises OptionError if there is no such column."""
    types = {field.name: field.type for field in ARROW}
    if PARTITIONED in options:
        types[PARTITION] = pa.int32()
    return checked(columns, types, ["value"] if format_of(options) else [], "source")


def checked(columns: t.StructType, types: Mapping[str, pa.DataType], more: list[str], end: str) -> tuple[str, ...]:
    """Return the names of columns, each of which has its type, or is one of `more`. Raises OptionError."""
    known = [*types, *more]
    for field in columns.fields:
        if field.name not in known:
            raise OptionError(f'amqp {end}: there is no column "{field.name}"; there are {", ".join(known)}')
        if field.name in types and to_arrow_type(field.dataType, **IN_UTC) != types[field.name]:
            ours = from_arrow_type(types[field.name]).simpleString()
            raise OptionError(f'amqp {end}: the column "{field.name}" is {ours}, not {field.dataType.simpleString()}')
    return tuple(columns.names)


class Values:
    """Makes the column `value`. Pickled to executors."""

    def __init__(self, format: str, columns: t.StructType) -> None:
        """columns: those of a query, with `value`. Raises OptionError if that cannot be of such a type."""
        self.format, self.type = format, columns["value"].dataType
        if format == "json":
            if not isinstance(self.type, t.StructType):
                raise OptionError(
                    f'amqp source: the column "value" is struct<…>, the fields of JSON, not {self.type.simpleString()}'
                )
            structure(self.type, "$")
        elif type(self.type) is not TYPES[format]:
            raise OptionError(f'amqp source: the column "value" is {format}, not {self.type.simpleString()}')

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(structure(self.type, "$"))

    def __getstate__(self) -> dict[str, Any]:
        return {"format": self.format, "type": self.type}

    def added(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with the column `value`, and with the reasons why bodies have none."""
        errors = batch.column("error").to_pylist()
        bodies = batch.column("text" if self.format == "text" else "body").to_pylist()
        raw = batch.column("body").is_valid().to_pylist()
        values: list[Any] = [None] * len(bodies)
        for n, body in enumerate(bodies):
            if errors[n] is not None:
                continue
            if self.format == "json":
                values[n], errors[n] = self._parsed(body)
            elif body is None and raw[n]:
                errors[n] = NO_TEXT
            else:
                values[n] = body
        arrow = to_arrow_type(self.type, **IN_UTC)
        try:
            column = array(values, self.type, arrow)
        except (pa.ArrowException, OverflowError, ValueError):
            column = self._one_by_one(values, errors, arrow)
        fields = [*ARROW, pa.field("value", arrow)]
        arrays = [*batch.columns[:-1], pa.array(errors, pa.string()), column]
        return pa.record_batch(arrays, schema=pa.schema(fields))

    def _parsed(self, body: bytes | None) -> tuple[Any, str | None]:
        if body is None:
            return None, NO_BODY
        try:
            return self._decoder.decode(body), None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return None, f"body: {error}"

    def _one_by_one(self, values: list[Any], errors: list[str | None], arrow: pa.DataType) -> pa.Array:
        """Find the values that Arrow does not take, as a decimal with too many digits."""
        for n, value in enumerate(values):
            try:
                array([value], self.type, arrow)
            except (pa.ArrowException, OverflowError, ValueError) as error:
                values[n], errors[n] = None, f"body: {error}"
        return array(values, self.type, arrow)


def structure(type: t.DataType, path: str) -> Any:
    """Return the type as which msgspec reads a JSON value. Raises OptionError for a type that JSON has no form of."""
    if isinstance(type, t.StructType):
        if twice := [name for n, name in enumerate(type.names) if name in type.names[:n]]:
            raise OptionError(f'amqp source: option "schema": {path} has the field {twice[0]!r} twice')
        fields: list[Any] = [
            (f"f{n}", structure(field.dataType, f"{path}.{field.name}") | None, None) for n, field in enumerate(type)
        ]
        names = {f"f{n}": field.name for n, field in enumerate(type)}
        return msgspec.defstruct("Body", fields, rename=names, gc=False)
    for kind, bits in BITS.items():
        if isinstance(type, kind):
            return Annotated[int, msgspec.Meta(ge=-(1 << bits - 1), le=(1 << bits - 1) - 1)]
    for kind, simple in SIMPLE.items():
        if isinstance(type, kind):
            return simple
    if isinstance(type, t.ArrayType):
        return list[structure(type.elementType, f"{path}[]") | None]  # type: ignore[misc]  # made as the program runs
    if isinstance(type, t.MapType) and isinstance(type.keyType, t.StringType):
        return dict[str, structure(type.valueType, f"{path}{{}}") | None]  # type: ignore[misc]  # as above
    raise OptionError(f'amqp source: option "schema": {path} is {type.simpleString()}, which no JSON value becomes')


def array(values: list[Any], type: t.DataType, arrow: pa.DataType) -> pa.Array:
    """Return values that `structure` reads as an Arrow array."""
    if not isinstance(type, t.StructType):
        if isinstance(type, t.ArrayType | t.MapType):
            values = [plain(value) for value in values]
        return pa.array(values, arrow)
    columns = [
        array([None if value is None else getattr(value, f"f{n}") for value in values], field.dataType, arrow[n].type)
        for n, field in enumerate(type)
    ]
    absent = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(columns, fields=list(arrow), mask=absent)


def plain(value: Any) -> Any:
    """Return a value with structs as dicts."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        return {field.encode_name: plain(getattr(value, field.name)) for field in fields}
    return value
