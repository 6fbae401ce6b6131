"""Values that selectors see: application properties; header and properties by the names of JMS and Artemis."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.messages.scan import APPLICATION_PROPERTIES, DATA, MESSAGE_ANNOTATIONS, PROPERTIES
from enmasse.amqp.messages.sections import Sections
from enmasse.identity.annotations import ORIGINAL_ADDRESS, ORIGINAL_QUEUE
from services.broker.core.messages.leading_sections import sections_of
from services.broker.core.messages.stored_message import DURABLE, PRIORITY_SHIFT, StoredMessage
from services.broker.selector import Lookup, Selector

# Index of each field in the properties section.
_FIELDS = {
    "JMSMessageID": 0,
    "AMQUserID": 0,
    "JMSXUserID": 1,
    "JMSDestination": 2,
    "JMSType": 3,
    "JMSReplyTo": 4,
    "JMSCorrelationID": 5,
    "JMSTimestamp": 9,
    "AMQTimestamp": 9,
    "JMSXGroupID": 10,
    "JMSXGroupSeq": 11,
}
# Where a message comes from, by Artemis' own names: annotations of brokers alone, which no property can state.
_ORIGINS = {"_AMQ_ORIG_ADDRESS": ORIGINAL_ADDRESS, "_AMQ_ORIG_QUEUE": ORIGINAL_QUEUE}


MAX_FRONT = 32 << 10
"""Bytes of the sections before the body in which selectors look: of a longer front they see nothing."""

# What every message has, whatever its bytes.
_GIVEN = {"JMSDeliveryMode", "JMSXDeliveryCount", "JMSRedelivered"} | {"AMQPriority", "JMSPriority", "AMQDurable"}
_GIVEN |= {"AMQExpiration", "JMSExpiration", "AMQSize", "AMQAddress"}


def marks_of(selector: Selector) -> tuple[bytes, ...] | None:
    """Texts of which every matching message holds at least one; None: a message without such texts may match."""
    names = selector.identifiers
    if selector.matches(lambda name: None) or any(name in _GIVEN or name in _FIELDS for name in names):
        return None
    keys = {name.removeprefix("m.") for name in names} | {_ORIGINS[name] for name in names if name in _ORIGINS}
    return tuple(key.encode() for key in keys)


def property_lookup(payload: bytes, message: StoredMessage, to_wall: Callable[[int], int], attempts: int = 0) -> Lookup:
    """Return a lookup for Selector.matches; decodes the message's front at the first identifier that needs it, and
    each identifier once. `to_wall`: from the broker's clock to milliseconds since 1970. `attempts`: failed
    deliveries."""
    sections: Sections | None = None
    malformed = False
    known: dict[str, object] = {}

    def section(code: int) -> Any:
        nonlocal sections, malformed
        if malformed:
            return None  # a message that cannot be decoded, or has too many properties, has none
        try:
            if sections is None:
                sections = sections_of(payload)
                if sections.begin(DATA) > MAX_FRONT:
                    malformed = True
                    return None
            return sections.decoded(code)
        except AmqpError:
            malformed = True
            return None

    def lookup(name: str) -> object:
        try:
            return known[name]
        except KeyError:
            value = known[name] = find(name)
            return value

    def find(name: str) -> object:
        if name in ("AMQPriority", "JMSPriority"):
            return message.flags >> PRIORITY_SHIFT
        if name == "JMSDeliveryMode":
            return "PERSISTENT" if message.flags & DURABLE else "NON_PERSISTENT"
        if name == "AMQDurable":
            return "DURABLE" if message.flags & DURABLE else "NON_DURABLE"
        if name in ("AMQExpiration", "JMSExpiration"):
            return to_wall(message.expires)
        if name == "AMQSize":
            return message.size
        if name == "AMQAddress":
            return message.owner.name
        if name in ("JMSXDeliveryCount", "JMSRedelivered"):
            return attempts > 0 if name == "JMSRedelivered" else attempts + 1
        key = _ORIGINS.get(name)
        properties = section(APPLICATION_PROPERTIES) if key is None else None
        if isinstance(properties, dict) and name in properties:
            return _plain(properties[name])
        at = _FIELDS.get(name)
        if at is not None:
            fields = section(PROPERTIES)
            return _plain(fields[at]) if isinstance(fields, list) and len(fields) > at else None
        if key is None and name.startswith("m."):
            key = name[2:]
        if key is not None:
            annotations = section(MESSAGE_ANNOTATIONS)
            return _plain(annotations.get(key)) if isinstance(annotations, dict) else None
        return None

    return lookup


def _plain(value: Any) -> object:
    """Selectors know strings, booleans and numbers; other types count as absent, but ids may be compared as text."""
    if isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, uuid.UUID):
        return str(value)
    return None
