"""Headers as fields of messages, and back: what comes of it is the same message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.amqp.codec.types import Symbol, Timestamp, UInt, ULong
from enmasse.amqp.messages.message import AmqpValue, Message
from enmasse.bridge.message_fields import documented
from services.http_gateway.api.header_mapping import TABLE, decoded, encoded, header_name, to_amqp, to_http
from services.http_gateway.api.http_problems import Answered
from services.http_gateway.api.request_paths import parsed
from services.http_gateway.wire.http_exchange import safe

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ids = st.one_of(text, st.uuids(), st.binary(max_size=9), st.integers(0, 2**64 - 1).map(ULong))
values = st.one_of(
    text,
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.binary(max_size=9),
    st.uuids(),
    st.integers(0, 2**40).map(Timestamp),
    st.integers(0, 2**32 - 1).map(UInt),
)
symbols = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20).map(Symbol)
breaking = st.text(st.sampled_from("\r\n\0\x7f \t:%aé€\ud7ff"), max_size=9)
messages = st.builds(
    Message,
    st.binary(max_size=50),
    message_id=st.none() | ids,
    correlation_id=st.none() | ids,
    subject=st.none() | text,
    reply_to=st.none() | text,
    content_type=st.none() | symbols,
    group_id=st.none() | text,
    group_sequence=st.none() | st.integers(0, 2**32 - 1),
    creation_time=st.none() | st.integers(0, 2**40),
    ttl=st.none() | st.integers(0, 2**32 - 1),
    priority=st.integers(0, 9),
    durable=st.booleans(),
    application_properties=st.dictionaries(text.filter(lambda name: not name.startswith("cloudEvents:")), values),
)


@given(messages)
def test_a_message_that_is_sent_on_is_the_same(message: Message) -> None:
    headers, body = to_http(message.encode())
    assert all(value.isascii() and value.isprintable() and value == value.strip() for _, value in headers)
    message.to = "a"
    again = Message.decode(to_amqp(dict(headers), body, "a", ""))
    assert again == message


@given(
    st.builds(
        Message,
        st.one_of(st.binary(max_size=9), breaking),
        to=breaking,
        message_id=breaking,
        correlation_id=breaking | st.binary(max_size=9),
        subject=breaking,
        reply_to=breaking,
        content_type=breaking.map(lambda value: Symbol(value.encode("ascii", "ignore").decode())),
        content_encoding=breaking.map(lambda value: Symbol(value.encode("ascii", "ignore").decode())),
        group_id=breaking,
        reply_to_group_id=breaking,
        application_properties=st.dictionaries(breaking | breaking.map("cloudEvents:".__add__), breaking, max_size=4),
    )
)
def test_nothing_that_a_sender_states_begins_another_header(message: Message) -> None:
    headers, _ = to_http(message.encode())
    safe(headers)
    found = dict(headers)
    assert decoded(found["enmasse-subject"]) == message.subject
    assert decoded(found["enmasse-message-id"]) == message.message_id
    assert decoded(found.get("enmasse-to", "")) == message.to
    again = Message.decode(to_amqp(found, b"", "a", ""))
    assert again.application_properties == message.application_properties


@given(st.text())
def test_texts_of_headers(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    assert decoded(encoded(text)) == text


def test_events_of_cloud_events() -> None:
    headers = {"ce-id": "1", "ce-source": "/caf%C3%A9", "ce-specversion": "1.0", "content-type": "text/plain"}
    payload = to_amqp(headers, b"x", "a", "")
    properties = Message.decode(payload).application_properties
    assert properties == {"cloudEvents:id": "1", "cloudEvents:source": "/café", "cloudEvents:specversion": "1.0"}
    back, _ = to_http(payload)
    assert headers.items() <= dict(back).items()


@pytest.mark.parametrize(
    ("body", "expected", "kind"),
    [
        ("text", b"text", "text/plain; charset=utf-8"),
        ({"a": [1, 2]}, b'{"a":[1,2]}', "application/json"),
        ([1], b"[1]", "application/json"),
        (AmqpValue(b"\0"), b"\0", None),
    ],
)
def test_bodies_that_are_no_bytes(body: Any, expected: bytes, kind: str | None) -> None:
    headers, found = to_http(Message(body).encode())
    assert (found, dict(headers).get("content-type")) == (expected, kind)


@pytest.mark.parametrize(
    "headers",
    [
        {"enmasse-ttl": "-1"},
        {"enmasse-ttl": "4294967296"},
        {"enmasse-durable": "maybe"},
        {"enmasse-correlation-id": "ulong:x"},
        {"enmasse-correlation-id": "ulong:²"},
        {"enmasse-correlation-id": "uuid:x"},
        {"enmasse-correlation-id": "binary:xy"},
        {"enmasse-properties": "{'a': 1}"},
        {"enmasse-properties": '{"a": ' + "[" * 5000},
        {"enmasse-properties": '{"a": ' + "9" * 5000 + "}"},
        {"enmasse-properties": '{"a": "\\ud800"}'},
        {"enmasse-subject": "%FF"},
        {"enmasse-properties": "[1]"},
        {"enmasse-properties": '{"a": {"map": []}}'},
        {"ce-a_b": "x"},
        {"enmasse-nothing": "x"},
    ],
)
def test_values_that_no_message_has_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(Answered) as refused:
        to_amqp(headers, b"", "a", "")
    assert refused.value.status == 400
    own = ("Expecting", "literal", "codec", "recursion", "fromhex", "badly formed", "Exceeds")
    assert not any(word in str(refused.value) for word in own)  # texts of Python


@pytest.mark.parametrize("target", ["/v1/a/deliveries/t?lock=nan", "/v1/a/messages/next?locks=3", "/v1/a/events?x"])
def test_parameters_that_a_resource_has_not_are_refused(target: str) -> None:
    with pytest.raises(Answered, match="is no parameter of this resource") as refused:
        parsed(target)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("target", "kind", "address"),
    [
        ("/v1/a/messages", "messages", "a"),
        ("/v1/a/b%2Fc/messages?batch", "messages", "a/b/c"),
        ("/v1/messages/messages/next?wait=3", "messages/next", "messages"),
        ("/v1/a/deliveries/t1", "deliveries", "a"),
        ("/v1/a/+/%23/events?name=n", "events", "a/+/#"),
        ("/v1/openapi.json", "openapi", ""),
    ],
)
def test_paths(target: str, kind: str, address: str) -> None:
    assert parsed(target)[:2] == (kind, address)


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/v2/a/messages",
        "/v1//messages",
        "/v1/a/%00/messages",
        "/v1/a%2A/messages",
        "/v1/a/%23/messages",
        "/v1/+/events",
        "/v1/%23/events",
        "/v1/a/%23/b/events",
        "/v1/a%23/events",
        "/v1/a/else",
        "*",
    ],
)
def test_paths_of_nothing(target: str) -> None:
    with pytest.raises(Answered) as refused:
        parsed(target)
    assert refused.value.status == 404


def test_a_message_that_states_when_it_expires_has_a_ttl_for_routers() -> None:
    """Unless it states one itself."""
    found = Message.decode(to_amqp({"enmasse-expiry-time": "1"}, b"", "a", ""))
    assert (found.ttl, found.absolute_expiry_time) == (1, 1)
    found = Message.decode(to_amqp({"enmasse-expiry-time": "1", "enmasse-ttl": "9"}, b"", "a", ""))
    assert found.ttl == 9


def test_the_table_of_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "http.md").read_text()
    assert documented(TABLE, "header", header_name) in text
    headers, _ = to_http(Message("x", to="a", delivery_count=1).encode())
    assert [name for name, _ in headers if f"`{name}`" not in text.lower()] == []
