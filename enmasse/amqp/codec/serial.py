"""Serial numbers of 32 bits (RFC 1982): delivery-ids, transfer-ids and delivery-counts wrap."""

from __future__ import annotations

from collections.abc import Mapping

U32 = 0xFFFFFFFF


def serial_difference(a: int, b: int) -> int:
    """a - b in RFC 1982 arithmetic of 32 bits: from -2**31 to 2**31 - 1."""
    return ((a - b + 0x80000000) & U32) - 0x80000000


def known(held: Mapping[int, object], first: int, count: int) -> list[int]:
    """Return ids of a range that are in `held`, in order, without walking a range that a peer made up."""
    if count <= 2 * len(held) + 16:
        end = first + count
        ids = range(first, end) if end <= U32 else ((first + n) & U32 for n in range(count))
        return [i for i in ids if i in held]
    return sorted((i for i in held if (i - first) & U32 < count), key=lambda i: (i - first) & U32)
