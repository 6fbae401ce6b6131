"""Encode and decode any AMQP value (1.2 to 1.6).

    encode(value) -> bytes                          TypeError, ValueError: the value has no AMQP form
    decode(buf, pos=0, end=None) -> (value, pos)    AmqpError(amqp:decode-error): the bytes are not AMQP

Decoding trusts nothing: every size and count is held against the bytes that are there before anything is made, nesting
is bounded by MAX_DEPTH, and elements that take no bytes (an array of nulls) by MAX_EMPTY_ELEMENTS. What a decoded value
takes in memory is therefore bounded by a constant times its size in bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final
from uuid import UUID

from enmasse.amqp.codec.encoder import encode as encode
from enmasse.amqp.codec.errors import malformed
from enmasse.amqp.codec.types import (
    MAX_EMPTY_ELEMENTS,
    TYPE_OF_CODE,
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

MAX_DEPTH: Final = 32
# Python hashes UUIDs without a secret: a map of chosen UUIDs would cost the square of its length.
MAX_UUID_KEYS: Final = 256

# decoder(buf, pos after the constructor, end, depth left) -> (value, pos after the value)
Decoder = Callable[[Buffer, int, int, int], tuple[Any, int]]

_U32 = Struct(">I")
_U32_PAIR = Struct(">II")
_unpack_u32 = _U32.unpack_from
_unpack_u32_pair = _U32_PAIR.unpack_from


def decode(buf: Buffer, pos: int = 0, end: int | None = None, depth: int = MAX_DEPTH) -> tuple[Any, int]:
    """Return the value that begins at `pos` and the position after it. Raises AmqpError(amqp:decode-error)."""
    if end is None:
        end = len(buf)
    elif end > len(buf):
        raise cut_short(len(buf))
    if pos >= end:
        raise cut_short(pos)
    return DECODERS[buf[pos]](buf, pos + 1, end, depth)


def cut_short(pos: int) -> Exception:
    """Return the AmqpError(amqp:decode-error) for a value that ends too early, found at byte `pos`."""
    return malformed(f"the value ends too early, at byte {pos}")


def _unknown(code: int) -> Decoder:
    def decode_unknown(buf: Buffer, pos: int, end: int, depth: int) -> tuple[Any, int]:
        raise malformed(f"unknown type code 0x{code:02x} at byte {pos - 1}")

    return decode_unknown


def constant(value: Any) -> Decoder:
    """Return the decoder of an encoding without bytes of its own."""

    def decode_constant(buf: Buffer, pos: int, end: int, depth: int) -> tuple[Any, int]:
        return value, pos

    return decode_constant


def fixed(layout: str, make: Callable[[Any], Any] | None = None) -> Decoder:
    """Return the decoder of a fixed-width encoding; `make` turns what struct gives into the value."""
    struct = Struct(layout)
    unpack, width = struct.unpack_from, struct.size

    def decode_plain(buf: Buffer, pos: int, end: int, depth: int) -> tuple[Any, int]:
        stop = pos + width
        if stop > end:
            raise cut_short(pos)
        return unpack(buf, pos)[0], stop

    def decode_made(buf: Buffer, pos: int, end: int, depth: int) -> tuple[Any, int]:
        stop = pos + width
        if stop > end:
            raise cut_short(pos)
        return make(unpack(buf, pos)[0]), stop  # type: ignore[misc]  # only made where `make` is given

    return decode_plain if make is None else decode_made


def _boolean_byte(value: int) -> bool:
    if value > 1:
        raise malformed(f"a boolean is 0 or 1, not {value}")
    return value == 1


def _char(value: int) -> Char:
    if value > 0x10FFFF or 0xD800 <= value <= 0xDFFF:
        raise malformed(f"0x{value:x} is not a Unicode character")
    return Char(chr(value))


def _uuid(value: bytes) -> UUID:
    return UUID(bytes=value)


def _span8(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    if pos >= end:
        raise cut_short(pos)
    stop = pos + 1 + buf[pos]
    if stop > end:
        raise cut_short(pos)
    return pos + 1, stop


def _span32(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    start = pos + 4
    if start > end:
        raise cut_short(pos)
    stop: int = start + _unpack_u32(buf, pos)[0]
    if stop > end:
        raise cut_short(pos)
    return start, stop


def _string8(buf: Buffer, pos: int, end: int, depth: int) -> tuple[str, int]:
    if pos >= end:
        raise cut_short(pos)
    stop = pos + 1 + buf[pos]
    if stop > end:
        raise cut_short(pos)
    try:
        return str(buf[pos + 1 : stop], "utf-8"), stop
    except UnicodeDecodeError:
        raise malformed(f"the string at byte {pos} is not UTF-8") from None


def _string32(buf: Buffer, pos: int, end: int, depth: int) -> tuple[str, int]:
    start, stop = _span32(buf, pos, end)
    try:
        return str(buf[start:stop], "utf-8"), stop
    except UnicodeDecodeError:
        raise malformed(f"the string at byte {pos} is not UTF-8") from None


def _symbol8(buf: Buffer, pos: int, end: int, depth: int) -> tuple[Symbol, int]:
    start, stop = _span8(buf, pos, end)
    return _symbol(buf, start, stop), stop


def _symbol32(buf: Buffer, pos: int, end: int, depth: int) -> tuple[Symbol, int]:
    start, stop = _span32(buf, pos, end)
    return _symbol(buf, start, stop), stop


def _symbol(buf: Buffer, start: int, stop: int) -> Symbol:
    try:
        return Symbol(buf[start:stop], "ascii")
    except UnicodeDecodeError:
        raise malformed(f"the symbol at byte {start} is not ASCII") from None


def _binary8(buf: Buffer, pos: int, end: int, depth: int) -> tuple[bytes, int]:
    start, stop = _span8(buf, pos, end)
    return bytes(buf[start:stop]), stop


def _binary32(buf: Buffer, pos: int, end: int, depth: int) -> tuple[bytes, int]:
    start, stop = _span32(buf, pos, end)
    return bytes(buf[start:stop]), stop


def compound8(buf: Buffer, pos: int, end: int) -> tuple[int, int, int]:
    """Head of a list, map or array with one-byte sizes: count, where the first element begins, where the last ends.

    Raises AmqpError(amqp:decode-error).
    """
    if pos + 2 > end:
        raise cut_short(pos)
    size = buf[pos]
    stop = pos + 1 + size
    if size < 1 or stop > end:
        raise malformed(f"the size {size} at byte {pos} does not fit")
    return buf[pos + 1], pos + 2, stop


def compound32(buf: Buffer, pos: int, end: int) -> tuple[int, int, int]:
    """Read size and count of a compound value with four-byte sizes. Raises AmqpError(amqp:decode-error)."""
    if pos + 8 > end:
        raise cut_short(pos)
    size, count = _unpack_u32_pair(buf, pos)
    stop = pos + 4 + size
    if size < 4 or stop > end:
        raise malformed(f"the size {size} at byte {pos} does not fit")
    return count, pos + 8, stop


def _elements(buf: Buffer, pos: int, stop: int, count: int, depth: int) -> list[Any]:
    """`count` values that fill the bytes from `pos` to `stop` exactly."""
    if depth <= 0:
        raise malformed(f"nested deeper than {MAX_DEPTH} at byte {pos}")
    if count > stop - pos:
        raise malformed(f"{count} elements cannot be in {stop - pos} bytes, at byte {pos}")
    values: list[Any] = []
    append, decoders = values.append, DECODERS
    depth -= 1
    for _ in range(count):
        if pos >= stop:
            raise cut_short(pos)
        value, pos = decoders[buf[pos]](buf, pos + 1, stop, depth)
        append(value)
    if pos != stop:
        raise malformed(f"{stop - pos} bytes too many after the last element, at byte {pos}")
    return values


def _map(buf: Buffer, pos: int, stop: int, count: int, depth: int) -> dict[Any, Any]:
    if count & 1:
        raise malformed(f"a key without a value in the map at byte {pos}")
    items = _elements(buf, pos, stop, count, depth)
    keys = items[::2]
    if len(keys) > MAX_UUID_KEYS and sum(type(key) is UUID for key in keys) > MAX_UUID_KEYS:
        raise malformed(f"a map with more than {MAX_UUID_KEYS} uuids as keys, at byte {pos}")
    try:
        value = dict(zip(keys, items[1::2], strict=True))
    except TypeError:
        raise malformed(f"a list, map, array or described value as key in the map at byte {pos}") from None
    if len(value) * 2 != count:
        raise malformed(f"two equal keys in the map at byte {pos}")
    return value


def _list0(buf: Buffer, pos: int, end: int, depth: int) -> tuple[list[Any], int]:
    return [], pos


def _list8(buf: Buffer, pos: int, end: int, depth: int) -> tuple[list[Any], int]:
    count, start, stop = compound8(buf, pos, end)
    return _elements(buf, start, stop, count, depth), stop


def _list32(buf: Buffer, pos: int, end: int, depth: int) -> tuple[list[Any], int]:
    count, start, stop = compound32(buf, pos, end)
    return _elements(buf, start, stop, count, depth), stop


def _map8(buf: Buffer, pos: int, end: int, depth: int) -> tuple[dict[Any, Any], int]:
    count, start, stop = compound8(buf, pos, end)
    return _map(buf, start, stop, count, depth), stop


def _map32(buf: Buffer, pos: int, end: int, depth: int) -> tuple[dict[Any, Any], int]:
    count, start, stop = compound32(buf, pos, end)
    return _map(buf, start, stop, count, depth), stop


def _array8(buf: Buffer, pos: int, end: int, depth: int) -> tuple[Array, int]:
    count, start, stop = compound8(buf, pos, end)
    return _array(buf, start, stop, count, depth), stop


def _array32(buf: Buffer, pos: int, end: int, depth: int) -> tuple[Array, int]:
    count, start, stop = compound32(buf, pos, end)
    return _array(buf, start, stop, count, depth), stop


def _array(buf: Buffer, pos: int, stop: int, count: int, depth: int) -> Array:
    """Return an array's constructor and elements. A descriptor is part of the constructor: it stands once, before
    the elements."""
    if depth <= 0:
        raise malformed(f"nested deeper than {MAX_DEPTH} at byte {pos}")
    if pos >= stop:
        raise cut_short(pos)
    code = buf[pos]
    pos += 1
    descriptors: list[Any] = []
    while code == 0:
        if len(descriptors) == 2:  # each one more would cost an object per element
            raise malformed(f"the elements of an array are described more than twice, at byte {pos}")
        descriptor, pos = decode(buf, pos, stop, depth - 1)
        descriptors.append(descriptor)
        if pos >= stop:
            raise cut_short(pos)
        code = buf[pos]
        pos += 1
    width = WIDTHS[code]
    if width is None:
        raise malformed(f"unknown type code 0x{code:02x} at byte {pos - 1}")
    decoder = DECODERS[code]
    values: list[Any] = []
    if width:
        if count * abs(width) > stop - pos:
            raise malformed(f"{count} elements cannot be in {stop - pos} bytes, at byte {pos}")
        for _ in range(count):
            value, pos = decoder(buf, pos, stop, depth - 1)
            values.append(value)
    else:
        if count > MAX_EMPTY_ELEMENTS:
            raise malformed(f"{count} elements without bytes, more than {MAX_EMPTY_ELEMENTS}, at byte {pos}")
        values = [decoder(buf, pos, stop, depth - 1)[0]] * count
    if pos != stop:
        raise malformed(f"{stop - pos} bytes too many after the last element, at byte {pos}")
    if len(descriptors) < 2 or not values:  # without elements, what they would have been cannot be encoded again
        return Array(code, values, descriptors[0] if descriptors else None)
    return Array(Described, [Described(descriptors[1], value) for value in values], descriptors[0])


def _described(buf: Buffer, pos: int, end: int, depth: int) -> tuple[Described, int]:
    if depth <= 0:
        raise malformed(f"nested deeper than {MAX_DEPTH} at byte {pos}")
    if pos >= end:
        raise cut_short(pos)
    descriptor, pos = DECODERS[buf[pos]](buf, pos + 1, end, depth - 1)
    if pos >= end:
        raise cut_short(pos)
    value, pos = DECODERS[buf[pos]](buf, pos + 1, end, depth - 1)
    return Described(descriptor, value), pos


DECODERS: list[Decoder] = [_unknown(code) for code in range(256)]
_KNOWN: dict[int, Decoder] = {
    0x00: _described,
    0x40: constant(None),
    0x41: constant(True),
    0x42: constant(False),
    0x43: constant(UInt(0)),
    0x44: constant(ULong(0)),
    0x45: _list0,
    0x50: fixed(">B", UByte),
    0x51: fixed(">b", Byte),
    0x52: fixed(">B", UInt),
    0x53: fixed(">B", ULong),
    0x54: fixed(">b", Int),
    0x55: fixed(">b"),
    0x56: fixed(">B", _boolean_byte),
    0x60: fixed(">H", UShort),
    0x61: fixed(">h", Short),
    0x70: fixed(">I", UInt),
    0x71: fixed(">i", Int),
    0x72: fixed(">f", Float32),
    0x73: fixed(">I", _char),
    0x74: fixed("4s", Decimal32),
    0x80: fixed(">Q", ULong),
    0x81: fixed(">q"),
    0x82: fixed(">d"),
    0x83: fixed(">q", Timestamp),
    0x84: fixed("8s", Decimal64),
    0x94: fixed("16s", Decimal128),
    0x98: fixed("16s", _uuid),
    0xA0: _binary8,
    0xA1: _string8,
    0xA3: _symbol8,
    0xB0: _binary32,
    0xB1: _string32,
    0xB3: _symbol32,
    0xC0: _list8,
    0xC1: _map8,
    0xD0: _list32,
    0xD1: _map32,
    0xE0: _array8,
    0xF0: _array32,
}
for _code, _decoder in _KNOWN.items():
    DECODERS[_code] = _decoder

# Bytes of an encoding after its code; -1 and -4: a size of one or four bytes comes first; None: no such encoding.
_WIDTH_OF_CLASS = dict(zip(range(4, 16), (0, 1, 2, 4, 8, 16, -1, -4, -1, -4, -1, -4), strict=True))
WIDTHS: list[int | None] = [_WIDTH_OF_CLASS.get(code >> 4) if code in TYPE_OF_CODE else None for code in range(256)]


def skip(buf: Buffer, pos: int, end: int) -> int:
    """The position after the value that begins at `pos`. Looks at constructors only, at nothing inside a value.

    Raises AmqpError(amqp:decode-error).
    """
    pending = 1  # values still to be skipped; a descriptor adds one
    for _ in range(2 * MAX_DEPTH):
        if pos >= end:
            raise cut_short(pos)
        code = buf[pos]
        pos += 1
        if code == 0:
            pending += 1
            continue
        width = WIDTHS[code]
        if width is None:
            raise malformed(f"unknown type code 0x{code:02x} at byte {pos - 1}")
        if width == -1:
            pos = _span8(buf, pos, end)[1]
        elif width == -4:
            pos = _span32(buf, pos, end)[1]
        else:
            pos += width
            if pos > end:
                raise cut_short(pos)
        pending -= 1
        if not pending:
            return pos
    raise malformed(f"nested deeper than {MAX_DEPTH} at byte {pos}")
