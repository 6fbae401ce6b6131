"""Router annotations: message annotations named `x-opt-qd.…`, by which routers of a mesh talk to each other.

No client may inject or receive them. This router makes and reads none, so it is enough to take them away where messages
come in, on every link that is not routed.
"""

from __future__ import annotations

from enmasse.amqp.errors import AmqpError
from enmasse.amqp.sections import Sections

PREFIX = "x-opt-qd."
_PREFIX = PREFIX.encode()


def stripped(payload: bytes) -> bytes:
    """The message without router annotations; the payload itself where it has none or cannot be decoded."""
    try:
        return _without(payload) if _suspect(payload) else payload
    except (AmqpError, IndexError):
        return payload


def _suspect(payload: bytes) -> bool:
    """Is there something like a router annotation among the annotations? Looks at the usual encodings of sections only:
    for anything else it answers yes."""
    at = 0
    end = len(payload)
    while at < end:
        if payload[at + 1] != 0x53:
            return True
        section, code = payload[at + 2], payload[at + 3]
        if section > 0x72:
            return False
        if code in (0xC0, 0xC1):
            after = at + 5 + payload[at + 4]
        elif code in (0xD0, 0xD1):
            after = at + 8 + int.from_bytes(payload[at + 4 : at + 8], "big")
        elif code == 0x45:
            after = at + 4
        else:
            return True
        if section == 0x72:
            return payload.find(_PREFIX, at, after) >= 0
        at = after
    return False


def complete(data: bytes) -> bool:
    """`data` is the beginning of a message: has all come that is before the bare message, where annotations are?"""
    if data[2:3] > b"\x72":  # the usual encoding of a section that comes after them
        return True
    try:
        return bool(Sections(data).bare)
    except AmqpError:
        return False


def _without(payload: bytes) -> bytes:
    sections = Sections(payload)
    given = sections.annotations
    kept = {key: value for key, value in given.items() if not (isinstance(key, str) and key.startswith(PREFIX))}
    return payload if len(kept) == len(given) else sections.replace_annotations(kept)
