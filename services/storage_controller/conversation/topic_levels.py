"""Deletes unused levels that users have made below topics, on products where each level is an address.

Devices can create any number of levels, so unused ones are deleted. The deletion also removes the message-ids used to
detect duplicates, so it waits until every sender that may repeat a message has had time to reconnect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from enmasse.control.listings import AddressRow
from enmasse.model.names import AddressName, WireName, address_name
from enmasse.reconcile import NEVER, NOW
from services.storage_controller.brokers.broker import ManagedBroker
from services.storage_controller.brokers.broker_contents import Holding, root_of
from services.storage_controller.management import BrokerManagement, all_done

BATCH = 500
UNUSED = 600.0
"""Seconds between two rounds; a level that received no message between two rounds is unused."""


class TopicLevels:
    """Levels of one broker."""

    def __init__(self, broker: ManagedBroker, management: BrokerManagement) -> None:
        self._broker = broker
        self._management = management
        self._loop = asyncio.get_running_loop()
        self._next = NEVER if broker.engine.levels_exist else NOW
        self._seen: dict[str, int] = {}
        """Level → messages that it had received by the last round."""

    def begin(self) -> None:
        """Start a conversation. Counts of the last round are dropped: a restarted broker counts from zero."""
        self._seen = {}

    def due(self) -> float:
        """Return the time of the next round."""
        return self._next

    async def round(self) -> None:
        """Delete levels that received no message since the last round; the broker refuses it for those with
        subscriptions."""
        self._next = self._loop.time() + UNUSED
        topics = {name for name, held in self._held().items() if held.kind == "topic"}
        counts = counted_levels(await self._management.addresses(), topics)
        unused = [name for name, count in counts.items() if self._seen.get(name) == count]
        self._seen = {name: count for name, count in counts.items() if name not in unused}
        for some in (unused[at : at + BATCH] for at in range(0, len(unused), BATCH)):
            await all_done([(address_name(WireName(name)), self._management.delete_unbound(name)) for name in some])

    def _held(self) -> dict[AddressName, Holding]:
        contents = self._broker.contents
        return contents.held if contents is not None else {}


def counted_levels(rows: Iterable[AddressRow], topics: set[AddressName]) -> dict[str, int]:
    """Return level below one of these topics → messages that it has received. Levels that still hold messages for
    subscriptions to a pattern are left out. Raises ValueError if a count is not a number."""
    return {
        row.name: int(row.routedMessageCount) + int(row.unroutedMessageCount)
        for row in rows
        if row.autoCreated == "true" and row.addressSize == "0" and root_of(row.name, topics) is not None
    }
