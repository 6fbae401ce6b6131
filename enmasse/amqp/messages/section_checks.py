"""Sections before the body, checked as every reader finds them: by an intermediary, before it decides by its own
reading for a peer that reads the message again."""

from __future__ import annotations

from struct import Struct
from typing import Final

from enmasse.amqp.codec.codec import DECODERS, MAX_DEPTH, WIDTHS, compound8, compound32, cut_short
from enmasse.amqp.codec.errors import malformed
from enmasse.amqp.codec.types import Buffer
from enmasse.amqp.messages.scan import DATA, HEADER, NAMES, PROPERTIES, section_at

_unpack_u32 = Struct(">I").unpack_from
_ONE_BYTE: Final = -1
_FOUR_BYTES: Final = -4
_COMPOUND: Final = -9
_STEPS: Final = tuple(
    _COMPOUND if width is None or code >= 0xC0 or code == 0 else width if width < 0 else 1 + width
    for code, width in enumerate(WIDTHS)
)
"""Bytes of an element by its constructor, constructor included; below zero: it states its size, or has elements."""


def check_leading_sections(payload: bytes) -> bool:
    """Check that the sections before the body are in the order of the specification (3.2), each once at most, and that
    their fields and entries fill them exactly. Return True if the body begins behind them, False if the message ends.

    A reader that goes by the sizes and one that goes by the counts then find the same sections. Raises
    AmqpError(amqp:decode-error).
    """
    at, end, last = 0, len(payload), HEADER - 1
    try:
        while at < end:
            section, value = section_at(payload, at, end)
            if section >= DATA:
                return True
            if section <= last:
                raise malformed(f"the section {NAMES[section]} at byte {at} follows {NAMES[last]}")
            last = section
            at = _filled(payload, value, end, section)
    except IndexError:
        raise cut_short(end) from None
    return False


def _filled(buf: Buffer, pos: int, end: int, section: int) -> int:
    """Return the end of the list or map at `pos`. Raises AmqpError, IndexError."""
    code = buf[pos]
    if section in (HEADER, PROPERTIES):
        if code == 0x45:
            return pos + 1
        small, large, kind = 0xC0, 0xD0, "list"
    else:
        small, large, kind = 0xC1, 0xD1, "map"
    if code == small:
        count, pos, stop = compound8(buf, pos + 1, end)
    elif code == large:
        count, pos, stop = compound32(buf, pos + 1, end)
    else:
        raise malformed(f"{NAMES[section]}: a {kind} expected, 0x{code:02x} found at byte {pos}")
    if count > stop - pos:
        raise malformed(f"{NAMES[section]}: {count} elements cannot be in {stop - pos} bytes")
    steps = _STEPS
    for _ in range(count):
        step = steps[buf[pos]]
        if step > 0:
            pos += step
        elif step == _ONE_BYTE:
            pos += 2 + buf[pos + 1]
        elif step == _FOUR_BYTES:
            if pos + 5 > stop:
                raise cut_short(pos)
            pos += 5 + _unpack_u32(buf, pos + 1)[0]
        else:
            pos = DECODERS[buf[pos]](buf, pos + 1, stop, MAX_DEPTH)[1]
    if pos != stop:
        raise malformed(f"{NAMES[section]}: its size does not fit its elements, at byte {stop}")
    return stop
