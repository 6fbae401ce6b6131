"""Messages as JSON objects, and back: readable, and exact.

An object has the fields of the message in plain JSON: a number for each of AMQP's integers, text for binary that is
UTF-8. What this does not tell is in `types`, by field: the name of a type such as "ubyte", or for values inside others
the whole value in exact form. So the same message can be made of the object, and a program may change its plain fields:
an exact form counts only while it is the value that the plain field shows.

Exact form: null, true, false, a long, a finite double, a string and a list as themselves; {"map": [[key, value], …]},
{"array": [type, descriptor, values]}, {"described": [descriptor, value]}, and {type: value} for all other types, with
binary and decimals in base64.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import UUID

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float32,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from enmasse.amqp.messages.message import AmqpSequence, AmqpValue, Message, Sections
from enmasse.amqp.messages.scan import DATA
from enmasse.text import whole_number

_TYPES: dict[str, type] = {
    "null": type(None), "boolean": bool, "ubyte": UByte, "ushort": UShort, "uint": UInt, "ulong": ULong, "byte": Byte,
    "short": Short, "int": Int, "long": int, "float": Float32, "double": float, "decimal32": Decimal32,
    "decimal64": Decimal64, "decimal128": Decimal128, "char": Char, "timestamp": Timestamp, "uuid": UUID,
    "binary": bytes, "string": str, "symbol": Symbol, "list": list, "map": dict, "array": Array,
    "described": Described,
}  # fmt: skip
_NAMES = {kind: name for name, kind in _TYPES.items()}
_DATA, _SEQUENCE = "data", "sequence"
_TEXTS = (
    "to", "subject", "reply_to", "content_type", "content_encoding", "group_id", "reply_to_group_id",
)  # fmt: skip
_NUMBERS = ("absolute_expiry_time", "creation_time", "group_sequence")
_IDS = {"id": "message_id", "correlation_id": "correlation_id"}
_MAPS = {
    "properties": "application_properties", "annotations": "annotations", "footer": "footer",
    "delivery_annotations": "delivery_annotations",
}  # fmt: skip
_SHOWN = (
    "user_id", "to", "subject", "reply_to", "correlation_id", "content_type", "content_encoding",
    "absolute_expiry_time", "creation_time", "group_id", "group_sequence", "reply_to_group_id",
)  # fmt: skip
FIELDS = frozenset({
    "body", "durable", "ttl", "priority", "delivery_count", "user_id", "types", *_TEXTS, *_NUMBERS, *_IDS, *_MAPS,
})  # fmt: skip
"""Keys of the object of a message."""


class NoMessage(ValueError):
    """A JSON value is not the object of a message; the text has the field and the reason."""


def to_json(message: Message, payload: bytes | None = None) -> dict[str, Any]:
    """Return the object of a message: body, durable, id, properties, and what else is set. `payload`: the bytes of the
    message, if bodies of several sections are to stay that."""
    found: dict[str, Any] = {"body": plain(message.body), "durable": message.durable, "id": plain(message.message_id)}
    found |= {name: plain(value) for name in _SHOWN if (value := getattr(message, name)) is not None}
    if message.ttl is not None:
        found["ttl"] = message.ttl
    if message.priority != 4:
        found["priority"] = message.priority
    if message.delivery_count:
        found["delivery_count"] = message.delivery_count
    found["properties"] = plain(message.application_properties)
    for name in ("annotations", "delivery_annotations", "footer"):
        if value := getattr(message, name):
            found[name] = plain(value)
    if types := _types(message, payload):
        found["types"] = types
    return found


def from_json(found: Any, replaced: Mapping[str, Any] | None = None) -> bytes:
    """Return the bytes of the message of which `to_json` has made this object, without its delivery count. `replaced`:
    fields of `Message` that it gets instead; entries of maps are added. Raises NoMessage.
    """
    if not isinstance(found, dict):
        raise NoMessage("expected a JSON object")
    if unknown := [str(key) for key in found if key not in FIELDS]:
        raise NoMessage(f"{unknown[0]}: unknown field; known are {', '.join(sorted(FIELDS))}")
    types = found.get("types", {})
    if not isinstance(types, dict):
        raise NoMessage("types: expected an object")
    fields = _simple_fields(found) | {
        own: _read(found[name], types.get(name), name, "ulong" if type(found[name]) is int else None)
        for name, own in _IDS.items()
        if found.get(name) is not None
    }
    for name, own in _MAPS.items():
        if name in found:
            fields[own] = _map(found[name], types.get(name), name)
    body, sections = _body(found.get("body"), types.get("body"))
    try:
        for own, value in (replaced or {}).items():
            fields[own] = fields.get(own, {}) | value if own in _MAPS.values() else value
        message = Message(**{"body": body, **fields})
        is_deep = sections is not None or any(map(_is_deep, (body, *fields.values())))
        if sections is None or "body" in (replaced or {}):
            made = message.encode()
        else:
            footer, message.footer = message.footer, {}
            message.body = None
            end = Message(None, footer=footer).encode().removeprefix(_NO_BODY) if footer else b""
            made = message.encode().removesuffix(_NO_BODY) + sections + end
        if is_deep:
            Message.decode(made)
        return made
    except AmqpError as error:
        raise NoMessage(f"no receiver could read it: {error.description}") from None
    except (TypeError, ValueError, RecursionError, AttributeError) as error:
        raise NoMessage(str(error)) from None


_NO_BODY = Message(None).encode()


def _is_deep(value: Any, left: int = 16) -> bool:
    """Return whether a value is nested so deeply that it may not be possible to decode it."""
    if isinstance(value, dict):
        return not left or any(_is_deep(item, left - 1) for pair in value.items() for item in pair)
    if isinstance(value, list):
        return not left or any(_is_deep(item, left - 1) for item in value)
    return isinstance(value, Array | Described | AmqpValue | AmqpSequence)


def plain(value: Any) -> Any:
    """Return an AMQP value as JSON: binary as text if it is UTF-8, else {"base64": …}; unknown types as text."""
    if isinstance(value, AmqpValue):
        return plain(value.value)
    if isinstance(value, AmqpSequence):
        return plain(value.values)
    if isinstance(value, Described):
        return plain(value.value)
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return {"base64": _base64(data)}
    if isinstance(value, dict):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Array):
        return [plain(item) for item in value.values]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)  # JSON has no infinity, no NaN
    return str(value)


def exact(value: Any) -> Any:
    """Return an AMQP value as JSON from which `value_of` makes the same value."""
    kind = type(value)
    if value is None or kind in (bool, str) or (kind is int) or (kind is float and math.isfinite(value)):
        return value
    if kind is list:
        return [exact(item) for item in value]
    if kind is dict:
        return {"map": [[exact(key), exact(item)] for key, item in value.items()]}
    if kind is Array:
        return {"array": [_NAMES[value.type], exact(value.descriptor), [exact(item) for item in value.values]]}
    if kind is Described:
        return {"described": [exact(value.descriptor), exact(value.value)]}
    if isinstance(value, bytes):
        return {_NAMES[kind]: _base64(value)}
    return {_NAMES[kind]: value if isinstance(value, int | str) and kind is not UUID else str(value)}


def value_of(form: Any) -> Any:
    """Return the value of an exact form. Raises ValueError."""
    if isinstance(form, list):
        return [value_of(item) for item in form]
    if not isinstance(form, dict):
        return form
    if len(form) != 1:
        raise ValueError('expected an object with one type, such as {"ubyte": 1}')
    [(name, content)] = form.items()
    try:
        if name == "map":
            return {value_of(key): value_of(item) for key, item in content}
        if name == "array":
            kind, descriptor, items = content
            return Array(_TYPES[kind], [value_of(item) for item in items], value_of(descriptor))
        if name == "described":
            descriptor, content = content
            return Described(value_of(descriptor), value_of(content))
        if name == "binary" or name.startswith("decimal"):
            return _TYPES[name](base64.b64decode(content, validate=True))
        return _converted(content, name)
    except (TypeError, KeyError, ValueError, AttributeError):
        raise ValueError(f"{json.dumps(form)[:80]} is no value of AMQP") from None


def properties_of(text: str) -> dict[str, Any]:
    """Return the application properties that a JSON object states, values in exact form. Raises ValueError with a text
    for people."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON{json_place(error)}") from None
    if not isinstance(found, dict):
        raise ValueError("expected a JSON object")
    try:
        made = {name: value_of(value) for name, value in found.items()}
    except RecursionError:
        raise ValueError("a value has too many levels") from None
    for name, value in made.items():
        if isinstance(value, list | dict):
            raise ValueError(f"{name[:60]!r}: a property is one value, no list and no object")
    return made


def id_of(kind: str, text: str) -> Any:
    """Return the id of a message that a text states: of kind `ulong`, `uuid` or `binary` (hexadecimal digits). Raises
    ValueError with a text for people."""
    if kind == "ulong":
        number = whole_number(text, 20)
        if number is None or number >= 2**64:
            raise ValueError("expected a whole number below 2^64")
        return ULong(number)
    try:
        return UUID(text) if kind == "uuid" else bytes.fromhex(text)
    except ValueError:
        raise ValueError("expected a UUID" if kind == "uuid" else "expected hexadecimal digits, two a byte") from None


def json_place(error: ValueError | RecursionError) -> str:
    """Return where a text is no JSON, as the end of a sentence; empty if that has no place."""
    return f", from character {error.pos + 1} on" if isinstance(error, json.JSONDecodeError) else ""


def codec_reason(error: Exception) -> str:
    """Return the reason of the codec for a value that it cannot encode, as the end of a sentence; empty for an error
    that is not its own."""
    return f": {error}" if type(error) is ValueError else ""


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _types(message: Message, payload: bytes | None) -> dict[str, Any]:
    types: dict[str, Any] = {}
    if body := _body_type(message, payload):
        types["body"] = body
    if type(message.message_id) not in (str, type(None)) and not isinstance(message.message_id, int):
        types["id"] = _NAMES[type(message.message_id)]
    if type(message.correlation_id) not in (str, type(None)) and not isinstance(message.correlation_id, int):
        types["correlation_id"] = _NAMES[type(message.correlation_id)]
    for name, own in _MAPS.items():
        entries: dict[Any, Any] = getattr(message, own)
        if not all(isinstance(key, str) for key in entries):  # ulong is a key of annotations too
            types[name] = exact(dict(entries))
        elif parts := {str(key): how for key, value in entries.items() if (how := _type(value)) is not None}:
            types[name] = parts
    return types


def _body_type(message: Message, payload: bytes | None) -> Any:
    kind, values = Sections(payload).body() if payload is not None else (0, [])
    if len(values) > 1:
        if kind == DATA:
            return {_DATA: [_base64(value) for value in values]}
        return {_SEQUENCE: [exact(value) for value in values]}
    body = message.body
    if isinstance(body, AmqpSequence):
        return {_SEQUENCE: [exact(body.values)]}
    if isinstance(body, bytes) and type(body) is bytes:
        return _DATA
    return _type(body.value if isinstance(body, AmqpValue) else body)


def _type(value: Any) -> Any:
    """Return what the plain form of a value does not tell: nothing, the name of its type, or its exact form."""
    form = exact(value)
    if not isinstance(form, dict | list):
        return None
    if isinstance(form, dict) and next(iter(form)) not in ("map", "array", "described"):
        return next(iter(form))
    return None if _natural(value) else form


def _natural(value: Any) -> bool:
    """Return whether the plain form of a value has all of it: whether a reader of plain JSON gets the same value."""
    if type(value) is dict:
        return all(type(key) is str and _natural(item) for key, item in value.items()) and not _is_binary(value)
    if type(value) is list:
        return all(map(_natural, value))
    return not isinstance(exact(value), dict)


def _is_binary(value: Any) -> bool:
    return isinstance(value, dict) and list(value) == ["base64"]


def _read(shown: Any, how: Any, field: str, default: str | None = None) -> Any:
    """Return the value of a plain field; `how`: its part of `types`, `default` the type without one."""
    try:
        if isinstance(how, dict | list):
            value = value_of(how)
            if _same(plain(value), shown):
                return value
            how = None  # the plain field was changed
        if how is None:
            how = default
        if how is not None:
            return _converted(shown, how)
        return _bytes(shown) if _is_binary(shown) else shown
    except (ValueError, TypeError, OverflowError) as error:
        raise NoMessage(f"{field}: {error}") from None


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _bytes(shown: Any) -> bytes:
    if _is_binary(shown):
        return base64.b64decode(shown["base64"], validate=True)
    if not isinstance(shown, str):
        raise ValueError('binary is text, or {"base64": …}')
    return shown.encode()


def _converted(shown: Any, name: Any) -> Any:
    """Return a plain value as one of a type that has no parts. Raises ValueError."""
    kind: Any = _TYPES.get(name) if isinstance(name, str) else None
    if kind is None or name in ("list", "map", "array", "described"):
        raise ValueError(f"{name!r} is no name of a type; known are {', '.join(_TYPES)}")
    if kind in (bool, type(None)):
        if type(shown) is not kind:
            raise ValueError(f"{shown!r} is not of type {name}")
        return shown
    if issubclass(kind, bytes):
        return kind(_bytes(shown))
    if issubclass(kind, str | UUID):
        if not isinstance(shown, str):
            raise ValueError(f"{shown!r} is not of type {name}")
        return kind(shown)
    if isinstance(shown, bool) or not isinstance(shown, int | (float | str if issubclass(kind, float) else int)):
        raise ValueError(f"{shown!r} is not of type {name}")
    return kind(shown)


def _map(shown: Any, how: Any, field: str) -> dict[Any, Any]:
    if not isinstance(shown, dict):
        raise NoMessage(f"{field}: expected an object")
    symbols = field != "properties"
    if isinstance(how, dict) and list(how) == ["map"] and "map" not in shown:
        found = _read(shown, how, field)
        if found is not shown and isinstance(found, dict):
            return found
        how = None
    if not isinstance(how, dict | None):
        raise NoMessage(f"types.{field}: expected an object")
    parts = how or {}
    entries = ((key, _read(value, parts.get(key), f"{field}.{key}")) for key, value in shown.items())
    return {Symbol(key) if symbols else key: value for key, value in entries}


def _body(shown: Any, how: Any) -> tuple[Any, bytes | None]:
    """Return the body, and the encoded sections of a body that has several."""
    if how == _DATA:
        return _checked(_bytes, shown), None
    if isinstance(how, dict) and list(how) == [_DATA]:
        values = _checked(lambda: [base64.b64decode(value, validate=True) for value in how[_DATA]])
        if _same(plain(b"".join(values)), shown):
            return None, _encoded(values)
        return _checked(_bytes, shown), None
    if isinstance(how, dict) and list(how) == [_SEQUENCE]:
        rows = _checked(lambda: [value_of(row) for row in how[_SEQUENCE]])
        if _same([plain(item) for row in rows for item in row], shown):
            return None, _encoded([AmqpSequence(row) for row in rows])
        return AmqpSequence(_checked(list, shown)), None
    value = _read(shown, how, "body")
    return (AmqpValue(value) if isinstance(value, bytes) and how is not None else value), None


def _checked(read: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return read(*arguments)
    except (ValueError, TypeError) as error:
        raise NoMessage(f"body: {error}") from None


def _encoded(bodies: Iterable[Any]) -> bytes:
    return b"".join(Message(body).encode() for body in bodies)


def _simple_fields(found: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}

    def take(name: str, kind: type, what: str) -> None:
        value = found.get(name)
        if value is None:
            return
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise NoMessage(f"{name}: expected {what}")
        fields[name] = value

    for name in _TEXTS:
        take(name, str, "a string")
    for name in (*_NUMBERS, "ttl", "priority"):
        take(name, int, "a whole number")
    take("durable", bool, "true or false")
    if found.get("user_id") is not None:
        fields["user_id"] = _read(found["user_id"], "binary", "user_id")
    return fields
