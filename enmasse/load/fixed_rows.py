"""Rows of the same size in one text, and columns of numbers in them. All loops are those of slices."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

FORMATS = {2: "H", 4: "I", 8: "q"}


def alike(text: bytes, size: int, most: int, places: Iterable[int]) -> int:
    """Return how many of the first `most` rows of `size` bytes have the bytes of the first row at all of `places`."""
    for place in places:
        column = text[place : most * size : size]
        most = len(column) - len(column.lstrip(column[:1]))
    return most


def column(text: bytes, size: int, rows: int, place: int, width: int) -> bytes:
    """Return the `width` bytes at `place` of each row."""
    found = bytearray(width * rows)
    for at in range(width):
        found[at::width] = text[place + at : rows * size : size]
    return bytes(found)


def numbers(text: bytes, width: int) -> tuple[int, ...]:
    """Return the big-endian numbers of `width` bytes in a column; those of 8 bytes are signed."""
    return struct.unpack(f">{len(text) // width}{FORMATS[width]}", text)


def packed(values: Sequence[int], width: int) -> bytes:
    """Return the column of these numbers, as `numbers` reads it."""
    return struct.pack(f">{len(values)}{FORMATS[width]}", *values)


def fill(rows: bytearray, size: int, place: int, values: bytes, width: int) -> None:
    """Write a column: `width` bytes of `values` at `place` of each row."""
    for at in range(width):
        rows[place + at :: size] = values[at::width]
