"""Encoded messages with all sections and types, made by hypothesis."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from hypothesis import strategies as st

from enmasse.amqp.codec.types import Symbol, ULong
from enmasse.amqp.messages.message import AmqpSequence, AmqpValue, Message
from tests.amqp.codec_values import ASCII, OF_TYPE, SIMPLE, TEXT, VALUES, same

IDS = st.none() | OF_TYPE[ULong] | st.uuids() | st.binary(max_size=20) | TEXT
SYMBOLS = ASCII.map(Symbol)
ANNOTATIONS = st.dictionaries(SYMBOLS | OF_TYPE[ULong], VALUES, max_size=3)
TIMES = st.none() | st.integers(0, 2**40)
BODIES = st.one_of(
    st.lists(st.binary(max_size=50), min_size=1, max_size=3),
    st.lists(st.lists(VALUES, max_size=3).map(AmqpSequence), min_size=1, max_size=3),
    VALUES.map(lambda value: [AmqpValue(value)]),
)
EMPTY = Message(None).encode()


@st.composite
def messages(draw: st.DrawFn, *, hop: bool = True) -> bytes:
    """An encoded message; its body may have several sections. `hop`: with what concerns the next hop only."""
    front = Message(
        None,
        durable=draw(st.booleans()),
        priority=draw(st.integers(0, 9)),
        ttl=draw(st.none() | st.integers(3_600_000, 2**32 - 1)),
        first_acquirer=hop and draw(st.booleans()),
        delivery_count=draw(st.integers(0, 3)) if hop else 0,
        delivery_annotations=draw(ANNOTATIONS) if hop else {},
        annotations=draw(ANNOTATIONS),
        message_id=draw(IDS),
        user_id=draw(st.none() | st.binary(max_size=20)),
        to=draw(st.none() | TEXT),
        subject=draw(st.none() | TEXT),
        reply_to=draw(st.none() | TEXT),
        correlation_id=draw(IDS),
        content_type=draw(st.none() | SYMBOLS),
        content_encoding=draw(st.none() | SYMBOLS),
        absolute_expiry_time=draw(st.none() | st.integers(2**42, 2**45)),
        creation_time=draw(TIMES),
        group_id=draw(st.none() | TEXT),
        group_sequence=draw(st.none() | st.integers(0, 2**32 - 1)),
        reply_to_group_id=draw(st.none() | TEXT),
        application_properties=draw(st.dictionaries(TEXT, SIMPLE, max_size=4)),
    )
    bodies = b"".join(Message(body).encode() for body in draw(BODIES))
    footer = draw(st.dictionaries(SYMBOLS, VALUES, max_size=2))
    end = Message(None, footer=footer).encode().removeprefix(EMPTY)
    return front.encode().removesuffix(EMPTY) + bodies + end


MESSAGES = messages()


def identical(a: Message, b: Message) -> bool:
    """Return whether two messages have the same fields, with the same types all the way down."""
    return all(_same(getattr(a, field.name), getattr(b, field.name)) for field in fields(Message))


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, AmqpValue) and isinstance(b, AmqpValue):
        return same(a.value, b.value)
    if isinstance(a, AmqpSequence) and isinstance(b, AmqpSequence):
        return same(a.values, b.values)
    return same(a, b)
