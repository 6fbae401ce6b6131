"""Headers of HTTP as fields of an AMQP message, and back: one table, which the documentation shows.

Values are ASCII in HTTP: `%` and what is not printable ASCII has the percent form of its UTF-8 bytes. Application
properties are JSON in one header, with types where JSON has none (enmasse/amqp/messages/jsonform.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote
from uuid import UUID

from enmasse.amqp.codec.encoder import encode, encode_binary
from enmasse.amqp.codec.types import Symbol, Timestamp
from enmasse.amqp.messages.jsonform import codec_reason, exact, id_of, plain, properties_of
from enmasse.amqp.messages.scan import AMQP_SEQUENCE, AMQP_VALUE, DATA
from enmasse.amqp.messages.sections import Header, Properties, Sections, encode_header, encode_properties
from enmasse.text import whole_number
from services.http_gateway.api.http_problems import Answered

PREFIX: Final = "enmasse-"
PROPERTIES: Final = "enmasse-properties"
IDEMPOTENCY: Final = "idempotency-key"
DUPLICATE_ID: Final = "_AMQ_DUPL_ID"
EVENT_HEADER: Final = "ce-"
EVENT_PROPERTY: Final = "cloudEvents:"
"""Attributes of a CloudEvent: HTTP binding 3.1.3 and AMQP binding 3.1.3."""
LONGEST: Final = 8 << 10
JSON: Final = "application/json"
_EVENT: Final = re.compile(r"[a-z0-9]{1,40}")


class HeaderField(NamedTuple):
    """A field of a message with a header of its own. `kind`: `text`, `symbol`, `id`, `time` and `number` (milliseconds
    and whole numbers), `flag`."""

    header: str
    section: str
    field: str
    kind: str
    note: str


TABLE: Final = (
    HeaderField("content-type", "properties", "content_type", "symbol", "unchanged"),
    HeaderField("content-encoding", "properties", "content_encoding", "symbol", "unchanged: nothing is unpacked"),
    HeaderField("enmasse-message-id", "properties", "message_id", "id", ""),
    HeaderField("enmasse-correlation-id", "properties", "correlation_id", "id", ""),
    HeaderField("enmasse-subject", "properties", "subject", "text", ""),
    HeaderField("enmasse-reply-to", "properties", "reply_to", "text", "needs the permission to receive there"),
    HeaderField("enmasse-group-id", "properties", "group_id", "text", ""),
    HeaderField("enmasse-group-sequence", "properties", "group_sequence", "number", ""),
    HeaderField("enmasse-reply-to-group-id", "properties", "reply_to_group_id", "text", ""),
    HeaderField("enmasse-creation-time", "properties", "creation_time", "time", "milliseconds since 1970"),
    HeaderField("enmasse-expiry-time", "properties", "absolute_expiry_time", "time", "milliseconds since 1970"),
    HeaderField("enmasse-ttl", "header", "ttl", "number", "milliseconds"),
    HeaderField("enmasse-priority", "header", "priority", "number", "0 to 9, without it 4"),
    HeaderField("enmasse-durable", "header", "durable", "flag", "`true` or `false`, without it `true`"),
)
_FIELDS: Final = {each.header: each for each in TABLE}
_READ_ONLY: Final = frozenset((f"{PREFIX}delivery-count", f"{PREFIX}to", f"{PREFIX}body", f"{PREFIX}user-id"))
"""Headers of messages to clients that those from clients do not have."""
_IDS: Final = re.compile(r"(ulong|uuid|binary):(.*)", re.DOTALL)
_FORM: Final = re.compile(r"[\x20-\x7e]*")
_DATA: Final = b"\x00\x53\x75"


def table() -> str:
    """Return TABLE as in the documentation."""
    lines = ["| header | section | field | |", "|---|---|---|---|"]
    for each in TABLE:
        name = "-".join(part.capitalize() if part != "ttl" else "TTL" for part in each.header.split("-"))
        lines.append(f"| `{name}` | {each.section} | {each.field.replace('_', '-')} | {each.note} |")
    return "\n".join(lines) + "\n"


# -- HTTP to AMQP -----------------------------------------------------------------------------------------------------
def to_amqp(
    headers: Mapping[str, str], body: bytes, to: str, duplicate_id: str, given: Mapping[str, Any] | None = None
) -> bytes:
    """Return the message of a request. `to`: its address; `duplicate_id`: empty without one; `given`: properties that
    it gets instead of those of the headers. Raises Answered."""
    fields: dict[str, dict[str, Any]] = {"properties": {"to": to}, "header": {"durable": True}}
    application: dict[str, Any] = {}
    for name, value in headers.items():
        if (field := _FIELDS.get(name)) is not None:
            fields[field.section][field.field] = _value(field, value)
        elif name.startswith(EVENT_HEADER):
            if not _EVENT.fullmatch(name[len(EVENT_HEADER) :]):
                raise Answered(400, f"{name}: names of attributes of CloudEvents are small letters and digits")
            application[EVENT_PROPERTY + name[len(EVENT_HEADER) :]] = decoded(value)
        elif name == PROPERTIES:
            application.update(_properties(value))
        elif name.startswith(PREFIX) and name not in _READ_ONLY:
            raise Answered(400, f"{name}: no such header; known are {', '.join(_FIELDS)}, {PROPERTIES}")
    fields["properties"].update(given or {})
    application.pop(DUPLICATE_ID, None)  # brokers believe a gateway
    if duplicate_id:
        application[DUPLICATE_ID] = duplicate_id
    try:
        return b"".join(
            (
                encode_header(Header(**fields["header"])),
                encode_properties(Properties(**fields["properties"])),
                b"\x00\x53\x74" + encode(application) if application else b"",
                _DATA,
                encode_binary(body),
            )
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise Answered(400, f"a header has a value that no message can have{codec_reason(error)}") from None


def _value(field: HeaderField, text: str) -> Any:
    if len(text) > LONGEST:
        raise Answered(431, f"{field.header}: more than {LONGEST} characters")
    if field.kind == "symbol":
        if not text.isascii():
            raise Answered(400, f"{field.header}: expected ASCII")
        return Symbol(text)
    if field.kind == "flag":
        if text.lower() not in ("true", "false"):
            raise Answered(400, f"{field.header}: expected true or false, not {text[:40]!r}")
        return text.lower() == "true"
    if field.kind in ("time", "number"):
        if (number := whole_number(text, 15)) is None:
            raise Answered(400, f"{field.header}: expected a whole number, not {text[:40]!r}")
        if field.kind == "number" and number > (9 if field.field == "priority" else 0xFFFF_FFFF):
            raise Answered(400, f"{field.header}: {number} is too large")
        return Timestamp(number) if field.kind == "time" else number
    return _id(field.header, text) if field.kind == "id" else decoded(text)


def _id(header: str, text: str) -> Any:
    """Return an id: text, or what a type in front of it says. Text that begins as these do has its colon escaped."""
    found = _IDS.fullmatch(text)
    if found is None:
        return decoded(text)
    try:
        return id_of(*found.groups())
    except ValueError as error:
        raise Answered(400, f"{header}: {error}") from None


def _properties(text: str) -> dict[str, Any]:
    try:
        return properties_of(decoded(text))
    except ValueError as error:
        raise Answered(400, f"{PROPERTIES}: {error}") from None


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
    return headers, _body(sections, headers)


def _body(sections: Sections, headers: list[tuple[str, str]]) -> bytes:
    kind, values = sections.body()
    if kind == DATA:
        return b"".join(values)
    value: Any = None
    if kind == AMQP_SEQUENCE:
        value = [each for part in values for each in part]
    elif kind == AMQP_VALUE:
        value = values[0]
    headers.append((f"{PREFIX}body", "sequence" if kind == AMQP_SEQUENCE else "value"))
    if value is None:
        return b""
    if isinstance(value, bytes):
        return bytes(value)
    has_type = any(name == "content-type" for name, _ in headers)
    if isinstance(value, str):
        if not has_type:
            headers.append(("content-type", "text/plain; charset=utf-8"))
        return value.encode("utf-8", "replace")
    if not has_type:
        headers.append(("content-type", JSON))
    return json.dumps(plain(value), separators=(",", ":")).encode("utf-8", "replace")


def _text(field: HeaderField, value: Any) -> str:
    if field.kind == "flag":
        return "true" if value else "false"
    if field.kind in ("time", "number"):
        return str(int(value))
    if field.kind == "symbol" and _FORM.fullmatch(value) and value == value.strip():
        return str(value)
    if field.kind == "id":
        if isinstance(value, UUID):
            return f"uuid:{value}"
        if isinstance(value, bytes):
            return f"binary:{value.hex()}"
        if isinstance(value, int):
            return f"ulong:{int(value)}"
        text = encoded(value)
        return text.replace(":", "%3A", 1) if _IDS.fullmatch(text) else text
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
