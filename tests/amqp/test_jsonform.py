"""Messages as JSON: readable, and the same message again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.amqp.codec.types import UByte, ULong
from enmasse.amqp.messages.jsonform import NoMessage, exact, from_json, to_json, value_of
from enmasse.amqp.messages.message import AmqpSequence, AmqpValue, Message, Sections
from tests.amqp.codec_values import VALUES, same
from tests.amqp.messages import MESSAGES, identical


@given(VALUES)
def test_any_value_comes_back_from_its_exact_form(value: Any) -> None:
    assert same(value_of(json.loads(json.dumps(exact(value)))), value)


@given(MESSAGES)
def test_any_message_comes_back(payload: bytes) -> None:
    message = Message.decode(payload)
    again = from_json(json.loads(json.dumps(to_json(message, payload))))
    message.delivery_count, message.first_acquirer = 0, False
    assert identical(Message.decode(again), message)
    assert same(Sections(again).body()[1], Sections(payload).body()[1])


def test_usual_messages_need_no_types() -> None:
    for body in ("text", 1, 1.5, True, None, [1, "a"], {"a": [None]}):
        assert "types" not in to_json(Message(body, application_properties={"a": 1, "b": "c"}))
    assert to_json(Message(b"21.5"))["types"] == {"body": "data"}
    assert to_json(Message(1, application_properties={"n": UByte(1)}))["types"] == {"properties": {"n": "ubyte"}}


def changed(payload: bytes, **fields: Any) -> Message:
    return Message.decode(from_json(to_json(Message.decode(payload), payload) | fields))


def test_a_plain_field_that_a_program_has_changed_counts() -> None:
    sections = Message(b"a").encode() + Message(b"b").encode()
    assert changed(sections).body == b"ab"
    assert changed(sections, body="other").body == b"other"
    assert changed(Message(AmqpSequence([1])).encode(), body=[2]).body == AmqpSequence([2])
    assert changed(Message(AmqpValue(b"a")).encode(), body="b").body == AmqpValue(b"b")
    assert changed(Message([UByte(1)]).encode(), body=[2]).body == [2]
    keyed = Message(1, annotations={ULong(1): "a"}).encode()
    assert changed(keyed).annotations == {1: "a"}
    assert changed(keyed, annotations={"x-opt-a": 2}).annotations == {"x-opt-a": 2}
    assert changed(Message(1).encode(), body={"base64": "/w=="}).body == b"\xff"


def test_fields_may_be_replaced() -> None:
    found = from_json({"body": 1, "subject": "a", "durable": False}, {"subject": "b", "durable": True})
    assert Message.decode(found) == Message(1, subject="b", durable=True)
    several = {"body": "ab", "types": {"body": {"data": ["YQ==", "Yg=="]}}}
    assert Message.decode(from_json(several, {"body": "c"})).body == "c"


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ([], "expected a JSON object"),
        ({"boddy": 1}, "boddy: unknown field"),
        ({"durable": 1}, "durable: expected true or false"),
        ({"ttl": "1"}, "ttl: expected a whole number"),
        ({"priority": True}, "priority: expected a whole number"),
        ({"ttl": -1}, "-1"),
        ({"priority": 256}, "256"),
        ({"subject": 1}, "subject: expected a string"),
        ({"id": []}, r"\[\]"),
        ({"properties": []}, "properties: expected an object"),
        ({"properties": {"a": 1}, "types": {"properties": {"a": "ubite"}}}, "properties.a: 'ubite' is no name"),
        ({"properties": {"a": "x"}, "types": {"properties": {"a": "ubyte"}}}, "properties.a: 'x' is not of type ubyte"),
        ({"properties": {"a": 256}, "types": {"properties": {"a": "ubyte"}}}, "256"),
        ({"body": 1, "types": {"body": "data"}}, "body: binary is text"),
        ({"body": {"base64": "?"}}, "body: "),
        ({"body": 2**64}, "18446744073709551616"),
        ({"body": [1], "types": {"body": {"ubyte": 1, "byte": 1}}}, "body: expected an object with one type"),
        ({"types": []}, "types: expected an object"),
        ({"annotations": {"é": 1}}, "é"),
        ({"body": json.loads("[" * 40 + "]" * 40)}, "no receiver could read it"),
        ({"body": json.loads("[" * 900 + "]" * 900)}, "recursion"),
        ({"properties": {"a": json.loads('{"a":' * 40 + "1" + "}" * 40)}}, "no receiver could read it"),
    ],
)
def test_what_is_no_message_is_refused_with_its_field(found: Any, problem: str) -> None:
    with pytest.raises(NoMessage, match=problem):
        from_json(found)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.text()
                | st.sampled_from(
                    sorted(
                        {
                            "map",
                            "types",
                            "body",
                            "array",
                            "described",
                            "data",
                            "sequence",
                            "base64",
                            "ubyte",
                            "properties",
                            "annotations",
                            "id",
                        }
                    )
                ),
                inner,
            )
        ),
    )
)
def test_any_json_is_a_message_or_refused(found: Any) -> None:
    try:
        payload = from_json(found)
    except NoMessage:
        return
    Message.decode(payload)
