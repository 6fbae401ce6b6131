"""Retained messages as they come from a broker's feed, and the copies that a new subscriber gets. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from enmasse.amqp.codec.encoder import encode
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.messages.scan import DATA, PROPERTIES
from enmasse.amqp.messages.sections import Header, Sections
from enmasse.identity.annotations import ORIGINAL_ADDRESS, QOS, RETAIN, RETAINED_BY, RETAINED_FOR
from enmasse.identity.authors import Author
from enmasse.identity.seals import Seal
from enmasse.model.names import AddressName, split_name

DUPLICATE_ID = "_AMQ_DUPL_ID"
MAX_TTL = 0xFFFFFFFF
"""Milliseconds that a header can say; what lasts longer has an absolute-expiry-time."""
PRIORITY = 9
"""Priority of a copy: it is delivered before waiting messages."""


class Arrival(NamedTuple):
    """A retained publish. `message` None: it deletes. Times are milliseconds since 1970, `expires` 0: never.
    `author`: the user for which its seal stands; None without a valid one."""

    name: str
    qos: int
    expires: int
    message: bytes | None
    author: Author | None = None


def read(data: bytes, now: int, seal: Seal | None = None) -> Arrival | None:
    """Return the retained publish in a message of the feed; None if it is not one. Raises AmqpError."""
    sections = Sections(data)
    annotations = sections.annotations
    name = annotations.get(ORIGINAL_ADDRESS) or sections.to
    if annotations.get(RETAIN) is not True or not isinstance(name, str) or not name:
        return None
    header, properties = sections.header, sections.properties
    qos = annotations.get(QOS)
    if isinstance(qos, bool) or not isinstance(qos, int) or not 0 <= qos <= 2:
        qos = 1 if header.durable else 0
    expires = 0
    if properties.absolute_expiry_time and (QOS in annotations or not header.ttl):
        expires = max(1, properties.absolute_expiry_time)
    elif header.ttl:  # before the time of an AMQP client, whose clock may be wrong
        expires = now + header.ttl
    try:
        _, values = sections.body()
    except AmqpError:  # a large one, of which the rest was not kept
        values = [data]
    empty = all(value is None or (isinstance(value, bytes | str) and not value) for value in values)
    author = None
    sealed = annotations.get(RETAINED_BY)
    space, local = split_name(AddressName(name))
    if seal is not None and isinstance(sealed, bytes) and sections.to in (name, local) and not empty:
        body = b"".join(value for value in values if isinstance(value, bytes))
        author = seal.read(sealed, str(sections.to), body)
        if author is not None and author.space != space:
            author = None
    # Numbers of AMQP have types of their own here, which a record cannot have.
    return Arrival(str(name), int(qos), int(expires), None if empty else data, author)


def copy_for(data: bytes, name: str, filter: str, duplicate_id: str, expires: int, now: int) -> bytes:
    """Return the copy of a retained message for a new subscriber: delivered before all others, marked as retained,
    with the filter it is for.

    Properties, application properties (except the duplicate id) and body are the publisher's. Raises AmqpError.
    """
    sections = Sections(data)
    ttl = min(max(1, expires - now), MAX_TTL) if expires else None
    header = sections.header._replace(priority=PRIORITY, ttl=ttl, first_acquirer=False, delivery_count=0)
    annotations = {**sections.annotations, Symbol(RETAIN): True, Symbol(RETAINED_FOR): filter}
    for own in (ORIGINAL_ADDRESS, RETAINED_BY):
        annotations.pop(own, None)
    if sections.to != name:
        annotations[Symbol(ORIGINAL_ADDRESS)] = name
    application = encode({**sections.application_properties, DUPLICATE_ID: duplicate_id})
    return _message(sections, header, annotations, application)


def as_new(data: bytes, duplicate_id: str) -> bytes:
    """Return the message to be sent to its address once more, with this duplicate id. Raises AmqpError."""
    sections = Sections(data)
    header = sections.header._replace(first_acquirer=False, delivery_count=0)
    application = encode({**sections.application_properties, DUPLICATE_ID: duplicate_id})
    return _message(sections, header, sections.annotations, application)


def _message(sections: Sections, header: Header, annotations: Mapping[Any, Any], application: bytes) -> bytes:
    """Return the message with these sections instead of its own; its properties and body are as they came."""
    properties, body = sections.encoded(PROPERTIES), sections.payload[sections.begin(DATA) :]
    return b"".join((sections.front(header, annotations), properties, b"\x00\x53\x74", application, body))
