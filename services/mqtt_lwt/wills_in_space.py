"""`python -m services.mqtt_lwt.wills_in_space STORE SPACE`: the wills of an address space in a copy of the service's
store, for `enmasse backup --space`: lines of JSON on stdout, each with the field `will` (`Kept` of
enmasse/model/sessions.py).
"""

from __future__ import annotations

import asyncio
import sys

import msgspec

from enmasse.model import sessions as wire
from enmasse.stores import SqliteSettings, Store, make_store
from services.mqtt_lwt.records import Records
from services.mqtt_lwt.wills import WillBook


async def kept(store: Store, space: str) -> list[wire.Kept]:
    """Return the wills of an address space. Raises StoreError."""
    book, records = WillBook(0), Records(store)
    await records.load(book, 0)
    wills = [will for will in book if will.author.space == space]
    found = []
    for will, message in zip(wills, await records.messages(wills), strict=True):
        if message is not None:
            author, delay = will.author, will.delay if will.at is None else will.at
            of = wire.KeptWill(
                client=will.key.partition(":")[2], to=will.to, qos=will.qos, delay=max(0, int(delay)), message=message,
                user=author.full_name, groups=None if author.groups is None else list(author.groups),
            )  # fmt: skip
            found.append(wire.Kept(will=of))
    return found


async def _write(path: str, space: str) -> None:
    store = make_store(SqliteSettings(path))
    store.start()
    await store.ready()
    try:
        for each in await kept(store, space):
            sys.stdout.buffer.write(msgspec.json.encode(each) + b"\n")
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(_write(*sys.argv[1:3]))
