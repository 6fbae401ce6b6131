"""The `to` of a message, found without decoding anything else."""

from __future__ import annotations

from enmasse.amqp.sections import Sections

_FIXED = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}


def _skip(data: bytes, at: int) -> int:
    """Where the value at `at` ends. Raises IndexError or ValueError for what cannot be."""
    code = data[at]
    while code == 0x00:  # a described value: its descriptor, which is a plain one, then the value
        if data[at + 1] == 0x00:
            raise ValueError("a described descriptor")
        at = _skip(data, at + 1)
        code = data[at]
    kind = code >> 4
    width = _FIXED.get(kind)
    if width is not None:
        return at + 1 + width
    if kind in (0xA, 0xC, 0xE):
        return at + 2 + data[at + 1]
    if kind in (0xB, 0xD, 0xF):
        size = data[at + 1 : at + 5]
        if len(size) < 4:
            raise IndexError(at)
        return at + 5 + int.from_bytes(size, "big")
    raise ValueError(f"format code 0x{code:02x}")


def find_to(data: bytes) -> bytes | None:
    """The raw `to` of a message, None when it has none.

    Knows the usual encodings. Raises ValueError for anything else, IndexError for a message that is cut short.
    """
    at = 0
    end = len(data)
    while at < end:
        if data[at] != 0:
            raise ValueError("a section must begin with a descriptor")
        code = data[at + 1]
        if code == 0x53:
            section = data[at + 2]
            value = at + 3
        elif code == 0x80:
            section = data[at + 9]
            value = at + 10
        else:
            raise ValueError("a section must have a numeric descriptor")
        if section > 0x73:
            return None
        if section == 0x73:
            return _third_field(data, value)
        at = _skip(data, value)
    if at > end:
        raise IndexError(at)
    return None


def _third_field(data: bytes, at: int) -> bytes | None:
    code = data[at]
    if code == 0x45:
        return None
    if code == 0xC0:
        count = data[at + 2]
        at += 3
    elif code == 0xD0:
        count = int.from_bytes(data[at + 5 : at + 9], "big")
        at += 9
    else:
        raise ValueError("properties must be a list")
    if count < 3:
        return None
    at = _skip(data, _skip(data, at))
    code = data[at]
    if code == 0x40:
        return None
    if code == 0xA1:
        start, size = at + 2, data[at + 1]
    elif code == 0xB1:
        start, size = at + 5, int.from_bytes(data[at + 1 : at + 5], "big")
    else:
        raise ValueError("'to' must be a string")
    if start + size > len(data):
        raise IndexError(at)
    return data[start : start + size]


def read_to(payload: bytes) -> bytes | None:
    """As find_to, and for unusual encodings too. Raises AmqpError."""
    try:
        return find_to(payload)
    except (ValueError, IndexError):
        to = Sections(payload).to
        return None if to is None else to.encode()
