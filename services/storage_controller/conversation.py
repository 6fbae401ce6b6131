"""The conversation with one broker over AMQP management: look, apply the difference, look again, until equal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any

from enmasse import log
from enmasse.control import Artemis, ControlConnection, ControlError, LinkClosed, RequestFailed
from enmasse.model.addresses import Address
from services.storage_controller import policies
from services.storage_controller.core import Broker, Core
from services.storage_controller.view import EVERYTHING, USER, Held, QueueRow, root_of, rows, share, view

BATCH = 500
"""Addresses whose operations are under way together."""
READ_BY_NAME = 64
LOOK_EVERY, LOOK_LAST = 1.0, 5.0
"""Seconds between two looks at everything; COST times as long as a look takes, in between."""
COST = 100
RETIRE_FIRST, RETIRE_LAST = 0.05, 1.0
RETRY_FIRST, RETRY_LAST = 0.25, 5.0
TOPIC_GRACE = 5.0
"""Seconds after which an empty topic goes although a publisher is still attached: a link route lets live links be."""
QUIET_PATIENCE = 5.0
"""Seconds for which producers are kept off at most while a broker is to be restarted."""
QUIET_AGAIN = 10.0
AUDIT = 100
_EXISTS = ("AMQ229019", "AMQ229204")
_GONE = ("AMQ229017", "AMQ229203")


class Conversation:
    """What is said to one broker.

    `changed(addresses)`: what it holds is news. `lost(addresses)`: they were there, should be, and are not.
    `told(address, broker)`: whether the placements that were taken in do not lead producers there; before that nothing
    is deleted.
    """

    def __init__(
        self,
        core: Core,
        broker: Broker,
        changed: Callable[[Iterable[str]], None],
        lost: Callable[[Iterable[str]], None],
        told: Callable[[str, str], bool],
    ) -> None:
        self._core = core
        self._broker = broker
        self._changed = changed
        self._lost = lost
        self._told = told
        self._log = log.get(broker=broker.name)
        self._node: Artemis
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._dirty: set[str] = set()
        self._audit: set[str] = set()
        self._unverified: set[str] = set()
        self._retiring: dict[str, float] = {}
        """Address → since when it has been told that it drains (0: not yet)."""
        self._empty: set[str] = set()
        """Those that were found empty and without producers in the last round."""
        self._look_at = 0.0
        self._seen: tuple[int, int] | None = None
        """What the broker said at the last look, if its view is still just that."""
        self._retire_at = 0.0
        self._retire_delay = RETIRE_FIRST
        self._retry_at = 0.0
        self._retry_delay = RETRY_FIRST
        self._when_quiet: Callable[[], None] | None = None
        self._quiet_at = 0.0
        self._cut_until = 0.0

    # what the controller tells

    def keep(self, name: str) -> None:
        """The address is to exist here, with its properties."""
        self._retiring.pop(name, None)
        held = self._core.lies(self._broker, name)
        if held is None or (name in self._broker.settled and not self._core.is_settled(self._broker, name)):
            if name not in self._broker.failed:
                self._dirty.add(name)
                self._wake.set()
        elif name not in self._broker.settled and name not in self._unverified:
            self._audit.add(name)
            self._wake.set()

    def retire(self, name: str) -> None:
        """The address is to go from here when nothing is lost by it."""
        self._dirty.discard(name)
        if name not in self._retiring:
            self._retiring[name] = 0.0
        self._retire_at, self._retire_delay = 0.0, RETIRE_FIRST
        self._wake.set()

    def quiesce(self, then: Callable[[], None] | None) -> None:
        """Calls `then` once when the broker holds no message and no producer can reach it; None: no more wanted."""
        if then is not None and self._when_quiet is None:
            self._quiet_at = 0.0
            self._wake.set()
        if then is None and self._when_quiet is not None:
            self._let_producers_in()
        self._when_quiet = then

    def _let_producers_in(self) -> None:
        if self._broker.cut:
            self._broker.cut = False
            self._changed([name for name, home in self._core.homes.items() if home == self._broker.name])

    @property
    def sure(self) -> bool:
        """Whether it is known of everything here whether it is ours."""
        return not self._unknown()

    # the work

    async def session(self, connection: ControlConnection) -> None:
        """Talks with the broker until the connection is lost."""
        delay = RETRY_FIRST
        if connection.remote_container != self._broker.name and connection.remote_container in self._core.brokers:
            # An endpoint of an earlier run: what lies there must not be taken for this broker's.
            self._changed(
                self._core.set_connected(
                    self._broker, False, f"{connection.peer} is {connection.remote_container} and not this broker"
                )
            )
            return
        try:
            while True:
                try:
                    self._node = Artemis(connection)
                    await self._node.opened()
                    await self._look()
                    self._broker.cut = False
                    self._changed(self._core.set_connected(self._broker, True))
                    while True:
                        await self._step()
                        delay = RETRY_FIRST
                except (ControlError, ValueError) as error:
                    if connection.is_gone:
                        return
                    # What the last operations did is unknown: it begins anew, with looking.
                    self._log.warning("management failed; looking again", reason=str(error)[:300], seconds=delay)
                    self._changed(self._core.set_connected(self._broker, False, str(error)[:200]))
                    if isinstance(error, LinkClosed):
                        self._node.close()
                    await asyncio.sleep(delay)
                    delay = min(delay * 2, RETRY_LAST)
        finally:
            if self._broker.connected:
                self._changed(self._core.set_connected(self._broker, False, "the connection was lost"))

    async def _step(self) -> None:
        now = self._loop.time()
        if self._dirty:
            await self._apply()
        elif self._unverified:
            await self._verify()
        elif self._retiring and now >= self._retire_at:
            await self._retire_round()
        elif self._broker.failed and now >= self._retry_at:
            await self._retry()
        elif self._when_quiet is not None and now >= self._quiet_at:
            await self._quiet_round(now)
        elif now >= self._look_at:
            await self._look(glance=True)
        elif self._audit:
            await self._audit_some()
        else:
            times = [self._look_at]
            if self._retiring:
                times.append(self._retire_at)
            if self._broker.failed:
                times.append(self._retry_at)
            if self._when_quiet is not None:
                times.append(self._quiet_at)
            try:
                async with asyncio.timeout(max(0.0, min(times) - now)):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()

    async def _look(self, *, glance: bool = False) -> list[QueueRow]:
        """Reads everything; tells what is news. Gives the rows of the queues; none for a glance that shows no news."""
        began = self._loop.time()
        queues, addresses = await asyncio.gather(
            self._node.ask("broker", "listQueues", *EVERYTHING), self._node.ask("broker", "listAddresses", *EVERYTHING)
        )
        found: list[QueueRow] = []
        changed: set[str] = set()
        seen, before = (self._node.digest(queues), self._node.digest(addresses)), self._broker.view
        if not glance or seen != self._seen or self._unverified:
            found, others = rows(self._node.result(queues), self._node.result(addresses))
            changed = self._core.set_view(self._broker, view(found, others))
            self._seen = seen
        self._unverified.clear()
        now = self._loop.time()
        if self._when_quiet is None and now > self._cut_until:
            self._let_producers_in()  # it was cut off to be restarted, and then was not
        self._look_at = now + max(LOOK_EVERY, min(LOOK_LAST, COST * (now - began)))
        if changed:
            lost = [name for name in changed if before is not None and name in before.held and self._is_lost(name)]
            if lost and self._broker.connected:
                self._lost(lost)
            self._changed(changed)
        return found

    def _is_lost(self, name: str) -> bool:
        at_home = self._core.homes.get(name) == self._broker.name
        return at_home and name not in self._retiring and self._core.lies(self._broker, name) is None

    async def _apply(self) -> None:
        names = []
        for name in self._dirty:
            names.append(name)
            if len(names) == BATCH:
                break
        self._dirty.difference_update(names)
        node, under_way = self._node, []
        # What is wanted now: it may be something else again when the broker has answered.
        wants = {name: want for name in names if (want := self._core.addresses.get(name)) is not None}
        for name, want in wants.items():
            held = self._core.lies(self._broker, name)
            if not self._core.is_settled(self._broker, name):
                # The settings first: they hold for the first message already.
                settings = policies.address_settings(name, want)
                for match, values in settings.items():
                    under_way.append((name, node.invoke("broker", "addAddressSettings", match, json.dumps(values))))
                settled = self._broker.settled.get(name)
                for match in policies.address_settings(name, settled) if settled is not None else ():
                    if match not in settings:
                        under_way.append((name, node.invoke("broker", "removeAddressSettings", match)))
            if held is None:
                under_way.append((name, self._create(name, want.type)))
        failures = await self._all(under_way, _EXISTS)
        for name, want in wants.items():
            failure = failures.get(name)
            if failure is not None:
                self._failed(name, failure)
            else:
                self._broker.failed.pop(name, None)
                self._settle(name, want)
                self._unverified.add(name)
        if failures:
            self._changed(failures)

    def _settle(self, name: str, want: Address) -> None:
        """Its settings are those, our mark on a topic among them."""
        self._broker.settled[name] = want
        if want.type == "topic" and name not in self._broker.foreign:
            self._broker.marked.add(name)

    def _create(self, name: str, kind: str) -> Any:
        if kind == "topic":
            return self._node.invoke("broker", "createAddress", name, "MULTICAST")
        configuration = {
            "name": name,
            "address": name,
            "routing-type": "ANYCAST",
            "durable": True,
            "user": USER,
            "auto-create-address": True,
        }
        return self._node.invoke("broker", "createQueue", json.dumps(configuration))

    async def _all(self, under_way: list[tuple[str, Any]], fine: tuple[str, ...]) -> dict[str, str]:
        """Waits for all; gives what failed. Raises what says that the outcome is unknown."""
        results = await asyncio.gather(*(work for _, work in under_way), return_exceptions=True)
        failures: dict[str, str] = {}
        for (name, _), result in zip(under_way, results, strict=True):
            if isinstance(result, RequestFailed):
                if not result.description.startswith(fine):
                    failures[name] = result.description[:300]
            elif isinstance(result, BaseException):
                raise result
        return failures

    def _failed(self, name: str, reason: str) -> None:
        if not self._broker.failed:
            self._log.warning("the broker refused an operation", address=name, reason=reason)
            self._retry_at = self._loop.time() + self._retry_delay
            self._retry_delay = min(self._retry_delay * 2, 30.0)
        self._broker.failed[name] = reason

    async def _retry(self) -> None:
        failed = list(self._broker.failed)
        self._broker.failed.clear()
        await self._look()
        for name in failed:
            self.keep(name)
        self._changed(failed)

    async def _verify(self) -> None:
        """Reads back what was made: one by one where it is little, else by looking at everything."""
        names = list(self._unverified)
        if len(names) > READ_BY_NAME:
            there = [name for name in names if self._core.lies(self._broker, name) is not None]
            await self._look()
            self._changed(there)  # of the others the look has told
            return
        kinds = {name: want.type for name in names if (want := self._core.addresses.get(name)) is not None}
        asked = [
            self._node.invoke(f"address.{name}", "getRoutingTypes")
            if kind == "topic"
            else self._node.invoke(f"queue.{name}", "getRoutingType")
            for name, kind in kinds.items()
        ]
        found = await asyncio.gather(*asked, return_exceptions=True)
        self._unverified.difference_update(names)
        for (name, kind), types in zip(kinds.items(), found, strict=True):
            if isinstance(types, BaseException) and not isinstance(types, RequestFailed):
                raise types
            wanted = "MULTICAST" if kind == "topic" else "ANYCAST"
            if isinstance(types, RequestFailed):
                self._failed(name, types.description[:300])
            elif wanted not in types:
                self._failed(name, f"something else of this name is there already: {types}, not {wanted}")
            elif self._core.lies(self._broker, name) is None:
                ours = True if kind == "queue" else None
                self._core.note(self._broker, name, share(Held(kind, ours)))
                self._seen = None
        self._changed(names)

    async def _audit_some(self) -> None:
        """Compares the settings of what was there already with what is wanted: before that it is not ready."""
        names = [self._audit.pop() for _ in range(min(AUDIT, len(self._audit)))]
        wants = [(name, want) for name in names if (want := self._core.addresses.get(name)) is not None]
        found = await asyncio.gather(*(self._settings(name) for name, _ in wants))
        remove = []
        for (name, want), read in zip(wants, found, strict=True):
            settings = policies.address_settings(name, want)
            if not policies.holds(settings, read):
                self._dirty.add(name)
            else:
                self._settle(name, want)
            if not settings and read.get(policies.MARK_KEY) == policies.MARK:
                remove.append((name, self._node.invoke("broker", "removeAddressSettings", name)))
        await self._all(remove, ())
        self._changed(names)

    async def _settings(self, name: str) -> dict[str, Any]:
        text = await self._node.invoke("broker", "getAddressSettingsAsJSON", name)
        read = json.loads(text) if isinstance(text, str) else {}
        return read if isinstance(read, dict) else {}

    # what is to go

    async def _retire_round(self) -> None:
        """Deletes what is empty and cut off from its producers, or forced. Twice the same must be seen."""
        now = self._loop.time()
        self._retire_at = now + self._retire_delay
        self._retire_delay = min(self._retire_delay * 2, RETIRE_LAST)
        for name in list(self._retiring):
            if self._broker.name not in self._core.decide(name).retire:
                del self._retiring[name]  # it was decided otherwise meanwhile
        await self._look_up_marks()
        forced = [name for name in self._retiring if name in self._core.forced]
        waiting = []
        for name, since in self._retiring.items():
            if self._told(name, self._broker.name):
                if not since:
                    self._retiring[name] = since = now
                waiting.append(name)
        found: list[QueueRow] = []
        if waiting:
            reached = await self._producers()
        if waiting or forced:
            # Read after the producers: what had none then, and is empty now, got nothing in between.
            found = await self._look()
        empty = set()
        for name in waiting:
            held = self._core.lies(self._broker, name)
            if held is None or held.messages:
                continue
            if name not in reached or (held.kind == "topic" and self._may_go(name, held, now)):
                empty.add(name)
        gone = [name for name in forced if self._core.lies(self._broker, name) is not None]
        gone += [name for name in empty if name in self._empty and name not in gone]
        self._empty = empty
        if gone:
            await self._delete(gone, found)
            self._retire_at, self._retire_delay = 0.0, RETIRE_FIRST
        elif empty:
            self._retire_at = now + RETIRE_FIRST
        for name in list(self._retiring):
            if self._core.lies(self._broker, name) is None:
                del self._retiring[name]

    def _may_go(self, name: str, held: Held, now: float) -> bool:
        since = self._retiring.get(name) or now
        return not held.subscriptions or now - since >= TOPIC_GRACE

    def _unknown(self) -> list[str]:
        broker = self._broker
        return [
            name
            for name in self._retiring
            if name not in broker.marked
            and name not in broker.foreign
            and (held := self._core.lies(broker, name)) is not None
            and held.kind == "topic"
        ]

    async def _look_up_marks(self) -> None:
        """A topic that is not wanted (as such) is only touched if it bears our mark."""
        broker, unknown = self._broker, self._unknown()
        if not unknown:
            return
        for start in range(0, len(unknown), BATCH):
            names = unknown[start : start + BATCH]
            found = await asyncio.gather(*(self._settings(name) for name in names))
            for name, read in zip(names, found, strict=True):
                (broker.marked if read.get(policies.MARK_KEY) == policies.MARK else broker.foreign).add(name)
        for name in unknown:
            if name in broker.foreign:
                self._retiring.pop(name, None)
        self._changed(unknown)

    async def _producers(self) -> set[str]:
        """Addresses to which somebody has a sender on this broker; of topics, also those with one below them."""
        text = await self._node.invoke("broker", "listProducersInfoAsJSON")
        listed = json.loads(text) if isinstance(text, str) else []
        names = {str(entry.get("destination")) for entry in listed if isinstance(entry, dict)}
        view_ = self._broker.view
        topics = {name for name, held in view_.held.items() if held.kind == "topic"} if view_ is not None else set()
        return names | {root for name in names if (root := root_of(name, topics)) is not None}

    async def _quiet_round(self, now: float) -> None:
        """While it holds nothing, producers are cut off; if it then still holds nothing, it is quiet."""
        broker, core = self._broker, self._core
        self._quiet_at = now + LOOK_EVERY
        await self._look()
        view_ = broker.view
        assert view_ is not None
        names = [name for name in view_.held if core.homes.get(name) == broker.name]
        if view_.stored or (broker.cut and now > self._cut_until):
            if broker.cut:
                # Somebody was quicker, or cannot be kept off: let them work, and try again later.
                self._quiet_at = now + QUIET_AGAIN
                self._let_producers_in()
        elif not broker.cut:
            broker.cut = True
            self._cut_until = now + QUIET_PATIENCE
            self._quiet_at = now + RETIRE_FIRST
            self._changed(names)
        else:
            self._quiet_at = now + RETIRE_FIRST
            if not all(self._told(name, broker.name) for name in names):
                return
            reached = await self._producers()
            if any(name in reached for name in view_.held):
                return
            await self._look()
            if not broker.view.stored and self._when_quiet is not None:  # type: ignore[union-attr]
                then, self._when_quiet = self._when_quiet, None
                then()

    async def _delete(self, names: list[str], found: list[QueueRow]) -> None:
        topics: dict[str, object] = {}
        work: list[tuple[str, Any]] = []
        for name in names:
            held = self._core.lies(self._broker, name)
            if held is None:
                continue
            if held.kind == "queue":
                work.append((name, self._node.invoke("broker", "destroyQueue", name, True, True)))
            else:
                topics[name] = None
        for row in found:
            # Subscriptions below a topic lie at addresses of their own; those at the topic itself go with it.
            if row.routingType == "MULTICAST" and row.address not in topics:
                root = root_of(row.address, topics)
                if root is not None:
                    work.append((root, self._node.invoke("broker", "destroyQueue", row.name, True, True)))
        for name in topics:
            work.append((name, self._node.invoke("broker", "deleteAddress", name, True)))
            for match in policies.matches(name):
                work.append((name, self._node.invoke("broker", "removeAddressSettings", match)))
        for name in names:
            if name not in topics and await self._has_settings(name):
                work.append((name, self._node.invoke("broker", "removeAddressSettings", name)))
        failures = await self._all(work, _GONE)
        for name in names:
            self._broker.settled.pop(name, None)
            self._broker.marked.discard(name)
        for name, reason in failures.items():
            self._log.warning("cannot delete", address=name, reason=reason)
        await self._look()

    async def _has_settings(self, name: str) -> bool:
        settled = self._broker.settled.get(name)
        if settled is not None:
            return bool(policies.address_settings(name, settled))
        return (await self._settings(name)).get(policies.MARK_KEY) == policies.MARK
