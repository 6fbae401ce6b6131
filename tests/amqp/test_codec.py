"""The codec by hand: every encoding of the specification (1.6), and what it refuses."""

from __future__ import annotations

import math
import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given

from enmasse.amqp.codec.codec import MAX_DEPTH, MAX_UUID_KEYS, decode, encode, skip
from enmasse.amqp.codec.errors import DECODE_ERROR, AmqpError, malformed
from enmasse.amqp.codec.types import (
    MAX_EMPTY_ELEMENTS,
    Array,
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
from tests.amqp.codec_values import VALUES, same

LONG_TEXT = "ü" * 200
BOOK = (
    b"\x00\xa3\x11example:book:list\xc0\x40\x03\xa1\x15AMQP for & by Dummies"
    b"\xe0\x25\x02\xa3\x0eRob J. Godfrey\x13Rafael H. Schloming\x40"
)

# Every encoding: bytes, value. Those marked True are what we write ourselves.
ENCODINGS: list[tuple[str, Any, bool]] = [
    ("40", None, True),
    ("41", True, True),
    ("42", False, True),
    ("5601", True, False),
    ("5600", False, False),
    ("50ff", UByte(255), True),
    ("60ffff", UShort(65535), True),
    ("43", UInt(0), True),
    ("5280", UInt(128), True),
    ("70ffffffff", UInt(4294967295), True),
    ("7000000001", UInt(1), False),
    ("44", ULong(0), True),
    ("53ff", ULong(255), True),
    ("80ffffffffffffffff", ULong(2**64 - 1), True),
    ("5180", Byte(-128), True),
    ("618000", Short(-32768), True),
    ("54ff", Int(-1), True),
    ("7180000000", Int(-(2**31)), True),
    ("710000007f", Int(127), False),
    ("5580", -128, True),
    ("557f", 127, True),
    ("810000000000000080", 128, True),
    ("818000000000000000", -(2**63), True),
    ("723fc00000", Float32(1.5), True),
    ("827ff0000000000000", math.inf, True),
    ("828000000000000000", -0.0, True),
    ("7422500001", Decimal32(b"\x22\x50\x00\x01"), True),
    ("842234000000000001", Decimal64(b"\x22\x34\x00\x00\x00\x00\x00\x01"), True),
    ("94" + "22" * 16, Decimal128(b"\x22" * 16), True),
    ("7300000041", Char("A"), True),
    ("730010ffff", Char("\U0010ffff"), True),
    ("830000000000000001", Timestamp(1), True),
    ("83ffffffffffffffff", Timestamp(-1), True),
    ("98" + "00112233445566778899aabbccddeeff", UUID("00112233-4455-6677-8899-aabbccddeeff"), True),
    ("a000", b"", True),
    ("a00200ff", b"\x00\xff", True),
    ("b00000000100", b"\x00", False),
    ("b000000100" + "07" * 256, b"\x07" * 256, True),
    ("a102c3bc", "ü", True),
    ("b100000002c3bc", "ü", False),
    ("b100000190" + LONG_TEXT.encode().hex(), LONG_TEXT, True),
    ("a30161", Symbol("a"), True),
    ("b30000000161", Symbol("a"), False),
    ("b30000012c" + "61" * 300, Symbol("a" * 300), True),
    ("45", [], True),
    ("c00100", [], False),
    ("c0030240" + "41", [None, True], True),
    ("d0000000060000000240" + "41", [None, True], False),
    ("d00000010400000100" + "40" * 256, [None] * 256, True),
    ("c10100", {}, True),
    ("d10000000400000000", {}, False),
    ("c10602a1016b5501", {"k": 1}, True),
    ("e006017100000001", Array(Int, [Int(1)]), True),
    ("e0040254017f", Array(Int, [Int(1), Int(127)]), False),
    ("f000000009000000017100000001", Array(Int, [Int(1)]), False),
    ("e00200a3", Array(Symbol, []), True),
    ("e00802a3016103626364", Array(Symbol, [Symbol("a"), Symbol("bcd")]), True),
    ("e00402560100", Array(bool, [True, False]), True),
    ("e0020341", Array(bool, [True] * 3), False),
    ("e0020342", Array(bool, [False] * 3), False),
    ("e0020243", Array(UInt, [UInt(0)] * 2), False),
    ("e0020244", Array(ULong, [ULong(0)] * 2), False),
    ("e0020240", Array(None, [None, None]), True),
    ("e0020245", Array(list, [[], []]), True),
    ("e00602c001000100", Array(list, [[], []]), False),
    ("e00b01d0" + "0000000500000001" + "41", Array(list, [[True]]), True),
    ("e00c01d1" + "0000000600000002" + "4341", Array(dict, [{UInt(0): True}]), True),
    ("e00e01f0" + "0000000800000003" + "54010203", Array(Array, [Array(Int, [Int(1), Int(2), Int(3)])]), False),
    ("e0070200530554" + "0304", Array(Int, [Int(3), Int(4)], ULong(5)), False),
    ("e00d02005305710000000300000004", Array(Int, [Int(3), Int(4)], ULong(5)), True),
    ("e00901005305005306" + "5403", Array(Described, [Described(ULong(6), Int(3))], ULong(5)), False),
    ("0053055403", Described(ULong(5), Int(3)), True),
    ("00a3016100a3016240", Described(Symbol("a"), Described(Symbol("b"), None)), True),
    ("0000530155" + "0140", Described(Described(ULong(1), 1), None), True),
]


@pytest.mark.parametrize(("encoded", "value", "ours"), ENCODINGS, ids=[row[0][:24] for row in ENCODINGS])
def test_every_encoding(encoded: str, value: Any, ours: bool) -> None:
    raw = bytes.fromhex(encoded)
    for buf in (raw, bytearray(raw), memoryview(raw)):
        decoded, pos = decode(buf)
        assert same(decoded, value), decoded
        assert pos == len(raw)
    assert decode(b"\xff" + raw + b"\xff", 1, 1 + len(raw))[1] == 1 + len(raw)
    assert skip(raw, 0, len(raw)) == len(raw)
    assert (encode(value) == raw) is ours
    assert same(decode(encode(value))[0], value)


@pytest.mark.parametrize("encoded", [row[0] for row in ENCODINGS], ids=[row[0][:24] for row in ENCODINGS])
def test_cut_short_anywhere(encoded: str) -> None:
    raw = bytes.fromhex(encoded)
    for end in range(len(raw)):
        for buf, stop in ((raw[:end], None), (raw, end)):
            with pytest.raises(AmqpError) as caught:
                decode(buf, 0, stop)
            assert caught.value.condition == DECODE_ERROR
        with pytest.raises(AmqpError):
            skip(raw, 0, end)


def test_the_book_of_the_specification() -> None:
    value, pos = decode(BOOK)
    authors = Array(Symbol, [Symbol("Rob J. Godfrey"), Symbol("Rafael H. Schloming")])
    assert same(value, Described(Symbol("example:book:list"), ["AMQP for & by Dummies", authors, None]))
    assert pos == len(BOOK)
    assert encode(value) == BOOK


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        ("", "too early"),
        ("00", "too early"),
        ("0040", "too early"),
        ("3f", "unknown type code 0x3f"),
        ("46", "unknown type code 0x46"),
        ("ff00", "unknown type code 0xff"),
        ("5602", "boolean is 0 or 1"),
        ("7300110000", "not a Unicode character"),
        ("730000d800", "not a Unicode character"),
        ("a101ff", "not UTF-8"),
        ("a103eda080", "not UTF-8"),
        ("b100000001ff", "not UTF-8"),
        ("a30180", "not ASCII"),
        ("b30000000180", "not ASCII"),
        ("c00000", "does not fit"),
        ("d00000000300000000", "does not fit"),
        ("c0020240", "2 elements cannot be in 1 bytes"),
        ("c0030140" + "40", "1 bytes too many"),
        ("d000000005ffffffff40", "4294967295 elements cannot be in 1 bytes"),
        ("c1020140", "a key without a value"),
        ("c103024540", "as key in the map"),
        ("c105044040" + "4040", "two equal keys"),
        ("e00100", "too early"),
        ("e002013f", "unknown type code 0x3f"),
        ("e0030100" + "40", "too early"),
        ("f000000005ffffffff40", "4294967295 elements without bytes"),
        ("f000000005ffffffff41", "4294967295 elements without bytes"),
        ("f000000005ffffffff45", "4294967295 elements without bytes"),
        ("f000000006ffffffff5001", "4294967295 elements cannot be in 1 bytes"),
        ("f000000006ffffffffd000", "4294967295 elements cannot be in 1 bytes"),
        ("e0040150" + "0101", "1 bytes too many"),
        ("e0030141" + "01", "1 bytes too many"),
        ("e009010053010053020" + "0530340", "more than twice"),
    ],
)
def test_refused(encoded: str, reason: str) -> None:
    raw = bytes.fromhex(encoded)
    with pytest.raises(AmqpError, match=reason) as caught:
        decode(raw)
    assert caught.value.condition == DECODE_ERROR


@pytest.mark.parametrize("code", [code for code in range(256) if code >> 4 in (1, 2, 3) or (code >> 4 == 0 and code)])
def test_codes_that_do_not_exist(code: int) -> None:
    for raw in (
        bytes((code,)) + bytes(40),
        bytes((0xC0, 41, 1, code)) + bytes(39),
        bytes((0xE0, 41, 1, code)) + bytes(39),
    ):
        with pytest.raises(AmqpError, match=f"unknown type code 0x{code:02x}"):
            decode(raw)
    with pytest.raises(AmqpError, match="unknown type code"):
        skip(bytes((code,)) + bytes(40), 0, 41)


def _nested(kind: str, levels: int) -> bytes:
    if kind == "values described":
        return b"\x00\x43" * levels + b"\x40"
    if kind == "descriptors described":
        return b"\x00" * levels + b"\x40" * (levels + 1)
    value = b"\x40"
    for _ in range(levels):
        if kind == "maps":
            value = b"\xd1" + struct.pack(">II", len(value) + 5, 2) + b"\x43" + value
        else:
            value = (b"\xd0" if kind == "lists" else b"\xf0") + struct.pack(">II", len(value) + 4, 1) + value
    return value


@pytest.mark.parametrize("kind", ["lists", "maps", "arrays", "values described", "descriptors described"])
def test_nesting_is_bounded(kind: str) -> None:
    decode(_nested(kind, MAX_DEPTH))
    for levels in (MAX_DEPTH + 1, 100_000 if "described" in kind else 2_000):
        with pytest.raises(AmqpError, match="nested deeper") as caught:
            decode(_nested(kind, levels))
        assert caught.value.condition == DECODE_ERROR
    if "described" in kind:
        hostile = _nested(kind, 100_000)
        with pytest.raises(AmqpError, match="nested deeper"):
            skip(hostile, 0, len(hostile))


def test_elements_without_bytes_are_counted() -> None:
    most = Array(None, [None] * MAX_EMPTY_ELEMENTS)
    assert same(decode(encode(most))[0], most)
    one_more = b"\xf0" + struct.pack(">II", 5, MAX_EMPTY_ELEMENTS + 1) + b"\x40"
    with pytest.raises(AmqpError, match="elements without bytes"):
        decode(one_more)
    with pytest.raises(ValueError, match="at most"):
        encode(Array(None, [None] * (MAX_EMPTY_ELEMENTS + 1)))


def test_uuids_that_collide_do_not_make_a_map_slow() -> None:
    modulus = (1 << 61) - 1
    keys = [UUID(int=number * modulus) for number in range(1, MAX_UUID_KEYS + 2)]
    assert len({hash(key) for key in keys}) < 5
    with pytest.raises(AmqpError, match="uuids as keys"):
        decode(encode(dict.fromkeys(keys)))
    few = dict.fromkeys(keys[:MAX_UUID_KEYS])
    assert decode(encode(few))[0] == few


def test_a_long_description_is_cut() -> None:
    assert len(malformed("x" * 10_000).description) == 300
    with pytest.raises(AmqpError) as caught:
        decode(encode({"k" * 10_000: 1}).replace(b"k" * 10_000, b"k" * 9_999 + b"\xff"))
    assert len(caught.value.description) <= 300


@pytest.mark.parametrize(
    "value",
    [
        2**63, -(2**63) - 1, UByte(256), UByte(-1), UShort(65536), UInt(2**32), UInt(-1), ULong(2**64), ULong(-1),
        Byte(128), Short(32768), Int(2**31), Timestamp(2**63), Float32(1e300), Char("ab"), Char(""),
        Symbol("ü"), "\ud800", Decimal32(b"1"), Decimal64(b"1"), Decimal128(b"1"), Array(Int, ["x"]),
        Array(Symbol, ["ü"]), Array(Described, [Described(1, 1), Described(2, 1)]),
    ],
    ids=lambda value: f"{type(value).__name__}",
)  # fmt: skip
def test_values_that_do_not_fit(value: Any) -> None:
    with pytest.raises(ValueError):
        encode(value)


@pytest.mark.parametrize("value", [object(), {1, 2}, 1j, Array(object, []), Array(Described, [])])
def test_values_without_a_form(value: Any) -> None:
    with pytest.raises(TypeError, match="has no AMQP form"):
        encode(value)
    with pytest.raises(TypeError, match="has no AMQP form"):
        encode([{"k": value}])


def test_subclasses_are_encoded_as_their_base() -> None:
    class Name(str):
        pass

    class Row(dict[str, int]):
        pass

    assert encode(Name("a")) == encode("a")
    assert encode(Row(a=1)) == encode({"a": 1})
    assert encode((1, 2)) == encode([1, 2])
    assert encode(bytearray(b"a")) == encode(memoryview(b"a")) == encode(b"a")


@given(VALUES)
def test_round_trip(value: Any) -> None:
    encoded = encode(value)
    decoded, pos = decode(encoded)
    assert same(decoded, value)
    assert pos == len(encoded) == skip(encoded, 0, len(encoded))
    assert encode(decoded) == encoded


def test_an_empty_array_that_is_described_twice_can_be_sent_on() -> None:
    """What the inner descriptor was is not known without elements; whatever was decoded must have a form again."""
    constructor = b"\x00\xa1\x01a\x00\xa1\x01b\x40"
    raw = b"\xe0" + bytes((len(constructor) + 1, 0)) + constructor
    value, _ = decode(raw)
    assert (len(value), value.descriptor) == (0, "a")
    assert decode(encode(value))[0] == value
