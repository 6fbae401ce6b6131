"""The C allocator of this process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable


def _no_trim(pad: int) -> int:
    return 0


def _malloc_trim() -> Callable[[int], int]:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library than glibc
        return _no_trim


_trim = _malloc_trim()


def trim() -> None:
    """Give free memory back to the operating system, as far as the C library can. After many large blocks were freed,
    glibc keeps them otherwise. Takes milliseconds for each GiB."""
    _trim(0)
