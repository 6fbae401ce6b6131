"""A message as the broker keeps it."""

from __future__ import annotations

from services.broker.core.limits.broker_address import BrokerAddress

STORED, DURABLE, REWRITE, PARTLY = 1, 2, 4, 8
PRIORITY_SHIFT = 4


class StoredMessage:
    """One message in the broker; several queues share it, each holding one of its `refs`.

    `id` grows with arrival and is the store's id if the message is STORED. `payload` is absent (None) while
    the bytes are in the store, or in the pager at `place`. `expires` is in milliseconds of the broker's clock, 0 =
    never.
    `flags`: STORED (the store holds it), DURABLE (header), REWRITE (its front is rewritten when sent), PARTLY (the
    store holds it only for some of its queues and may forget it before the others), priority in the upper four bits.
    `owner` is the address whose size it counts to. Kept small: queues hold thousands (see backlog).
    """

    __slots__ = ("expires", "flags", "id", "owner", "payload", "place", "refs", "size")

    def __init__(
        self, id: int, payload: bytes | None, size: int, flags: int, expires: int, owner: BrokerAddress, refs: int
    ) -> None:
        self.id = id
        self.payload = payload
        self.size = size
        self.flags = flags
        self.expires = expires
        self.owner = owner
        self.refs = refs
        self.place: int | None = None
