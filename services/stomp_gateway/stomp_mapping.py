"""Headers of STOMP as fields of an AMQP message, and back: one table, which the documentation shows. Pure.

Other headers are application properties of their names. Headers are text: properties that are not, whose name is a
header of the protocol, or that a version cannot hold, are in one header as JSON too, with types
(enmasse/amqp/messages/jsonform.py); it counts for more than the text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from enmasse.amqp.messages.jsonform import exact
from enmasse.amqp.messages.sections import Sections
from enmasse.bridge.message_fields import (
    DUPLICATE_ID,
    IDS,
    LONGEST,
    MessageField,
    NoField,
    add_ttl,
    body_with_headers,
    encoded_message,
    field_value,
    id_text,
    stated_properties,
    typed_id,
    value_text,
)
from enmasse.wire_formats.stomp_frames import V10, V11
from services.stomp_gateway.stomp_errors import StompError

PROPERTIES: Final = "enmasse-properties"


TABLE: Final = (
    MessageField("content-type", "properties", "content_type", "symbol", ""),
    MessageField("content-encoding", "properties", "content_encoding", "symbol", "nothing is unpacked"),
    MessageField("amqp-message-id", "properties", "message_id", "id", "`message-id` is that of the protocol"),
    MessageField("correlation-id", "properties", "correlation_id", "id", ""),
    MessageField("reply-to", "properties", "reply_to", "text", "a destination; needs the permission to receive there"),
    MessageField("type", "properties", "subject", "text", ""),
    MessageField("JMSXGroupID", "properties", "group_id", "text", ""),
    MessageField("JMSXGroupSeq", "properties", "group_sequence", "number", ""),
    MessageField("reply-to-group-id", "properties", "reply_to_group_id", "text", ""),
    MessageField("timestamp", "properties", "creation_time", "time", "milliseconds since 1970"),
    MessageField("expires", "properties", "absolute_expiry_time", "time", "milliseconds since 1970; 0: never"),
    MessageField("ttl", "header", "ttl", "number", "milliseconds, from now on"),
    MessageField("priority", "header", "priority", "number", "0 to 9, without it 4"),
    MessageField("persistent", "header", "durable", "flag", "`true` or `false`, without it `true`"),
)
_FIELDS: Final = {each.header: each for each in TABLE}
OF_PROTOCOL: Final = frozenset(
    (
        "destination", "content-length", "receipt", "receipt-id", "transaction", "id", "ack", "message-id",
        "subscription", "redelivered", "delivery-count", "user-id", "amqp-body", "heart-beat", PROPERTIES,
    )
)  # fmt: skip
"""Headers that are no properties."""
_IS_TEXT: Final = "text:"
"""In front of an id that begins as one of another type does."""
_NUMBERS: Final = (bool, int, float)


# -- STOMP to AMQP ----------------------------------------------------------------------------------------------------
def to_amqp(headers: Mapping[str, str], body: bytes, to: str, reply_to: str | None, duplicate_id: str) -> bytes:
    """Return the message of a SEND. `to`: its address; `reply_to`: that of replies; `duplicate_id`: empty without one.
    Raises StompError."""
    properties: dict[str, Any] = {"to": to}
    header: dict[str, Any] = {}
    application: dict[str, Any] = {}
    try:
        for name, value in headers.items():
            if (field := _FIELDS.get(name)) is not None:
                if (found := _value(field, value)) is not None:
                    (properties if field.section == "properties" else header)[field.field] = found
            elif name not in OF_PROTOCOL:
                application[name] = value
        if reply_to is not None:
            properties["reply_to"] = reply_to
        add_ttl(properties, header)
        header.setdefault("durable", True)
        if (text := headers.get(PROPERTIES)) is not None:
            application.update(stated_properties(PROPERTIES, text))
        return encoded_message(header, properties, application, body, duplicate_id)
    except NoField as error:
        raise StompError("bad header", str(error)) from None


def _value(field: MessageField, text: str) -> Any:
    """Return the value of a header; None: it is empty and states none. Raises NoField."""
    if len(text) > LONGEST:
        raise NoField(f"{field.header}: more than {LONGEST} characters")
    if field.kind == "id":
        found = typed_id(field.header, text)
        return text.removeprefix(_IS_TEXT) if found is None else found
    value = field_value(field, text)
    return None if field.header in ("expires", "ttl") and not value else value


# -- AMQP to STOMP ----------------------------------------------------------------------------------------------------
def to_stomp(payload: bytes, version: str) -> tuple[list[tuple[str, str]], bytes, str | None]:
    """Return headers and body of a message, and its `to`. Raises AmqpError."""
    sections = Sections(payload)
    properties, header = sections.properties, sections.header
    headers: list[tuple[str, str]] = []
    for each in TABLE:
        value = getattr(properties if each.section == "properties" else header, each.field)
        if value is not None and not (each.field == "priority" and value == 4):
            headers.append((each.header, _text(each, value)))
    if header.delivery_count:
        headers += [("redelivered", "true"), ("delivery-count", str(header.delivery_count))]
    user = properties.user_id
    if user:
        headers.append(("user-id", bytes(user).decode("utf-8", "replace") if isinstance(user, bytes) else str(user)))
    typed: dict[str, Any] = {}
    for name, value in sections.application_properties.items():
        own = name in _FIELDS or name in OF_PROTOCOL or not name
        if name == DUPLICATE_ID:
            continue
        if type(value) is str and not own and _fits(name, value, version):
            headers.append((name, value))
            continue
        typed[name] = exact(value)
        if type(value) in _NUMBERS and not own and _fits(name, "", version):
            headers.append((name, str(value).lower() if type(value) is bool else str(value)))
    if typed:
        headers.append((PROPERTIES, json.dumps(typed, separators=(",", ":"))))
    return headers, body_with_headers(sections, headers, "amqp-body"), properties.to


def _fits(name: str, value: str, version: str) -> bool:
    """Return whether a header of this version can be this property."""
    text = name + value
    if "\0" in text or not text.isprintable():
        if "\0" in text or (version in (V10, V11) and "\r" in text) or (version == V10 and "\n" in text):
            return False
        if any("\ud800" <= each <= "\udfff" for each in text) or value.endswith("\r"):
            return False
    return version != V10 or (":" not in name and name == name.strip() and value == value.strip())


def _text(field: MessageField, value: Any) -> str:
    if (text := value_text(field, value)) is not None:
        return text
    if field.kind == "id":
        if not isinstance(value, str):
            return id_text(value)
        return _IS_TEXT + value if IDS.fullmatch(value) or value.startswith(_IS_TEXT) else value
    return str(value)
