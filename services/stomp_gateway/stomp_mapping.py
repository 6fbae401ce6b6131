"""Headers of STOMP as fields of an AMQP message, and back: one table, which the documentation shows. Pure.

Other headers are application properties of their names. Headers are text: properties that are not, whose name is a
header of the protocol, or that a version cannot hold, are in one header as JSON too, with types
(enmasse/amqp/messages/jsonform.py); it counts for more than the text.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from enmasse.amqp.codec.encoder import encode, encode_binary
from enmasse.amqp.codec.types import Symbol, Timestamp
from enmasse.amqp.messages.jsonform import codec_reason, exact, id_of, plain, properties_of
from enmasse.amqp.messages.scan import AMQP_SEQUENCE, AMQP_VALUE, DATA
from enmasse.amqp.messages.sections import Header, Properties, Sections, encode_header, encode_properties
from enmasse.text import whole_number
from services.stomp_gateway.stomp_errors import StompError
from services.stomp_gateway.stomp_frames import V10, V11

PROPERTIES: Final = "enmasse-properties"
DUPLICATE_ID: Final = "_AMQ_DUPL_ID"
LONGEST: Final = 8 << 10


class StompField(NamedTuple):
    """A field of a message with a header of its own. `kind`: `text`, `symbol`, `id`, `time` and `number` (milliseconds
    and whole numbers), `flag`."""

    header: str
    section: str
    field: str
    kind: str
    note: str


TABLE: Final = (
    StompField("content-type", "properties", "content_type", "symbol", ""),
    StompField("content-encoding", "properties", "content_encoding", "symbol", "nothing is unpacked"),
    StompField("amqp-message-id", "properties", "message_id", "id", "`message-id` is that of the protocol"),
    StompField("correlation-id", "properties", "correlation_id", "id", ""),
    StompField("reply-to", "properties", "reply_to", "text", "a destination; needs the permission to receive there"),
    StompField("type", "properties", "subject", "text", ""),
    StompField("JMSXGroupID", "properties", "group_id", "text", ""),
    StompField("JMSXGroupSeq", "properties", "group_sequence", "number", ""),
    StompField("reply-to-group-id", "properties", "reply_to_group_id", "text", ""),
    StompField("timestamp", "properties", "creation_time", "time", "milliseconds since 1970"),
    StompField("expires", "properties", "absolute_expiry_time", "time", "milliseconds since 1970; 0: never"),
    StompField("ttl", "header", "ttl", "number", "milliseconds, from now on"),
    StompField("priority", "header", "priority", "number", "0 to 9, without it 4"),
    StompField("persistent", "header", "durable", "flag", "`true` or `false`, without it `true`"),
)
_FIELDS: Final = {each.header: each for each in TABLE}
OF_PROTOCOL: Final = frozenset(
    (
        "destination", "content-length", "receipt", "receipt-id", "transaction", "id", "ack", "message-id",
        "subscription", "redelivered", "delivery-count", "user-id", "amqp-body", "heart-beat", PROPERTIES,
    )
)  # fmt: skip
"""Headers that are no properties."""
_IDS: Final = re.compile(r"(ulong|uuid|binary|text):(.*)", re.DOTALL)
_DATA: Final = b"\x00\x53\x75"
_NUMBERS: Final = (bool, int, float)
_DURABLE: Final = encode_header(Header(durable=True))


def table() -> str:
    """Return TABLE as in the documentation."""
    lines = ["| header | section | field | |", "|---|---|---|---|"]
    for each in TABLE:
        lines.append(f"| `{each.header}` | {each.section} | {each.field.replace('_', '-')} | {each.note} |")
    return "\n".join(lines) + "\n"


# -- STOMP to AMQP ----------------------------------------------------------------------------------------------------
def to_amqp(headers: Mapping[str, str], body: bytes, to: str, reply_to: str | None, duplicate_id: str) -> bytes:
    """Return the message of a SEND. `to`: its address; `reply_to`: that of replies; `duplicate_id`: empty without one.
    Raises StompError."""
    properties: dict[str, Any] = {"to": to}
    header: dict[str, Any] = {}
    application: dict[str, Any] = {}
    for name, value in headers.items():
        if (field := _FIELDS.get(name)) is not None:
            if (found := _value(field, value)) is not None:
                (properties if field.section == "properties" else header)[field.field] = found
        elif name not in OF_PROTOCOL:
            application[name] = value
    if reply_to is not None:
        properties["reply_to"] = reply_to
    if (text := headers.get(PROPERTIES)) is not None:
        application.update(_properties(text))
    application.pop(DUPLICATE_ID, None)  # brokers believe a gateway
    if duplicate_id:
        application[DUPLICATE_ID] = duplicate_id
    if "absolute_expiry_time" in properties and "ttl" not in header:  # routers and receivers go by it
        left = properties["absolute_expiry_time"] - int(time.time() * 1000)
        header["ttl"] = min(max(left, 1), 0xFFFF_FFFF)
    if header:
        header.setdefault("durable", True)
    try:
        return b"".join(
            (
                encode_header(Header(**header)) if header else _DURABLE,
                encode_properties(Properties(**properties)),
                b"\x00\x53\x74" + encode(application) if application else b"",
                _DATA,
                encode_binary(body),
            )
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise StompError("bad header", f"a header has a value that no message can have{codec_reason(error)}") from None


def _value(field: StompField, text: str) -> Any:
    if len(text) > LONGEST:
        raise StompError("bad header", f"{field.header}: more than {LONGEST} characters")
    if field.kind == "symbol":
        if not text.isascii():
            raise StompError("bad header", f"{field.header}: expected ASCII")
        return Symbol(text)
    if field.kind == "flag":
        if text.lower() not in ("true", "false"):
            raise StompError("bad header", f"{field.header}: expected true or false, not {text[:40]!r}")
        return text.lower() == "true"
    if field.kind in ("time", "number"):
        if (number := whole_number(text, 15)) is None:
            raise StompError("bad header", f"{field.header}: expected a whole number, not {text[:40]!r}")
        if field.header in ("expires", "ttl") and not number:
            return None
        if field.kind == "number" and number > (9 if field.field == "priority" else 0xFFFF_FFFF):
            raise StompError("bad header", f"{field.header}: {number} is too large")
        return Timestamp(number) if field.kind == "time" else number
    return _id(field.header, text) if field.kind == "id" else text


def _id(header: str, text: str) -> Any:
    """Return an id: text, or what a type in front of it says."""
    found = _IDS.fullmatch(text)
    if found is None:
        return text
    kind, rest = found.groups()
    try:
        return rest if kind == "text" else id_of(kind, rest)
    except ValueError as error:
        raise StompError("bad header", f"{header}: {error}") from None


def _properties(text: str) -> dict[str, Any]:
    try:
        return properties_of(text)
    except ValueError as error:
        raise StompError("bad header", f"{PROPERTIES}: {error}") from None


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
    return headers, _body(sections, headers), properties.to


def _fits(name: str, value: str, version: str) -> bool:
    """Return whether a header of this version can be this property."""
    text = name + value
    if "\0" in text or not text.isprintable():
        if "\0" in text or (version in (V10, V11) and "\r" in text) or (version == V10 and "\n" in text):
            return False
        if any("\ud800" <= each <= "\udfff" for each in text) or value.endswith("\r"):
            return False
    return version != V10 or (":" not in name and name == name.strip() and value == value.strip())


def _body(sections: Sections, headers: list[tuple[str, str]]) -> bytes:
    kind, values = sections.body()
    if kind == DATA:
        return b"".join(values)
    value: Any = None
    if kind == AMQP_SEQUENCE:
        value = [each for part in values for each in part]
    elif kind == AMQP_VALUE:
        value = values[0]
    headers.append(("amqp-body", "sequence" if kind == AMQP_SEQUENCE else "value"))
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
        headers.append(("content-type", "application/json"))
    return json.dumps(plain(value), separators=(",", ":")).encode("utf-8", "replace")


def _text(field: StompField, value: Any) -> str:
    if field.kind == "flag":
        return "true" if value else "false"
    if field.kind in ("time", "number"):
        return str(int(value))
    if field.kind == "id":
        if isinstance(value, UUID):
            return f"uuid:{value}"
        if isinstance(value, bytes):
            return f"binary:{value.hex()}"
        if isinstance(value, int):
            return f"ulong:{int(value)}"
        return f"text:{value}" if _IDS.fullmatch(value) else str(value)
    return str(value)
