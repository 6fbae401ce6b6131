"""Texts of events: one for all streams that get the same message, of bounded memory."""

from __future__ import annotations

import json

from enmasse.amqp.messages.message import Message
from enmasse.bridge.message_fields import DUPLICATE_ID
from services.http_gateway.api.event_texts import KEPT, EventTexts


def payload(body: str, **properties: str) -> bytes:
    return Message(body, application_properties=properties).encode()


def test_a_message_to_900_streams_is_one_text() -> None:
    texts = EventTexts()
    found = [texts.of(payload("x" * 300_000, a="b", **{DUPLICATE_ID: "secret"})) for _ in range(900)]
    assert texts.made == 1 and all(each is found[0] for each in found)
    assert found[0].startswith(b"data: ") and found[0].endswith(b"\n\n") and b"secret" not in found[0]
    told = json.loads(found[0].removeprefix(b"data: "))
    assert told["body"] == "x" * 300_000 and told["properties"] == {"a": "b"}


def test_what_is_remembered_is_bounded() -> None:
    texts = EventTexts()
    large = payload("y" * KEPT)
    assert texts.of(large) == texts.of(large) and (texts.made, texts.kept) == (2, 0), "too large to be remembered"
    for n in range(100):
        texts.of(payload(f"{n} " + "z" * (KEPT // 16)))
        assert texts.kept <= KEPT
    texts.of(payload("99 " + "z" * (KEPT // 16)))
    assert texts.made == 102, "the newest is remembered"
