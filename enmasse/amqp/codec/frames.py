"""Pieces of frames that are made by hand, where the tables of performatives.py would cost too much (2.3, 1.6)."""

from __future__ import annotations

from struct import Struct

HEADER = Struct(">IBBH").pack
"""size, data offset in words of four bytes, type (0: AMQP, 1: SASL), channel."""
pack_u32 = Struct(">I").pack
NULL = b"\x40"


def uint(value: int) -> bytes:
    """Shortest encoding of an unsigned 32 bit number (1.6.5)."""
    if value == 0:
        return b"\x43"
    if value < 256:
        return b"\x52" + bytes((value,))
    return b"\x70" + pack_u32(value)


def performative(code: int, fields: list[bytes]) -> bytes:
    """Return a described list of encoded fields, list8 if it fits."""
    body = b"".join(fields)
    if len(body) < 255 and len(fields) < 256:
        return b"\x00\x53" + bytes((code,)) + b"\xc0" + bytes((len(body) + 1, len(fields))) + body
    return b"\x00\x53" + bytes((code,)) + b"\xd0" + pack_u32(len(body) + 4) + pack_u32(len(fields)) + body
