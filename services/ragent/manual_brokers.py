"""Contents of brokers managed by hand. No controller manages them, so the agent reads their management and creates
nothing (docs/decisions/0006): it reports missing queues and addresses, with what to create. Brokers of other products
than Artemis are not read (docs/decisions/0028).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from enmasse.control import Artemis, ControlConnection, ControlError, keep_connected
from enmasse.control.listings import AddressRow, QueueRow, read_listings
from enmasse.logs import log
from enmasse.model.address_types import TYPES, AddressType, StoredType
from enmasse.model.names import AddressName, WireName, address_name, wire_name
from enmasse.process import runner

LOOK_EVERY, LOOK_LAST = 1.0, 5.0
"""Seconds between two looks at a broker: COST times the duration of a look, within these limits."""
COST = 100
RETRY = 2.0
"""Seconds until a broker is asked again after an error."""
ROUTERS = frozenset({"qpid-dispatch-router", "skupper-router"})
"""Products of peers that cannot carry an address for a router: messages would be routed back."""
Where = tuple[str, int]


class Offer(NamedTuple):
    """Addresses that a broker can carry: names with an ANYCAST queue, and MULTICAST addresses."""

    queues: frozenset[str]
    topics: frozenset[str]


def offer(queues: Iterable[QueueRow], addresses: Iterable[AddressRow]) -> Offer:
    """Build the offer from the rows of a broker's listings."""
    return Offer(
        frozenset(row.address for row in queues if row.routingType == "ANYCAST" and row.temporary != "true"),
        frozenset(row.name for row in addresses if "MULTICAST" in row.routingTypes),
    )


def missing(broker: str, name: AddressName, kind: StoredType, seen: Offer) -> str:
    """Return what prevents the address from working on the broker, and what to create there; empty if nothing does.

    Automatic creation by the broker does not count: not all products create queues for clients behind a router.
    """
    wire = wire_name(name)
    if kind == "queue":
        if wire in seen.queues:
            return ""
        found = " (only a topic of this name)" if wire in seen.topics else ""
        return f"broker {broker} has no queue {wire!r}{found}: make an address with an ANYCAST queue of this name there"
    if wire in seen.topics:
        return ""
    found = " (only a queue of this name)" if wire in seen.queues else ""
    return f"broker {broker} has no topic {wire!r}{found}: make an address of this name with MULTICAST there"


class ManualBrokers:
    """Conversations with these brokers. `changed(names)`: contents under these names changed; None: all names.
    `restarted(broker)`: the connection with it was lost, or made again; those of the routers may be lost, too."""

    def __init__(
        self,
        container: str,
        changed: Callable[[Iterable[AddressName] | None], None],
        restarted: Callable[[str], None],
    ) -> None:
        self._container = container
        self._changed = changed
        self._restarted = restarted
        self._brokers: dict[str, HandMadeBroker] = {}

    def follow(self, brokers: Mapping[str, Where]) -> None:
        """Set the brokers managed by hand."""
        before = {name: broker.where for name, broker in self._brokers.items()}
        if brokers == before:
            return
        for name, where in before.items():
            if brokers.get(name) != where:
                self._brokers.pop(name).close()
        for name, where in brokers.items():
            if name not in self._brokers:
                self._brokers[name] = HandMadeBroker(
                    name, where, self._container, self._changed, partial(self._restarted, name)
                )
        self._changed(None)

    def problem(self, broker: str, name: AddressName, kind: StoredType) -> str:
        """Return what prevents the address from working on the broker, as last read; empty for a broker not managed by
        hand."""
        found = self._brokers.get(broker)
        if found is None or found.is_unasked:
            return ""
        if found.offer is None:
            return f"broker {broker} {found.detail}"
        return missing(broker, name, kind, found.offer)

    def note(self, broker: str, type: AddressType) -> str:
        """Return the notice about a working address there. (A broker of another product grants the routers' links.)"""
        found = self._brokers.get(broker)
        if not TYPES[type].levels or found is None or not found.is_unasked:
            return ""
        return f"whether broker {broker} has this topic cannot be looked up: it has no management as Artemis has it"

    def close(self) -> None:
        """End the conversations."""
        self.follow({})


class HandMadeBroker:
    """One broker. `offer`: None while its contents are unknown; `detail` is the reason. `is_unasked`: it answers, but
    is of another product, whose contents cannot be read."""

    def __init__(
        self,
        name: str,
        where: Where,
        container: str,
        changed: Callable[[Iterable[AddressName] | None], None],
        restarted: Callable[[], None],
    ) -> None:
        self.where = where
        self.offer: Offer | None = None
        self.is_unasked = False
        self.detail = f"cannot be reached at {where[0]}:{where[1]}"
        self._changed = changed
        self._restarted = restarted
        self._log = log.get(broker=name)
        self._seen: tuple[int, int] | None = None
        # Anonymous: only brokers of other suites and products are managed by hand, and none has our peers.
        self._work = runner.spawn(keep_connected(*where, self._session, container=container), f"broker {name}")

    def close(self) -> None:
        """End the conversation."""
        self._work.cancel()

    async def _session(self, connection: ControlConnection) -> None:
        self._restarted()
        try:
            if not Artemis.is_at(connection):
                self._meet_another(str(connection.remote_properties.get("product")))
                await asyncio.Event().wait()  # until the connection is lost
            node = Artemis(connection)
            await node.opened()
            while True:
                await asyncio.sleep(await self._look(node))
        except (ControlError, ValueError) as error:
            if not connection.is_gone:
                self._log.warning("agent.listing.failed", reason=str(error)[:300])
                self._lost(f"does not list what it holds: {str(error)[:200]}")
                await asyncio.sleep(RETRY)
        finally:
            self._restarted()
            self._lost(f"cannot be reached at {self.where[0]}:{self.where[1]}")

    def _meet_another(self, product: str) -> None:
        """Handle a broker of another product: its contents are unknown, and only granted links count."""
        self.is_unasked = product not in ROUTERS
        if not self.is_unasked:
            self.detail = "is a router: name the host and port of a broker"
        self._changed(None)

    def _lost(self, detail: str) -> None:
        self.offer, self.detail, self._seen, self.is_unasked = None, detail, None, False
        self._changed(None)

    async def _look(self, node: Artemis) -> float:
        """Read everything and report changes. Return the seconds until the next look."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        listings = await read_listings(node)
        if listings.digest != self._seen:
            old, new = self.offer, offer(*listings.rows())
            self.offer, self._seen = new, listings.digest
            news = None if old is None else (old.queues ^ new.queues) | (old.topics ^ new.topics)
            self._changed(None if news is None else (address_name(WireName(name)) for name in news))
        return max(LOOK_EVERY, min(LOOK_LAST, COST * (loop.time() - began)))
