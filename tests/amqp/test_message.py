"""Messages for people: there and back, against Proton's Message, bytes by hand, refusals; filters of a source."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.amqp.codec.codec import encode
from enmasse.amqp.codec.errors import DECODE_ERROR, AmqpError
from enmasse.amqp.codec.types import (
    Decimal32,
    Decimal64,
    Decimal128,
    Int,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
)
from enmasse.amqp.messages.message import (
    AmqpSequence,
    AmqpValue,
    Message,
)
from tests.amqp.codec_values import ASCII, OF_TYPE, SIMPLE, TEXT, VALUES, same, to_proton

_U32 = st.integers(0, 2**32 - 1)
_MS = st.integers(0, 2**52)
_ID = st.none() | OF_TYPE[ULong] | OF_TYPE[UUID] | st.binary() | TEXT
_ANNOTATIONS = st.dictionaries(OF_TYPE[Symbol] | OF_TYPE[ULong], VALUES, max_size=3)
_NAME = st.none() | TEXT
_SYMBOL = st.none() | OF_TYPE[Symbol]
_BODY: st.SearchStrategy[Any] = st.one_of(
    st.binary(max_size=400),
    VALUES.filter(lambda value: type(value) is not bytes),
    st.one_of(*(values for kind, values in OF_TYPE.items() if issubclass(kind, bytes))).map(AmqpValue),
    st.lists(VALUES, max_size=3).map(AmqpSequence),
)
MESSAGES = st.builds(
    Message,
    _BODY,
    durable=st.booleans(),
    priority=st.integers(0, 255),
    ttl=st.none() | _U32,
    first_acquirer=st.booleans(),
    delivery_count=_U32,
    delivery_annotations=_ANNOTATIONS,
    annotations=_ANNOTATIONS,
    message_id=_ID,
    user_id=st.none() | st.binary(),
    to=_NAME,
    subject=_NAME,
    reply_to=_NAME,
    correlation_id=_ID,
    content_type=_SYMBOL,
    content_encoding=_SYMBOL,
    absolute_expiry_time=st.none() | _MS,
    creation_time=st.none() | _MS,
    group_id=_NAME,
    group_sequence=st.none() | _U32,
    reply_to_group_id=_NAME,
    application_properties=st.dictionaries(TEXT, SIMPLE, max_size=4),
    footer=_ANNOTATIONS,
)
_FIELDS = [name for name in Message.__dataclass_fields__ if name != "body"]


def _same_body(a: Any, b: Any) -> bool:
    if isinstance(a, AmqpValue) and isinstance(b, AmqpValue):
        return same(a.value, b.value)
    if isinstance(a, AmqpSequence) and isinstance(b, AmqpSequence):
        return same(a.values, b.values)
    if isinstance(a, bytes) and type(b) is AmqpValue:  # a decimal is a value, whatever its class stands on
        return same(a, b.value)
    return same(a, b)


@given(MESSAGES)
def test_round_trip(message: Message) -> None:
    encoded = message.encode()
    for buf in (encoded, memoryview(encoded)):
        decoded = Message.decode(buf)
        assert _same_body(message.body, decoded.body)
        for name in _FIELDS:
            assert same(getattr(decoded, name), getattr(message, name)), name
    assert decoded.encode() == encoded


@pytest.mark.parametrize("value", [Decimal32(b"\x01\x02\x03\x04"), Decimal64(bytes(8)), Decimal128(b"\x07" * 16)])
def test_a_decimal_is_a_value_whatever_its_class_stands_on(value: Any) -> None:
    encoded = Message(value).encode()
    assert encoded == Message(AmqpValue(value)).encode()
    body = Message.decode(encoded).body
    assert type(body) is AmqpValue and same(body.value, value)
    theirs = proton.Message()
    theirs.decode(encoded)
    assert theirs.body == to_proton(value)


@given(MESSAGES)
def test_proton_reads_what_we_write(message: Message) -> None:
    theirs = proton.Message()
    theirs.decode(message.encode())
    assert (theirs.durable, theirs.priority, theirs.first_acquirer) == (
        message.durable, message.priority, message.first_acquirer,
    )  # fmt: skip
    assert theirs.delivery_count == message.delivery_count
    assert round(theirs.ttl * 1000) == (message.ttl or 0)
    assert theirs.id == (None if message.message_id is None else to_proton(message.message_id))
    assert theirs.correlation_id == (None if message.correlation_id is None else to_proton(message.correlation_id))
    assert bytes(theirs.user_id) == (message.user_id or b"")
    for ours, name in (
        ("to", "address"), ("subject", "subject"), ("reply_to", "reply_to"), ("group_id", "group_id"),
        ("reply_to_group_id", "reply_to_group_id"),
    ):  # fmt: skip
        if "\0" not in (getattr(message, ours) or ""):  # Proton's strings are C's
            assert getattr(theirs, name) == getattr(message, ours), name
    assert round(theirs.expiry_time * 1000) == (message.absolute_expiry_time or 0)
    assert round(theirs.creation_time * 1000) == (message.creation_time or 0)
    assert set(theirs.properties or {}) == set(message.application_properties)
    assert len(theirs.annotations or {}) == len(message.annotations)
    assert len(theirs.instructions or {}) == len(message.delivery_annotations)


@given(
    body=TEXT | st.integers(-(2**63), 2**63 - 1) | st.lists(TEXT) | st.binary(),
    identity=st.none() | TEXT | st.uuids() | OF_TYPE[ULong],
    names=st.lists(st.none() | ASCII.filter(lambda text: "\0" not in text), min_size=7, max_size=7),
    properties=st.dictionaries(TEXT, SIMPLE, max_size=4),
    durable=st.booleans(),
    count=_U32,
    ms=_MS,
)
def test_we_read_what_proton_writes(
    body: Any, identity: Any, names: list[Any], properties: dict[str, Any], durable: bool, count: int, ms: int
) -> None:
    theirs = proton.Message(body=body, durable=durable, delivery_count=count, inferred=type(body) is bytes)
    theirs.id = theirs.correlation_id = None if identity is None else to_proton(identity)
    theirs.address, theirs.subject, theirs.reply_to, theirs.group_id, theirs.reply_to_group_id = names[:5]
    theirs.content_type, theirs.content_encoding = names[5:]
    theirs.properties = {key: to_proton(value) for key, value in properties.items()}
    theirs.annotations = {proton.symbol("x-opt-a"): proton.int32(1)}
    theirs.instructions = {proton.symbol("x-opt-b"): "b"}
    theirs.ttl, theirs.priority = count / 1000, 7
    theirs.creation_time = ms / 1000
    ours = Message.decode(theirs.encode())
    assert same(ours.body, body)
    assert same(ours.message_id, identity)
    assert same(ours.correlation_id, identity)
    assert [ours.to, ours.subject, ours.reply_to, ours.group_id, ours.reply_to_group_id] == names[:5]
    assert [ours.content_type or "", ours.content_encoding or ""] == [name or "" for name in names[5:]]
    assert same(ours.application_properties, properties)
    assert same(ours.annotations, {Symbol("x-opt-a"): Int(1)})
    assert same(ours.delivery_annotations, {Symbol("x-opt-b"): "b"})
    assert (ours.durable, ours.priority, ours.delivery_count) == (durable, 7, count)
    assert abs((ours.creation_time or 0) - ms) <= 1  # Proton reckons in floating seconds


def test_bytes_by_hand() -> None:
    assert Message().encode() == b"\x00\x53\x77\x40"
    assert Message("hi").encode() == b"\x00\x53\x77\xa1\x02hi"
    assert Message(b"hi").encode() == b"\x00\x53\x75\xa0\x02hi"
    assert Message(bytearray(b"hi")).encode() == Message(memoryview(b"hi")).encode() == Message(b"hi").encode()
    assert Message(AmqpValue(b"hi")).encode() == b"\x00\x53\x77\xa0\x02hi"
    assert Message(AmqpSequence([True])).encode() == b"\x00\x53\x76\xc0\x02\x01\x41"
    assert Message(b"", durable=True).encode() == b"\x00\x53\x70\xc0\x02\x01\x41\x00\x53\x75\xa0\x00"
    assert Message(b"", delivery_count=1).encode()[:12] == b"\x00\x53\x70\xc0\x07\x05\x40\x40\x40\x40\x52\x01"
    assert Message(b"", ttl=0).encode()[:9] == b"\x00\x53\x70\xc0\x04\x03\x40\x40\x43"
    assert Message(b"", to="q").encode()[:11] == b"\x00\x53\x73\xc0\x06\x03\x40\x40\xa1\x01q"
    assert Message(b"", message_id=1, user_id=b"u").encode()[:11] == b"\x00\x53\x73\xc0\x06\x02\x53\x01\xa0\x01u"
    named = Message(b"", application_properties={"k": 1}, annotations={"a": True}).encode()
    assert named[:20] == b"\x00\x53\x72\xc1\x05\x02\xa3\x01a\x41" + b"\x00\x53\x74\xc1\x06\x02\xa1\x01k\x55"


def test_bodies_in_several_sections_become_one() -> None:
    data = b"\x00\x53\x75\xa0\x01a" + b"\x00\x53\x75\xa0\x00" + b"\x00\x53\x75\xb0\x00\x00\x00\x01b"
    assert Message.decode(data).body == b"ab"
    footed = Message.decode(data + b"\x00\x53\x78\xc1\x05\x02\xa3\x01k\x41")
    assert (footed.body, footed.footer) == (b"ab", {"k": True})
    assert Message.decode(b"\x00\x53\x76\xc0\x02\x01\x41" + b"\x00\x53\x76\x45").body == AmqpSequence([True])
    assert Message.decode(b"").body is None
    assert Message.decode(b"\x00\x53\x70\x45").body is None


def test_symbolic_and_wide_descriptors() -> None:
    raw = (
        b"\x00\xa3\x10amqp:header:list\xc0\x02\x01\x41"
        b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x73\xc0\x05\x03\x40\x40\xa1\x01q"
        b"\x00\xb3\x00\x00\x00\x11amqp:amqp-value:*\xa1\x02hi"
    )
    raw = raw.replace(b"\xc0\x05\x03", b"\xc0\x06\x03")
    assert Message.decode(raw) == Message("hi", durable=True, to="q")


HEADER = b"\x00\x53\x70"
PROPERTIES = b"\x00\x53\x73"
VALUE = b"\x00\x53\x77\x40"


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"\x40", "a section begins with 0x00"),
        (b"\x00", "too early"),
        (b"\x00\x53", "too early"),
        (b"\x00\x53\x77", "too early"),
        (b"\x00\x53\x70", "too early"),
        (b"\x00\x53\x79\x40", "0x79 is not a section"),
        (b"\x00\x53\x24\x45", "0x24 is not a section"),
        (b"\x00\xa3\x01x\x40", "'x' is not a section"),
        (b"\x00\x45\x40\x40", "is not a section"),
        (b"\x00\x00\x00\x00\x00\x00", "nested deeper|too early"),
        (VALUE + VALUE, "amqp-value at byte 4 follows amqp-value"),
        (VALUE + b"\x00\x53\x75\xa0\x00", "data at byte 4 follows amqp-value"),
        (b"\x00\x53\x75\xa0\x00" + VALUE, "amqp-value at byte 5 follows data"),
        (VALUE + HEADER + b"\x45", "header at byte 4 follows amqp-value"),
        (PROPERTIES + b"\x45" + HEADER + b"\x45" + VALUE, "header at byte 4 follows properties"),
        (HEADER + b"\x45" + HEADER + b"\x45" + VALUE, "header at byte 4 follows header"),
        (VALUE + b"\x00\x53\x78\xc1\x01\x00" + VALUE, "amqp-value at byte 10 follows footer"),
        (VALUE + b"junk", "a section begins with 0x00"),
        (b"\x00\x53\x75\xb0\xff\xff\xff\xff", "too early"),
        (b"\x00\x53\x75\xa1\x01x", "data: 0xa1"),
        (b"\x00\x53\x76\xc1\x01\x00", "amqp-sequence: 0xc1"),
        (HEADER + b"\xc1\x01\x00" + VALUE, "header: a list expected"),
        (HEADER + encode([1]) + VALUE, "header: durable: a boolean expected, int found"),
        (HEADER + encode([None, Int(4)]) + VALUE, "header: priority: a ubyte expected"),
        (HEADER + encode([None] * 6) + VALUE, "header: 6 fields, there are 5"),
        (PROPERTIES + encode([Int(1)]) + VALUE, "properties: message-id: a ulong, uuid, binary or string"),
        (PROPERTIES + encode([None, "me"]) + VALUE, "properties: user-id: a binary expected"),
        (PROPERTIES + encode([None] * 6 + ["text/plain"]) + VALUE, "properties: content-type: a symbol expected"),
        (PROPERTIES + encode([None] * 8 + [ULong(1)]) + VALUE, "properties: absolute-expiry-time: a timestamp"),
        (PROPERTIES + encode([None] * 14) + VALUE, "properties: 14 fields, there are 13"),
        (PROPERTIES + b"\xc0\x02\x00\x40" + VALUE, "properties: 1 bytes too many"),
        (b"\x00\x53\x72" + encode([]) + VALUE, "message-annotations: a map expected"),
        (b"\x00\x53\x72" + encode({1: 1}) + VALUE, "message-annotations: 1 cannot be a key"),
        (b"\x00\x53\x74" + encode({ULong(1): 1}) + VALUE, "application-properties: 1 cannot be a key"),
    ],
)
def test_refused(raw: bytes, reason: str) -> None:
    with pytest.raises(AmqpError, match=reason) as caught:
        Message.decode(raw)
    assert caught.value.condition == DECODE_ERROR


def test_what_cannot_be_sent_is_named() -> None:
    wrong: list[tuple[Message, str]] = [
        (Message(b"", ttl=-1), "header: ttl: -1 is not a uint"),
        (Message(b"", priority=256), "header: priority: 256 is not a ubyte"),
        (Message(b"", subject=1), "properties: subject"),  # type: ignore[arg-type]  # wrong on purpose
        (Message(b"", message_id=1.5), "properties: message-id: 1.5"),  # type: ignore[arg-type]  # wrong on purpose
        (Message(b"", creation_time=2**63), "properties: creation-time"),
        (Message(b"", content_type="ü"), "properties: content-type: .* ASCII"),
    ]
    for message, reason in wrong:
        with pytest.raises(ValueError, match=reason):
            message.encode()
    with pytest.raises(TypeError, match="application-properties: the key 1"):
        Message(b"", application_properties={1: 1}).encode()  # type: ignore[dict-item]  # wrong on purpose
    with pytest.raises(TypeError, match="no AMQP form"):
        Message(object()).encode()


def test_ids_keep_their_type() -> None:
    for identity in (ULong(7), UUID(int=7), b"7", "7"):
        echoed = Message(correlation_id=Message.decode(Message(message_id=identity).encode()).message_id)
        assert same(Message.decode(echoed.encode()).correlation_id, identity)
    assert same(Message.decode(Message(message_id=7).encode()).message_id, ULong(7))


def test_values_keep_their_type() -> None:
    values = {"a": UByte(1), "b": UInt(1), "c": 1, "d": 1.0, "e": Timestamp(1), "f": Symbol("s"), "g": True, "h": None}
    assert same(Message.decode(Message(values, application_properties=values).encode()).body, values)
    assert same(Message.decode(Message(application_properties=values).encode()).application_properties, values)
