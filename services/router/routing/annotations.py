"""Router annotations: message annotations named `x-opt-qd.…`, which routers of a mesh exchange.

No client may inject or receive them. This router neither makes nor reads any, so it removes them where messages arrive,
on every link that is not routed.
"""

from __future__ import annotations

from enmasse.amqp.errors import AmqpError
from enmasse.amqp.scan import MESSAGE_ANNOTATIONS, front_end
from enmasse.amqp.sections import Sections

PREFIX = "x-opt-qd."
_PREFIX = PREFIX.encode()
_LONGEST_BEGIN = 256
"""Bytes before the bare message that are remembered."""
_BEGINS = 4


class Stripper:
    """Removes router annotations from the messages of one link. They usually begin in few ways: how the last ones
    without such annotations began is remembered."""

    __slots__ = ("_clean",)

    def __init__(self) -> None:
        self._clean: tuple[bytes, ...] = ()  # up to the code of the section after the annotations

    def strip(self, payload: bytes) -> bytes:
        """As `stripped`."""
        if payload[2:3] > b"\x72" or payload.startswith(self._clean):
            return payload
        try:
            end = front_end(payload, MESSAGE_ANNOTATIONS)
            if payload.find(_PREFIX, 0, end) >= 0:
                return _without(payload)
        except AmqpError:
            return payload
        if end <= _LONGEST_BEGIN and payload[end : end + 2] == b"\x00\x53":
            self._clean = (payload[: end + 3], *self._clean[: _BEGINS - 1])
        return payload


def stripped(payload: bytes) -> bytes:
    """Return the message without router annotations; the payload itself if it has none or cannot be decoded."""
    return Stripper().strip(payload)


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
