"""Levels below topics that users have made on a broker, on products where each is an address of its own.

Devices make up any number of them, so one that nobody uses goes again. It takes with it the ids by which repeated
messages are known: therefore not before any sender that may repeat one has come again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from enmasse.control.listings import AddressRow
from enmasse.model.names import AddressName, WireName, address_name
from enmasse.reconcile import NEVER, NOW
from services.storage_controller.broker import ManagedBroker
from services.storage_controller.contents import Holding, root_of
from services.storage_controller.management import BrokerManagement, all_done

BATCH = 500
UNUSED = 600.0
"""Seconds from one look to the next; what got no message between two of them is unused."""


class Levels:
    """Of one broker."""

    def __init__(self, broker: ManagedBroker, management: BrokerManagement) -> None:
        self._broker = broker
        self._management = management
        self._loop = asyncio.get_running_loop()
        self._next = NEVER if broker.engine.levels_exist else NOW
        self._seen: dict[str, int] = {}
        """Level → messages that it had got when it was looked at last."""

    def begin(self) -> None:
        """A conversation begins: the broker may have started again, and then it counts anew."""
        self._seen = {}

    def due(self) -> float:
        """When the next round is due."""
        return self._next

    async def round(self) -> None:
        """Deletes what got nothing since the last one and has no subscription: of the others the broker refuses it."""
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
    """Level below one of these topics → messages that it has got. Those that still hold some for subscriptions to a
    pattern are left out. Raises ValueError if a count is not a number."""
    return {
        row.name: int(row.routedMessageCount) + int(row.unroutedMessageCount)
        for row in rows
        if row.autoCreated == "true" and row.addressSize == "0" and root_of(row.name, topics) is not None
    }
