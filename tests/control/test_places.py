"""Places of equal processes: in which order they are dialled."""

from __future__ import annotations

import pytest

from enmasse.process.places import Address, Places
from tests.kit.running import asyncio_test

A, B, C = ("127.0.0.1", 1), ("127.0.0.1", 2), ("127.0.0.1", 3)


@asyncio_test
async def test_the_next_one_is_dialled_after_a_failure_or_a_loss() -> None:
    dialled: list[Address] = []
    there = {B, C}

    async def connect(address: Address) -> Address:
        dialled.append(address)
        if address not in there:
            raise ConnectionRefusedError(str(address[1]))
        return address

    places = Places(A, B, C)
    assert await places.dial(connect, (OSError,)) == B
    assert await places.dial(connect, (OSError,)) == B
    assert dialled == [A, B, B], "connections of a process lead to one place"
    places.lost(A)  # an old connection: the others are elsewhere by now
    assert places.first == B
    places.lost(B)
    places.lost(B)
    assert await places.dial(connect, (OSError,)) == C
    there.clear()
    dialled.clear()
    with pytest.raises(ConnectionRefusedError, match="3"):
        await places.dial(connect, (OSError,))
    assert dialled == [C, A, B], "each is tried once"
    assert places.first == C


@asyncio_test
async def test_another_error_ends_the_attempt() -> None:
    async def connect(address: Address) -> None:
        raise KeyError(address)

    with pytest.raises(KeyError):
        await Places(A, B).dial(connect, (OSError,))
    with pytest.raises(ValueError, match="one address"):
        Places()
