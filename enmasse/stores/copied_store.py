"""The copy of a store, for `enmasse backup --space`: what it has of an address space, as lines of JSON on stdout."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable

import msgspec

from enmasse.stores.settings import SqliteSettings, make_store
from enmasse.stores.store import Store


async def print_rows(path: str, rows: Callable[[Store], AsyncIterator[object]]) -> None:
    """Print what `rows` finds in the store at `path`. Raises StoreError."""
    store = make_store(SqliteSettings(path))
    store.start()
    await store.ready()
    try:
        async for each in rows(store):
            sys.stdout.buffer.write(msgspec.json.encode(each) + b"\n")
    finally:
        await store.close()
