from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.messages.message import Message, Sections
from enmasse.amqp.messages.scan import ToSpans, find_to, span_of_to

_texts = st.text(max_size=300)


@given(
    to=st.none() | _texts,
    message_id=st.none() | _texts | st.binary(max_size=300) | st.integers(0, 2**64 - 1) | st.uuids(),
    user_id=st.none() | st.binary(max_size=300),
    subject=st.none() | _texts,
    annotations=st.dictionaries(_texts.filter(str.isascii), _texts | st.integers(0, 9) | st.lists(_texts), max_size=3),
    durable=st.booleans(),
)
def test_the_to_of_any_message(to: str | None, **fields: Any) -> None:
    payload = Message(b"body", to=to, **fields).encode()
    found = find_to(payload)
    assert (None if found is None else found.decode()) == to


@settings(max_examples=500)
@given(st.data())
def test_no_bytes_confuse_it(data: st.DataObject) -> None:
    payload = bytearray(Message(b"x", to="somewhere", message_id="1", annotations={"a": 1}).encode())
    for _ in range(data.draw(st.integers(0, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    payload = payload[: data.draw(st.integers(0, len(payload)))]
    try:
        expected = Sections(bytes(payload)).to
    except AmqpError:
        with contextlib.suppress(AmqpError):
            find_to(bytes(payload))
        return
    found = find_to(bytes(payload))
    assert (None if found is None else found.decode()) == expected


def test_symbolic_descriptors() -> None:
    named = b"\x00\xa3\x14amqp:properties:list\xc0\x07\x03\x40\x40\xa1\x02to"
    assert find_to(named + b"\x00\x53\x77\x40") == b"to"


@pytest.mark.parametrize("payload", [b"\x00" * 20_000, b"\x00\x53\x72" + b"\x00\x43" * 20_000])
def test_deep_nesting_is_no_way_to_the_stack_limit(payload: bytes) -> None:
    with pytest.raises(AmqpError):
        find_to(payload)


@given(st.binary(max_size=200))
def test_random_bytes(payload: bytes) -> None:
    with contextlib.suppress(AmqpError):
        find_to(payload)


@given(st.binary(max_size=60), st.sampled_from((0x10, 0x70, 0x72, 0x73, 0x75)))
def test_the_span_of_to_is_that_of_its_text(rest: bytes, code: int) -> None:
    payload = b"\x00\x53%c\xc0\x03\x01\xa1\x00" % code + rest
    payload += b"\x00\x53\x73\xc0\x07\x03\x40\x40\xa1\x02to" if not rest else b""
    try:
        start, end = span_of_to(payload)
    except AmqpError:
        return
    assert code != 0x10
    assert payload[start:end] == (find_to(payload) or b"")


_bodies = st.sampled_from((b"", b"x", b"y" * 200))


@given(st.data())
def test_what_begins_like_the_last_is_found_at_once(data: st.DataObject) -> None:
    spans = ToSpans()
    for _ in range(data.draw(st.integers(1, 8))):
        payload = bytearray(
            Message(
                data.draw(_bodies),
                to=data.draw(st.sampled_from((None, "", "a", "news/one", "l" * 254, "l" * 300))),
                message_id=data.draw(st.sampled_from((None, None, None, "1"))),
                durable=data.draw(st.booleans()),
                annotations=data.draw(st.sampled_from(({}, {"x-opt-mqtt-qos": 1}))),
            ).encode()
        )
        if data.draw(st.booleans()):
            payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
            payload = payload[: data.draw(st.integers(0, len(payload)))]
        try:
            expected = span_of_to(bytes(payload))
        except AmqpError:
            with pytest.raises(AmqpError):
                spans.find(bytes(payload))
        else:
            assert spans.find(bytes(payload)) == expected
