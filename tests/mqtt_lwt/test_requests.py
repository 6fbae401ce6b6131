"""What a message to `$lwt` asks for, and what is refused."""

from __future__ import annotations

from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import symbol

from enmasse.amqp.messages.message import Message
from enmasse.amqp.termini import passed_on_name
from enmasse.control import ControlError
from enmasse.identity.authors import Author
from enmasse.identity.owned import owned
from enmasse.identity.principal import Principal
from enmasse.identity.senders import shown
from services.mqtt_lwt.requests import Request, publication, read


def will(**fields: Any) -> Message:
    return Message(b"bye", **{"subject": "will", "to": "a/b", **fields})


def test_a_will_and_what_is_published() -> None:
    message = will(
        durable=True,
        ttl=60_000,
        annotations={
            "x-opt-mqtt-qos": 2,
            "x-opt-retain-message": True,
            "x-opt-client-id": "device",
            "x-opt-will-delay": 30,
            "x-opt-mqtt-epoch": 7,
            "x-opt-mqtt-will-topic": "b",
        },
        content_type="text/plain",
        reply_to="answers",
        correlation_id=b"1",
        application_properties={"user": "property"},
    )
    request = read(message.encode(), "link", gateway=True)
    assert (request.epoch, request.topic) == (7, "b")
    request_of_client = read(message.encode(), "link")
    assert (request_of_client.epoch, request_of_client.topic) == (0, ""), "gateways alone know them"
    with pytest.raises(ControlError, match="x-opt-mqtt-will-topic"):
        read(will(annotations={"x-opt-mqtt-will-topic": 1}).encode(), "link", gateway=True)
    assert (request.operation, request.key, request.to, request.qos, request.delay) == (
        "will",
        "client:device",
        "a/b",
        2,
        30,
    )
    decoded = proton.Message()  # what others read
    decoded.decode(publication(request, "id-1"))
    assert decoded.annotations == {symbol("x-opt-mqtt-qos"): 2, symbol("x-opt-retain-message"): True}
    assert decoded.properties == {"user": "property", "_AMQ_DUPL_ID": "id-1"}
    assert (decoded.durable, decoded.ttl, decoded.address, decoded.subject, decoded.id) == (
        True,
        60,
        "a/b",
        None,
        shown("id-1"),
    )
    assert (decoded.content_type, decoded.reply_to, bytes(decoded.correlation_id)) == ("text/plain", "answers", b"1")
    assert bytes(decoded.body) == b"bye"


@pytest.mark.parametrize(("durable", "qos"), [(True, 1), (False, 0)])
def test_without_a_qos_it_is_durable_or_not(durable: bool, qos: int) -> None:
    assert read(will(durable=durable).encode(), "link").qos == qos


def test_the_key_is_the_client_else_the_link_and_neither_is_the_other() -> None:
    annotations = {"x-opt-client-id": "x"}
    named = read(will(annotations=annotations).encode(), "y", gateway=True).key
    linked = read(will().encode(), "x").key
    assert named != linked
    assert read(Message(None, subject="will-clear").encode(), "x") == Request("will-clear", linked)
    message = Message(None, subject="will-publish", annotations=annotations)
    assert read(message.encode(), "z", gateway=True).key == named


@pytest.mark.parametrize(
    ("annotations", "author"),
    [
        ({}, Author()),
        ({"x-opt-user": "alice"}, Author("alice")),
        ({"x-opt-user": "carol", "x-opt-user-groups": ["staff", "ops"]}, Author("carol", ("staff", "ops"))),
        ({"x-opt-user": "carol", "x-opt-user-groups": []}, Author("carol", ())),
    ],
)
def test_a_gateway_states_the_user_and_a_client_cannot(annotations: dict[str, Any], author: Author) -> None:
    encoded = will(annotations=annotations).encode()
    request = read(encoded, "will", gateway=True)
    assert request.author == author
    published = proton.Message()
    published.decode(publication(request, "id"))
    assert set(published.annotations) == {symbol("x-opt-mqtt-qos")}
    assert read(encoded, "will@c1").author == Author()
    for name in ("a@~bob/x", ""):
        of_link = passed_on_name(name, owned(Principal("alice"), "c@~bob/1"))
        assert read(encoded, of_link).author == Author("alice")


@given(st.lists(st.tuples(st.none() | st.text("1:xyl "), st.text("1:xyl "), st.booleans()), unique=True))
def test_no_link_says_anything_of_another_s_clients(pairs: list[tuple[str | None, str, bool]]) -> None:
    """But gateways, which all speak for the same MQTT clients."""
    pairs = [each for each in pairs if each[0] is None or not each[2]]
    keys = set()
    for client, link, gateway in pairs:
        annotations = {} if client is None else {"x-opt-client-id": client}
        keys.add(read(will(annotations=annotations).encode(), link, gateway=gateway).key)
    mqtt = read(will(annotations={"x-opt-client-id": "x"}).encode(), "x", gateway=True).key
    assert len(keys) == len({(client, link) for client, link, _ in pairs})
    assert mqtt not in keys


@pytest.mark.parametrize(
    ("message", "condition", "words"),
    [
        (will(to=None), "amqp:invalid-field", "to"),
        (will(to=""), "amqp:invalid-field", "to"),
        *((will(to=to), "amqp:invalid-field", "to") for to in ("!!a/b", "/!!a/b", "amqp:/!!a/b", "amqp://h/!!a.b")),
        (will(to="x" * 70_000), "amqp:invalid-field", "to"),
        (will(subject=None), "amqp:invalid-field", "subject"),
        (will(subject="retain"), "amqp:invalid-field", "retain"),
        (will(annotations={"x-opt-mqtt-qos": 3}), "amqp:invalid-field", "x-opt-mqtt-qos"),
        (will(annotations={"x-opt-mqtt-qos": -1}), "amqp:invalid-field", "x-opt-mqtt-qos"),
        (will(annotations={"x-opt-mqtt-qos": True}), "amqp:invalid-field", "x-opt-mqtt-qos"),
        (will(annotations={"x-opt-mqtt-qos": "1"}), "amqp:invalid-field", "x-opt-mqtt-qos"),
        (will(annotations={"x-opt-retain-message": 1}), "amqp:invalid-field", "x-opt-retain-message"),
        (will(annotations={"x-opt-will-delay": 2**32}), "amqp:invalid-field", "x-opt-will-delay"),
        (will(annotations={"x-opt-will-delay": -1}), "amqp:invalid-field", "x-opt-will-delay"),
        (will(annotations={"x-opt-client-id": 7}), "amqp:invalid-field", "x-opt-client-id"),
        (will(annotations={"x-opt-client-id": "x" * 20_000}), "amqp:invalid-field", "x-opt-client-id"),
    ],
)
def test_what_is_refused(message: Message, condition: str, words: str) -> None:
    with pytest.raises(ControlError, match=words) as refused:
        read(message.encode(), "link")
    assert refused.value.condition == condition


@given(st.binary())
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    try:
        request = read(data, "link")
    except ControlError:
        return
    assert request.operation in ("will", "will-clear", "will-publish", "session-ended")
