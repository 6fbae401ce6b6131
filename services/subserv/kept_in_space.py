"""`python -m services.subserv.kept_in_space STORE SPACE`: what a copy of the service's store has of an address space,
for `enmasse backup --space`.

Lines of JSON on stdout, of which each has one of the fields `session`, `subscription` and `retained`
(enmasse/model/sessions.py, `Kept`).
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from typing import cast

import msgspec

from enmasse.model import sessions as wire
from enmasse.model.names import space_of
from enmasse.storage.decoding import unpack
from enmasse.stores import SqliteSettings, make_store
from services.subserv import records
from services.subserv.service import SubscriptionService
from services.subserv.sessions.sessions import Session


async def kept(service: SubscriptionService, space: str, now: float) -> AsyncIterator[wire.Kept]:
    """Yield what a service that has read its store keeps of an address space. Raises StoreError."""
    for session in service.sessions.by_client.values():
        ends = session.record.ends
        if session.space == space and session.record.expiry and (ends is None or ends > now):
            yield wire.Kept(session=_session(service, session))
    for each in service.amqp.by_id.values():
        if each.space == space:
            made = each.record
            yield wire.Kept(
                subscription=wire.KeptSubscription(subscription=made.subscription, filters=made.filters, queue=each.id)
            )
    for entry in sorted(service.retained.index.match("#"), key=lambda entry: entry.number):
        if space_of(entry.name) == space and (not entry.expires or entry.expires > now * 1000):
            value = await service.store.get(records.RETAINED, entry.name)
            if value is not None:
                found = unpack(value, records.RetainedRecord)
                author = found.author
                yield wire.Kept(
                    retained=wire.KeptRetained(
                        name=entry.name, qos=cast(wire.Qos, found.qos), since=found.since, expires=found.expires,
                        message=found.message, user=None if author is None else author.full_name,
                        groups=None if author is None or author.groups is None else list(author.groups),
                    )
                )  # fmt: skip


def _session(service: SubscriptionService, session: Session) -> wire.KeptSession:
    record = session.record
    shares = {}
    for filter in session.subscriptions:
        share = service.sessions.share_of(record.client, filter)
        if share is not None:
            shares[filter] = share.id
    return wire.KeptSession(
        client=record.client, protocol=4 if record.protocol == 4 else 5, expiry=record.expiry,
        groups=None if record.groups is None else list(record.groups),
        subscriptions=list(session.subscriptions.values()), queue=session.id, shares=shares,
    )  # fmt: skip


async def _write(store: str, space: str) -> None:
    service = SubscriptionService(make_store(SqliteSettings(store)))
    service.store.start()
    await service.store.ready()
    try:
        await service.load()
        async for each in kept(service, space, time.time()):
            sys.stdout.buffer.write(msgspec.json.encode(each) + b"\n")
    finally:
        await service.store.close()


if __name__ == "__main__":
    asyncio.run(_write(*sys.argv[1:3]))
