"""What a message is known by, if its delivery-tag does not name it."""

from __future__ import annotations

from enmasse.amqp.messages.message import Message
from enmasse.identity.annotations import ORIGINAL_MESSAGE_ID, ORIGINAL_QUEUE
from services.mqtt_gateway.amqp.message_identity import of_message


def message(body: str = "x", number: int = 7, divert: str = "mqtt.c|t/#", deliveries: int = 0) -> Message:
    found = Message(body, to="$sub/b/mqtt.c", delivery_count=deliveries)
    found.annotations = {ORIGINAL_MESSAGE_ID: number, ORIGINAL_QUEUE: divert}
    return found


def test_a_message_is_the_same_however_often_it_is_delivered() -> None:
    first, again = message(), message(deliveries=3)
    assert first.encode() != again.encode()
    assert of_message(first.encode()) == of_message(again.encode()) is not None


def test_other_messages_have_other_identities() -> None:
    twice = message(divert="mqtt.c|t/+")  # one message that two filters cover is two
    other = message(number=8)
    anew = message("y")  # of a broker that counts from the beginning
    assert len({of_message(each.encode()) for each in (message(), twice, other, anew)}) == 4


def test_without_a_divert_a_duplicate_id_names_it_and_nothing_else() -> None:
    plain = Message("x", message_id="1")
    assert of_message(plain.encode()) is None
    plain.application_properties = {"_AMQ_DUPL_ID": "1"}
    assert of_message(plain.encode()) is not None
