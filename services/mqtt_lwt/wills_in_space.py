"""`python -m services.mqtt_lwt.wills_in_space STORE SPACE`: the wills of an address space in a copy of the service's
store, for `enmasse backup --space`: lines of JSON on stdout, each with the field `will` (`Kept` of
enmasse/model/sessions.py).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from functools import partial

from enmasse.model import sessions as wire
from enmasse.stores import Store
from enmasse.stores.copied_store import print_rows
from services.mqtt_lwt.records import Records
from services.mqtt_lwt.wills import WillBook


async def kept(store: Store, space: str) -> AsyncIterator[wire.Kept]:
    """Yield the wills of an address space. Raises StoreError."""
    book, records = WillBook(0), Records(store)
    await records.load(book, 0)
    wills = [will for will in book if will.author.space == space]
    for will, message in zip(wills, await records.messages(wills), strict=True):
        if message is not None:
            author, delay = will.author, will.delay if will.at is None else will.at
            of = wire.KeptWill(
                client=will.key.partition(":")[2], to=will.to, qos=will.qos, delay=max(0, int(delay)), message=message,
                user=author.full_name, groups=author.groups, topic=will.topic,
            )  # fmt: skip
            yield wire.Kept(will=of)


if __name__ == "__main__":
    _path, _space = sys.argv[1:3]
    asyncio.run(print_rows(_path, partial(kept, space=_space)))
