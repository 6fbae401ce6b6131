"""The conversation with one broker over AMQP management: list, apply the difference, read back, until equal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence, Set
from typing import Any

from enmasse.control import ControlConnection, LinkClosed
from enmasse.control.listings import QueueRow
from enmasse.logs import log
from enmasse.model.addresses import Address
from enmasse.model.names import AddressName, space_of
from enmasse.reconcile import NEVER, NOW, Reconciler, Step
from services.storage_controller import policies
from services.storage_controller.brokers.address_metrics import by_address
from services.storage_controller.brokers.broker import ManagedBroker
from services.storage_controller.brokers.broker_contents import Holding, contents, share
from services.storage_controller.brokers.storage_shares import Held, Shares
from services.storage_controller.conversation.idle_check import IdleCheck
from services.storage_controller.conversation.removal import BrokerWork, Removal
from services.storage_controller.conversation.topic_levels import TopicLevels
from services.storage_controller.management import ERRORS, EXISTS, BrokerManagement, all_done
from services.storage_controller.placement import Placer
from services.storage_controller.storage_limits import StorageLimits

READ_BY_NAME = 64
LOOK_EVERY, LOOK_LAST = 1.0, 5.0
"""Seconds between two listings: COST times the duration of a listing, within these limits."""
LOOK_ANYWAY = 3600.0
"""Seconds after which a broker is listed even if it states that nothing has changed."""
COST = 100
AUDIT = 100
"""Addresses whose settings are compared at a time."""
NONE = AddressName("$none")
"""Name that no address can have: its settings are those of addresses without settings of their own."""


class BrokerConversation:
    """One broker's addresses as the shared reconciler manages them (enmasse.reconcile.Managed), keyed by address.

    `changed(addresses)`: the broker's contents have changed. `lost(addresses)`: addresses that existed there, are
    desired, and are missing. `producers_led_away(address, broker)`: whether the accepted placements route no producer
    there; until then nothing is deleted.
    """

    def __init__(
        self,
        placer: Placer,
        broker: ManagedBroker,
        changed: Callable[[Iterable[AddressName]], None],
        lost: Callable[[Iterable[AddressName]], None],
        producers_led_away: Callable[[AddressName, str], bool],
        storage: StorageLimits,
    ) -> None:
        self._placer = placer
        self._broker = broker
        self._changed = changed
        self._storage = storage
        self._limited: Set[str] = frozenset()
        """Address spaces that have a limit of storage at the broker, by the shares that it got over this connection."""
        self._connection: ControlConnection
        self._management = BrokerManagement()
        self._loop = asyncio.get_running_loop()
        self._to_look: set[AddressName] = set()
        """Addresses that wait for another listing."""
        self._audit: set[AddressName] = set()
        """Addresses that existed before and whose settings have not been compared yet."""
        self._seen: tuple[int, int] | None = None
        """Digest of the last listings, while the recorded contents still equal them."""
        self._revision = ""
        """Revision that the broker stated before these; empty: not asked."""
        self._listed = 0.0
        work = BrokerWork(placer, broker, self._management, self._look, self._news, producers_led_away)
        self._removal, self._quiet = Removal(work), IdleCheck(work)
        self._levels = TopicLevels(broker, self._management)
        self._reconciler: Reconciler[AddressName] = Reconciler(
            self,
            changed=changed,
            lost=lost,
            steps=(
                Step(self._removal.due, self._removal.round),
                Step(self._quiet.due, self._quiet.round),
                Step(lambda: NOW if self._audit else NEVER, self._audit_some),
                Step(self._levels.due, self._levels.round),
                Step(lambda: NOW if self._to_look else NEVER, self._look_again),
            ),
            errors=ERRORS,
            logger=log.get(broker=broker.name),
        )
        broker.refused = self._reconciler.refused

    def _news(self, names: Iterable[AddressName]) -> None:
        self._reconciler.news(names)

    # what the controller asks for

    def keep(self, name: AddressName) -> None:
        """Make the address exist on this broker, with its properties."""
        self._removal.keep(name)
        broker = self._broker
        if not broker.is_known:
            return  # `read` is next, and reports every address
        is_new = broker.holding(name) is None
        if is_new or (name in broker.settled and not self._placer.is_settled(broker, name)):
            if name not in broker.refused:
                self._reconciler.queue((name,))
        elif name not in broker.settled and not (
            self._reconciler.is_pending(name) or self._reconciler.is_unverified(name)
        ):
            self._audit.add(name)
            self._reconciler.wake()

    def retire(self, name: AddressName) -> None:
        """Remove the address from this broker once no message is lost by that."""
        self._reconciler.drop(name)
        self._removal.retire(name)
        self._reconciler.wake()

    def look_again(self, names: Iterable[AddressName]) -> None:
        """Have new durable subscriptions to these topics wait, and list the broker soon. Report them then, even if
        nothing has changed."""
        self._to_look.update(names)
        self._reconciler.wake()

    async def share_storage(self, shares: Shares | None) -> dict[str, Held] | None:
        """As `BrokerManagement.share_storage`; the broker is connected."""
        held = await self._management.share_storage(shares)
        if shares is not None:
            self._limited = shares.keys()
        return held

    async def _limit(self, names: Iterable[AddressName]) -> bool:
        """Give the broker its shares before it gets these addresses: until then it has no limit for their spaces.
        Return whether it had none."""
        shares = self._storage.shares_of(self._broker.name)
        if not shares or ({space_of(name) for name in names} & shares.keys()) <= self._limited:
            return False
        await all_done([(NONE, self.share_storage(shares))])  # one that knows no shares has no limits
        return True

    async def _look_again(self) -> None:
        names, self._to_look = self._to_look, set()
        try:
            await self._hold(names)
            await self._look(glance=True)
        except BaseException:
            self._to_look |= names
            raise
        self._reconciler.news(names)

    async def _hold(self, names: Iterable[AddressName]) -> None:
        """Have new durable subscriptions to these topics wait; `apply` ends that, or their removal."""
        broker = self._broker
        topics = [name for name in names if name not in broker.held and broker.holding(name) is not None]
        if broker.engine.holds_subscriptions:
            for name in topics:
                broker.unsettle(name)
            work = [(name, self._management.add_settings(*policies.hold(name))) for name in topics]
            await all_done(work)  # a refusal does not keep the topic: subscriptions may be left behind, as before
        for name in topics:
            broker.hold(name)

    def quiesce(self, then: Callable[[], None] | None) -> None:
        """Call `then` once when the broker holds no message and no producer can reach it; None: cancel that."""
        if names := self._quiet.want(then):
            self._changed(names)
        if self._quiet.due() == NOW:
            self._reconciler.wake()

    @property
    def is_sure(self) -> bool:
        """Return True if it is known for everything on this broker whether we made it."""
        return not self._removal.unknown()

    async def session(self, connection: ControlConnection) -> None:
        """Manage the broker until the connection is lost."""
        peer = connection.remote_container
        if peer != self._broker.name and peer in self._placer.inventory.brokers:
            # The endpoint of an earlier run: another broker's contents must not be taken for this broker's.
            text = f"{connection.peer} is {peer} and not this broker"
            self._changed(self._placer.inventory.disconnected(self._broker, text))
            return
        self._connection = connection
        try:
            await self._reconciler.run()
        finally:
            if self._broker.connected:
                self._changed(self._placer.inventory.disconnected(self._broker, "the connection was lost"))

    # what the reconciler asks

    @property
    def is_gone(self) -> bool:
        """True once the connection is lost."""
        return self._connection.is_gone

    async def open(self) -> None:
        """Open the link to the broker's management. Raises ControlError."""
        self._limited = frozenset()
        await self._management.open(self._connection)

    def failed(self, error: Exception) -> None:
        """Report the addresses of the broker as unreachable, with the reason."""
        self._reconciler.news(self._placer.inventory.disconnected(self._broker, str(error)[:200]))
        if isinstance(error, LinkClosed):
            self._management.close()

    async def read(self) -> None:
        """Read the broker's addresses and queues; from now on it is connected. Raises ControlError, ValueError."""
        await self._look()
        self._quiet.begin()
        self._levels.begin()
        self._reconciler.news(self._placer.inventory.connected(self._broker))

    async def apply(self, keys: Sequence[AddressName]) -> Mapping[AddressName, str]:
        """Create these addresses with their settings, the settings first. Returns refused ones with the reason."""
        broker, management = self._broker, self._management
        under_way: list[tuple[AddressName, Awaitable[Any]]] = []
        # The desired state as of now; it may have changed again when the broker has answered.
        wants = self._wants(keys)
        limited = await self._limit(name for name in wants if broker.holding(name) is None)
        for name, want in wants.items():
            if not self._placer.is_settled(broker, name):
                # Settings first: they must apply to the first message.
                settings = policies.address_settings(name, want, broker.engine)
                under_way += [(name, management.add_settings(match, values)) for match, values in settings.items()]
                under_way += [(name, management.remove_settings(match)) for match in self._before(name, settings)]
                broker.unsettle(name)
            if broker.holding(name) is None:
                under_way.append((name, management.create(name, want.entity)))
        refused = await all_done(under_way, EXISTS)
        if limited:
            self._storage.look()
        for name, want in wants.items():
            if name not in refused:
                self._broker.settle(name, want)
        return refused

    def _wants(self, keys: Iterable[AddressName]) -> dict[AddressName, Address]:
        """Return those of these addresses that exist here, or are to exist now. A topic that the broker has lost is not
        made before everything is bound for it, whatever was queued when it was still there."""
        placer, found = self._placer, {}
        for name in keys:
            want = placer.desired.addresses.get(name)
            if want is None:
                continue
            if self._broker.holding(name) is not None or self._broker.name in placer.decide(name).keep:
                found[name] = want
        return found

    def _before(self, name: AddressName, settings: Mapping[str, Any]) -> list[str]:
        """Return the matches under which the address has settings, or may have some, that are no longer desired."""
        settled = self._broker.settled.get(name)
        before: Iterable[str] = ()
        if settled is not None:
            before = policies.address_settings(name, settled, self._broker.engine)
        elif self._broker.holding(name) is not None:
            before = policies.matches(name)
        return [match for match in before if match not in settings]

    async def verify(self, keys: Collection[AddressName]) -> Mapping[AddressName, str]:
        """Read back what was created: up to READ_BY_NAME addresses one by one, more by a complete listing."""
        broker = self._broker
        if len(keys) > READ_BY_NAME:
            there = [name for name in keys if broker.holding(name) is not None]
            await self._look()
            self._reconciler.news(there)  # the listing has reported the others
            return {}
        kinds = {name: want.entity for name, want in self._wants(keys).items()}
        found = [(name, asyncio.ensure_future(self._management.mismatch(name, kind))) for name, kind in kinds.items()]
        refused = await all_done(found)
        for name, mismatch in found:
            if name in refused:
                continue
            if text := mismatch.result():
                refused[name] = text
            elif broker.holding(name) is None:
                ours = True if kinds[name] == "queue" else None
                self._placer.note(broker, name, share(Holding(kinds[name], ours)))
                self._seen = None
        self._reconciler.news(keys)
        return refused

    async def reread(self, keys: Collection[AddressName]) -> Iterable[AddressName]:
        """Read the broker again. Returns those of the keys that still belong there."""
        await self._look()
        return [name for name in keys if self._broker.name in self._placer.decide(name).keep]

    async def sweep(self) -> float:
        """Read the broker again. Returns the seconds until the next time: more, the longer it took."""
        began = self._loop.time()
        await self._look(glance=True)
        self._reconciler.news(self._quiet.end())
        return max(LOOK_EVERY, min(LOOK_LAST, COST * (self._loop.time() - began)))

    async def _look(self, *, glance: bool = False) -> list[QueueRow]:
        """List the broker's contents. Return the rows of its queues; none for a `glance` that shows no change."""
        revision = await self._management.revision() if glance else ""
        now = self._loop.time()
        same = revision == self._revision and self._seen is not None
        if revision and same and now < self._listed + LOOK_ANYWAY:
            self._broker.looks += 1
            return []
        listings = await self._management.listings()
        self._revision, self._listed = revision, now
        self._broker.looks += 1
        if glance and listings.digest == self._seen:
            return []
        queues, addresses = listings.rows()
        before = self._broker.contents
        changed = self._placer.set_contents(self._broker, contents(queues, addresses))
        if not self._broker.engine.serves_http:
            self._broker.traffic = by_address(queues, addresses)
        self._seen = listings.digest
        if before is not None and self._broker.connected:
            self._reconciler.missing(name for name in changed if name in before.held and self._is_lost(name))
        self._reconciler.news(changed)
        return queues

    def _is_lost(self, name: AddressName) -> bool:
        at_home = self._placer.inventory.homes.get(name) == self._broker.name
        return at_home and not self._removal.has(name) and self._broker.holding(name) is None

    async def _audit_some(self) -> None:
        """Compare the settings of existing addresses with the desired ones: until then they are not ready."""
        names = [self._audit.pop() for _ in range(min(AUDIT, len(self._audit)))]
        wants = list(self._wants(names).items())
        none, *found = await asyncio.gather(*(self._management.settings(name) for name in (NONE, *dict(wants))))
        for (name, want), read in zip(wants, found, strict=True):
            if policies.holds(policies.address_settings(name, want, self._broker.engine), read, none):
                self._broker.settle(name, want)
            else:
                self._reconciler.queue((name,))
        self._reconciler.news(names)
