"""Sections: only what is asked for is looked at, the bare message is passed on as it came, the front is made anew."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.amqp.codec.codec import encode
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.types import Symbol, UInt, ULong
from enmasse.amqp.messages.message import Header, Message, Properties, Sections
from enmasse.amqp.messages.scan import AMQP_SEQUENCE, AMQP_VALUE, DATA
from tests.amqp.codec_values import same
from tests.amqp.test_message import MESSAGES

FULL = Message(
    b"body",
    durable=True,
    priority=7,
    ttl=1000,
    delivery_annotations={"hop": 1},
    annotations={"x-opt-a": 1},
    message_id="id",
    to="queue",
    absolute_expiry_time=5,
    application_properties={"colour": "red"},
    footer={"sum": 1},
)


def bare_of(message: Message) -> bytes:
    """The bare message made by itself."""
    header = {name: Header._field_defaults[name] for name in Header._fields}
    rest: dict[str, Any] = {name: getattr(message, name) for name in Message.__dataclass_fields__ if name != "body"}
    rest.update(header, delivery_annotations={}, annotations={})
    return Message(message.body, **rest).encode()


@given(MESSAGES, st.permutations(["header", "to", "properties", "annotations", "footer", "bare", "body"]))
def test_sections_in_any_order_of_asking(message: Message, order: list[str]) -> None:
    sections = Sections(message.encode())
    for name in order:
        found = getattr(sections, name)
        if name == "header":
            assert found == tuple(getattr(message, field) for field in Header._fields)
        elif name == "properties":
            assert found == tuple(getattr(message, field) for field in Properties._fields)
        elif name == "bare":
            assert found == bare_of(message)
        elif name == "body":
            assert found()[0] in (DATA, AMQP_SEQUENCE, AMQP_VALUE)
        else:
            assert same(found, getattr(message, name))
    assert same(sections.application_properties, message.application_properties)
    assert same(sections.delivery_annotations, message.delivery_annotations)
    sections.check()


@given(MESSAGES)
def test_the_front_is_made_anew(message: Message) -> None:
    payload = message.encode()
    bare = bare_of(message)
    message.delivery_annotations = {}

    message.delivery_count, message.ttl = 3, None
    sections = Sections(payload)
    counted = sections.front(sections.header._replace(delivery_count=3, ttl=None)) + sections.bare
    assert counted == message.encode()
    assert counted.endswith(bare)

    message.annotations = {**message.annotations, Symbol("x-opt-new"): [1]}
    for found in (Sections(counted), Sections(memoryview(counted))):
        assert found.front(annotations=message.annotations) + found.bare == message.encode()

    message.annotations = {}
    assert Sections(counted).front(annotations={}) + Sections(counted).bare == message.encode()


def test_each_section() -> None:
    sections = Sections(FULL.encode())
    assert sections.header == Header(durable=True, priority=7, ttl=1000)
    assert sections.delivery_annotations == {"hop": 1}
    assert sections.annotations == {"x-opt-a": 1}
    assert sections.properties == Properties(message_id="id", to="queue", absolute_expiry_time=5)
    assert sections.to == "queue"
    assert sections.application_properties == {"colour": "red"}
    assert sections.body() == (DATA, [b"body"])
    assert sections.footer == {"sum": 1}
    assert sections.header is sections.header
    assert sections.properties is sections.properties
    assert sections.application_properties is sections.application_properties


def test_a_message_of_a_body_alone() -> None:
    payload = Message(b"body").encode()
    sections = Sections(payload)
    assert (sections.header, sections.properties, sections.to) == (Header(), Properties(), None)
    assert sections.annotations == sections.application_properties == sections.footer == {}
    assert sections.bare == payload
    assert sections.front() == b""
    assert sections.front(Header(delivery_count=1)) + payload == Message(b"body", delivery_count=1).encode()


def test_no_sections_at_all() -> None:
    sections = Sections(b"")
    sections.check()
    assert (sections.header, sections.bare, sections.body(), sections.front()) == (Header(), b"", (0, []), b"")


def test_delivery_annotations_stay_behind() -> None:
    sections = Sections(FULL.encode())
    without = Message.decode(sections.front() + sections.bare)
    assert without.delivery_annotations == {}
    without.delivery_annotations = {Symbol("hop"): 1}
    assert without == Message.decode(FULL.encode())


def test_front_with_other_annotations() -> None:
    sections = Sections(FULL.encode())
    front = sections.front(Header(delivery_count=2), {Symbol("x"): ULong(1)})
    header = b"\x00\x53\x70" + encode([None, None, None, None, UInt(2)])
    assert front == header + b"\x00\x53\x72" + encode({Symbol("x"): ULong(1)})
    assert Sections(front + sections.bare).properties == sections.properties
    assert sections.front(annotations={}) == b"\x00\x53\x70" + b"\xc0\x09\x03\x41\x50\x07\x70\x00\x00\x03\xe8"


def test_nothing_after_the_section_asked_for_is_looked_at() -> None:
    payload = FULL.encode()
    body = payload.index(b"\x00\x53\x75")
    first_piece = Sections(payload[: body + 6])  # ends within the body
    assert first_piece.header == Sections(payload).header
    assert first_piece.properties.to == "queue"
    assert first_piece.application_properties == {"colour": "red"}
    assert Sections(payload[: body + 6]).bare.endswith(payload[body : body + 6])
    with pytest.raises(AmqpError):
        first_piece.body()
    with pytest.raises(AmqpError):
        first_piece.check()
    with pytest.raises(AmqpError):
        _ = first_piece.footer
    assert first_piece.properties.to == "queue"

    broken = payload.replace(b"colour", b"colou\xff")
    assert Sections(broken).properties.to == "queue"
    Sections(broken).check()
    with pytest.raises(AmqpError, match="UTF-8"):
        _ = Sections(broken).application_properties

    wrong_type = Message(b"", to="q", subject="s").encode().replace(b"\xa1\x01s", b"\xa3\x01s")
    assert Sections(wrong_type).to == "q"
    with pytest.raises(AmqpError, match="properties: subject"):
        _ = Sections(wrong_type).properties


@pytest.mark.parametrize("large", [False, True])
def test_cut_short_anywhere(large: bool) -> None:
    """Every cut is found by check(), save for those between two sections."""
    text = "x" * (300 if large else 3)
    message = Message(text.encode(), durable=True, annotations={"a": text}, to=text, application_properties={"k": text})
    payload = message.encode()
    between = {payload.index(bytes((0x00, 0x53, section))) for section in (0x70, 0x72, 0x73, 0x74, 0x75)}
    for end in range(len(payload)):
        if end in between:
            Sections(payload[:end]).check()
        else:
            with pytest.raises(AmqpError):
                Sections(payload[:end]).check()


def test_to_alone() -> None:
    for message in (
        Message(),
        Message(message_id=1),
        Message(subject="s"),
        Message(message_id="x", user_id=b"u", to="q"),
    ):
        assert Sections(message.encode()).to == message.to
    with pytest.raises(AmqpError, match="a string expected"):
        _ = Sections(b"\x00\x53\x73\xc0\x06\x03\x40\x40\xa3\x01q\x00\x53\x77\x40").to
    with pytest.raises(AmqpError, match="too early"):
        _ = Sections(b"\x00\x53\x73\xc0\x03\x03\x40\x40\x00\x53\x77\x40").to


def test_positions_are_those_of_the_sections_or_of_what_follows() -> None:
    message = Message(b"body", durable=True, message_id="i")
    payload = message.encode()
    sections = Sections(payload)
    header, properties, body = (payload.index(b"\x00\x53" + bytes([code])) for code in (0x70, 0x73, 0x75))
    assert sections.positions() == [header, properties, properties, properties, body, body]
    assert sections.begin(0x78) == len(payload)
    assert [sections.encoded(code) for code in (0x70, 0x71, 0x73)] == [
        payload[:properties],
        b"",
        payload[properties:body],
    ]
    assert sections.decoded(0x73) == ["i"]
    assert sections.decoded(0x74) is None


def test_a_section_that_cannot_be_read_cannot_be_read_later_either() -> None:
    payload = b"\x00\x53\x70\x45\x00\x53\x73\x45\x00\x53\x72\xc1\x01\x00\x00\x53\x77\x40"
    sections = Sections(payload)
    for _ in range(2):
        with pytest.raises(AmqpError, match="message-annotations at byte 8 follows properties"):
            sections.begin(0x75)
        assert (sections.begin(0x73), sections.header) == (4, Header())
