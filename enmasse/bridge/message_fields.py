"""Fields of a message as texts, and back: what the tables of headers, or parameters, of gateways have in common. Pure.

Ids are text, or `ulong:7`, `uuid:…`, `binary:` with hexadecimal digits.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from enmasse.amqp.codec.encoder import encode, encode_binary
from enmasse.amqp.codec.types import Symbol, Timestamp
from enmasse.amqp.messages.jsonform import codec_reason, id_of, plain, properties_of
from enmasse.amqp.messages.scan import AMQP_SEQUENCE, AMQP_VALUE, DATA
from enmasse.amqp.messages.sections import Header, Properties, Sections, encode_header, encode_properties
from enmasse.text import whole_number

DUPLICATE_ID: Final = "_AMQ_DUPL_ID"
LONGEST: Final = 8 << 10
"""Characters of a field."""
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
IDS: Final = re.compile(r"(ulong|uuid|binary):(.*)", re.DOTALL)
_ONLY_DURABLE: Final = {"durable": True}
_DURABLE: Final = encode_header(Header(durable=True))
_DATA: Final = b"\x00\x53\x75"
_APPLICATION: Final = b"\x00\x53\x74"


class MessageField(NamedTuple):
    """A field of a message with a header, or parameter, of its own. `kind`: `text`, `symbol`, `id`, `time` and `number`
    (milliseconds and whole numbers), `flag`."""

    header: str
    section: str
    field: str
    kind: str
    note: str


class NoField(ValueError):
    """A text is no value of its field: which, and what is expected."""


def documented(fields: Sequence[MessageField], column: str, shown: Callable[[str], str] = str) -> str:
    """Return fields as a table of the documentation. `column`: what headers are called; `shown`: how one is written."""
    lines = [f"| {column} | section | field | |", "|---|---|---|---|"]
    for each in fields:
        lines.append(f"| `{shown(each.header)}` | {each.section} | {each.field.replace('_', '-')} | {each.note} |")
    return "\n".join(lines) + "\n"


def field_value(field: MessageField, text: str) -> Any:
    """Return the value of a field that is no id. Raises NoField."""
    kind = field.kind
    if kind == "symbol":
        if not text.isascii():
            raise NoField(f"{field.header}: expected ASCII")
        return Symbol(text)
    if kind == "flag":
        if text.lower() not in ("true", "false"):
            raise NoField(f"{field.header}: expected true or false, not {text[:40]!r}")
        return text.lower() == "true"
    if kind in ("time", "number"):
        if (number := whole_number(text, 15)) is None:
            raise NoField(f"{field.header}: expected a whole number, not {text[:40]!r}")
        if kind == "number" and number > (9 if field.field == "priority" else 0xFFFF_FFFF):
            raise NoField(f"{field.header}: {number} is too large")
        return Timestamp(number) if kind == "time" else number
    return text


def value_text(field: MessageField, value: Any) -> str | None:
    """Return the text of a number, time or flag; None: the field is of another kind."""
    if field.kind == "flag":
        return "true" if value else "false"
    return str(int(value)) if field.kind in ("time", "number") else None


def stated_properties(name: str, text: str) -> dict[str, Any]:
    """Return the application properties that a header of this name states as JSON. Raises NoField."""
    try:
        return properties_of(text)
    except ValueError as error:
        raise NoField(f"{name}: {error}") from None


def add_ttl(properties: Mapping[str, Any], header: dict[str, Any]) -> None:
    """Give a message that states when it expires the ttl by which routers and receivers go, unless it has one."""
    if "absolute_expiry_time" in properties and "ttl" not in header:
        left = properties["absolute_expiry_time"] - int(time.time() * 1000)
        header["ttl"] = min(max(left, 1), 0xFFFF_FFFF)


def typed_id(header: str, text: str) -> Any:
    """Return the id that has its type in front; None: it has none, and is text. Raises NoField."""
    found = IDS.fullmatch(text)
    try:
        return None if found is None else id_of(*found.groups())
    except ValueError as error:
        raise NoField(f"{header}: {error}") from None


def id_text(value: Any) -> str:
    """Return an id that is no text, with its type in front."""
    if isinstance(value, UUID):
        return f"uuid:{value}"
    return f"binary:{value.hex()}" if isinstance(value, bytes) else f"ulong:{int(value)}"


def encoded_message(
    header: Mapping[str, Any],
    properties: Mapping[str, Any],
    application: dict[str, Any],
    body: bytes,
    duplicate_id: str,
) -> bytes:
    """Return the bytes of a message. `duplicate_id`: empty without one; a client's own is dropped, because brokers
    believe a gateway. Raises NoField."""
    application.pop(DUPLICATE_ID, None)
    if duplicate_id:
        application[DUPLICATE_ID] = duplicate_id
    try:
        return b"".join(
            (
                _DURABLE if header == _ONLY_DURABLE else encode_header(Header(**header)),
                encode_properties(Properties(**properties)),
                _APPLICATION + encode(application) if application else b"",
                _DATA,
                encode_binary(body),
            )
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise NoField(f"a field has a value that no message can have{codec_reason(error)}") from None


def body_of(sections: Sections) -> tuple[bytes, str, str]:
    """Return the body of a message as bytes, what it is if it is no bytes (`value` or `sequence`), and the media type
    of these bytes then."""
    kind, values = sections.body()
    if kind == DATA:
        return b"".join(values), "", ""
    value: Any = None
    if kind == AMQP_SEQUENCE:
        value = [each for part in values for each in part]
    elif kind == AMQP_VALUE:
        value = values[0]
    what = "sequence" if kind == AMQP_SEQUENCE else "value"
    if value is None:
        return b"", what, ""
    if isinstance(value, bytes):
        return bytes(value), what, ""
    if isinstance(value, str):
        return value.encode("utf-8", "replace"), what, TEXT
    return json.dumps(plain(value), separators=(",", ":")).encode("utf-8", "replace"), what, JSON


def body_with_headers(sections: Sections, headers: list[tuple[str, str]], kind: str) -> bytes:
    """Return the body of a message, and add headers to those that it has: `kind` for what its body is, and the type."""
    body, what, media = body_of(sections)
    if what:
        headers.append((kind, what))
    if media and not any(name == "content-type" for name, _ in headers):
        headers.append(("content-type", media))
    return body
