"""Composite types (1.4): described lists whose fields have names, types and defaults. One table drives both directions.

    @composite(0x1D, "amqp:error:list")
    class Error:
        condition: Symbol = field(SYMBOL, mandatory=True)

gives Error a constructor with keywords, `==`, a place in the encoder of values and one in `decode_composite`. On the
wire every field has the type of the table; in Python, numbers are plain ints, a field that may hold several symbols
is a tuple (empty for null), an absent map of fields is an empty dict, other absent fields are their default or None.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, dataclass_transform

from enmasse.amqp.codec import codec, encoder
from enmasse.amqp.codec.codec import DECODERS, MAX_DEPTH, Decoder, constant, cut_short, fixed
from enmasse.amqp.codec.encoder import ENCODERS, NULL, Encoder
from enmasse.amqp.codec.errors import AmqpError, malformed
from enmasse.amqp.codec.types import TYPE_OF_CODE, Array, Buffer, Symbol, ULong


class FieldKind(NamedTuple):
    """How a field is read (from its constructor on) and written. Reading raises AmqpError if the type is another."""

    decode: Decoder
    encode: Encoder


def _one_of(name: str, table: dict[int, Decoder]) -> Decoder:
    def decode_field(buf: Buffer, pos: int, end: int, depth: int) -> tuple[Any, int]:
        decoder = table.get(buf[pos])
        if decoder is None:
            raise _unexpected(name, buf[pos])
        return decoder(buf, pos + 1, end, depth)

    return decode_field


def _unexpected(name: str, code: int) -> AmqpError:
    found = TYPE_OF_CODE.get(code)
    return malformed(f"{name} expected, {f'0x{code:02x}' if found is None else found.__name__.lower()} found")


def checked(kind: FieldKind, check: Callable[[Any], bool], name: str) -> FieldKind:
    """`kind`, with the values that pass `check` only; `name` names it in the error."""

    def decode_checked(buf: Buffer, pos: int, end: int, depth: int) -> tuple[Any, int]:
        value, pos = kind.decode(buf, pos, end, depth)
        if not check(value):
            raise malformed(f"{name} expected, {value!r} found")
        return value, pos

    return FieldKind(decode_checked, kind.encode)


def at_most(kind: FieldKind, highest: int) -> FieldKind:
    """Return a number with the choices 0 to `highest`."""
    return checked(kind, lambda value: value <= highest, f"a number of 0 to {highest}")


def choice(kind: FieldKind, *values: str) -> FieldKind:
    """Return a symbol out of `values`."""
    return checked(kind, lambda value: value in values, f"one of {', '.join(values)}")


def _any_value(buf: Buffer, pos: int, end: int, depth: int) -> tuple[Any, int]:
    return DECODERS[buf[pos]](buf, pos + 1, end, depth)


def _symbols(buf: Buffer, pos: int, end: int, depth: int) -> tuple[tuple[Symbol, ...], int]:
    value, pos = _any_value(buf, pos, end, depth)
    if type(value) is Symbol:
        return (value,), pos
    if type(value) is Array and value.descriptor is None and (value.type is Symbol or not value.values):
        return value.values, pos
    raise malformed(f"a symbol or an array of symbols expected, {type(value).__name__.lower()} found")


def _encode_symbols(values: tuple[str, ...] | list[str] | Symbol) -> bytes:
    if isinstance(values, Symbol):  # a single value may stand without an array (1.4), as some peers require it
        return ENCODERS[Symbol](values)
    if isinstance(values, str):
        raise ValueError(f"a tuple of symbols expected, not {values!r}")
    if len(values) <= 8 and sum(map(len, values)) <= 256:  # capabilities and mechanisms: the same for each connection
        return _symbol_array(tuple(values))
    return ENCODERS[Array](Array(Symbol, values))


@lru_cache(maxsize=256)
def _symbol_array(values: tuple[str, ...]) -> bytes:
    return ENCODERS[Array](Array(Symbol, values))


def _fields(buf: Buffer, pos: int, end: int, depth: int) -> tuple[dict[Symbol, Any], int]:
    value, pos = _map(buf, pos, end, depth)
    for key in value:
        if not isinstance(key, str):
            raise malformed(f"the key {key!r} is not a symbol")
    return value, pos


def encode_fields(value: Mapping[str, Any]) -> bytes:
    """A map whose keys are symbols (ulongs stay what they are: annotations may have them)."""
    elements = []
    for key, item in value.items():
        elements.append(encoder.encode_symbol(key) if isinstance(key, str) else ENCODERS[type(key)](key))
        elements.append(ENCODERS[type(item)](item))
    return encoder.encoded_map(elements)


def _of(*codes: int) -> dict[int, Decoder]:
    return {code: DECODERS[code] for code in codes}


_BYTE, _ZERO = fixed(">B"), constant(0)
_map = _one_of("a map", _of(0xC1, 0xD1))

BOOLEAN = FieldKind(_one_of("a boolean", _of(0x41, 0x42, 0x56)), encoder.encode_boolean)
UBYTE = FieldKind(_one_of("a ubyte", {0x50: _BYTE}), encoder.encode_ubyte)
USHORT = FieldKind(_one_of("a ushort", {0x60: fixed(">H")}), encoder.encode_ushort)
UINT = FieldKind(_one_of("a uint", {0x43: _ZERO, 0x52: _BYTE, 0x70: fixed(">I")}), encoder.encode_uint)
ULONG = FieldKind(_one_of("a ulong", {0x44: _ZERO, 0x53: _BYTE, 0x80: fixed(">Q")}), encoder.encode_ulong)
TIMESTAMP = FieldKind(_one_of("a timestamp", {0x83: fixed(">q")}), encoder.encode_timestamp)
STRING = FieldKind(_one_of("a string", _of(0xA1, 0xB1)), encoder.encode_string)
SYMBOL = FieldKind(_one_of("a symbol", _of(0xA3, 0xB3)), encoder.encode_symbol)
SYMBOLS = FieldKind(_symbols, _encode_symbols)
BINARY = FieldKind(_one_of("a binary", _of(0xA0, 0xB0)), encoder.encode_binary)
FIELDS = FieldKind(_fields, encode_fields)
VALUE = FieldKind(_any_value, encoder.encode)
# An address is of any type by the letter, a string in every terminus there is.
ADDRESS = STRING


def field(kind: FieldKind, *, default: Any = None, mandatory: bool = False) -> Any:
    """Return a field of a composite type. Those with several symbols and those with a map are never None."""
    metadata = {"kind": kind, "mandatory": mandatory}
    if mandatory:
        return dataclasses.field(metadata=metadata)
    if kind is FIELDS and default is None:
        return dataclasses.field(default_factory=dict, metadata=metadata)
    if kind is SYMBOLS:
        default = ()
    return dataclasses.field(default=default, metadata=metadata)


class FieldTable(NamedTuple):
    """Description of a composite type for the codec."""

    cls: Any
    name: str
    names: tuple[str, ...]
    decoders: tuple[Decoder, ...]
    mandatory: frozenset[str]


_TABLES: dict[ULong | Symbol, FieldTable] = {}
_T = TypeVar("_T")


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def composite(code: int, descriptor: str) -> Callable[[type[_T]], type[_T]]:
    """Make a class of annotated `field`s the composite type with this descriptor, numeric and symbolic."""

    def register(cls: type[_T]) -> type[_T]:
        # __eq__ on values makes instances unhashable, which suits what can be changed; a class may bring its own.
        made: Any = dataclasses.dataclass(slots=True, kw_only=True, eq="__eq__" not in cls.__dict__)(cls)
        columns = dataclasses.fields(made)
        kinds = [column.metadata["kind"] for column in columns]
        table = FieldTable(
            made,
            descriptor.split(":")[1],
            tuple(column.name for column in columns),
            tuple(kind.decode for kind in kinds),
            frozenset(column.name for column in columns if column.metadata["mandatory"]),
        )
        _TABLES[ULong(code)] = _TABLES[Symbol(descriptor)] = table
        ENCODERS[made] = _encoder_of(code, table, columns, kinds)
        return made  # type: ignore[no-any-return]  # the dataclass made of cls

    return register


def _encoder_of(code: int, table: FieldTable, columns: tuple[Any, ...], kinds: list[FieldKind]) -> Encoder:
    head = bytes((0x00, 0x53, code))
    rows = [
        (column.name, kind.encode, {} if column.default_factory is dict else column.default)
        for column, kind in zip(columns, kinds, strict=True)
    ]
    if not rows:
        return lambda value: head + b"\x45"
    read: Callable[[Any], tuple[Any, ...]]
    only = attrgetter(rows[0][0])
    read = attrgetter(*table.names) if len(rows) > 1 else lambda value: (only(value),)

    def encode_composite(composite: Any) -> bytes:
        elements = []
        used = 0
        for value, (name, encode, default) in zip(read(composite), rows, strict=True):
            if value is None:
                if name in table.mandatory:
                    raise ValueError(f"{table.name}: {_spelled(name)} is missing")
                elements.append(NULL)
                continue
            if value == default:
                elements.append(NULL)
                continue
            try:
                elements.append(encode(value))
            except (TypeError, ValueError, AttributeError) as error:
                raise ValueError(f"{table.name}: {_spelled(name)}: {error}") from error
            used = len(elements)
        return head + encoder.encoded_list(elements[:used])

    return encode_composite


def _spelled(name: str) -> str:
    return name.replace("_", "-")


def decode_composite(buf: Buffer, pos: int, end: int, depth: int = MAX_DEPTH) -> tuple[Any, int]:
    """The instance of a composite type that begins at `pos` (0x00), and the position after it. Raises AmqpError."""
    if pos + 2 > end:
        raise cut_short(pos)
    if depth <= 0:
        raise malformed(f"nested deeper than {MAX_DEPTH} at byte {pos}")
    if buf[pos] != 0:
        raise malformed(f"a described list expected, 0x{buf[pos]:02x} found")
    descriptor: Any
    if buf[pos + 1] == 0x53 and pos + 3 <= end:
        descriptor, pos = ULong(buf[pos + 2]), pos + 3
    else:
        descriptor, pos = codec.decode(buf, pos + 1, end, depth - 1)
    table = _TABLES.get(descriptor) if type(descriptor) is ULong or type(descriptor) is Symbol else None
    if table is None:
        raise malformed(f"unknown descriptor {f'0x{descriptor:x}' if type(descriptor) is ULong else repr(descriptor)}")
    if pos >= end:
        raise cut_short(pos)
    code = buf[pos]
    if code == 0x45:
        count, pos, stop = 0, pos + 1, pos + 1
    elif code == 0xC0:
        count, pos, stop = codec.compound8(buf, pos + 1, end)
    elif code == 0xD0:
        count, pos, stop = codec.compound32(buf, pos + 1, end)
    else:
        raise malformed(f"{table.name}: a list expected, 0x{code:02x} found")
    return decode_fields(table, buf, pos, stop, count, depth - 1), stop


def decode_fields(table: FieldTable, buf: Buffer, pos: int, stop: int, count: int, depth: int) -> Any:
    """Return an instance from the `count` fields that fill the bytes from `pos` to `stop`.

    Raises AmqpError(amqp:decode-error).
    """
    cls, name, names, decoders, mandatory = table
    if count > len(names):
        raise malformed(f"{name}: {count} fields, there are {len(names)}")
    values = {}
    index = 0
    try:
        for index in range(count):
            if pos >= stop:
                raise cut_short(pos)
            if buf[pos] == 0x40:
                pos += 1
            else:
                values[names[index]], pos = decoders[index](buf, pos, stop, depth)
    except AmqpError as error:
        raise malformed(f"{name}: {_spelled(names[index])}: {error.description}") from None
    if pos != stop:
        raise malformed(f"{name}: {stop - pos} bytes too many after the last field")
    if not mandatory <= values.keys():
        missing = ", ".join(_spelled(column) for column in names if column in mandatory - values.keys())
        raise malformed(f"{name}: {missing} is missing")
    return cls(**values)


def instance(name: str, *classes: type) -> FieldKind:
    """A field that holds an instance of one of these composite types."""

    def decode_instance(buf: Buffer, pos: int, end: int, depth: int) -> tuple[Any, int]:
        value, pos = decode_composite(buf, pos, end, depth)
        if not isinstance(value, classes):
            raise malformed(f"{name} expected, {type(value).__name__.lower()} found")
        return value, pos

    def encode_instance(value: Any) -> bytes:
        if not isinstance(value, classes):
            raise ValueError(f"{name} expected, not {value!r}")
        return ENCODERS[type(value)](value)

    return FieldKind(decode_instance, encode_instance)


def map_of(key: FieldKind, value: FieldKind) -> FieldKind:
    """Return a map whose keys and values (null allowed) are of these kinds."""

    def decode_map(buf: Buffer, pos: int, end: int, depth: int) -> tuple[dict[Any, Any], int]:
        if depth <= 0:
            raise malformed(f"nested deeper than {MAX_DEPTH} at byte {pos}")
        if buf[pos] == 0xC1:
            count, pos, stop = codec.compound8(buf, pos + 1, end)
        elif buf[pos] == 0xD1:
            count, pos, stop = codec.compound32(buf, pos + 1, end)
        else:
            raise _unexpected("a map", buf[pos])
        made: dict[Any, Any] = {}
        if count & 1 or count > stop - pos:
            raise malformed(f"{count} elements in a map of {stop - pos} bytes")
        for _ in range(count // 2):
            if pos >= stop:
                raise cut_short(pos)
            name, pos = key.decode(buf, pos, stop, depth - 1)
            if pos >= stop:
                raise cut_short(pos)
            if buf[pos] == 0x40:
                made[name], pos = None, pos + 1
            else:
                made[name], pos = value.decode(buf, pos, stop, depth - 1)
        if pos != stop or len(made) * 2 != count:
            raise malformed("a map with equal keys, or with bytes after its last value")
        return made, stop

    def encode_map(value_map: dict[Any, Any]) -> bytes:
        elements = []
        for name, item in value_map.items():
            elements.append(key.encode(name))
            elements.append(NULL if item is None else value.encode(item))
        return encoder.encoded_map(elements)

    return FieldKind(decode_map, encode_map)
