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
from functools import partial
from typing import cast

from enmasse.model import sessions as wire
from enmasse.model.names import space_of
from enmasse.storage.decoding import unpack
from enmasse.stores import Store
from enmasse.stores.copied_store import print_rows
from services.subserv import records
from services.subserv.service import SubscriptionService
from services.subserv.sessions.sessions import Session


async def kept(store: Store, space: str) -> AsyncIterator[wire.Kept]:
    """Yield what a service with this store keeps of an address space. Raises StoreError."""
    service, now = SubscriptionService(store), time.time()
    await service.load()
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
            value = await store.get(records.RETAINED, entry.name)
            if value is not None:
                found = unpack(value, records.RetainedRecord)
                author = found.author
                yield wire.Kept(
                    retained=wire.KeptRetained(
                        name=entry.name, qos=cast(wire.Qos, found.qos), since=found.since, expires=found.expires,
                        message=found.message, user=None if author is None else author.full_name,
                        groups=None if author is None else author.groups,
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
        groups=record.groups,
        subscriptions=list(session.subscriptions.values()), queue=session.id, shares=shares,
    )  # fmt: skip


if __name__ == "__main__":
    _path, _space = sys.argv[1:3]
    asyncio.run(print_rows(_path, partial(kept, space=_space)))
