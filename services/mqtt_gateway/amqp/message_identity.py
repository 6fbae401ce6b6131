"""Identity of a message that survives redelivery, if the delivery-tag does not name it (docs/engines.md).

Apache ActiveMQ Artemis annotates what a divert copies with the id of the message and the divert: a number that it gives
once. What was sent with a duplicate id it has once in a queue. Anything else it shows is not the message's own.
"""

from __future__ import annotations

from hashlib import blake2b

from enmasse.amqp.messages.scan import PROPERTIES
from enmasse.amqp.messages.sections import Sections
from enmasse.identity.annotations import ORIGINAL_MESSAGE_ID, ORIGINAL_QUEUE

SIZE = 8
"""Bytes, as of a delivery-tag that names a message."""
_DUPLICATE_ID = "_AMQ_DUPL_ID"


def of_message(payload: bytes) -> str | None:
    """Hexadecimal; None: nothing names it. The bare message is part of it, because a broker that keeps messages in
    memory counts from the beginning after its end. Raises AmqpError."""
    sections = Sections(payload)
    annotations = sections.annotations
    number = annotations.get(ORIGINAL_MESSAGE_ID)
    if number is not None:
        name = f"{number}|{annotations.get(ORIGINAL_QUEUE)}"
    else:
        duplicate = sections.application_properties.get(_DUPLICATE_ID)
        if duplicate is None:
            return None
        name = f"{type(duplicate).__name__}|{duplicate}"
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=SIZE)
    digest.update(memoryview(payload)[sections.begin(PROPERTIES) :])
    return digest.hexdigest()
