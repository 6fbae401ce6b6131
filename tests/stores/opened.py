"""Stores opened and closed, and waiting for their state."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from enmasse.stores import Store, StoreSettings, make_store
from tests.kit.waiting import until


@contextlib.asynccontextmanager
async def opened(settings: StoreSettings) -> AsyncIterator[Store]:
    """A store that can be used."""
    async with started(settings) as store:
        await store.ready()
        yield store


@contextlib.asynccontextmanager
async def started(settings: StoreSettings) -> AsyncIterator[Store]:
    """A store that is being opened, which may never succeed."""
    store = make_store(settings)
    store.start()
    try:
        yield store
    finally:
        await store.close()


async def not_ready(store: Store, *words: str) -> str:
    """Waits until the store says with these words why it cannot be used."""
    await until(lambda: not store.state.ready and all(word in store.state.detail for word in words))
    return store.state.detail


async def content(store: Store, table: str) -> dict[str, bytes]:
    return {key: value async for key, value in store.scan(table)}
