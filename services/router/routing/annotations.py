"""Router annotations: message annotations named `x-opt-qd.…`, which routers of a mesh exchange.

No client may inject or receive them. This router neither makes nor reads any, so it removes them where messages arrive,
on every link that is not routed.
"""

from __future__ import annotations

from enmasse.amqp.errors import AmqpError
from enmasse.amqp.scan import HEADER, MESSAGE_ANNOTATIONS, may_hold
from enmasse.amqp.sections import Sections

PREFIX = "x-opt-qd."
_PREFIXES = (PREFIX.encode(),)


def stripped(payload: bytes) -> bytes:
    """Return the message without router annotations; the payload itself if it has none or cannot be decoded."""
    try:
        section = payload[2]
        if section > MESSAGE_ANNOTATIONS:
            return payload
        if section == HEADER and payload[3] == 0xC0 and payload[payload[4] + 7] > MESSAGE_ANNOTATIONS:
            return payload  # the section after a header of the usual encoding
    except IndexError:
        return payload
    try:
        return _without(payload) if may_hold(payload, _PREFIXES) else payload
    except AmqpError:
        return payload


def complete(data: bytes) -> bool:
    """Return True if `data`, the beginning of a message, contains all sections before the bare message."""
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
