"""Messages of the spool as Arrow columns, made from their bytes without a Python object a field.

The sections and fields of all messages of a chunk are found together, one step for all of them in NumPy; a column is
then gathered from the chunk's bytes by Arrow. What stands before the properties, and the application properties, are
the same bytes in most messages of a sender: each such piece is decoded once, by the codec, and remembered.

A message that is not of the usual form (other types, several data sections, a footer, bytes that are no message) is
decoded by `enmasse.spark.schema.message_columns.row`, which defines what every column holds: both ways give equal rows.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.messages.scan import (
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
)
from enmasse.amqp.messages.sections import Properties, Sections
from enmasse.spark.schema.message_columns import ARROW, TIMES, batch, row, texts
from enmasse.spark.spool.segment import SpoolChunk

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NO_BODY = b"\x00\x53\x77\x40"
"""A body of null, to make a message of some sections that stand before it."""
LONGEST_KEPT, MOST_KEPT = 1024, 4096
"""Bytes of a piece that is remembered with what it holds, and number of these: a sender cannot fill the executor."""
NULL, SMALL_ULONG, ULONG_ZERO, ULONG = 0x40, 0x53, 0x44, 0x80
VAR8, VAR32, UNUSUAL = 1000, 2000, -1
"""In a table of sizes, beside the numbers of bytes that follow a constructor."""


def _sizes(**codes: int) -> npt.NDArray[np.int16]:
    """Return the sizes of the values of a field, by constructor; null is always one of them."""
    table = np.full(256, UNUSUAL, np.int16)
    table[NULL] = 0
    for code, size in codes.items():
        table[int(code[1:], 16)] = size
    return table


_STRING = _sizes(xA1=VAR8, xB1=VAR32)
_SYMBOL = _sizes(xA3=VAR8, xB3=VAR32)
_BINARY = _sizes(xA0=VAR8, xB0=VAR32)
_ID = _sizes(xA1=VAR8, xB1=VAR32, x44=0, x53=1, x80=8)
_TIME = _sizes(x83=8)
_UINT = _sizes(x43=0, x52=1, x70=4)
_FIELD = {
    "message_id": _ID,
    "user_id": _BINARY,
    "correlation_id": _ID,
    "content_type": _SYMBOL,
    "content_encoding": _SYMBOL,
    "absolute_expiry_time": _TIME,
    "creation_time": _TIME,
    "group_sequence": _UINT,
}
FIELDS = tuple((name, _FIELD.get(name, _STRING)) for name in Properties._fields)
_SECTION = _sizes(x45=0, xC0=VAR8, xC1=VAR8, xD0=VAR32, xD1=VAR32)
_BODY = _sizes(xA0=VAR8, xB0=VAR32, xA1=VAR8, xB1=VAR32)


def front(encoded: bytes) -> tuple[bool, int, int] | None:
    """Return durable, priority and delivery-count of the sections before the properties; None if they are malformed."""
    return kept_front(encoded) if len(encoded) <= LONGEST_KEPT else _front(encoded)


def _front(encoded: bytes) -> tuple[bool, int, int] | None:
    try:
        sections = Sections(encoded + NO_BODY)
        sections.check()
        header = sections.header
        _ = sections.delivery_annotations, sections.annotations  # no columns, but they must be maps of the right kind
    except AmqpError:
        return None
    return bool(header.durable), header.priority, header.delivery_count


def application_properties(encoded: bytes) -> list[tuple[str, str]] | None:
    """Return the application properties in a section (or in none) as texts; None if they are malformed."""
    return kept_properties(encoded) if len(encoded) <= LONGEST_KEPT else _application_properties(encoded)


def _application_properties(encoded: bytes) -> list[tuple[str, str]] | None:
    try:
        sections = Sections(encoded + NO_BODY)
        sections.check()
        return texts(sections.application_properties)
    except AmqpError:
        return None


kept_front = lru_cache(maxsize=MOST_KEPT)(_front)
kept_properties = lru_cache(maxsize=MOST_KEPT)(_application_properties)


class Span:
    """For each message where something begins and ends in the chunk, and in which messages it is absent."""

    def __init__(self, begins: Ints, ends: Ints, absent: Mask | None = None) -> None:
        self.begins, self.ends, self.absent = begins, ends, absent


class Messages:
    """Messages of a chunk, walked together. `unusual` are those that this cannot read."""

    def __init__(self, chunk: SpoolChunk) -> None:
        """Find all sections and properties of a chunk that has messages."""
        self.data = np.frombuffer(chunk.data, np.uint8)
        self.begins = np.array(chunk.begins, np.int64)
        self.ends = np.array(chunk.ends, np.int64)
        self.unusual = np.zeros(len(self.begins), np.bool_)
        self._at = self.begins
        self.codes: dict[str, npt.NDArray[np.uint8]] = {}
        self.fields: dict[str, Span] = {}
        for section in (HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS):
            self._section(section)
        self.front = Span(self.begins, self._at)
        there, value, end = self._section(PROPERTIES)
        self._properties(there, value, end)
        before = self._at
        self._section(APPLICATION_PROPERTIES)
        self.application_properties = Span(before, self._at)
        self.body = self._body()

    def bytes_at(self, at: Ints) -> npt.NDArray[np.uint8]:
        """Return the byte at each position; beyond the chunk, any byte."""
        return self.data.take(at, mode="clip")

    def numbers(self, at: Ints, type: str) -> npt.NDArray[Any]:
        """Return the big-endian numbers that begin at positions; `type` is NumPy's, as ">u4"."""
        width = np.arange(np.dtype(type).itemsize)
        return self.data.take(at[:, None] + width, mode="clip").view(type)[:, 0]

    def _values(
        self, at: Ints, code: npt.NDArray[np.uint8], sizes: npt.NDArray[np.int16], wanted: Mask
    ) -> tuple[Ints, Ints]:
        """Return begin and end of the contents of the values at positions, whose constructors are `code`."""
        size = sizes[code].astype(np.int64)
        self.unusual |= wanted & (size == UNUSUAL)
        begin = at + 1
        variable = size == VAR8
        if variable.any():
            size = np.where(variable, self.bytes_at(begin), size)
            begin = begin + variable
        long = np.flatnonzero(wanted & (size == VAR32))
        if len(long):
            size[long] = self.numbers(begin[long], ">u4")
            begin[long] += 4
        return begin, begin + size

    def _section(self, section: int) -> tuple[Mask, Ints, Ints]:
        """Pass over a section: return which messages have it, where its value is and where it ends."""
        at = self._at
        there = self._begins_with(section)
        value = at + 3
        _, end = self._values(value, self.bytes_at(value), _SECTION, there)
        self._at = np.where(there, end, at)
        return there, value, self._at

    def _begins_with(self, section: int) -> Mask:
        at = self._at
        there: Mask = (self.bytes_at(at) == 0) & (self.bytes_at(at + 1) == 0x53) & (self.bytes_at(at + 2) == section)
        return there

    def _properties(self, there: Mask, value: Ints, end: Ints) -> None:
        """Find the fields of the properties."""
        code = self.bytes_at(value)
        self.unusual |= there & ((code == 0xC1) | (code == 0xD1))
        at, count = value + 3, np.where(there, self.bytes_at(value + 2), 0).astype(np.int64)
        none = there & (code == 0x45)
        if none.any():
            at[none], count[none] = value[none] + 1, 0
        long = np.flatnonzero(there & (code == 0xD0))
        if len(long):
            at[long], count[long] = value[long] + 9, self.numbers(value[long] + 5, ">u4")
        self.unusual |= count > len(FIELDS)
        count[self.unusual] = 0
        for index in range(int(count.max())):
            at = self._field(index, count > index, at)
        self.unusual |= there & (at != end)

    def _field(self, index: int, has: Mask, at: Ints) -> Ints:
        """Find one field of the properties; return where the next one is."""
        name, sizes = FIELDS[index]
        code = self.bytes_at(at)
        begin, end = self._values(at, code, sizes, has)
        self.codes[name] = code
        self.fields[name] = Span(begin, end, ~has | (code == NULL))
        return np.where(has, end, at)

    def _body(self) -> Span:
        """Find the body: one data section, or a value that is binary, a string or null."""
        at = self._at
        data, value = self._begins_with(DATA), self._begins_with(AMQP_VALUE)
        code = self.bytes_at(at + 3)
        text = (code == 0xA1) | (code == 0xB1)
        null = code == NULL
        begin, end = self._values(at + 3, code, _BODY, data | value)
        self.unusual |= ~(data | value) | (data & (text | null)) | (end != self.ends)
        self.text = text
        return Span(begin, end, null)


class Columns:
    """Columns of the messages of a chunk. Messages that turn out unusual are added to `messages.unusual`."""

    def __init__(self, chunk: SpoolChunk, messages: Messages) -> None:
        self.chunk, self.messages = chunk, messages
        self.count = len(messages.begins)
        self._bytes = pa.py_buffer(chunk.data)
        self._every_second = np.arange(0, 2 * self.count, 2)

    def binary(self, span: Span) -> pa.Array:
        """Return the bytes in a span, null where it is absent; any value for an unusual message."""
        messages = self.messages
        left_out = messages.unusual if span.absent is None else messages.unusual | span.absent
        places = np.empty((self.count, 2), np.int32)
        np.copyto(places[:, 0], np.where(left_out, messages.begins, span.begins), casting="unsafe")
        np.copyto(places[:, 1], np.where(left_out, messages.begins, span.ends), casting="unsafe")
        # Every byte from the first place on is in a value: those wanted, and between them what is not.
        buffers = [None, pa.py_buffer(places), self._bytes]
        all_bytes = pa.Array.from_buffers(pa.binary(), 2 * self.count - 1, buffers)
        if span.absent is None or not span.absent.any():
            return all_bytes.take(pa.array(self._every_second))
        return all_bytes.take(pa.array(self._every_second, mask=span.absent))

    def utf8(self, values: pa.Array, *, ascii: bool = False) -> tuple[pa.Array, Mask | None]:
        """Return values as strings, null for other values, and the mask of these (None: all were strings)."""
        try:
            strings = values.cast(pa.string())
            if not ascii or pc.all(pc.string_is_ascii(strings)).as_py() is not False:
                return strings, None
        except pa.ArrowInvalid:
            pass
        wrong = np.array([not is_text(value, "ascii" if ascii else "utf-8") for value in values.to_pylist()])
        return pc.if_else(wrong, pa.scalar(None, pa.binary()), values).cast(pa.string()), wrong

    def string(self, name: str) -> pa.Array:
        """Return a field of the properties that is a string or a symbol."""
        span = self.messages.fields.get(name)
        return pa.nulls(self.count, pa.string()) if span is None else self._string(name, span)

    def _string(self, name: str, span: Span) -> pa.Array:
        if span.absent is not None and span.absent.all():
            return pa.nulls(self.count, pa.string())
        strings, wrong = self.utf8(self.binary(span), ascii=_FIELD.get(name) is _SYMBOL)
        if wrong is not None:
            self.messages.unusual |= wrong
        return strings

    def id(self, name: str) -> pa.Array:
        """Return a field of the properties that is a string or a ulong, as a string."""
        messages = self.messages
        span, code = messages.fields.get(name), messages.codes.get(name)
        if span is None or span.absent is None or code is None:
            return pa.nulls(self.count, pa.string())
        number = ~span.absent & ((code == SMALL_ULONG) | (code == ULONG_ZERO) | (code == ULONG))
        strings = self._string(name, Span(span.begins, span.ends, span.absent | number))
        if not number.any():
            return strings
        numbers = np.zeros(self.count, np.uint64)
        small, large = np.flatnonzero(number & (code == SMALL_ULONG)), np.flatnonzero(number & (code == ULONG))
        numbers[small] = messages.bytes_at(span.begins[small])
        numbers[large] = messages.numbers(span.begins[large], ">u8")
        return pc.if_else(pa.array(number), pa.array(numbers).cast(pa.string()), strings)

    def time(self, name: str) -> pa.Array:
        """Return a field of the properties that is a timestamp."""
        span = self.messages.fields.get(name)
        if span is None or span.absent is None:
            return pa.nulls(self.count, pa.timestamp("us", tz="UTC"))
        milliseconds = self.messages.numbers(span.begins, ">i8").astype(np.int64)
        milliseconds[span.absent | self.messages.unusual] = 0
        self.messages.unusual |= (milliseconds < TIMES[0]) | (milliseconds > TIMES[1])
        return pa.array(milliseconds * 1000, mask=span.absent).cast(pa.timestamp("us", tz="UTC"))

    def header(self) -> list[pa.Array]:
        """Return durable, priority and delivery_count."""
        pieces = self.binary(self.messages.front).dictionary_encode()
        which = pieces.indices.to_numpy()
        found = [front(piece) for piece in pieces.dictionary.to_pylist()]
        self._malformed(found, which)
        known = zip(*(one or (False, 0, 0) for one in found), strict=True)
        types = (pa.bool_(), pa.int32(), pa.int64())
        return [pa.array(column, type).take(pieces.indices) for column, type in zip(known, types, strict=True)]

    def properties(self) -> pa.Array:
        """Return the application properties."""
        pieces = self.binary(self.messages.application_properties).dictionary_encode()
        found = [application_properties(piece) for piece in pieces.dictionary.to_pylist()]
        self._malformed(found, pieces.indices.to_numpy())
        type = ARROW.field("application_properties").type
        return pa.array([one or [] for one in found], type).take(pieces.indices)

    def _malformed(self, found: list[Any], which: Ints) -> None:
        if None in found:
            self.messages.unusual |= np.array([one is None for one in found])[which]

    def all(self) -> list[pa.Array]:
        """Return the columns in the order of ARROW."""
        body = self.binary(self.messages.body)
        text, wrong = self.utf8(body)
        if wrong is not None:
            self.messages.unusual |= wrong & self.messages.text
        for name in (
            "content_encoding",
            "group_id",
            "reply_to_group_id",
        ):  # must be strings, although no column has them
            self.string(name)
        arrived = pa.array(np.array(self.chunk.arrived_ms, np.int64) * 1000)
        durable, priority, delivery_count = self.header()
        return [
            pa.array(np.arange(self.chunk.first, self.chunk.first + self.count)),
            arrived.cast(pa.timestamp("us", tz="UTC")),
            self.id("message_id"),
            self.id("correlation_id"),
            self.string("to"),
            self.string("subject"),
            self.string("reply_to"),
            self.string("content_type"),
            self.time("creation_time"),
            durable,
            priority,
            delivery_count,
            self.properties(),
            body,
            text,
            pa.nulls(self.count, pa.string()),
        ]


def is_text(value: bytes | None, encoding: str) -> bool:
    """Whether bytes are text; None is."""
    try:
        if value is not None:
            value.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def decoded(chunk: SpoolChunk) -> pa.RecordBatch:
    """Return the messages of a chunk as one batch with the columns of ARROW."""
    if not chunk.begins:
        return batch([])
    messages = Messages(chunk)
    arrays = Columns(chunk, messages).all()
    unusual = np.flatnonzero(messages.unusual)
    if len(unusual):
        slow = batch([row(chunk.record(int(index))) for index in unusual])
        order = np.arange(len(chunk.begins))
        order[unusual] = len(order) + np.arange(len(unusual))
        arrays = [
            pa.concat_arrays([fast, column]).take(pa.array(order))
            for fast, column in zip(arrays, slow.columns, strict=True)
        ]
    return pa.record_batch(arrays, schema=ARROW)
