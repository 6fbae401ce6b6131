"""Messages to a coordinator (AMQP 1.0, 4.1): their bodies are declare (4.5.2) or discharge (4.5.3)."""

from __future__ import annotations

from enmasse.amqp.codec.composite import decode_composite
from enmasse.amqp.codec.encoder import encode
from enmasse.amqp.codec.errors import DECODE_ERROR, AmqpError
from enmasse.amqp.codec.performatives import Declare, Discharge
from enmasse.amqp.codec.types import Buffer, Described, ULong
from enmasse.amqp.messages.message import Message

_VALUE = b"\x00\x53\x77"


def read_request(payload: Buffer) -> Declare | Discharge:
    """Return what a message asks of a coordinator. Raises AmqpError (amqp:decode-error)."""
    if payload[:3] == _VALUE:  # nothing but a body, as in most requests
        found, end = decode_composite(payload, 3, len(payload))
        if isinstance(found, Declare | Discharge) and end == len(payload):
            return found
    body = Message.decode(payload).body
    if isinstance(body, Described):
        encoded = encode(body)
        found, _ = decode_composite(encoded, 0, len(encoded))
        if isinstance(found, Declare | Discharge):
            return found
    raise AmqpError(DECODE_ERROR, "a message to a coordinator has a declare or a discharge as its value (4.1)")


def write_request(request: Declare | Discharge) -> bytes:
    """Return the message by which a coordinator is asked. A discharge states `fail` also if it is false, which could be
    left out: Artemis fails without it."""
    if isinstance(request, Discharge):
        return _VALUE + encode(Described(ULong(0x32), [bytes(request.txn_id), request.fail]))
    return _VALUE + encode(request)
