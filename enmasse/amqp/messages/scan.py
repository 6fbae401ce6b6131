"""The front of an encoded message, walked without decoding it: the one scanner of sections (3.2).

Sections builds on it, as do the router (the `to` of messages to the anonymous relay, annotations of routers) and the
broker (which sections stand before the body). All raise AmqpError(amqp:decode-error) for bytes that are no message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from struct import Struct
from typing import Final

from enmasse.amqp.codec import codec
from enmasse.amqp.codec.codec import cut_short
from enmasse.amqp.codec.errors import AmqpError, malformed
from enmasse.amqp.codec.types import Buffer, Symbol, ULong

_unpack_u32 = Struct(">I").unpack_from

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
AMQP_SEQUENCE: Final = 0x76
AMQP_VALUE: Final = 0x77
FOOTER: Final = 0x78

NAMES = {
    HEADER: "header",
    DELIVERY_ANNOTATIONS: "delivery-annotations",
    MESSAGE_ANNOTATIONS: "message-annotations",
    PROPERTIES: "properties",
    APPLICATION_PROPERTIES: "application-properties",
    DATA: "data",
    AMQP_SEQUENCE: "amqp-sequence",
    AMQP_VALUE: "amqp-value",
    FOOTER: "footer",
}
_SYMBOLS = {
    f"amqp:{name}:{'list' if code in (HEADER, PROPERTIES) else 'map'}": code
    for code, name in NAMES.items()
    if code < DATA or code == FOOTER
} | {"amqp:data:binary": DATA, "amqp:amqp-sequence:list": AMQP_SEQUENCE, "amqp:amqp-value:*": AMQP_VALUE}
_SHORT_PROPERTIES = b"\x00\x53\x73\xc0"
_NO_IDS = b"\x40\x40\xa1"  # neither message-id nor user-id, then a short `to`
_LONGEST_BEGIN = 512
_BEGINS = 4
_USUAL = frozenset(b"\x00\x53%c" % code for code in NAMES)
_SHORT = 2048  # bytes up to which a search is faster than finding the end of the sections before the body


def section_at(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """Which section begins at `pos` (its code, by whichever descriptor), and where its value begins.

    Raises AmqpError(amqp:decode-error).
    """
    if pos + 3 < end and buf[pos] == 0x00 and buf[pos + 1] == 0x53:
        code, value = buf[pos + 2], pos + 3
    else:
        code, value = _unusual(buf, pos, end)
    if not HEADER <= code <= FOOTER:
        raise malformed(f"0x{code:02x} is not a section of a message, at byte {pos}")
    return code, value


def _unusual(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    if pos >= end:
        raise cut_short(pos)
    if buf[pos] != 0x00:
        raise malformed(f"a section begins with 0x00, not 0x{buf[pos]:02x}, at byte {pos}")
    descriptor, value = codec.decode(buf, pos + 1, end, 1)
    if type(descriptor) is ULong:
        return descriptor, value
    found = _SYMBOLS.get(descriptor) if type(descriptor) is Symbol else None
    if found is None:
        raise malformed(f"{descriptor!r} is not a section of a message, at byte {pos}")
    return found, value


def after(buf: Buffer, pos: int, end: int) -> int:
    """Return the end of the value at `pos`: codec.skip, quicker for usual sections."""
    if pos + 5 <= end:
        code = buf[pos]
        if code in (0xC1, 0xC0, 0xA0):
            stop = pos + 2 + buf[pos + 1]
        elif code in (0xB0, 0xD1, 0xD0):
            stop = pos + 5 + _unpack_u32(buf, pos + 1)[0]
        else:
            return codec.skip(buf, pos, end)
        if stop <= end:
            return stop
    return codec.skip(buf, pos, end)


def list_head(buf: Buffer, pos: int, end: int, section: str) -> tuple[int, int, int]:
    """Return count, beginning and end of the elements of the list at `pos`. Raises AmqpError(amqp:decode-error)."""
    if pos >= end:
        raise cut_short(pos)
    code = buf[pos]
    if code == 0xC0:
        return codec.compound8(buf, pos + 1, end)
    if code == 0xD0:
        return codec.compound32(buf, pos + 1, end)
    if code == 0x45:
        return 0, pos + 1, pos + 1
    raise malformed(f"{section}: a list expected, 0x{code:02x} found")


def field_at(buf: Buffer, pos: int, end: int, index: int, section: str) -> tuple[int, int]:
    """Return the beginning of a field (-1: absent or null) of the section whose value is the list at `pos`, and the
    end of that list. Raises AmqpError(amqp:decode-error)."""
    if (
        pos + 2 < end and buf[pos] == 0xC0 and buf[pos + 1] and pos + 2 + buf[pos + 1] <= end
    ):  # list_head, without a call
        count, pos, stop = buf[pos + 2], pos + 3, pos + 2 + buf[pos + 1]
    else:
        count, pos, stop = list_head(buf, pos, end, section)
    if count <= index:
        return -1, stop
    for _ in range(index):
        if pos + 1 < stop and buf[pos] == 0x40:
            pos += 1
        elif pos + 1 < stop and buf[pos] in (0xA1, 0xA0):
            pos += 2 + buf[pos + 1]
        else:
            pos = codec.skip(buf, pos, stop)
    if pos >= stop:
        raise cut_short(pos)
    return (-1 if buf[pos] == 0x40 else pos), stop


def span_of_to(payload: bytes) -> tuple[int, int]:
    """Return the beginning and end of the text of properties.to; both 0 without it."""
    pos, end = 0, len(payload)
    while pos < end:
        if pos + 3 < end and payload[pos : pos + 3] in _USUAL:  # section_at, without a call
            code, value = payload[pos + 2], pos + 3
        else:
            code, value = section_at(payload, pos, end)
        if code == PROPERTIES:
            at, stop = field_at(payload, value, end, 2, "properties")
            if at < 0:
                break
            text = _text(payload, at, stop)
            start = at + (2 if payload[at] == 0xA1 else 5)
            return start, start + len(text)
        if code > PROPERTIES:
            break
        pos = after(payload, value, end)
    return 0, 0


def find_to(payload: bytes) -> bytes | None:
    """Return the bytes of properties.to (UTF-8, not checked), None without it. Decodes nothing."""
    start, end = span_of_to(payload)
    return payload[start:end] if end else None


class ToSpans:
    """`span_of_to` of one sender's messages, which begin in few ways: the last ones are remembered up to their
    properties."""

    __slots__ = ("_at", "_earlier", "begin")

    def __init__(self) -> None:
        self.begin = b"\xff"
        """How the last of the usual messages began: all sections before its properties."""
        self._at = 0  # where the size of the properties is
        self._earlier: tuple[tuple[bytes, int], ...] = ()  # the same of others that are remembered

    def find(self, payload: bytes) -> tuple[int, int]:
        """Return `span_of_to` of the next message. Raises AmqpError(amqp:decode-error)."""
        if payload.startswith(self.begin) or self._recall(payload):
            at = self._at
            head = payload[at : at + 6]
            if len(head) == 6 and head[1] >= 3 and head[2:5] == _NO_IDS:
                stop, end = at + 1 + head[0], at + 6 + head[5]
                if end <= stop <= len(payload):
                    return at + 6, end
        start, end = span_of_to(payload)
        at = start - 6
        if end and at <= _LONGEST_BEGIN and payload[at - 4 : at] == _SHORT_PROPERTIES and payload[start - 4] == 0x40:
            if self._at:
                self._earlier = ((self.begin, self._at), *self._earlier[: _BEGINS - 2])
            self.begin, self._at = payload[:at], at
        return start, end

    def _recall(self, payload: bytes) -> bool:
        """Return True if the message begins as an earlier one, which is then the last one."""
        for n, (begin, at) in enumerate(self._earlier):
            if payload.startswith(begin):
                earlier = (*self._earlier[:n], *self._earlier[n + 1 :])
                self._earlier = ((self.begin, self._at), *earlier)
                self.begin, self._at = begin, at
                return True
        return False


def _text(buf: bytes, pos: int, end: int) -> bytes:
    code = buf[pos]
    if code == 0xA1 and pos + 1 < end:
        start, size = pos + 2, buf[pos + 1]
    elif code == 0xB1 and pos + 4 < end:
        start, size = pos + 5, _unpack_u32(buf, pos + 1)[0]
    else:
        raise malformed(f"a string expected, 0x{code:02x} found at byte {pos}")
    if start + size > end:
        raise cut_short(end)
    return buf[start : start + size]


def front_end(payload: bytes, last: int = APPLICATION_PROPERTIES) -> int:
    """Return where the sections up to `last` end, without one the body begins. Quick, for every message: it decodes
    nothing, and sees no wrong order.

    Raises AmqpError(amqp:decode-error) if the sections before the body are malformed.
    """
    at, end = 0, len(payload)
    try:
        while payload[at] == 0 and payload[at + 1] == 0x53 and HEADER <= payload[at + 2] <= last:
            code = payload[at + 3]
            if code == 0xC0 or code == 0xC1:
                at += 5 + payload[at + 4]
            elif code == 0x45:
                at += 4
            else:
                at = after(payload, at + 3, end)
    except IndexError:
        if at != end:
            raise malformed(f"the message ends within the section at byte {at}") from None
        return end
    if payload[at : at + 2] == b"\x00\x53":
        return at
    while at < end:
        section, value = section_at(payload, at, end)
        if section > last:
            break
        at = after(payload, value, end)
    return at


def end_of_alike(payloads: Sequence[bytes], at: int, begin: bytes) -> int:
    """Return where the messages from `at` on end that begin with these bytes."""
    for payload in islice(payloads, at, None):
        if not payload.startswith(begin):
            break
        at += 1
    return at


def may_hold(payload: bytes, texts: Iterable[bytes]) -> bool:
    """Return False if none of the texts is in the sections before the body; True if one is, or they are malformed.

    Quick, for every message: it may be True for a text of the body.
    """
    end = len(payload)
    if end > _SHORT:
        try:
            end = front_end(payload)
        except AmqpError:
            return True
    for text in texts:  # noqa: SIM110  # a generator costs more than the search
        if payload.find(text, 0, end) >= 0:
            return True
    return False
