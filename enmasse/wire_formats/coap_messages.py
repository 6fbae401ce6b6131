"""Datagrams of CoAP (RFC 7252, 3) and their options, to bytes and back. Pure.

A library's parser would do; its cost grows with the square of the options of a datagram (decision 63)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

CON, NON, ACK, RST = range(4)
GET, POST, PUT = 1, 2, 3
EMPTY: Final = 0
IF_MATCH, URI_HOST, ETAG, IF_NONE_MATCH, OBSERVE, URI_PORT, URI_PATH = 1, 3, 4, 5, 6, 7, 11
CONTENT_FORMAT, MAX_AGE, URI_QUERY, ACCEPT, BLOCK2, BLOCK1, SIZE2 = 12, 14, 15, 17, 23, 27, 28
PROXY_URI, PROXY_SCHEME, SIZE1, ECHO, REQUEST_TAG = 35, 39, 60, 252, 292
MOST_OPTIONS: Final = 64
"""Options of a datagram."""
LONGEST: Final = 2048
"""Bytes of a datagram from a client. A message that has more comes in blocks."""
Options = tuple[tuple[int, bytes], ...]


class OptionRule(NamedTuple):
    """Bytes that an option may have, and whether it may repeat."""

    least: int
    most: int
    repeats: bool = False


OPTION_RULES: Final = {
    IF_MATCH: OptionRule(0, 8, True),
    URI_HOST: OptionRule(1, 255),
    ETAG: OptionRule(1, 8, True),
    IF_NONE_MATCH: OptionRule(0, 0),
    OBSERVE: OptionRule(0, 3),
    URI_PORT: OptionRule(0, 2),
    URI_PATH: OptionRule(0, 255, True),
    CONTENT_FORMAT: OptionRule(0, 2),
    MAX_AGE: OptionRule(0, 4),
    URI_QUERY: OptionRule(0, 255, True),
    ACCEPT: OptionRule(0, 2),
    BLOCK2: OptionRule(0, 3),
    BLOCK1: OptionRule(0, 3),
    SIZE2: OptionRule(0, 4),
    PROXY_URI: OptionRule(1, 1034),
    PROXY_SCHEME: OptionRule(1, 255),
    SIZE1: OptionRule(0, 4),
    ECHO: OptionRule(1, 40),
    REQUEST_TAG: OptionRule(0, 8, True),
}
"""RFC 7252 (table 4), 7641, 7959 and 9175."""


def fault(number: int, value: bytes, before: int) -> str:
    """Return why an option counts as one that is not known (RFC 7252, 5.4.3 and 5.4.5); empty: it does not. `before`:
    the number of the option in front of it."""
    rule = OPTION_RULES.get(number)
    if rule is None:
        return "is not known here"
    if not rule.least <= len(value) <= rule.most:
        return f"has {rule.least} to {rule.most} bytes, not {len(value)}"
    return "may not repeat" if number == before and not rule.repeats else ""


def code(text: str) -> int:
    """Return the number of a code such as 2.04."""
    whole, _, detail = text.partition(".")
    return int(whole) << 5 | int(detail)


def shown(number: int) -> str:
    """Return a code as text."""
    return f"{number >> 5}.{number & 31:02}"


class BadDatagram(Exception):
    """Bytes that are no message. `id`: to which one answers with a Reset; None: nothing is answered."""

    def __init__(self, text: str, id: int | None = None) -> None:
        super().__init__(text)
        self.id = id


class CoapMessage(NamedTuple):
    """A datagram."""

    type: int
    code: int
    id: int
    token: bytes = b""
    options: Options = ()
    payload: bytes = b""

    def option(self, number: int) -> bytes | None:
        """Return the first value of an option."""
        for each, value in self.options:
            if each == number:
                return value
        return None

    def values(self, number: int) -> list[bytes]:
        """Return all values of an option."""
        return [value for each, value in self.options if each == number]


class CoapBlock(NamedTuple):
    """A part of a body (RFC 7959). `exponent`: of its size."""

    number: int
    more: bool
    exponent: int

    @property
    def size(self) -> int:
        """Bytes of a block."""
        return 16 << self.exponent


def block(value: bytes) -> CoapBlock:
    """Return the block that an option states. Raises ValueError."""
    number = int.from_bytes(value, "big")
    if len(value) > 3 or number & 7 == 7:
        raise ValueError
    return CoapBlock(number >> 4, bool(number & 8), number & 7)


def block_option(of: CoapBlock) -> bytes:
    """Return the option that states a block."""
    return uint(of.number << 4 | of.more << 3 | of.exponent)


def uint(number: int) -> bytes:
    """Return a number in as few bytes as it has."""
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def decoded(data: bytes) -> CoapMessage:
    """Return the message of a datagram. Raises BadDatagram."""
    size = len(data)
    if size < 4 or data[0] >> 6 != 1:
        raise BadDatagram("no message of CoAP, version 1")
    first, kind = data[0], data[0] >> 4 & 3
    id = data[2] << 8 | data[3]
    to_reset = id if kind == CON else None
    length = first & 15
    at = 4 + length
    if length > 8 or at > size:
        raise BadDatagram("a token has at most 8 bytes", to_reset)
    if data[1] == EMPTY:
        if size > 4:
            raise BadDatagram("an empty message has bytes behind its id", to_reset)
        return CoapMessage(kind, EMPTY, id)
    token = data[4:at]
    options: list[tuple[int, bytes]] = []
    number = 0
    while at < size:
        lead = data[at]
        at += 1
        if lead == 0xFF:
            if at == size:
                raise BadDatagram("no payload behind its marker", to_reset)
            return CoapMessage(kind, data[1], id, token, tuple(options), data[at:])
        delta, at = _extended(data, lead >> 4, at, to_reset)
        length, at = _extended(data, lead & 15, at, to_reset)
        number += delta
        if at + length > size or number > 0xFFFF or len(options) >= MOST_OPTIONS:
            raise BadDatagram("an option is cut, or there are too many", to_reset)
        options.append((number, data[at : at + length]))
        at += length
    return CoapMessage(kind, data[1], id, token, tuple(options))


def _extended(data: bytes, nibble: int, at: int, to_reset: int | None) -> tuple[int, int]:
    if nibble < 13:
        return nibble, at
    if nibble == 13 and at < len(data):
        return data[at] + 13, at + 1
    if nibble == 14 and at + 1 < len(data):
        return (data[at] << 8 | data[at + 1]) + 269, at + 2
    raise BadDatagram("an option has no such length", to_reset)


def encoded(
    kind: int, code: int, id: int, token: bytes = b"", options: Iterable[tuple[int, bytes]] = (), payload: bytes = b""
) -> bytes:
    """Return the bytes of a message."""
    made = bytearray((0x40 | kind << 4 | len(token), code, id >> 8, id & 0xFF))
    made += token
    last = 0
    for number, value in sorted(options, key=lambda option: option[0]):
        delta, more = _short(number - last)
        length, still = _short(len(value))
        made.append(delta << 4 | length)
        made += more + still + value
        last = number
    if payload:
        made.append(0xFF)
        made += payload
    return bytes(made)


def _short(number: int) -> tuple[int, bytes]:
    if number < 13:
        return number, b""
    if number < 269:
        return 13, bytes((number - 13,))
    return 14, (number - 269).to_bytes(2, "big")
