"""Parameters and Content-Formats of CoAP as fields of an AMQP message, and back: two tables, which the documentation
shows. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.messages.jsonform import to_json
from enmasse.amqp.messages.message import Message
from enmasse.amqp.messages.sections import Sections
from enmasse.bridge.message_fields import (
    DUPLICATE_ID,
    LONGEST,
    MessageField,
    NoField,
    add_ttl,
    body_of,
    encoded_message,
    field_value,
    stated_properties,
    typed_id,
)
from enmasse.wire_formats.coap_messages import CONTENT_FORMAT, MAX_AGE, uint
from services.coap_gateway.coap_answers import CoapAnswer

FORMATS: Final = (
    (0, "text/plain; charset=utf-8"),
    (40, "application/link-format"),
    (41, "application/xml"),
    (42, "application/octet-stream"),
    (50, "application/json"),
    (51, "application/json-patch+json"),
    (52, "application/merge-patch+json"),
    (60, "application/cbor"),
    (61, "application/cwt"),
    (63, "application/cbor-seq"),
    (110, "application/senml+json"),
    (111, "application/sensml+json"),
    (112, "application/senml+cbor"),
    (113, "application/sensml+cbor"),
    (310, "application/senml+xml"),
    (11542, "application/vnd.oma.lwm2m+tlv"),
    (11543, "application/vnd.oma.lwm2m+json"),
    (11544, "application/vnd.oma.lwm2m+cbor"),
)
"""Content-Format ↔ content-type, as IANA has them."""
_TYPES: Final = dict(FORMATS)
_NUMBERS: Final = {media: number for number, media in FORMATS} | {"text/plain": 0}
JSON: Final = _NUMBERS["application/json"]
TABLE: Final = (
    MessageField("content-type", "properties", "content_type", "symbol", "of types that have no Content-Format"),
    MessageField("content-encoding", "properties", "content_encoding", "symbol", "nothing is unpacked"),
    MessageField("message-id", "properties", "message_id", "id", ""),
    MessageField("correlation-id", "properties", "correlation_id", "id", ""),
    MessageField("subject", "properties", "subject", "text", ""),
    MessageField("reply-to", "properties", "reply_to", "text", "needs the permission to receive there"),
    MessageField("group-id", "properties", "group_id", "text", ""),
    MessageField("group-sequence", "properties", "group_sequence", "number", ""),
    MessageField("reply-to-group-id", "properties", "reply_to_group_id", "text", ""),
    MessageField("creation-time", "properties", "creation_time", "time", "milliseconds since 1970"),
    MessageField("expiry-time", "properties", "absolute_expiry_time", "time", "milliseconds since 1970"),
    MessageField("ttl", "header", "ttl", "number", "milliseconds"),
    MessageField("priority", "header", "priority", "number", "0 to 9, without it 4"),
    MessageField("durable", "header", "durable", "flag", "`true` or `false`, without it `true`"),
)
_FIELDS: Final = {each.header: each for each in TABLE}
PROPERTY: Final = "property."
PROPERTIES: Final = "properties"
KEY: Final = "key"
REPLY_TO: Final = "reply-to"


def formats_table() -> str:
    """Return FORMATS as in the documentation."""
    return (
        "\n".join(("| Content-Format | content-type |", "|---|---|", *(f"| {n} | `{t}` |" for n, t in FORMATS))) + "\n"
    )


# -- CoAP to AMQP -----------------------------------------------------------------------------------------------------
def to_amqp(query: Mapping[str, str], content_format: bytes | None, body: bytes, to: str, duplicate_id: str) -> bytes:
    """Return the message of a request. `to`: its address; `duplicate_id`: empty without one. Raises CoapAnswer."""
    fields: dict[str, dict[str, Any]] = {"properties": {"to": to}, "header": {"durable": True}}
    application: dict[str, Any] = {}
    if content_format is not None:
        number = int.from_bytes(content_format, "big")
        media = _TYPES.get(number)
        if media is None:
            raise CoapAnswer("4.15", f"Content-Format {number} is not known here: state content-type=TYPE instead")
        fields["properties"]["content_type"] = Symbol(media)
    try:
        for name, text in query.items():
            if (field := _FIELDS.get(name)) is not None:
                fields[field.section][field.field] = _value(field, text)
            elif name.startswith(PROPERTY) and len(name) > len(PROPERTY):
                application[name[len(PROPERTY) :]] = text
            elif name == PROPERTIES:
                application.update(stated_properties(PROPERTIES, text))
            elif name != KEY:
                known = ", ".join((*_FIELDS, KEY, PROPERTIES, f"{PROPERTY}NAME"))
                raise NoField(f"{name[:60]}: no such parameter; known are {known}")
        add_ttl(fields["properties"], fields["header"])
        return encoded_message(fields["header"], fields["properties"], application, body, duplicate_id)
    except NoField as error:
        raise CoapAnswer("4.00", str(error)) from None


def _value(field: MessageField, text: str) -> Any:
    if len(text) > LONGEST:
        raise NoField(f"{field.header}: more than {LONGEST} characters")
    if field.kind != "id":
        return field_value(field, text)
    found = typed_id(field.header, text)
    return text if found is None else found


# -- AMQP to CoAP -----------------------------------------------------------------------------------------------------
def to_coap(payload: bytes, *, whole: bool) -> tuple[list[tuple[int, bytes]], bytes]:
    """Return options and body of a notification. `whole`: the body is the message with all of its fields, as JSON.
    Raises AmqpError."""
    options: list[tuple[int, bytes]] = []
    sections = Sections(payload)
    ttl = sections.header.ttl
    if ttl is not None:
        options.append((MAX_AGE, uint(-(-ttl // 1000))))
    if whole:
        found = Message.decode(payload)
        found.application_properties.pop(DUPLICATE_ID, None)
        options.append((CONTENT_FORMAT, uint(JSON)))
        return options, json.dumps(to_json(found), separators=(",", ":")).encode("utf-8", "replace")
    body, _, made = body_of(sections)
    media = str(sections.properties.content_type or made)
    number = _NUMBERS.get("; ".join(part.strip() for part in media.lower().split(";")))
    if number is not None:
        options.append((CONTENT_FORMAT, uint(number)))
    return options, body
