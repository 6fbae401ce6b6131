"""Fuzzing: mutated frames and messages may raise AmqpError(amqp:decode-error) and nothing else, at a bounded cost.

ENMASSE_FUZZ_ITERATIONS says how many inputs (20,000), ENMASSE_FUZZ_SEED where the random numbers begin; a failure
prints both the seed and the input. What an input costs is counted (calls, bytes allocated), never timed.
"""

from __future__ import annotations

import os
import random
import struct
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest

from enmasse.amqp.codec.codec import decode, encode, skip
from enmasse.amqp.codec.errors import DECODE_ERROR, AmqpError
from enmasse.amqp.codec.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    Coordinator,
    Detach,
    Disposition,
    Error,
    Flow,
    Modified,
    Open,
    Received,
    Rejected,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    TransactionalState,
    Transfer,
    decode_performative,
    encode_performative,
)
from enmasse.amqp.codec.types import Array, Char, Decimal128, Described, Float32, Int, Symbol, Timestamp, UInt, ULong
from enmasse.amqp.messages.message import Message, Sections

ITERATIONS = int(os.environ.get("ENMASSE_FUZZ_ITERATIONS", "20000"))
SEED = int(os.environ.get("ENMASSE_FUZZ_SEED", "1"))

VALUE = {
    "list": [None, True, 0, -1, 2**40, 1.5, Float32(2.5), "text", b"binary", UUID(int=1), Char("ü"), Timestamp(1)],
    "array": Array(Symbol, [Symbol("a"), Symbol("b")], ULong(9)),
    "arrays": Array(Array, [Array(Int, [Int(1), Int(2)]), Array(None, [None] * 5)]),
    "map": {Symbol("k"): Described(ULong(1), [Decimal128(bytes(16))]), "deep": [[[[{"x": [UInt(7)]}]]]]},
    "lists": Array(list, [[], [1, "two"]]),
}
ERROR = Error(condition=Symbol("amqp:x"), description="no", info={"a": [1]})
PERFORMATIVES: list[Any] = [
    Open(container_id="c", hostname="h", idle_time_out=1000, offered_capabilities=("A", "B"), properties=VALUE),  # type: ignore[arg-type]  # plain strings become symbols
    Begin(remote_channel=1, next_outgoing_id=0, incoming_window=2048, outgoing_window=2048, properties={"k": "v"}),
    Attach(
        name="link",
        handle=1,
        role=True,
        source=Source(
            address="q",
            filter={"jms-selector": Described(ULong(0x468C00000004), "a = 1")},
            default_outcome=Modified(delivery_failed=True, message_annotations={"k": 1}),
            outcomes=(Symbol("amqp:accepted:list"),),
            dynamic_node_properties={"lifetime-policy": Described(ULong(0x2B), [])},
        ),
        target=Target(address="t", capabilities=(Symbol("queue"),)),
        unsettled={b"1": ACCEPTED, b"2": None, b"3": Received(section_number=1, section_offset=2)},
        max_message_size=2**40,
    ),
    Attach(name="tx", handle=2, role=False, target=Coordinator(capabilities=(Symbol("amqp:local-transactions"),))),
    Flow(
        next_incoming_id=1,
        incoming_window=1,
        next_outgoing_id=1,
        outgoing_window=1,
        handle=0,
        link_credit=100,
        drain=True,
    ),
    Transfer(handle=0, delivery_id=1, delivery_tag=b"tag", message_format=0, settled=False, more=True),
    Transfer(handle=0, state=TransactionalState(txn_id=b"t", outcome=Rejected(error=ERROR))),
    Disposition(role=True, first=1, last=300, settled=True, state=ACCEPTED),
    Detach(handle=0, closed=True, error=ERROR),
    SaslMechanisms(sasl_server_mechanisms=(Symbol("PLAIN"), Symbol("ANONYMOUS"))),
    SaslInit(mechanism=Symbol("PLAIN"), initial_response=b"\0u\0p", hostname="h"),
    SaslOutcome(code=0),
]
FULL = Message(
    VALUE, durable=True, ttl=1000, delivery_count=2, delivery_annotations={"d": 1}, annotations={"x-opt": [1, 2]},
    message_id=UUID(int=5), user_id=b"u", to="q", correlation_id=7, content_type="text/plain", creation_time=1,
    application_properties={"a": 1, "b": "two", "c": None, "d": 1.5}, footer={"f": b"crc"},
)  # fmt: skip
VALUES = [encode(VALUE), *(encode(value) for value in VALUE.values()), encode(Described(Symbol("d"), VALUE))]
FRAMES = [encode_performative(performative) for performative in PERFORMATIVES]
MESSAGES = [
    FULL.encode(),
    Message("text", to="q").encode(),
    Message(b"data", durable=True).encode() + b"\x00\x53\x75\xa0\x04more",
]
# Bytes with a meaning: constructors, descriptors, sizes that are too large or just at an edge.
TELLING = bytes(
    (0x00, 0x01, 0x02, 0x7F, 0x80, 0xFE, 0xFF, 0x40, 0x41, 0x43, 0x45, 0x53, 0x56, 0x70, 0x73, 0x98)
) + bytes((0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3, 0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0, 0x72, 0x74, 0x75, 0x77, 0x78, 0x24))


def mutated(rng: random.Random, seeds: list[bytes]) -> bytes:
    raw = bytearray(rng.choice(seeds))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(raw) + 1)
        match rng.randrange(9):
            case 0 | 1 if raw:
                raw[at % len(raw)] = rng.choice(TELLING)
            case 2 if raw:
                raw[at % len(raw)] ^= 1 << rng.randrange(8)
            case 3:
                del raw[at : at + rng.choice((1, 1, 4, 16))]
            case 4:
                raw[at:at] = bytes(rng.choice(TELLING) for _ in range(rng.choice((1, 2, 5))))
            case 5:
                raw[at : at + 4] = struct.pack(">I", rng.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1, len(raw), 300)))
            case 6:
                del raw[at:]
            case 7:
                other = rng.choice(seeds)
                start = rng.randrange(len(other))
                raw[at:at] = other[start : start + rng.randrange(1, 40)]
            case _:
                piece = bytes(raw[at : at + rng.randrange(1, 30)])
                raw[at:at] = piece * rng.choice((1, 2, 30))
    return bytes(raw)


def read_value(raw: bytes) -> None:
    value, pos = decode(raw)
    assert 0 < pos <= len(raw)
    again, _ = decode(encode(value))
    assert type(again) is type(value)


def read_frame(raw: bytes) -> None:
    performative, pos = decode_performative(raw, 0, len(raw))
    assert 0 < pos <= len(raw)
    assert decode(raw)[1] == pos
    encoded = encode_performative(performative)
    assert repr(decode_performative(encoded, 0, len(encoded))[0]) == repr(performative)


def read_message(raw: bytes) -> None:
    Message.decode(raw)


def _asked(name: str) -> Callable[[bytes], None]:
    def read_section(raw: bytes) -> None:
        found = getattr(Sections(raw), name)
        if callable(found):
            found()

    return read_section


SECTION_READERS = [
    _asked(name)
    for name in (
        "header", "delivery_annotations", "annotations", "properties", "to", "application_properties", "footer", "body",
        "check", "bare", "front", "positions",
    )
]  # fmt: skip


def read_sections(raw: bytes) -> None:
    for reader in SECTION_READERS:
        with suppress(AmqpError):
            reader(raw)


def skip_value(raw: bytes) -> None:
    assert 0 < skip(raw, 0, len(raw)) <= len(raw)


TARGETS: dict[str, tuple[list[bytes], Callable[[bytes], None]]] = {
    "values": (VALUES, read_value),
    "skipped": (VALUES, skip_value),
    "frames": (FRAMES, read_frame),
    "messages": (MESSAGES, read_message),
    "sections": (MESSAGES, read_sections),
}


def only_amqp_errors(read: Callable[[bytes], None], raw: bytes) -> bool:
    """Whether `raw` was read; AmqpError is the one way in which it may not be."""
    try:
        read(raw)
    except AmqpError as error:
        assert error.condition == DECODE_ERROR, f"seed {SEED}, input {raw.hex()}"
        assert 0 < len(error.description) <= 300, f"seed {SEED}, input {raw.hex()}"
        return False
    except BaseException as error:
        raise AssertionError(f"{type(error).__name__} with seed {SEED}, input {raw.hex()}") from error
    return True


@pytest.mark.parametrize("target", list(TARGETS))
def test_mutations_raise_amqp_errors_only(target: str) -> None:
    seeds, read = TARGETS[target]
    assert all(only_amqp_errors(read, seed) for seed in seeds)
    rng = random.Random(f"{SEED} {target}")
    tried = max(100, ITERATIONS // len(TARGETS))
    accepted = sum(only_amqp_errors(read, mutated(rng, seeds)) for _ in range(tried))
    assert 0 < accepted < tried or read is read_sections  # that one swallows its errors


@pytest.mark.parametrize("target", list(TARGETS))
def test_random_bytes_raise_amqp_errors_only(target: str) -> None:
    read = TARGETS[target][1]
    rng = random.Random(f"{SEED} random {target}")
    for _ in range(ITERATIONS // 20):
        raw = bytes(rng.choice(TELLING) for _ in range(rng.randrange(1, 60)))
        only_amqp_errors(read, raw)
        only_amqp_errors(read, b"\x00\x53" + raw)
        only_amqp_errors(read, rng.randbytes(rng.randrange(1, 60)))


def cost(read: Callable[[bytes], None], raw: bytes) -> tuple[int, int]:
    """Python and C calls, and the bytes allocated at the worst moment, while `raw` is read."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        only_amqp_errors(read, raw)
    finally:
        sys.setprofile(None)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        only_amqp_errors(read, raw)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    return calls, peak


def _lists(inner: bytes, count: int) -> bytes:
    body = inner * count
    return b"\xd0" + struct.pack(">II", len(body) + 4, count) + body


def _array(constructor: bytes, elements: bytes, count: int) -> bytes:
    return b"\xf0" + struct.pack(">II", len(constructor) + len(elements) + 4, count) + constructor + elements


HUGE = 0xFFFFFFFF
BOMBS = {
    "a list that says four billion": b"\xd0" + struct.pack(">II", 100, HUGE) + bytes(96),
    "a map that says four billion": b"\xd1" + struct.pack(">II", 100, HUGE - 1) + bytes(96),
    "four billion nulls": _array(b"\x40", b"", HUGE),
    "four billion trues": _array(b"\x41", b"", HUGE),
    "four billion empty lists": _array(b"\x45", b"", HUGE),
    "four billion described nulls": _array(b"\x00\x43\x40", b"", HUGE),
    "four billion ubytes": _array(b"\x50", bytes(100), HUGE),
    "a string of four gigabytes": b"\xb1" + struct.pack(">I", HUGE) + b"x" * 100,
    "a binary of four gigabytes": b"\xb0" + struct.pack(">I", HUGE) + b"x" * 100,
    "many arrays of nulls": _lists(b"\xe0\x02\x40\x40", 2000),
    "many arrays of empty lists": _lists(b"\xe0\x02\x40\x45", 2000),
    "many empty lists": _lists(b"\x45", 2000),
    "many empty maps": _lists(b"\xc1\x01\x00", 2000),
    "many described empty lists": _lists(b"\x00\x45\x45", 2000),
    "ubytes described twice": _array(b"\x00\x43\x00\x43\x50", bytes(3000), 3000),
    "lists in lists, wide": _lists(_lists(_lists(b"\x45", 20), 20), 20),
    "descriptors of descriptors": b"\x00" * 20000,
    "described values in described values": b"\x00\x43" * 10000,
    "lists in lists, deep": encode([[[[[[[[]]]]]]]]).replace(b"\x45", _lists(b"\x45", 100)) * 3,
}


def _decode_value(raw: bytes) -> None:
    decode(raw)


def _decode_frame(raw: bytes) -> None:
    decode_performative(raw, 0, len(raw))


def _in_map(raw: bytes) -> bytes:
    """A map with `raw` as its only value."""
    return b"\xd1" + struct.pack(">II", len(raw) + 7, 2) + b"\xa3\x01k" + raw


def _in_open(raw: bytes) -> bytes:
    """An open with `raw` among its properties."""
    fields = b"\xa1\x01c" + b"\x40" * 8 + _in_map(raw)
    return b"\x00\x53\x10\xd0" + struct.pack(">II", len(fields) + 4, 10) + fields


@pytest.mark.parametrize("bomb", list(BOMBS))
def test_a_bomb_costs_no_more_than_its_size(bomb: str) -> None:
    raw = BOMBS[bomb]
    bounded(_decode_value, raw)
    bounded(_decode_frame, _in_open(raw))
    bounded(read_message, b"\x00\x53\x77" + raw)
    for reader in SECTION_READERS:
        bounded(reader, b"\x00\x53\x72" + _in_map(raw) + b"\x00\x53\x77\x40")


def bounded(read: Callable[[bytes], None], raw: bytes) -> None:
    calls, peak = cost(read, raw)
    assert calls <= 20 * len(raw) + 500, f"{calls} calls for {len(raw)} bytes, input {raw[:200].hex()}"
    assert peak <= 250 * len(raw) + 50_000, f"{peak} bytes allocated for {len(raw)} bytes, input {raw[:200].hex()}"


def test_mutations_cost_no_more_than_their_size() -> None:
    rng = random.Random(f"{SEED} cost")
    for _ in range(max(20, ITERATIONS // 400)):
        bounded(_decode_value, mutated(rng, VALUES))
        bounded(_decode_frame, mutated(rng, FRAMES))
        bounded(read_message, mutated(rng, MESSAGES))
        bounded(rng.choice(SECTION_READERS), mutated(rng, MESSAGES))
