"""The C allocator of this process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

LARGE = 128 << 10
"""Bytes of a block that gets pages of its own, and of free memory at the end of the heap that is given back at once."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Parameters of mallopt(3)."""


def _nothing(*_: int) -> int:
    return 0


def _of_glibc(name: str) -> Callable[..., int]:
    try:
        found: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):  # another C library than glibc
        return _nothing
    return found


_trim, _mallopt = _of_glibc("malloc_trim"), _of_glibc("mallopt")


def trim() -> None:
    """Give free memory back to the operating system, as far as the C library can. After many large blocks were freed,
    glibc keeps them otherwise. Takes milliseconds for each GiB."""
    _trim(0)


def share_heap() -> None:
    """Have all threads use one heap: they take turns anyway, and each heap of its own keeps what it has freed."""
    _mallopt(_ARENA_MAX, 1)


def keep_little() -> None:
    """Give large blocks back to the operating system when they are freed, for a process that carries no messages:
    left alone, glibc keeps up to 64 MiB after a first large block, for example a text of all addresses."""
    share_heap()
    _mallopt(_MMAP_THRESHOLD, LARGE)
    _mallopt(_TRIM_THRESHOLD, LARGE)
