"""The encoding half of the codec: one encoder per Python class (1.6)."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import Any, Final
from uuid import UUID

from enmasse.amqp.codec.types import (
    MAX_EMPTY_ELEMENTS,
    Array,
    Buffer,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float32,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

Encoder = Callable[[Any], bytes]
_U32 = Struct(">I")
_U32_PAIR = Struct(">II")


class _Encoders(dict[type, Encoder]):
    """Encoder of each class; a class that is not there is encoded as the first of its bases that is."""

    def __missing__(self, cls: type) -> Encoder:
        for base in cls.__mro__[1:]:
            if base in self:
                self[cls] = self[base]
                return self[base]
        raise TypeError(f"{cls.__module__}.{cls.__qualname__} has no AMQP form")


ENCODERS = _Encoders()

NULL: Final = b"\x40"
_SMALL_LONGS = [bytes((0x55, byte)) for byte in range(256)]
_SMALL_UINTS = [b"\x43"] + [bytes((0x52, byte)) for byte in range(1, 256)]
_SMALL_ULONGS = [b"\x44"] + [bytes((0x53, byte)) for byte in range(1, 256)]
_STRING8 = [bytes((0xA1, size)) for size in range(256)]
_SYMBOL8 = [bytes((0xA3, size)) for size in range(256)]
_BINARY8 = [bytes((0xA0, size)) for size in range(256)]
_head32 = Struct(">BI").pack
_pack_compound8 = Struct(">BBB").pack
_pack_compound32 = Struct(">BII").pack


def encode(value: Any) -> bytes:
    """Return the smallest usual encoding of `value`. Raises TypeError or ValueError for what has no AMQP form."""
    return ENCODERS[type(value)](value)


def packer(code: int, layout: str, name: str, take: Callable[[Any], Any] | None = None) -> Encoder:
    """Return the encoder of a fixed-width encoding; `take` turns the value into what struct wants."""
    pack = Struct(">B" + layout).pack

    def encode_fixed(value: Any) -> bytes:
        try:
            return pack(code, value if take is None else take(value))
        except (StructError, TypeError, OverflowError):
            raise ValueError(f"{value!r} is not {name}") from None

    return encode_fixed


def encode_boolean(value: bool) -> bytes:
    """Return an encoded boolean."""
    return b"\x41" if value else b"\x42"


_wide_long = packer(0x81, "q", "a long (64 bits, signed)")
_wide_int = packer(0x71, "i", "an int (32 bits, signed)")
_wide_uint = packer(0x70, "I", "a uint (32 bits)")
_wide_ulong = packer(0x80, "Q", "a ulong (64 bits)")


def _encode_long(value: int) -> bytes:
    return _SMALL_LONGS[value & 0xFF] if -128 <= value < 128 else _wide_long(value)


def _encode_int(value: int) -> bytes:
    return bytes((0x54, value & 0xFF)) if -128 <= value < 128 else _wide_int(value)


def encode_uint(value: int) -> bytes:
    """Return an encoded uint. Raises ValueError outside 32 bits."""
    return _SMALL_UINTS[value] if 0 <= value < 256 else _wide_uint(value)


def encode_ulong(value: int) -> bytes:
    """Return an encoded ulong. Raises ValueError outside 64 bits."""
    return _SMALL_ULONGS[value] if 0 <= value < 256 else _wide_ulong(value)


encode_ubyte = packer(0x50, "B", "a ubyte (8 bits)")
encode_ushort = packer(0x60, "H", "a ushort (16 bits)")
encode_timestamp = packer(0x83, "q", "a timestamp (64 bits, signed)")


def encode_string(value: str) -> bytes:
    """Return an encoded string. Raises UnicodeEncodeError for lone surrogates."""
    raw = value.encode()
    size = len(raw)
    return _STRING8[size] + raw if size < 256 else _head32(0xB1, size) + raw


def encode_symbol(value: str) -> bytes:
    """Return an encoded symbol. Raises ValueError if it is not ASCII."""
    try:
        raw = value.encode("ascii")
    except UnicodeEncodeError:
        raise ValueError(f"{value!r} is not a symbol: symbols are ASCII") from None
    size = len(raw)
    return _SYMBOL8[size] + raw if size < 256 else _head32(0xB3, size) + raw


def encode_binary(value: Buffer) -> bytes:
    """Return an encoded binary."""
    size = len(value)
    return b"".join((_BINARY8[size] if size < 256 else _head32(0xB0, size), value))


def _encode_decimal(code: int, width: int) -> Encoder:
    def encode_decimal(value: bytes) -> bytes:
        if len(value) != width:
            raise ValueError(f"{value!r} is not a decimal of {width} bytes")
        return bytes((code,)) + value

    return encode_decimal


def _encode_list(values: Any) -> bytes:
    return encoded_list([ENCODERS[type(value)](value) for value in values])


def encoded_list(elements: list[bytes]) -> bytes:
    """Return the encoding of a list whose values are encoded already."""
    count = len(elements)
    if not count:
        return b"\x45"
    body = b"".join(elements)
    if len(body) < 255 and count < 256:
        return _pack_compound8(0xC0, len(body) + 1, count) + body
    return _pack_compound32(0xD0, len(body) + 4, count) + body


def _encode_map(value: dict[Any, Any]) -> bytes:
    elements = []
    for key, item in value.items():
        elements.append(ENCODERS[type(key)](key))
        elements.append(ENCODERS[type(item)](item))
    return encoded_map(elements)


def encoded_map(elements: list[bytes]) -> bytes:
    """Return a map of keys and values, in turns, that are encoded already."""
    body = b"".join(elements)
    count = len(elements)
    if len(body) < 255 and count < 256:
        return _pack_compound8(0xC1, len(body) + 1, count) + body
    return _pack_compound32(0xD1, len(body) + 4, count) + body


def _encode_described(value: Described) -> bytes:
    return b"\x00" + encode(value.descriptor) + encode(value.value)


# Elements of an array all have the one encoding of its constructor: the widest of their type, save for short strings.
_ARRAY_CODES: dict[type, int] = {
    bool: 0x56, UByte: 0x50, UShort: 0x60, UInt: 0x70, ULong: 0x80, Byte: 0x51, Short: 0x61, Int: 0x71, int: 0x81,
    Float32: 0x72, float: 0x82, Decimal32: 0x74, Decimal64: 0x84, Decimal128: 0x94, Char: 0x73, Timestamp: 0x83,
    UUID: 0x98,
}  # fmt: skip
_WIDE_IN_ARRAY: dict[type, Encoder] = {
    bool: lambda value: b"\x56\x01" if value else b"\x56\x00",
    UInt: _wide_uint, ULong: _wide_ulong, Int: _wide_int, int: _wide_long,
}  # fmt: skip
_VARIABLE_CODES: dict[type, tuple[int, int]] = {bytes: (0xA0, 0xB0), str: (0xA1, 0xB1), Symbol: (0xA3, 0xB3)}
_COMPOUND_CODES: dict[type, int] = {list: 0xD0, dict: 0xD1, Array: 0xF0}


def _encode_array(array: Array) -> bytes:
    constructor, elements = _array_parts(array.type, array.values)
    if array.descriptor is not None:
        constructor = b"\x00" + encode(array.descriptor) + constructor
    body = b"".join((constructor, *elements))
    count = len(array.values)
    if len(body) < 255 and count < 256:
        return _pack_compound8(0xE0, len(body) + 1, count) + body
    return _pack_compound32(0xF0, len(body) + 4, count) + body


def _array_parts(kind: type, values: tuple[Any, ...]) -> tuple[bytes, list[bytes]]:
    """Return the constructor of an array's elements, and the elements without theirs."""
    code = _ARRAY_CODES.get(kind)
    if code is not None:
        encoder = _WIDE_IN_ARRAY.get(kind) or ENCODERS[kind]
        return bytes((code,)), [encoder(value)[1:] for value in values]
    if kind in _VARIABLE_CODES:
        short, long = _VARIABLE_CODES[kind]
        raw = [value if kind is bytes else value.encode("utf-8" if kind is str else "ascii") for value in values]
        if all(len(item) < 256 for item in raw):
            return bytes((short,)), [bytes((len(item),)) + item for item in raw]
        return bytes((long,)), [_U32.pack(len(item)) + item for item in raw]
    if kind is list and 0 < len(values) <= MAX_EMPTY_ELEMENTS and not any(values):
        return b"\x45", []  # as it came, most likely: what is passed on must not grow
    if kind in _COMPOUND_CODES:
        return bytes((_COMPOUND_CODES[kind],)), [_compound32(encode(value)) for value in values]
    if kind is type(None):
        if len(values) > MAX_EMPTY_ELEMENTS:
            raise ValueError(f"an array of {len(values)} nulls: at most {MAX_EMPTY_ELEMENTS}")
        return NULL, []
    if kind is Described and values:
        descriptor = encode(values[0].descriptor)
        if any(encode(value.descriptor) != descriptor for value in values):
            raise ValueError("the elements of an array share one descriptor")
        inner = values[0].value
        constructor, elements = _array_parts(type(inner), tuple(value.value for value in values))
        return b"\x00" + descriptor + constructor, elements
    raise TypeError(f"an array of {len(values)} {kind.__qualname__} has no AMQP form")


def _compound32(encoded: bytes) -> bytes:
    """Return an encoded list, map or array in the encoding with four-byte sizes, without its code."""
    code = encoded[0]
    if code == 0x45:
        return _U32_PAIR.pack(4, 0)
    if code & 0x10:
        return encoded[1:]
    return _U32_PAIR.pack(encoded[1] + 3, encoded[2]) + encoded[3:]


ENCODERS.update(
    {
        type(None): lambda value: NULL,
        bool: encode_boolean,
        int: _encode_long,
        float: packer(0x82, "d", "a double"),
        str: encode_string,
        bytes: encode_binary,
        bytearray: encode_binary,
        memoryview: encode_binary,
        UUID: lambda value: b"\x98" + value.bytes,
        list: _encode_list,
        tuple: _encode_list,
        dict: _encode_map,
        Symbol: encode_symbol,
        Char: packer(0x73, "I", "one character", ord),
        UByte: encode_ubyte,
        UShort: encode_ushort,
        UInt: encode_uint,
        ULong: encode_ulong,
        Byte: packer(0x51, "b", "a byte (8 bits, signed)"),
        Short: packer(0x61, "h", "a short (16 bits, signed)"),
        Int: _encode_int,
        Float32: packer(0x72, "f", "a float (32 bits)"),
        Timestamp: encode_timestamp,
        Decimal32: _encode_decimal(0x74, 4),
        Decimal64: _encode_decimal(0x84, 8),
        Decimal128: _encode_decimal(0x94, 16),
        Described: _encode_described,
        Array: _encode_array,
    }
)
