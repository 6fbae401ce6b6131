"""Manages one router over the connection that it dialled: read, compare, apply the difference, verify, until equal."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from enmasse.control import ConnectionLost, ControlConnection, ControlError
from enmasse.logs import log
from enmasse.model.names import AddressName
from enmasse.network.backoff import LOOK, Backoff
from enmasse.reconcile import NEVER, NOW, Reconciler, Step
from services.ragent import entities
from services.ragent.desired import Desired
from services.ragent.duplicate_links import end_doubled
from services.ragent.entities import (
    ADDRESS_TYPES,
    ALL_TYPES,
    AUTO_LINK,
    CONNECTOR,
    LISTENER,
    ROUTER,
    SSL_PROFILE,
    Entity,
    EntityKey,
    subject_of,
)
from services.ragent.management import RouterManagement
from services.ragent.mesh import WILDCARDS, Endpoint
from services.ragent.pages import ConsumerCounts
from services.ragent.sweep import Sweep, read_page
from services.ragent.table import (
    CREATED,
    DIFFERENT,
    OUTDATED,
    WORKING,
    EntityOperation,
    Expected,
    OwnEntities,
    Scan,
    difference,
)

READ_BY_NAME = 64
"""Largest number of entities that are read one by one; for more, the whole type is read."""
FULL_PAGE = 1000
SERVE_ANYWAY = 5.0
"""Longest time in seconds for which clients wait for links to brokers: a dead broker must not block all others."""


class ManagedRouter:
    """One router's entities as the shared reconciler manages them (enmasse.reconcile.Managed), keyed by address.

    Entities without an address have the key ROUTER. `changed(addresses)` is called when their state here has changed,
    `lost(addresses)` when one of their entities has disappeared, `meshed()` when other routers may have to dial this
    one
    differently.
    """

    def __init__(
        self,
        connection: ControlConnection,
        desired: Desired,
        changed: Callable[[Iterable[AddressName]], None],
        lost: Callable[[Iterable[AddressName]], None],
        meshed: Callable[[], None],
    ) -> None:
        self.id = connection.remote_container
        self.table = OwnEntities()
        self.configured = False
        """True once everything was read, applied and verified."""
        self.serving = False
        """True once the client listeners exist."""
        self._listens_again = False
        """Others are wanted now."""
        self.inter_router: Endpoint | None = None
        """Endpoint for other routers."""
        self._connection = connection
        self._desired = desired
        self._meshed = meshed
        self._loop = connection.loop
        self._management = RouterManagement(connection)
        self._expected: Expected = functools.partial(desired.expected, self.id)
        self._reconciler = Reconciler(
            self,
            changed=lambda keys: changed(key for key in keys if key != ROUTER),
            lost=lost,
            steps=(
                Step(lambda: self._poll_at if self.table.waiting else NEVER, self._poll),
                Step(lambda: NEVER if self.configured else NOW, self._configure),
                Step(self._serve_due, self._serve),
            ),
            errors=(ControlError,),
            logger=log.get(router=self.id),
        )
        self._counts = ConsumerCounts(desired.type, self._reconciler.news)
        self._sweep = Sweep(self._management, self.table, self._expected, self._counts)
        self._addresses_known = asyncio.Event()
        self._unread: set[str] = set()
        """Types of which more than READ_BY_NAME entities were created: the whole type is verified."""
        self._leftovers: set[AddressName] = set()
        """Addresses of undesired entities that a scan has found."""
        self._poll_at = NOW
        self._poll_backoff = Backoff(LOOK)
        self._configured_at = 0.0
        if desired.sources.has("addresses"):
            self._addresses_known.set()

    # what the agent reports to it

    def touch(self, names: Iterable[AddressName]) -> None:
        """Reconcile these addresses, whose desired state changed."""
        names = list(names)
        for name in names:
            # The one entity whose name does not show its kind (queue or another type).
            self._outdate(entities.address_key(name))
        self._reconciler.queue(names)

    def touch_brokers(self, brokers: Iterable[str]) -> None:
        """Handle brokers that were added, removed, moved or restarted: recorded connections to them are out of date."""
        for broker in brokers:
            if broker in self._desired.brokers(self.id):
                self._outdate((CONNECTOR, entities.connector_name(broker)))
        self._reconciler.queue((ROUTER,))

    def touch_neighbours(self) -> None:
        """Handle other routers that were added or have moved."""
        self._reconciler.queue((ROUTER,))

    def touch_listeners(self) -> None:
        """Handle other listeners for clients."""
        self._listens_again = True
        self._reconciler.wake()

    def _outdate(self, key: EntityKey) -> None:
        if self.table.status(key) is not None:
            self.table.set(key, OUTDATED)
            self._sweep.touch(key)

    def read_again(self) -> None:
        """Read everything again, because a feed was delivered for the first time."""
        if self._desired.sources.has("addresses"):
            self._addresses_known.set()
        self._reconciler.read_again()

    # what the agent asks

    @property
    def refused(self) -> Mapping[AddressName, str]:
        """Address (or ROUTER) → the router's reason for refusing to create or delete one of its entities."""
        return self._reconciler.refused

    @property
    def consumers(self) -> Mapping[AddressName, int]:
        """Address → receivers on this router."""
        return self._counts.found

    @property
    def extended(self) -> bool:
        """Return True if the router has the attributes that Qpid Dispatch lacks."""
        return bool(self._management.extended)

    async def share_clients(self, routers: int, clients: int) -> tuple[int, bool]:
        """As RouterManagement.share_clients. Raises ControlError."""
        return await self._management.share_clients(routers, clients)

    def works_on(self, name: AddressName) -> bool:
        """Return True if entities of the address are known to be missing or left over."""
        return self._reconciler.is_pending(name)

    @property
    def settled(self) -> bool:
        """Return True if all undesired entities are known and deleted."""
        pending = self._reconciler.is_pending
        self._leftovers = {name for name in self._leftovers if pending(name)}
        return self.configured and not (self._reconciler.is_reading() or pending(ROUTER) or self._leftovers)

    def foreign(self, known: Collection[str]) -> list[str]:
        """List entities made by others, for users; `known`: names in the router's own configuration."""
        return [
            f"{type_.rpartition('.')[2]} {name}{f' ({where})' if where else ''}"
            for type_ in (CONNECTOR, LISTENER, *ADDRESS_TYPES)
            for name, where in self.table.foreign[type_].items()
            if name not in known
        ]

    def close(self, condition: str, description: str) -> None:
        """End the conversation."""
        self._connection.close(condition, description)

    async def run(self) -> None:
        """Manage the router until the connection is lost."""
        work = asyncio.ensure_future(self._reconciler.run())
        gone = asyncio.ensure_future(self._connection.wait_closed())
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            work.cancel()
            gone.cancel()

    # what the reconciler asks

    @property
    def is_gone(self) -> bool:
        """True once the connection is lost."""
        return self._connection.is_gone

    async def open(self) -> None:
        """Open the links to the router's management, and wait until the addresses are known."""
        await self._management.open()
        await self._addresses_known.wait()

    def failed(self, error: Exception) -> None:
        """Close the management links if the connection lives; the next attempt opens new ones."""
        if not isinstance(error, ConnectionLost):
            self._management.close()  # otherwise every attempt would leave two links, and a connection has few

    async def read(self) -> None:
        """Read all entities of the types that the agent makes, and queue all addresses for comparison."""
        self._sweep.forget()
        self._unread.clear()
        for type_ in ALL_TYPES:
            scan = Scan(self.table, type_, self._expected)
            await self._pages(scan)
            for name in scan.missing():
                self._drop((type_, name))
            self._finish(scan)
        self.serving = self.serving and self._has_listeners()
        self._reconciler.queue(itertools.chain((ROUTER,), self._desired.known_names()))

    async def apply(self, keys: Sequence[AddressName]) -> Mapping[AddressName, str]:
        """Create, change and delete entities of these addresses. Nothing is deleted before all feeds are complete.
        Returns refused addresses with the reason."""
        may_delete = self._desired.sources.complete
        wanted: list[Entity] = []
        unwanted: list[EntityKey] = []
        for name in keys:
            made = self._desired_of(name)
            wanted += made
            there = self.table.of(name) if may_delete else ()
            if there:
                names = {(entity.type, entity.name) for entity in made}
                unwanted += [key for key in there if key not in names and not self._is_kept(key)]
        self._reconciler.news(keys)
        outdated = [(e.type, e.name) for e in wanted if self.table.status((e.type, e.name)) == OUTDATED]
        await self._read_by_name(outdated, heal=False)
        return await self._carry_out(difference(self.table, wanted, unwanted))

    async def verify(self, keys: Collection[AddressName]) -> Mapping[AddressName, str]:
        """Read back the types of entities that were created or changed; differences are queued again."""
        while self._unread:
            await self._scan_now(next(iter(self._unread)))
        return {}

    async def reread(self, keys: Collection[AddressName]) -> Iterable[AddressName]:
        """Read the entities of refused addresses again, or all of them if they are many. Returns the keys to apply
        again."""
        if ROUTER in keys or len(keys) > READ_BY_NAME:
            self._reconciler.read_again()
            return ()
        await self._read_by_name([(e.type, e.name) for name in keys for e in self._desired_of(name)])
        return keys

    async def sweep(self) -> float:
        """Read the next page of entities. Returns the seconds until the next one."""
        seconds, scan = await self._sweep.page(self._loop.time())
        if scan is not None:
            await self._scanned(scan)
        return seconds

    # the desired state

    def _desired_of(self, name: AddressName) -> list[Entity]:
        if name == ROUTER:
            return self._desired.connectors(self.id) + self._desired.nodes(self.id)
        return self._desired.of_address(self.id, name)

    def _is_kept(self, key: EntityKey) -> bool:
        # Listeners are handled separately, once everything else works.
        return key[0] in (LISTENER, SSL_PROFILE) or self._desired.is_kept(key)

    # the actual state

    async def _pages(self, scan: Scan) -> None:
        while await read_page(self._management, scan, FULL_PAGE) == FULL_PAGE:
            pass

    async def _scan_now(self, type_: str) -> None:
        scan = Scan(self.table, type_, self._expected)
        await self._pages(scan)
        await self._scanned(scan)
        self._unread.discard(type_)

    async def _scanned(self, scan: Scan) -> None:
        """Take a page of a scan. Missed entities are read by name, or by reading the whole type if they are many."""
        self._finish(scan)
        if scan.type == CONNECTOR and self.inter_router is not None:
            await self._look_around()
        missing = scan.missing()
        if len(missing) <= READ_BY_NAME:
            await self._read_by_name([(scan.type, name) for name in missing])
            return
        again = Scan(self.table, scan.type, self._expected)
        await read_page(self._management, again, 1 << 30)
        self._finish(again)
        for name in again.missing():
            self._drop((scan.type, name))
            self._heal((scan.type, name))

    def _finish(self, scan: Scan) -> None:
        """Schedule the corrections that a complete scan requires."""
        self.table.foreign[scan.type] = scan.foreign
        if scan.type == LISTENER:
            self._shows(scan.inter_router)
        for name in scan.changed:
            self._note((scan.type, name))
        if self._desired.sources.complete:
            for key in scan.unwanted:
                if not self._desired.is_kept(key):
                    self._leftovers.add(subject_of(key))
                    self._heal(key, lost=False)
        for name in scan.different:
            self._heal((scan.type, name))

    def _shows(self, inter_router: Mapping[str, Endpoint]) -> None:
        """Take the router's listeners for other routers: they dial the first by name."""
        endpoint = min(inter_router.items())[1] if inter_router else None
        if endpoint is not None and endpoint.host in WILDCARDS:
            endpoint = endpoint._replace(host=self._connection.peer.rpartition(":")[0])
        self.inter_router = endpoint
        if endpoint is not None and self._desired.mesh.joined(self.id, endpoint):
            self._meshed()

    async def _look_around(self) -> None:
        if self._desired.mesh.sees(self.id, await self._management.neighbours()):
            self._reconciler.news(self._desired.addresses)

    async def _read_by_name(self, keys: Iterable[EntityKey], *, heal: bool = True) -> None:
        for key, row in await self._management.read(keys):
            if row is None:
                if self._drop(key) and heal:
                    self._heal(key)
                continue
            entity = self._expected(*key)
            if entity is None:
                continue  # no longer desired: the change that states this is on its way
            if self.table.read(key[0], row, entity):
                self._note(key)
            if heal and self.table.status(key) == DIFFERENT:
                self._heal(key)

    def _drop(self, key: EntityKey) -> bool:
        news = self.table.drop(key)
        if news:
            self._note(key)
        return news

    def _heal(self, key: EntityKey, *, lost: bool = True) -> None:
        """Schedule the entity to be created again or deleted."""
        if key[0] in (LISTENER, SSL_PROFILE):
            self.serving = False
            return
        subject = subject_of(key)
        self._reconciler.queue((subject,))
        if lost and subject != ROUTER and self.serving:
            self._reconciler.missing((subject,))

    def _note(self, key: EntityKey) -> None:
        """Handle the changed status of an entity."""
        if key[0] == CONNECTOR:
            # The connection to a broker was replaced: recorded states of its links are out of date.
            for link in self.table.forget_links(entities.owner(key[1])):
                self._reconciler.news((subject_of(link),))
        elif key[0] in ADDRESS_TYPES:
            self._reconciler.news((subject_of(key),))

    # the difference

    async def _carry_out(self, operations: list[EntityOperation]) -> dict[AddressName, str]:
        """Run the operations. Return address → reason of a refusal."""
        for operation in operations:
            self._sweep.touch((operation.type, operation.name))
        await self._end_doubled(operations)
        answered, lost = await self._management.carry_out(operations)
        refused: dict[AddressName, str] = {}
        for operation, reason in answered:
            key = operation.type, operation.name
            if reason is not None:
                refused[subject_of(key)] = reason
            elif operation.attributes is None:
                self.table.drop(key)
            else:
                self.table.set(key, CREATED)
                if key[0] == CONNECTOR:
                    self._note(key)
        if lost is not None:
            self._reconciler.refuse(refused)
            raise lost
        if operations:
            self._poll_at = NOW
            self._poll_backoff.reset()
        if len(operations) > READ_BY_NAME:
            self._unread |= {operation.type for operation in operations if operation.attributes is not None}
        return refused

    async def _end_doubled(self, operations: Iterable[EntityOperation]) -> None:
        """On Qpid Dispatch, end second links of auto-links before these are deleted."""
        going = {each.name for each in operations if each.type == AUTO_LINK and each.attributes is None}
        if going and not self.extended and await end_doubled(self._management, going):
            self.touch_brokers({link.broker for name in going if (link := entities.owner(name)) is not None})

    async def _poll(self) -> None:
        """Read whether created entities work by now."""
        began = self._loop.time()
        waiting = self.table.waiting
        before = len(waiting)
        if before <= READ_BY_NAME:
            await self._read_by_name(sorted(waiting, key=lambda key: key[0] != CONNECTOR))
        else:
            for type_ in sorted({type_ for type_, _ in waiting}, key=ALL_TYPES.index):
                await self._scan_now(type_)
        now = self._loop.time()
        if len(waiting) < before:
            self._poll_backoff.reset()
        self._poll_at = now + max(self._poll_backoff.wait(), 2 * (now - began))

    # the clients

    async def _configure(self) -> None:
        """Finish the initial configuration."""
        self.configured = True
        self._configured_at = self._loop.time()
        self._reconciler.news(self._desired.addresses)

    def _serve_due(self) -> float:
        if self.serving and not self._listens_again:
            return NEVER
        all_work = all(type_ == CONNECTOR for type_, _ in self.table.waiting)
        return NOW if self._desired.sources.complete and all_work else self._configured_at + SERVE_ANYWAY

    async def _serve(self) -> None:
        """Create the client listeners, as the last step."""
        wanted = self._desired.listeners(self.id)
        keys = [(entity.type, entity.name) for entity in wanted]
        old = [key for key in self.table.of(ROUTER) if key[0] in (LISTENER, SSL_PROFILE) and key not in keys]
        self._listens_again = False
        if self._desired.shares_listeners:  # no client is refused meanwhile
            self._reconciler.refuse(await self._carry_out(difference(self.table, wanted, [])))
        self._reconciler.refuse(await self._carry_out(difference(self.table, wanted, old)))
        await self._read_by_name(keys)
        self.serving = self._has_listeners()
        if not self.serving:
            raise ControlError("listeners", self.refused.get(ROUTER, "the router does not show the client listeners"))
        self._reconciler.news(self._desired.addresses)

    def _has_listeners(self) -> bool:
        states = [self.table.status((entity.type, entity.name)) for entity in self._desired.listeners(self.id)]
        return all(state in WORKING for state in states)
