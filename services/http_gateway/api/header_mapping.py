"""Headers of HTTP as fields of an AMQP message, and back: one table, which the documentation shows.

Values are ASCII in HTTP: `%` and what is not printable ASCII has the percent form of its UTF-8 bytes. Application
properties are JSON in one header, with types where JSON has none (enmasse/amqp/messages/jsonform.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

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
from services.http_gateway.api.http_problems import Answered

PREFIX: Final = "enmasse-"
PROPERTIES: Final = "enmasse-properties"
IDEMPOTENCY: Final = "idempotency-key"
EVENT_HEADER: Final = "ce-"
EVENT_PROPERTY: Final = "cloudEvents:"
"""Attributes of a CloudEvent: HTTP binding 3.1.3 and AMQP binding 3.1.3."""
_EVENT: Final = re.compile(r"[a-z0-9]{1,40}")


TABLE: Final = (
    MessageField("content-type", "properties", "content_type", "symbol", "unchanged"),
    MessageField("content-encoding", "properties", "content_encoding", "symbol", "unchanged: nothing is unpacked"),
    MessageField("enmasse-message-id", "properties", "message_id", "id", ""),
    MessageField("enmasse-correlation-id", "properties", "correlation_id", "id", ""),
    MessageField("enmasse-subject", "properties", "subject", "text", ""),
    MessageField("enmasse-reply-to", "properties", "reply_to", "text", "needs the permission to receive there"),
    MessageField("enmasse-group-id", "properties", "group_id", "text", ""),
    MessageField("enmasse-group-sequence", "properties", "group_sequence", "number", ""),
    MessageField("enmasse-reply-to-group-id", "properties", "reply_to_group_id", "text", ""),
    MessageField("enmasse-creation-time", "properties", "creation_time", "time", "milliseconds since 1970"),
    MessageField("enmasse-expiry-time", "properties", "absolute_expiry_time", "time", "milliseconds since 1970"),
    MessageField("enmasse-ttl", "header", "ttl", "number", "milliseconds"),
    MessageField("enmasse-priority", "header", "priority", "number", "0 to 9, without it 4"),
    MessageField("enmasse-durable", "header", "durable", "flag", "`true` or `false`, without it `true`"),
)
_FIELDS: Final = {each.header: each for each in TABLE}
_READ_ONLY: Final = frozenset((f"{PREFIX}delivery-count", f"{PREFIX}to", f"{PREFIX}body", f"{PREFIX}user-id"))
"""Headers of messages to clients that those from clients do not have."""
_FORM: Final = re.compile(r"[\x20-\x7e]*")


def header_name(header: str) -> str:
    """Return the name of a header for the documentation."""
    return "-".join(part.capitalize() if part != "ttl" else "TTL" for part in header.split("-"))


# -- HTTP to AMQP -----------------------------------------------------------------------------------------------------
def to_amqp(
    headers: Mapping[str, str], body: bytes, to: str, duplicate_id: str, given: Mapping[str, Any] | None = None
) -> bytes:
    """Return the message of a request. `to`: its address; `duplicate_id`: empty without one; `given`: properties that
    it gets instead of those of the headers. Raises Answered."""
    fields: dict[str, dict[str, Any]] = {"properties": {"to": to}, "header": {"durable": True}}
    application: dict[str, Any] = {}
    try:
        for name, value in headers.items():
            if (field := _FIELDS.get(name)) is not None:
                fields[field.section][field.field] = _value(field, value)
            elif name.startswith(EVENT_HEADER):
                if not _EVENT.fullmatch(name[len(EVENT_HEADER) :]):
                    raise NoField(f"{name}: names of attributes of CloudEvents are small letters and digits")
                application[EVENT_PROPERTY + name[len(EVENT_HEADER) :]] = decoded(value)
            elif name == PROPERTIES:
                application.update(stated_properties(PROPERTIES, decoded(value)))
            elif name.startswith(PREFIX) and name not in _READ_ONLY:
                raise NoField(f"{name}: no such header; known are {', '.join(_FIELDS)}, {PROPERTIES}")
        fields["properties"].update(given or {})
        add_ttl(fields["properties"], fields["header"])
        return encoded_message(fields["header"], fields["properties"], application, body, duplicate_id)
    except NoField as error:
        raise Answered(400, str(error)) from None


def _value(field: MessageField, text: str) -> Any:
    """Return the value of a header. The text of an id that begins as a type does has its colon escaped. Raises Answered
    and NoField."""
    if len(text) > LONGEST:
        raise Answered(431, f"{field.header}: more than {LONGEST} characters")
    if field.kind == "text":
        return decoded(text)
    if field.kind != "id":
        return field_value(field, text)
    found = typed_id(field.header, text)
    return decoded(text) if found is None else found


def decoded(text: str) -> str:
    """Return the text of a header. Raises Answered."""
    if "%" not in text and text.isascii():
        return text
    try:
        return unquote(text.encode("latin-1").decode(), errors="strict")
    except (UnicodeDecodeError, UnicodeEncodeError):
        raise Answered(400, "headers are UTF-8, or its percent form") from None


# -- AMQP to HTTP -----------------------------------------------------------------------------------------------------
def to_http(payload: bytes) -> tuple[list[tuple[str, str]], bytes]:
    """Return headers and body of a message. Raises AmqpError."""
    sections = Sections(payload)
    headers: list[tuple[str, str]] = []
    own = {"properties": sections.properties, "header": sections.header}
    for each in TABLE:
        value = getattr(own[each.section], each.field)
        if value is not None and not (each.field == "priority" and value == 4):
            headers.append((each.header, _text(each, value)))
    if sections.properties.to:
        headers.append((f"{PREFIX}to", encoded(sections.properties.to)))
    if sections.header.delivery_count:
        headers.append((f"{PREFIX}delivery-count", str(sections.header.delivery_count)))
    rest: dict[str, Any] = {}
    for name, value in sections.application_properties.items():
        event = name.removeprefix(EVENT_PROPERTY)
        if event != name and _EVENT.fullmatch(event) and type(value) is str:
            headers.append((EVENT_HEADER + event, encoded(value)))
        elif name != DUPLICATE_ID:
            rest[name] = exact(value)
    if rest:
        headers.append((PROPERTIES, encoded(json.dumps(rest, separators=(",", ":")))))
    return headers, body_with_headers(sections, headers, f"{PREFIX}body")


def _text(field: MessageField, value: Any) -> str:
    if (text := value_text(field, value)) is not None:
        return text
    if field.kind == "symbol" and _FORM.fullmatch(value) and value == value.strip():
        return str(value)
    if field.kind == "id":
        if not isinstance(value, str):
            return id_text(value)
        text = encoded(value)
        return text.replace(":", "%3A", 1) if IDS.fullmatch(text) else text
    return encoded(value)


def encoded(text: str) -> str:
    """Return a text as the value of a header."""
    if _FORM.fullmatch(text) and "%" not in text and text == text.strip():
        return text
    plain_text = "".join(
        character if "!" <= character <= "~" and character != "%" else _percent(character) for character in text
    )
    return plain_text


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))
