"""AMQP types that Python lacks (1.6): thin subclasses, so that a decoded value keeps its type when it is sent again.

Plain Python covers the rest: None, bool, int (= long), float (= double), str (= string), bytes (= binary), uuid.UUID,
list, dict. The classes check nothing: the encoder does, and names what does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

Buffer = bytes | bytearray | memoryview

# An array of nulls takes no bytes per element; this bounds what a few bytes can make us allocate.
MAX_EMPTY_ELEMENTS = 64


class Symbol(str):
    """symbol: ASCII, a name from a known domain. Equal to the str of the same characters."""

    __slots__ = ()


class Char(str):
    """char: one Unicode character."""

    __slots__ = ()


class UByte(int):
    """ubyte: 0 to 255."""

    __slots__ = ()


class UShort(int):
    """ushort: 0 to 2**16-1."""

    __slots__ = ()


class UInt(int):
    """uint: 0 to 2**32-1."""

    __slots__ = ()


class ULong(int):
    """ulong: 0 to 2**64-1."""

    __slots__ = ()


class Byte(int):
    """byte: -128 to 127."""

    __slots__ = ()


class Short(int):
    """short: -2**15 to 2**15-1."""

    __slots__ = ()


class Int(int):
    """int: -2**31 to 2**31-1. (A plain Python int is a long.)"""

    __slots__ = ()


class Timestamp(int):
    """timestamp: milliseconds since 1970-01-01T00:00:00Z, signed 64 bits."""

    __slots__ = ()


class Float32(float):
    """float: IEEE 754 binary32. (A plain Python float is a double.)"""

    __slots__ = ()


class Decimal32(bytes):
    """decimal32: the 4 bytes of IEEE 754 decimal32, not interpreted."""

    __slots__ = ()


class Decimal64(bytes):
    """decimal64: the 8 bytes of IEEE 754 decimal64, not interpreted."""

    __slots__ = ()


class Decimal128(bytes):
    """decimal128: the 16 bytes of IEEE 754 decimal128, not interpreted."""

    __slots__ = ()


@dataclass(slots=True)
class Described:
    """A described value (1.5): `descriptor` is a ULong or a Symbol as a rule, any value by the letter."""

    descriptor: Any
    value: Any


# The type of each encoding: what the elements of an array are, whichever encoding they came in.
TYPE_OF_CODE: dict[int, type] = {
    0x00: Described,
    0x40: type(None),
    0x41: bool,
    0x42: bool,
    0x56: bool,
    0x50: UByte,
    0x60: UShort,
    0x43: UInt,
    0x52: UInt,
    0x70: UInt,
    0x44: ULong,
    0x53: ULong,
    0x80: ULong,
    0x51: Byte,
    0x61: Short,
    0x54: Int,
    0x71: Int,
    0x55: int,
    0x81: int,
    0x72: Float32,
    0x82: float,
    0x74: Decimal32,
    0x84: Decimal64,
    0x94: Decimal128,
    0x73: Char,
    0x83: Timestamp,
    0x98: UUID,
    0xA0: bytes,
    0xB0: bytes,
    0xA1: str,
    0xB1: str,
    0xA3: Symbol,
    0xB3: Symbol,
    0x45: list,
    0xC0: list,
    0xD0: list,
    0xC1: dict,
    0xD1: dict,
}


class Array:
    """An array (1.6.24): `values` (a tuple), all of one `type`, each described by `descriptor` when that is not None.

    `code_or_type` is a class of this module (or int, str, list, Array …), None for nulls, or the code of an encoding.
    The encoder chooses the encoding. Elements that are described twice have the type Described.
    """

    __slots__ = ("descriptor", "type", "values")

    def __init__(self, code_or_type: int | type | None, values: Iterable[Any], descriptor: Any = None) -> None:
        self.type: type
        if code_or_type is None:
            self.type = type(None)
        elif isinstance(code_or_type, int):
            self.type = TYPE_OF_CODE[code_or_type]
        else:
            self.type = code_or_type
        self.values = tuple(values)
        self.descriptor = descriptor

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __getitem__(self, index: int) -> Any:
        return self.values[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        return (self.type, self.values, self.descriptor) == (other.type, other.values, other.descriptor)

    __hash__ = None  # type: ignore[assignment]  # no hash, as Python's data model writes it

    def __repr__(self) -> str:
        described = "" if self.descriptor is None else f", descriptor={self.descriptor!r}"
        return f"Array({self.type.__name__}, {list(self.values)!r}{described})"


TYPE_OF_CODE[0xE0] = TYPE_OF_CODE[0xF0] = Array
