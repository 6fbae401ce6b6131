"""What is read from the messages of a broker's feed of retained messages."""

from __future__ import annotations

import msgspec

from enmasse.amqp.message import Message
from enmasse.amqp.types import Int, Symbol, Timestamp
from services.subserv import copies


def test_what_is_read_can_be_stored() -> None:
    """A gateway writes the QoS as an int of AMQP and the expiry as a timestamp."""
    message = Message(
        b"21.5",
        to="mytopic/kitchen",
        durable=True,
        absolute_expiry_time=Timestamp(2_000_000_000_000),
        annotations={Symbol("x-opt-retain-message"): True, Symbol("x-opt-mqtt-qos"): Int(1)},
    )
    found = copies.read(bytes(message.encode()), now=0)
    assert found is not None
    assert (found.name, found.qos, found.expires) == ("mytopic/kitchen", 1, 2_000_000_000_000)
    assert msgspec.msgpack.encode((found.name, found.qos, found.expires))
