"""One router, managed over the connection it dialled: read, compare, apply the difference, read back, until equal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from enmasse import log
from enmasse.control import ConnectionLost, ControlConnection, ControlError, Dispatch, Reply
from services.ragent import entities
from services.ragent.desired import Desired, Names
from services.ragent.entities import (
    ADDRESS,
    ADDRESS_TYPES,
    ALL_TYPES,
    CONNECTOR,
    EXTENSIONS,
    LISTENER,
    SSL_PROFILE,
    Entity,
)
from services.ragent.pages import Counts, Unchanged, counts, results
from services.ragent.table import (
    CREATED,
    DIFFERENT,
    OUTDATED,
    WORKING,
    Key,
    Operation,
    Scan,
    Table,
    columns,
    difference,
)

ROUTER_ADDRESS = "org.apache.qpid.dispatch.router.address"

REQUEST_TIMEOUT = 10.0
SLICE = 500
"""Addresses whose operations are under way together."""
READ_BY_NAME = 64
"""Up to so many entities are read one by one; more are found by reading the whole type."""
FULL_PAGE = 1000
SWEEP_PAGE = 250
SWEEP_EVERY = 2.0
"""Seconds from one look at everything to the next, where that is not more than SWEEP_ROWS a second."""
SWEEP_ROWS = 2500
POLL_FIRST, POLL_LAST = 0.01, 1.0
RETRY_FIRST, RETRY_LAST = 0.25, 5.0
SERVE_ANYWAY = 5.0
"""Seconds that clients wait at most for links to brokers: a dead broker must not keep them from all others."""

_EMPTY: Names = set()


class Router:
    """The agent's conversation with one router.

    `changed(addresses)` is called when their state here is news, `healing(addresses)` when something of them that was
    there is not any more.
    """

    def __init__(
        self,
        connection: ControlConnection,
        desired: Desired,
        changed: Callable[[Iterable[str]], None],
        healing: Callable[[Iterable[str]], None],
    ) -> None:
        self.id = connection.remote_container
        self.table = Table()
        self.configured = False
        """Everything was read, applied and read back at least once."""
        self.serving = False
        """The client listeners are there."""
        self.extended: bool | None = None
        """It knows `EXTENSIONS`; None: it was not asked yet."""
        self.consumers: dict[str, int] = {}
        self.failed: dict[str, str] = {}
        """Addresses with an entity that the router refuses to make or to delete, and its words."""
        self._undeleted: dict[str, Names] = {}
        """Of those, what it refuses to delete."""
        self._connection = connection
        self._desired = desired
        self._changed = changed
        self._healing = healing
        self._log = log.get(router=self.id)
        self._loop = connection.loop
        self._node: Dispatch
        self._wake = asyncio.Event()
        self._news: set[str] = set()
        self._lost: set[str] = set()
        self._full = True
        self._dirty: dict[str, Names] = {}
        self._at_work: frozenset[str] = frozenset()
        """Addresses whose operations are under way."""
        self._unwanted: list[Key] = []
        self._moved = False
        self._unsettled = False
        """It is being read, or what is unwanted is being deleted."""
        self._told_settled = False
        self._unverified: set[str] = set()
        self._scan: Scan | None = None
        self._sweep: list[str] = []
        self._same: dict[str, Unchanged] = {}
        """What the last sweep of a type has read, where that was just what was known."""
        self._compared = 0
        self._sweep_began = 0.0
        self._sweep_rows = 0
        self._page_at = 0.0
        self._consumer_pages: list[Counts] = []
        self._consumers_page_number = 0
        self._poll_at = 0.0
        self._poll_delay = POLL_FIRST
        self._retry_at = 0.0
        self._retry_delay = RETRY_FIRST
        self._configured_at = 0.0

    # what the agent tells

    def touch(self, before: Mapping[str, Names]) -> None:
        """These addresses are wanted differently now; with the names of the entities they had."""
        dirty = self._dirty
        for name, names in before.items():
            known = dirty.get(name)
            dirty[name] = known | names if known else names
            for key in names:
                # The one entity whose name says nothing of what it is: a queue's, or that of another type.
                if key[0] == ADDRESS and self.table.status(key) is not None:
                    self.table.set(key, OUTDATED)
                    if self._scan is not None and self._scan.type == ADDRESS:
                        self._scan.touch(key[1])
        self._wake.set()

    def touch_brokers(self, brokers: Iterable[str]) -> None:
        """Brokers came, went, moved or were started again: what is known of the connections to them is of the past."""
        self._moved = True
        for broker in brokers:
            key = CONNECTOR, entities.connector_name(broker)
            if self.table.status(key) is not None and broker in self._desired.brokers:
                self.table.set(key, OUTDATED)
                if self._scan is not None and self._scan.type == CONNECTOR:
                    self._scan.touch(key[1])
        self._wake.set()

    def read_again(self) -> None:
        """Everything may be different: a feed was delivered for the first time, or the listeners changed."""
        self._full = True
        self._wake.set()

    # what the agent asks

    def works_on(self, name: str) -> bool:
        """Whether something of the address is yet to be made or deleted, as far as that is known."""
        return name in self._dirty or name in self._at_work

    @property
    def settled(self) -> bool:
        """All that is here and not wanted is known, and gone."""
        return self.configured and not (self._full or self._moved or self._unwanted or self._unsettled)

    def foreign(self, known: Collection[str]) -> list[str]:
        """What others have made here, for people; `known` are the names that stand in its own configuration."""
        return [
            f"{type_.rpartition('.')[2]} {name}{f' ({where})' if where else ''}"
            for type_ in (CONNECTOR, LISTENER, *ADDRESS_TYPES)
            for name, where in self.table.foreign[type_].items()
            if name not in known
        ]

    # the work

    def _expected(self, type_: str, name: str) -> Entity | None:
        return self._desired.expected(self.id, type_, name)

    def close(self, condition: str, description: str) -> None:
        """Ends the conversation."""
        self._connection.close(condition, description)

    async def wait_closed(self) -> None:
        """Waits until the connection is gone."""
        await self._connection.wait_closed()

    async def run(self) -> None:
        """Works until the connection is lost."""
        delay = RETRY_FIRST
        while not self._connection.is_gone:
            try:
                self._node = Dispatch(self._connection, timeout=REQUEST_TIMEOUT)
                await self._node.opened()
                while True:
                    await self._step()
                    self._tell()
                    delay = RETRY_FIRST
            except ControlError as error:
                if self._connection.is_gone or isinstance(error, ConnectionLost):
                    return
                # What the last operations did is unknown, so the retry begins with reading everything.
                self._log.warning("management failed; reading everything again", reason=str(error), seconds=delay)
                self._full = True
                self._scan = None
                self._node.close()  # else every attempt would leave two links behind, of which a connection has few
            self._tell()
            await asyncio.sleep(delay)
            delay = min(delay * 2, RETRY_LAST)

    async def _step(self) -> None:
        now = self._loop.time()
        if not self._desired.has_addresses:
            await self._sleep(None)
        elif self._full:
            await self._read_all()
        elif self._moved or self._unwanted or self._dirty:
            await self._reconcile()
        elif self._unverified:
            await self._verify()
        elif self.table.waiting and now >= self._poll_at:
            await self._poll()
        elif not self.configured:
            self.configured = True
            self._configured_at = now
            self._news.update(self._desired.addresses)
        elif not self.serving and (self._all_works() or now >= self._configured_at + SERVE_ANYWAY):
            await self._serve()
        elif self.failed and now >= self._retry_at:
            await self._retry()
        elif now >= self._page_at:
            await self._sweep_page(now)
        else:
            times = [self._page_at]
            if self.table.waiting:
                times.append(self._poll_at)
            if not self.serving:
                times.append(self._configured_at + SERVE_ANYWAY)
            if self.failed:
                times.append(self._retry_at)
            await self._sleep(max(0.0, min(times) - now))

    async def _sleep(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    def _tell(self) -> None:
        if self._lost:
            lost, self._lost = self._lost, set()
            self._healing(lost)
        if self._news or self._told_settled != self.settled:
            self._told_settled = self.settled
            news, self._news = self._news, set()
            self._changed(news)

    def _all_works(self) -> bool:
        return self._desired.complete and all(type_ == CONNECTOR for type_, _ in self.table.waiting)

    async def _read_all(self) -> None:
        self._full, self._unsettled = False, True
        self._scan = None
        self._forget_sweeps(*ADDRESS_TYPES)
        if self.extended is None:
            self.extended = await self._knows_extensions()
        for type_ in ALL_TYPES:
            scan = Scan(self.table, type_, self._expected)
            await self._pages(scan)
            for name in scan.missing():
                self.table.drop((type_, name))
                self._note(type_, name)
            self._finish(scan)
        self.serving = self.serving and self._has_listeners()
        self._moved, self._unsettled = True, False
        for name in self._desired.carriers():
            self._dirty.setdefault(name, _EMPTY)

    async def _knows_extensions(self) -> bool:
        """Whether listeners can be told to carry no management. Qpid Dispatch has no such attribute."""
        reply = await self._node.request({"operation": "GET-ATTRIBUTES", "entityType": LISTENER}, {})
        found = reply.body.get(LISTENER) if isinstance(reply.body, dict) else None
        return isinstance(found, list) and "management" in found

    async def _pages(self, scan: Scan) -> None:
        while await self._page(scan, FULL_PAGE) == FULL_PAGE:
            pass

    async def _page(self, scan: Scan, size: int) -> int:
        reply = await self._query(scan.type, scan.offset, size)
        names, rows = results(reply)
        count = scan.page(names, rows)
        scan.pages.append((reply.digest, count))
        # A router that does not page sends everything at once; then there is no next page.
        return count if scan.type in ADDRESS_TYPES else 0

    async def _query(self, type_: str, offset: int, size: int) -> Reply:
        properties: dict[str, Any] = {"operation": "QUERY", "entityType": type_}
        if type_ in ADDRESS_TYPES:
            properties |= {"offset": offset, "count": size}
        return await self._node.operation(properties, {"attributeNames": columns(type_, bool(self.extended))})

    def _finish(self, scan: Scan) -> None:
        """What a complete scan has found is put right next."""
        self.table.foreign[scan.type] = scan.foreign
        for name in scan.changed:
            self._note(scan.type, name)
        if self._desired.complete:
            self._unwanted += [key for key in scan.unwanted if not self._desired.is_kept(key[1])]
        for name in scan.different:
            self._heal(scan.type, name)

    def _heal(self, type_: str, name: str) -> None:
        owner = entities.owner(name)
        if owner is None:
            return
        if type_ == CONNECTOR:
            self._moved = True
        elif type_ in (LISTENER, SSL_PROFILE):
            self.serving = False
        else:
            self._dirty.setdefault(owner.subject, _EMPTY)
            if self.serving:
                self._lost.add(owner.subject)

    def _note(self, type_: str, name: str) -> None:
        """The status of an entity is news."""
        if type_ == CONNECTOR:
            self._read_links(name)
        if type_ in ADDRESS_TYPES and (owner := entities.owner(name)) is not None:
            self._news.add(owner.subject)

    def _read_links(self, connector: str) -> None:
        """The connection to a broker is another one: what was known of the links on it was of the one before."""
        for key in self.table.forget_links(entities.owner(connector)):
            self._note(*key)

    async def _reconcile(self) -> None:
        wanted: list[Entity] = []
        unwanted, self._unwanted = self._unwanted[:SLICE], self._unwanted[SLICE:]
        may_delete = self._desired.complete
        self._unsettled = self._moved or bool(unwanted)
        if self._moved:
            self._moved = False
            connectors = self._desired.connectors()
            wanted += connectors
            if may_delete:
                names = {entity.name for entity in connectors}
                unwanted += [(CONNECTOR, name) for name in self.table.rows[CONNECTOR] if name not in names]
        addresses = []
        for name in list(self._dirty)[:SLICE] if len(self._dirty) > SLICE else list(self._dirty):
            before = self._dirty.pop(name)
            addresses.append(name)
            made = self._desired.of_address(name)
            wanted += made
            if before and may_delete:
                unwanted += before - {(entity.type, entity.name) for entity in made}
            self.failed.pop(name, None)
        self._news.update(addresses)
        unwanted = [key for key in unwanted if not self._desired.is_kept(key[1])]
        self._at_work = frozenset(addresses)
        try:
            await self._compare([entity for entity in wanted if self._is_outdated(entity)])
            await self._apply(difference(self.table, wanted, unwanted))
        except BaseException:
            for name in addresses:
                self._dirty.setdefault(name, _EMPTY)
            raise
        finally:
            self._at_work = frozenset()
        self._unsettled = False

    def _is_outdated(self, entity: Entity) -> bool:
        return self.table.status((entity.type, entity.name)) == OUTDATED

    async def _compare(self, wanted: list[Entity]) -> None:
        """Reads whether what is there under these names is what is wanted now."""
        replies = [
            self._node.request({"operation": "READ", "type": entity.type, "name": entity.name}, {}) for entity in wanted
        ]
        for entity, future in zip(wanted, replies, strict=True):
            reply = await future
            status = reply.properties.get("statusCode")
            if status == 404:
                self.table.drop((entity.type, entity.name))
            elif status == 200 and isinstance(reply.body, dict):
                if self.table.read(entity.type, reply.body, entity):
                    self._note(entity.type, entity.name)
            else:
                raise ControlError(str(status), f"READ {entity.name}: {reply.properties.get('statusDescription')}")

    async def _apply(self, operations: list[Operation]) -> None:
        if not operations:
            return
        node, scan = self._node, self._scan
        under_way = []
        for operation in operations:
            type_, name, attributes = operation
            if scan is not None and scan.type == type_:
                scan.touch(name)
            properties = {"operation": "DELETE" if attributes is None else "CREATE", "type": type_, "name": name}
            body = dict(attributes or {})
            if not self.extended:
                for extension in EXTENSIONS.get(type_, ()):
                    body.pop(extension, None)
            under_way.append(node.request(properties, body))
        await asyncio.wait(under_way)
        lost: BaseException | None = None
        for operation, future in zip(operations, under_way, strict=True):
            error = future.exception()
            if error is not None:
                lost = lost or error
            else:
                self._applied(operation, future.result())
        if lost is not None:
            raise lost
        self._poll_at, self._poll_delay = 0.0, POLL_FIRST
        if len(operations) > READ_BY_NAME:
            self._unverified |= {operation.type for operation in operations if operation.attributes is not None}

    def _applied(self, operation: Operation, reply: Reply) -> None:
        type_, name, attributes = operation
        status = reply.properties.get("statusCode")
        good = isinstance(status, int) and 200 <= status < 300
        if attributes is None:
            if good or status == 404:
                self.table.drop((type_, name))
                return
        elif good:
            self.table.set((type_, name), CREATED)
            if type_ == CONNECTOR:
                self._read_links(name)
            return
        verb = "delete" if attributes is None else "create"
        reason = f"cannot {verb} {type_.rpartition('.')[2]} {name}: {reply.properties.get('statusDescription')}"
        owner = entities.owner(name)
        subject = owner.subject if owner is not None and type_ in ADDRESS_TYPES else ""
        if subject not in self.failed:
            self._log.warning("the router refused an operation", reason=reason[:300])
        if not self.failed:
            self._retry_at = self._loop.time() + self._retry_delay
        self.failed[subject] = reason[:300]
        if attributes is None:
            self._undeleted.setdefault(subject, set()).add((type_, name))
        if subject:
            self._news.add(subject)

    async def _retry(self) -> None:
        """Tries again what the router has refused, beginning with what is there now."""
        self._retry_delay = min(self._retry_delay * 2, 30.0)
        failed, self.failed = self.failed, {}
        undeleted, self._undeleted = self._undeleted, {}
        if "" in failed or len(failed) > READ_BY_NAME:
            self._full = True
            return
        for name in failed:
            self._dirty[name] = self._dirty.get(name, _EMPTY) | undeleted.get(name, _EMPTY)
        keys = [(entity.type, entity.name) for name in failed for entity in self._desired.of_address(name)]
        await self._read_by_name(keys)

    async def _verify(self) -> None:
        """Reads back a type of which much was made."""
        type_ = self._unverified.pop()
        try:
            await self._scan_now(type_)
        except BaseException:
            self._unverified.add(type_)
            raise

    async def _scan_now(self, type_: str) -> None:
        scan = Scan(self.table, type_, self._expected)
        await self._pages(scan)
        self._finish(scan)
        await self._confirm(type_, scan.missing())

    async def _confirm(self, type_: str, missing: list[str]) -> None:
        """What a scan has not seen is read by name, or, where it is much, all of the type once more at one go."""
        if len(missing) <= READ_BY_NAME:
            await self._read_by_name([(type_, name) for name in missing])
            return
        scan = Scan(self.table, type_, self._expected)
        await self._page(scan, 1 << 30)
        self._finish(scan)
        for name in scan.missing():
            self.table.drop((type_, name))
            self._note(type_, name)
            self._heal(type_, name)

    async def _poll(self) -> None:
        """Looks whether what was made works by now."""
        began = self._loop.time()
        waiting = self.table.waiting
        before = len(waiting)
        if before <= READ_BY_NAME:
            await self._read_by_name(sorted(waiting, key=lambda key: key[0] != CONNECTOR))
        else:
            for type_ in sorted({type_ for type_, _ in waiting}, key=ALL_TYPES.index):
                await self._scan_now(type_)
        now = self._loop.time()
        progress = len(self.table.waiting) < before
        self._poll_delay = POLL_FIRST if progress else min(self._poll_delay * 2, POLL_LAST)
        self._poll_at = now + max(self._poll_delay, 2 * (now - began))

    async def _read_by_name(self, keys: list[Key]) -> None:
        replies = [self._node.request({"operation": "READ", "type": type_, "name": name}, {}) for type_, name in keys]
        for (type_, name), future in zip(keys, replies, strict=True):
            reply = await future
            status = reply.properties.get("statusCode")
            if status == 404:
                if self.table.drop((type_, name)):
                    self._note(type_, name)
                    self._heal(type_, name)
            elif status == 200 and isinstance(reply.body, dict):
                entity = self._expected(type_, name)
                if entity is None:
                    continue  # given up in the meantime: a change that says so is on its way
                if self.table.read(type_, reply.body, entity):
                    self._note(type_, name)
                if self.table.status((type_, name)) == DIFFERENT:
                    self._heal(type_, name)
            else:
                raise ControlError(str(status), f"READ {name}: {reply.properties.get('statusDescription')}")

    async def _serve(self) -> None:
        """Lets clients in: last of all."""
        wanted = self._desired.listeners(self.id)
        names = {(entity.type, entity.name) for entity in wanted}
        old = [
            (type_, name)
            for type_ in (LISTENER, SSL_PROFILE)
            for name in self.table.rows[type_]
            if (type_, name) not in names
        ]
        operations = difference(self.table, wanted, old)
        await self._apply(operations)
        await self._read_by_name(list(names))
        self.serving = self._has_listeners()
        if not self.serving:
            raise ControlError("listeners", self.failed.get("", "the router does not show the client listeners"))
        self._news.update(self._desired.addresses)

    def _has_listeners(self) -> bool:
        states = [self.table.status((entity.type, entity.name)) for entity in self._desired.listeners(self.id)]
        return all(state in WORKING for state in states)

    # the sweep: everything, a page at a time, behind all other work

    async def _sweep_page(self, now: float) -> None:
        if not self._sweep:
            self._sweep = [*ALL_TYPES, ROUTER_ADDRESS]
            self._sweep_began, self._sweep_rows = now, 0
        type_ = self._sweep[0]
        if type_ == ROUTER_ADDRESS:
            count, done = await self._consumers_page()
        elif type_ in self._same and self._scan is None:
            count, done = await self._compare_page(type_, self._same[type_])
        else:
            if self._scan is None:
                self._scan = Scan(self.table, type_, self._expected)
            scan = self._scan
            count = await self._page(scan, SWEEP_PAGE)
            done = count < SWEEP_PAGE
            if done:
                missing = scan.missing()
                if type_ in ADDRESS_TYPES and scan.quiet and not missing:
                    self._same[type_] = Unchanged(self.table.version[type_], scan.pages)
                self._scan = None
                self._finish(scan)
                await self._confirm(type_, missing)
        self._sweep_rows += count
        if done:
            self._sweep.pop(0)
        if self._sweep:
            self._page_at = now + (0.0 if done else SWEEP_PAGE / SWEEP_ROWS)
        else:
            self._page_at = self._sweep_began + max(SWEEP_EVERY, self._sweep_rows / SWEEP_ROWS)
            if not self.failed:
                self._retry_delay = RETRY_FIRST

    async def _compare_page(self, type_: str, known: Unchanged) -> tuple[int, bool]:
        """A page of a type that was as it should be: where it is what it was, byte for byte, nothing is to be done.

        Else all of the type is read as if nothing was known of it.
        """
        if known.version == self.table.version[type_]:
            digest, count = known.pages[self._compared]
            offset = sum(count for _, count in known.pages[: self._compared])
            if (await self._query(type_, offset, SWEEP_PAGE)).digest == digest:
                self._compared += 1
                done = self._compared == len(known.pages)
                if done:
                    self._compared = 0
                return count, done
        self._forget_sweeps(type_)
        return 0, False

    def _forget_sweeps(self, *types: str) -> None:
        self._compared = 0
        for type_ in types:
            self._same.pop(type_, None)

    async def _consumers_page(self) -> tuple[int, bool]:
        """How many receivers addresses have on this router (a topic's are the broker's to count)."""
        number = self._consumers_page_number
        properties = {
            "operation": "QUERY",
            "entityType": ROUTER_ADDRESS,
            "offset": number * SWEEP_PAGE,
            "count": SWEEP_PAGE,
        }
        reply = await self._node.operation(properties, {"attributeNames": ["key", "subscriberCount"]})
        if number == len(self._consumer_pages) or self._consumer_pages[number].digest != reply.digest:
            self._consumer_pages[number : number + 1] = [counts(reply)]
        count = self._consumer_pages[number].rows
        if count == SWEEP_PAGE:
            self._consumers_page_number += 1
            return count, False
        del self._consumer_pages[number + 1 :]
        self._consumers_page_number = 0
        found = {}
        for page in self._consumer_pages:
            for key, consumers in page.counts.items():
                # Consumers of a waypoint are at its last phase; at the first there is the auto-link to the broker.
                kind = self._desired.kind(key[2:])
                if key[:2] == ("M1" if kind == "queue" else "M0") and kind not in (None, "topic"):
                    found[key[2:]] = consumers
        old, self.consumers = self.consumers, found
        self._news.update(name for name in old.keys() | found.keys() if old.get(name) != found.get(name))
        return count, True
