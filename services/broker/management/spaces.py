"""Storage of address spaces: shares of this broker in (docs/contracts.md, "Storage of address spaces")."""

from __future__ import annotations

import json

import msgspec

from services.broker.core.errors import BrokerError
from services.broker.core.limits.space_storage import StorageShare
from services.broker.management.calls import CallContext, Operations

broker = Operations()


@broker.add("shareSpaceStorage", "s")
def share_space_storage(c: CallContext, shares: str) -> str:
    """Put these shares in force, and no others: JSON, space → [share, limit, final]; `null` leaves them
    unchanged. Return space → [bytes held, bytes wanted, share, present]. Raises BrokerError."""
    try:
        given = msgspec.json.decode(shares, type=dict[str, StorageShare] | None)
    except msgspec.MsgspecError as error:
        raise BrokerError(f"shares of storage: {error}") from None
    if given is not None:
        c.broker.catalogue.share_storage(given)
    return json.dumps(c.broker.ledger.spaces.looked())
