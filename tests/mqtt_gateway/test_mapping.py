"""MQTT and AMQP messages: what becomes of one in the other, by our codec and by python-qpid-proton's."""

from __future__ import annotations

import json
import uuid
from typing import Any

import proton
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from enmasse.amqp.codec.encoder import encode
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.types import Described, Symbol, Timestamp, UByte, UInt, ULong
from enmasse.amqp.messages.message import Message
from enmasse.amqp.messages.sections import Sections
from enmasse.identity.senders import shown
from enmasse.model.addresses import Address
from enmasse.model.names import AddressName
from enmasse.model.topic_map import TopicMap
from enmasse.mqtt.packets import NONE, Properties, Publish
from services.broker.core.messages.leading_sections import read_sections
from services.mqtt_gateway.amqp.amqp_values import correlation_data, correlation_id, text_of
from services.mqtt_gateway.amqp.mapping import MessageReader, TopicRoute, reply_address

TOPICS = TopicMap(
    {
        AddressName("telemetry"): Address(type="topic"),
        AddressName("jobs"): Address(type="queue"),
        AddressName("rest"): Address(type="topic", mqtt_default=True),
    }
)
NOW = 1_800_000_000.0
texts = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=20)
topics = st.sampled_from(["telemetry", "telemetry/a.b//c", "jobs/1", "x/y", "/", "$x"])
properties = st.builds(
    Properties,
    payload_format=st.sampled_from([None, 1]),
    message_expiry=st.none() | st.integers(1, 0xFFFF_FFFF),
    content_type=st.none() | texts.filter(bool),
    response_topic=st.none()
    | st.sampled_from(["telemetry/r", "r", "jobs", "$reply/_topo/0/r/t%2E1", "jobs/2", "rest/r"]),
    correlation_data=st.none() | st.binary(max_size=20) | texts.map(str.encode) | st.binary().map(lambda b: b"\0B" + b),
    user_properties=st.lists(st.tuples(texts, texts), max_size=4).map(tuple),
)


def route(topic: str) -> TopicRoute:
    found = TopicRoute.find(topic, TOPICS)
    assert found is not None
    return found


def proton_of(data: bytes) -> proton.Message:
    message = proton.Message()
    message.decode(data)
    return message


@given(topics, st.binary(max_size=300), st.integers(0, 1), st.booleans())
def test_a_plain_publish_comes_back_and_is_what_proton_reads(
    topic: str, payload: bytes, qos: int, retain: bool
) -> None:
    data = route(topic).plain(qos, retain, payload)
    reader = MessageReader(TOPICS)
    for _ in range(2):  # the second time it is known by its bytes
        front, body = reader.read(data)
        assert body == payload
        assert (front.spellings[0], front.qos, front.retain, front.properties) == (topic, qos, retain, NONE)
    message = proton_of(data)
    assert message.address == route(topic).to
    assert message.durable is (qos > 0)
    assert bytes(message.body) == payload
    assert message.annotations["x-opt-mqtt-qos"] == qos
    assert ("x-opt-retain-message" in message.annotations) is retain
    sections = Sections(data)
    sections.check()


@given(topics, st.binary(max_size=300), st.integers(0, 2), properties)
def test_properties_reach_other_mqtt_clients_unaltered(topic: str, payload: bytes, qos: int, given: Properties) -> None:
    """v5 MQTT-3.3.2-15 to -20: response topic, correlation data, user properties, content type."""
    publish = Publish(topic, payload, qos, packet_id=1, properties=given)
    data = route(topic).full(publish, TOPICS, NOW, "me", "dup" if qos == 2 else "")
    front, body = MessageReader(TOPICS).read(data)
    assert body == payload
    assert front.publisher == "me"
    assert front.spellings[0] == topic
    expected = {name: getattr(given, name) for name in Properties.__struct_fields__ if name != "message_expiry"}
    assert front.properties == Properties(**expected)
    expires = front.expires_at(NOW + 1)
    assert expires == (0 if given.message_expiry is None else NOW + given.message_expiry)
    proton_of(data)


@given(st.binary(max_size=30) | st.text(max_size=10) | st.uuids() | st.integers(0, 2**64 - 1).map(ULong))
def test_a_correlation_id_of_any_type_comes_back(value: Any) -> None:
    data = correlation_data(value)
    if data is None:
        assert "\0" in value or any(0xD800 <= ord(c) < 0xE000 for c in value)
        return
    again = correlation_id(data)
    assert again == value
    assert type(again) is type(value) or isinstance(value, bytes)


BODIES: list[tuple[bytes, bytes, str | None]] = [
    (encode(Described(ULong(0x75), b"ab")) + encode(Described(ULong(0x75), b"cd")), b"abcd", None),
    (encode(Described(ULong(0x77), "grün")), "grün".encode(), None),
    (encode(Described(ULong(0x77), b"\xff\0")), b"\xff\0", None),
    (encode(Described(ULong(0x77), None)), b"", None),
    (encode(Described(ULong(0x77), Symbol("s"))), b"s", None),
    (encode(Described(ULong(0x77), 42)), b"42", "application/json"),
    (encode(Described(ULong(0x77), True)), b"true", "application/json"),
    (encode(Described(ULong(0x77), 1.5)), b"1.5", "application/json"),
    (encode(Described(ULong(0x77), float("nan"))), b"null", "application/json"),
    (encode(Described(ULong(0x77), Timestamp(1500))), b'"1970-01-01T00:00:01.500Z"', "application/json"),
    (
        encode(Described(ULong(0x77), {"a": [1, "x", None], 5: b"\xff"})),
        b'{"a":[1,"x",null],"5":"/w=="}',
        "application/json",
    ),
    (encode(Described(ULong(0x76), [1, "a"])) + encode(Described(ULong(0x76), [2])), b'[1,"a",2]', "application/json"),
    (b"", b"", None),
]


@pytest.mark.parametrize(("body", "payload", "content_type"), BODIES)
def test_every_kind_of_body_is_a_payload(body: bytes, payload: bytes, content_type: str | None) -> None:
    data = encode(Described(ULong(0x73), [None, None, "telemetry/x"])) + body
    front, found = MessageReader(TOPICS).read(data)
    assert found == payload
    assert front.properties.content_type == content_type
    assert front.spellings == ("telemetry/x",)
    if content_type:
        json.loads(found)
        assert front.properties.payload_format == 1


@pytest.mark.parametrize(
    "body",
    [
        b"\0Su\xa0\1x",
        b"\0Su\xa0\1",
        b"\0Su\xa0",
        b"\0Su\xa0\1xx",
        b"\0Su\xa0\1x\0Su\xa0\1y",
        b"\0Su\xb0\0\0\0\1x",
        b"\0Sw\x45",
        b"",
    ],
)
def test_a_message_that_begins_as_the_one_before_is_read_as_if_it_were_the_first(body: bytes) -> None:
    front = route("telemetry/x").plain(1, False, b"")[: -len(b"\0Su\xa0\0")]

    def found(reader: MessageReader) -> object:
        try:
            fields, payload = reader.read(front + body)
        except AmqpError as error:
            return error.condition
        return fields.name, fields.qos, fields.properties, payload

    reader = MessageReader(TOPICS)
    reader.read(front + b"\0Su\xa0\3abc")
    assert found(reader) == found(MessageReader(TOPICS))


@pytest.mark.parametrize("kind", [b"\x77", b"\x76"])
def test_a_body_that_cannot_be_decoded_comes_as_it_is(kind: bytes) -> None:
    """Brokers store it, as they do not look into bodies: it must reach subscribers."""
    value: bytes = b"\x45"
    for _ in range(40):
        value = b"\xd0" + (len(value) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x01" + value
    body = b"\x00\x53" + kind + value
    footer = b"\x00\x53\x78\xc1\x01\x00"
    front = encode(Described(ULong(0x73), [None, None, "telemetry/x"]))
    found, payload = MessageReader(TOPICS).read(front + body + footer)
    assert payload == body
    assert (found.spellings, found.properties.content_type) == (("telemetry/x",), "application/octet-stream")


@pytest.mark.parametrize(
    "payload",
    [
        b"\x00\x53\x77\xa1\x09x",
        b"\x00\x53\x75\xa0\x01x\x00\x53\x77\x40",
        b"\x00\x53\x77\x40\x00\x53\x73\x45",
        b"\x00\x53\x77\x40\xff\xff\xff",
        b"\x00\x53\x73\xc0\x07\x03\x40\x40\xa1\x02\xff\xfe\x00\x53\x75\xa0\x01x",
        b"\x00\x53\x74\xc1\x08\x02\xa1\x01a\xa1\x02\xff\xfe\x00\x53\x75\xa0\x01x",
    ],
    ids=["cut off", "two bodies", "properties behind", "garbage behind", "to not UTF-8", "property not UTF-8"],
)
def test_what_brokers_let_through_and_mqtt_cannot_read_is_rejected(payload: bytes) -> None:
    read_sections(payload)
    with pytest.raises(AmqpError) as caught:
        MessageReader(TOPICS).read(payload)
    assert caught.value.condition == "amqp:decode-error"


@pytest.mark.parametrize("behind", [-3600, 3600])
def test_a_wrong_clock_of_an_amqp_client_changes_no_expiry(behind: int) -> None:
    """Its ttl counts, as for brokers. Without a ttl there is nothing but the time."""
    time = Timestamp(int((NOW - behind + 5) * 1000))
    for ttl, expires in ((5000, NOW + 5), (None, NOW - behind + 5)):
        message = Message(b"hello", ttl=ttl, absolute_expiry_time=time, to="telemetry/x")
        front, _ = MessageReader(TOPICS).read(message.encode())
        assert front.expires_at(NOW) == expires


@pytest.mark.parametrize("time", [0, -1, -(2**63)])
def test_a_time_that_is_not_above_0_is_no_expiry(time: int) -> None:
    """For the broker and for the gateway."""
    message = Message(b"hello", absolute_expiry_time=Timestamp(time), to="telemetry/x").encode()
    front, _ = MessageReader(TOPICS).read(message)
    assert front.expires_at(NOW) == read_sections(message).absolute_expiry == 0


def test_what_an_amqp_client_sends() -> None:
    message = Message(
        b"hello",
        durable=True,
        ttl=5000,
        to="telemetry/x",
        reply_to="amqp:/_topo/0/r1/temp.xy",
        message_id=uuid.UUID(int=7),
        content_type=Symbol("text/plain"),
        application_properties={
            "text": "t",
            "flag": True,
            "count": 3,
            "when": Timestamp(0),
            "none": None,
            "raw": b"\xff",
            "_AMQ_DUPL_ID": "d",
        },
    )
    front, body = MessageReader(TOPICS).read(message.encode())
    assert body == b"hello"
    assert (front.qos, front.retain) == (1, False)
    assert front.expires_at(NOW) == NOW + 5
    assert front.properties == Properties(
        content_type="text/plain",
        response_topic="$reply/_topo/0/r1/temp%2Exy",
        correlation_data=b"\0U" + uuid.UUID(int=7).bytes,  # the message-id: what the reply's correlation-id is to be
        user_properties=(
            ("text", "t"),
            ("flag", "true"),
            ("count", "3"),
            ("when", "1970-01-01T00:00:00.000Z"),
            ("none", ""),
            ("raw", "/w=="),
        ),
    )


def test_what_an_amqp_client_gets() -> None:
    given = Properties(
        message_expiry=5,
        response_topic="telemetry/r",
        correlation_data=b"\0L7",
        content_type="text/plain",
        user_properties=(("a", "1"), ("b", "2"), ("a", "3")),
    )
    data = route("telemetry/x").full(
        Publish("telemetry/x", b"p", 2, packet_id=4, properties=given), TOPICS, NOW, None, "k"
    )
    message = proton_of(data)
    assert message.durable
    assert message.ttl == 5
    assert message.expiry_time == NOW + 5
    assert message.id == shown("k")
    assert message.reply_to == "telemetry/r"
    assert message.correlation_id == 7
    assert message.content_type == "text/plain"
    assert message.properties == {"a": "1, 3", "b": "2", "_AMQ_DUPL_ID": "k"}


@pytest.mark.parametrize(
    ("topic", "address"),
    [
        ("$reply/_topo/0/r/t%2E1", "_topo/0/r/t.1"),
        ("$reply/jobs", "jobs"),
        ("$reply/amqp:/jobs", "jobs"),
        ("$reply/amqp:/amqp://host/jobs", "jobs"),
        ("$reply/$management", None),
        ("$reply/!!a/b", None),
        ("$reply/amqp:/!!a/b", None),
        ("$reply/amqp:/amqp:/$subctrl", None),
        ("$reply/amqp://host/amqp:/$mqtt/sessions", None),
        ("$reply/amqp:/%00/amqp:/$subctrl", None),
        ("$reply/%2E$subctrl", None),
        ("$reply/amqp:%2E/$subctrl", None),
        ("$reply/_topo/0/r/$management", None),
        ("$reply/_topo/0/r/%2E$management", None),
        ("$reply/amqp:/$management", None),
        ("$reply//$management", None),
        ("$reply/%00/$management", None),
        ("$reply/_local/$management", None),
        ("$reply/telemetry::$sub/b/mqtt.c", None),
        ("$reply/telemetry%3A%3A$sub/b/mqtt.c", None),
        ("$reply/", None),
    ],
)
def test_which_addresses_replies_may_go_to(topic: str, address: str | None) -> None:
    assert reply_address(topic) == address


@given(st.binary(max_size=60) | st.tuples(st.integers(0, 80), st.integers(0, 255)))
@example(b"\0Su\xa0")
@example(b"\0Su\xb0\0\0")
def test_no_bytes_break_the_reader(wrong: bytes | tuple[int, int]) -> None:
    if isinstance(wrong, bytes):
        data = wrong
    else:
        good = Message("x", to="telemetry", application_properties={"a": 1}, durable=True).encode()
        at, byte = wrong
        data = good[: at % len(good)] + bytes((byte,)) + good[at % len(good) + 1 :]
    try:
        front, payload = MessageReader(TOPICS).read(data)
    except AmqpError as error:
        assert error.condition
        return
    assert isinstance(payload, bytes)
    for topic in front.spellings:
        assert topic and not set("+#\0") & set(topic)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats()
        | st.text(max_size=5)
        | st.binary(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=8,
    )
)
def test_any_value_has_a_text_and_is_json(value: Any) -> None:
    assert isinstance(text_of(value), str)
    data = encode(Described(ULong(0x77), value))
    front, payload = MessageReader(TOPICS).read(data)
    if front.properties.content_type:
        json.loads(payload)


TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("annotations", "properties", "expected"),
    [
        ({"traceparent": TRACEPARENT, "tracestate": "a=b"}, {}, (("traceparent", TRACEPARENT), ("tracestate", "a=b"))),
        ({"traceparent": TRACEPARENT}, {"a": "b"}, (("a", "b"), ("traceparent", TRACEPARENT))),
        ({"traceparent": TRACEPARENT}, {"traceparent": "theirs"}, (("traceparent", "theirs"),)),
        ({"traceparent": TRACEPARENT, "tracestate": "\0"}, {}, (("traceparent", TRACEPARENT),)),
        ({"traceparent": "\0"}, {}, ()),
        ({"traceparent": 5, "tracestate": "a=b"}, {"a": "b"}, (("a", "b"),)),
    ],
)
def test_trace_context_of_annotations_reaches_mqtt_clients(
    annotations: dict[str, Any], properties: dict[str, Any], expected: tuple[tuple[str, str], ...]
) -> None:
    message = Message(body=b"x", application_properties=properties)
    message.annotations = {Symbol(name): value for name, value in annotations.items()}
    front, payload = MessageReader(TOPICS).read(message.encode())
    assert payload == b"x" and (front.properties.user_properties or ()) == expected


def test_ids_and_annotations_of_strangers_are_not_believed() -> None:
    message = Message(
        b"x",
        to="telemetry/x",
        annotations={
            Symbol("x-opt-mqtt-qos"): 7,
            Symbol("x-opt-retain-message"): 1,
            Symbol("x-opt-mqtt-publisher"): UInt(3),
            Symbol("x-opt-mqtt-response-topic"): "a/#",
            Symbol("x-opt-mqtt-user-properties"): ["a"],
            Symbol("x-opt-mqtt-correlation-data"): "text",
            Symbol("x-opt-mqtt-payload-format"): UByte(9),
        },
    )
    front, _ = MessageReader(TOPICS).read(message.encode())
    assert (front.qos, front.retain, front.publisher) == (0, False, None)
    assert front.properties == NONE
