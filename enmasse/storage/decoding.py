"""JSON of peers, files and people, and MessagePack of stores, becomes values here, bounded in size and nesting.
Whatever is wrong with it raises msgspec.DecodeError, which is a ValueError.

By itself msgspec raises RecursionError for text that is nested deeply: a handler of bad input that does not
expect that loses its connection, or its process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

MAX_BYTES: Final = 256 << 20
"""Size of the largest text: a status of 700,000 addresses."""
MAX_NESTING: Final = 64
"""Levels of arrays and objects in a value without a type."""
TOO_DEEP: Final = "it is nested too deeply"

T = TypeVar("T")
Text = bytes | bytearray | memoryview | str


def decode(data: Text, kind: type[T], *, most: int = MAX_BYTES) -> T:
    """Return the JSON value in `data`, of the type `kind`. Raises msgspec.DecodeError with the reason."""
    value: T = _bounded(msgspec.json.decode, data, kind, most)
    return value


def unpack(data: bytes, kind: type[T]) -> T:
    """Return the MessagePack value in `data`, of the type `kind`. Raises msgspec.DecodeError with the reason."""
    value: T = _bounded(msgspec.msgpack.decode, data, kind, MAX_BYTES)
    return value


def decode_any(data: Text, *, most: int = MAX_BYTES) -> Any:
    """Return the JSON value in `data`, of any type, nested MAX_NESTING deep at most: it can be compared, shown and
    encoded.

    Raises msgspec.DecodeError with the reason.
    """
    value = _bounded(msgspec.json.decode, data, Any, most)
    level, depth = [value], 0
    while level := [each for each in level if isinstance(each, list | dict)]:
        depth += 1
        if depth > MAX_NESTING:
            raise msgspec.DecodeError(TOO_DEEP)
        level = [inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer)]
    return value


def _bounded(read: Callable[..., Any], data: Text, kind: Any, most: int) -> Any:
    if len(data) > most:
        raise msgspec.DecodeError(f"it is larger than {most} bytes")
    try:
        return read(data, type=kind)
    except RecursionError:
        raise msgspec.DecodeError(TOO_DEEP) from None
