"""Long work in portions, between which the loop serves requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

PORTION: Final = 50
"""Sessions and other subscribers that are looked at in one turn of the loop."""


async def portions(all: Sequence[T]) -> AsyncIterator[Sequence[T]]:
    """Yield all, PORTION at a time, each portion in a turn of the loop of its own."""
    for at in range(0, len(all), PORTION):
        yield all[at : at + PORTION]
        await asyncio.sleep(0)  # requests are served in between
