"""A process that writes to a store as fast as it can, until it is killed: `python -m tests.stores.writer SETTINGS`.

Write n puts n under a key of each of two tables and deletes key n-10 of both. Several are under way at any time. What
was reported as written is printed, a line for each.
"""

from __future__ import annotations

import asyncio
import os
import sys

import msgspec

from enmasse.stores import Change, Store, StoreSettings, make_store

UNDER_WAY = 40
KEPT = 10


def changes(number: int) -> list[Change]:
    value = b"%d" % number + b"." * (number % 500)
    put = [Change(table, f"key {number}", value) for table in ("a", "b")]
    gone = [Change(table, f"key {number - KEPT}", None) for table in ("a", "b")]
    return put + gone


async def write(store: Store, first: int) -> None:
    room = asyncio.Semaphore(UNDER_WAY)

    def written(number: int, done: asyncio.Future[None]) -> None:
        try:
            done.result()
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()
        except Exception:
            os.abort()  # a write failed, or nobody reads
        room.release()

    number = first
    while True:
        await room.acquire()
        store.write(changes(number)).add_done_callback(lambda done, number=number: written(number, done))  # type: ignore[misc]  # mypy infers no type of a lambda's default
        number += 1


async def main() -> None:
    store = make_store(msgspec.json.decode(sys.argv[1], type=StoreSettings))
    store.start()
    await store.ready()
    await write(store, int(sys.argv[2]))


if __name__ == "__main__":
    asyncio.run(main())
