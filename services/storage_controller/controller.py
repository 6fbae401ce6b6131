"""The storage controller: feeds in, brokers made and filled, placements and readiness out."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from enmasse.control import keep_connected
from enmasse.control.configserv_client import ConfigurationClient
from enmasse.control.local_usage import UsageReporter
from enmasse.control.reports import PlacementsReporter, ReadinessReporter
from enmasse.identity.processes.credentials import AnyCredential
from enmasse.identity.processes.roles import Role
from enmasse.logs import log
from enmasse.metrics import gauge, single
from enmasse.model import feeds
from enmasse.model.names import SPACE, AddressName, space_of
from enmasse.process import runner, settings
from enmasse.reconcile import ReadinessBook
from enmasse.text import counted
from services.storage_controller import fleet, naming, texts
from services.storage_controller.brokers import address_metrics
from services.storage_controller.conversation.broker_conversation import BrokerConversation
from services.storage_controller.drivers import (
    BrokerDriver,
    DriverError,
    DriverSettings,
    RunningBroker,
)
from services.storage_controller.placement import PlacementDecision, Placer
from services.storage_controller.provisioner import Provisioner
from services.storage_controller.reported import ReportedPlacements
from services.storage_controller.storage_limits import Ask, StorageLimits
from services.storage_controller.upkeep import Upkeep

if TYPE_CHECKING:
    from prometheus_client.core import Metric

ROLE = "storage_controller"
FEEDS = ("addresses", "flavors")
_LOG = log.get()
PATIENCE = 15.0
"""Seconds from the start in which no address is placed until the contents of every broker are known."""


class ControllerSettings(settings.ServiceSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The controller's settings (docs/contracts.md, "A service as a process")."""

    configserv: settings.HostPort
    driver: DriverSettings


class StorageController:
    """The controller's state, and its conversations with the brokers."""

    def __init__(
        self,
        name: str,
        driver: BrokerDriver,
        credential: AnyCredential | None = None,
        most: int = settings.METRICS_ADDRESSES,
    ) -> None:
        """`most`: addresses of a broker with metrics of their own."""
        self._most = most
        self.placer = Placer(driver.engine)
        self.book = ReadinessBook("it was gone from its broker and has been made again")
        self.readiness = ReadinessReporter(
            ROLE, name, self.book, feeds=FEEDS, pending=self._pending, begin=self._may_report
        )
        self.placements = PlacementsReporter(ROLE, self._report_placements, self._placements_answered)
        self.storage = StorageLimits(self._sharing, lambda: {*self._conversations})
        self.configuration = ConfigurationClient(
            (
                feeds.FollowedFeed("placements/changes", feeds.PlacementChanges, self._on_placements),
                feeds.FollowedFeed("addresses/changes", feeds.AddressChanges, self._on_addresses),
                feeds.FollowedFeed("flavors", feeds.Flavors, self._on_flavors),
                feeds.FollowedFeed("bound", feeds.BoundChanges, self._on_bound),
            ),
            self.readiness,
            self.placements,
            UsageReporter(Role.STORAGE_CONTROLLER, lambda: self.storage.limits, self.storage.uses, self._ended),
        )
        self._ending: Mapping[str, str] = {}
        """Removed address space → id of its removal."""
        self._name = name
        self._credential = credential
        """By which brokers authenticate this process."""
        self._driver = driver
        self._provisioner = Provisioner(
            driver,
            applied=self._applied,
            deleted=self._deleted,
            looked=self._looked,
            is_settled=lambda: (
                self.placer.complete and all(b.connected for b in self.placer.inventory.brokers.values())
            ),
        )
        self._restarting: set[str] = set()
        """Brokers that do not run by their current manifest: their process is being replaced."""
        self._grown: set[str] = set()
        """Flavors that got new brokers since addresses were last placed."""
        self._running: dict[str, RunningBroker] = {}
        self._conversations: dict[str, BrokerConversation] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._upkeep = Upkeep(self.placer, driver, self._provisioner, self._running, self._conversations, self.evaluate)
        self._placed: dict[AddressName, tuple[feeds.Placement, ...]] = {}
        self._by_hand: dict[str, feeds.BrokerEndpoint] = {}
        """Brokers managed by hand on which an address is placed, or that flavors of topics name: what they keep for
        subscribers that are away is received when its topic has left."""
        self._on_by_hand: Counter[str] = Counter()
        """Broker managed by hand → number of addresses that are placed there."""
        self._same: dict[tuple[feeds.Placement, ...], tuple[feeds.Placement, ...]] = {}
        self._reported = ReportedPlacements()
        self._knew_all = False
        self._began = asyncio.get_running_loop().time()

    # life

    async def start(self) -> None:
        """Read the manifests that were applied before. Raises process.Fatal if they cannot be read."""
        try:
            await self._provisioner.read()
        except DriverError as error:
            raise runner.Fatal(
                "controller.brokers.not-readable",
                f"cannot read which brokers there are to be: {error}; make it readable",
            ) from None

    async def run(self) -> None:
        """Create brokers and follow those that run, until cancelled."""
        await asyncio.gather(self._provisioner.run(), self.storage.run())

    def _sharing(self) -> dict[str, Ask]:
        """Return how the brokers that are connected are asked for the storage of address spaces."""
        brokers = self.placer.inventory.brokers
        return {
            name: each.share_storage
            for name, each in self._conversations.items()
            if name in brokers and brokers[name].connected
        }

    async def close(self) -> None:
        """End the conversations."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # feeds

    def _on_addresses(self, body: feeds.AddressChanges) -> None:
        self.storage.configure(body.limits or {})
        self._ending = body.ending or {}
        removed = None if body.full else body.removed
        self._want(self.placer.set_addresses(body.addresses, body.forced, body.invalid or (), removed))

    def _ended(self) -> dict[str, str]:
        """Return the removed address spaces of which no broker has anything, with the ids of their removals."""
        inventory = self.placer.inventory
        if not self._ending or not self.placer.complete or not inventory.knows_all:
            return {}
        held = {space_of(name) for name in inventory.held() if name.startswith(SPACE) and self.placer.holdings(name)}
        held |= {space_of(name) for name in self._placed}
        return {space: id for space, id in self._ending.items() if space not in held}

    def _on_flavors(self, body: feeds.Flavors) -> None:
        before = self.placer.desired.by_hand
        self._want(self.placer.set_flavors(body.flavors))
        if self.placer.desired.by_hand != before:
            self.placements.changed()

    def _want(self, changed: Iterable[AddressName]) -> None:
        """Act on a changed desired state of these addresses. Until they have a home it is unknown which brokers are
        idle."""
        self._upkeep.size()
        self.evaluate(changed)
        if self.placer.complete:
            self._upkeep.tidy()

    def _on_placements(self, body: feeds.PlacementChanges) -> None:
        """Take the placements that an earlier controller reported. The feed also repeats our own reports: no news."""
        if self.placer.knows_all:
            return
        for name, entries in body.addresses.items():
            self.placer.hint(name, entries)
        self.evaluate(body.addresses)

    def _on_bound(self, body: feeds.BoundChanges) -> None:
        self.evaluate(self.placer.preparations.take(body))

    # what the provisioner reports

    def _applied(self, name: str, fresh: bool) -> None:
        """Start to manage a broker whose manifest the driver has taken."""
        if name in self._conversations:
            return
        flavor = self._provisioner.manifests[name].flavor
        broker = self.placer.inventory.add(name, flavor, self._driver.engine, fresh=fresh)
        self._conversations[name] = BrokerConversation(
            self.placer, broker, self.evaluate, self.book.lose, self._reported.producers_led_away, self.storage
        )
        if name in self._running:
            self._meet(name, self._running[name])
        self._grown.add(flavor)

    def _deleted(self, name: str) -> None:
        """Forget a broker that the driver has deleted."""
        self._upkeep.deleted(name)
        self._restarting.discard(name)
        # Its running state is kept: if it is requested again before its process has ended, it keeps running.
        self._conversations.pop(name, None)
        self._stop_talking(name)
        self.evaluate(self.placer.inventory.remove(name))
        self.placements.changed()

    def _looked(self, running: Mapping[str, RunningBroker]) -> None:
        """Handle a periodic look at the running brokers: run everything that waits for time or for brokers."""
        self._follow(running)
        placer = self.placer
        if placer.complete and self._grown:
            grown, self._grown = self._grown, set()
            self.evaluate(
                [
                    n
                    for n, want in placer.desired.addresses.items()
                    if want.flavor in grown and n not in placer.inventory.homes
                ]
            )
        if (
            placer.patient
            and asyncio.get_running_loop().time() - self._began > PATIENCE
            and not placer.inventory.knows_all
        ):
            placer.patient = False
            self.evaluate(list(placer.desired.addresses))
            self.placements.changed()
        if ended := placer.preparations.end_lingering(self._reported.is_unknown):
            self.evaluate(ended)
        if placer.complete:
            self._upkeep.tidy(now=True)
            if not self._knew_all and self.placer.knows_all:
                self._knew_all = True
                self.placements.changed()

    def _follow(self, running: Mapping[str, RunningBroker]) -> None:
        """Follow brokers that started, stopped or moved. One that is down keeps its endpoint: it restarts on the same
        port."""
        moved = False
        for name, now in running.items():
            before = self._running.get(name)
            if before is not None and not now.run:
                now = now._replace(run=before.run)  # a new process counts only once it runs
            self._running[name] = now
            if before is not None and before.run != now.run and self.placer.knows_all:
                # Routers must check whether they are connected to this process.
                moved = True
                self._move(self.placer.inventory.at_home(name))
            broker = self.placer.inventory.brokers.get(name)
            if broker is not None and not broker.connected and not now.ready and now.detail not in ("", broker.detail):
                broker.detail = now.detail
                self.evaluate(self.placer.inventory.at_home(name))  # the status of its addresses contains the reason
            if before is None or before[:2] != now[:2] or name not in self._tasks:
                moved = moved or before is None or before[:2] != now[:2]
                self._meet(name, now)
            elif before.is_current != now.is_current:
                self._meet(name, now)
            elif now.ready and not before.ready and broker is not None and not broker.connected:
                self._meet(name, now)  # at once, not after the back-off
        if moved:
            self.placements.changed()

    def _meet(self, name: str, now: RunningBroker) -> None:
        """Start a conversation with a broker's process, unless the process has an old manifest and is about to end."""
        broker = self.placer.inventory.brokers.get(name)
        if broker is None or now.is_current:
            self._restarting.discard(name)
            self._talk(name, now)
        elif name not in self._restarting:
            self._restarting.add(name)
            self._stop_talking(name)
            text = f"it is being restarted with the settings of flavor {broker.flavor}"
            self.evaluate(self.placer.inventory.disconnected(broker, text))

    def _talk(self, name: str, where: RunningBroker) -> None:
        conversation = self._conversations.get(name)
        if conversation is not None and where.port:
            self._stop_talking(name)
            credential = self._credential if where.authenticates else None
            work = keep_connected(
                where.host, where.port, conversation.session, container=self._name, credential=credential
            )
            self._tasks[name] = runner.spawn(work, f"broker {name}")

    def _stop_talking(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()

    # decisions

    def evaluate(self, names: Iterable[AddressName]) -> None:
        """Decide on these addresses, carry the decisions out and report changes."""
        placer = self.placer
        if not placer.complete:
            return
        queue = list(names)
        placed = False
        while queue:
            for name in queue:
                decision = placer.decide(name)
                placed |= self._place(name, decision)
                self._put(name, decision)
                self._carry_out(name, decision)
            queue = list(placer.concerned())
        to_look, placer.preparations.to_look = placer.preparations.to_look, {}
        for broker, waiting in to_look.items():
            self._conversations[broker].look_again(waiting)
        if placed:
            self.placements.changed()
        self.readiness.changed()

    def _carry_out(self, name: AddressName, decision: PlacementDecision) -> None:
        for broker in decision.keep:
            if broker in self._conversations:
                self._conversations[broker].keep(name)
        for broker in decision.retire:
            self._conversations[broker].retire(name)

    def _place(self, name: AddressName, decision: PlacementDecision) -> bool:
        entries, before = decision.entries, self._placed.get(name, ())
        if entries == before:
            return False
        old, new = ({each.broker for each in some if naming.is_by_hand(each.broker)} for some in (before, entries))
        self._on_by_hand.update(new - old)
        self._on_by_hand.subtract(old - new)
        for broker in old - new:
            _LOG.warning("controller.address.left-behind", address=name, broker=broker, space=space_of(name))
        if entries:
            if len(self._same) > 2 * len(self._placed) + 100:
                self._same.clear()
            self._placed[name] = self._same.setdefault(entries, entries)
        else:
            del self._placed[name]
        self._reported.changed(name)
        # otherwise nothing is reported yet, and the report of an earlier controller stays valid
        if self.placer.knows_all:
            self._reported.moved((name,))
        return True

    def _put(self, name: AddressName, decision: PlacementDecision) -> None:
        """Report the readiness of the address. Until routers can know its placement, it is neither ready nor gone."""
        unknown = self._reported.is_unknown(name)
        state: feeds.Readiness | None = None
        if decision.kind is not None or decision.entries or unknown:
            text = "the routers have not received its placement yet" if unknown else ""
            state = feeds.Readiness(
                ready=decision.ready and not unknown,
                failed=not decision.ready and self.placer.refused(name),
                message=decision.message or text,
                components=tuple(dict.fromkeys(entry.broker for entry in decision.entries)),
                messages=decision.messages,
                consumers=decision.consumers,
            )
        self.book.put(name, state)

    def _move(self, names: Iterable[AddressName]) -> None:
        """Record that the placements of these addresses changed and must be reported."""
        names = list(names)
        self._reported.moved(names)
        self.evaluate(names)

    # reports

    def _report_placements(self, full: bool) -> feeds.PlacementsReport | None:
        """Return all placements, or those that have changed since the last report; None until all are known."""
        if not self.placer.knows_all:
            return None
        report = self._reported.make(self._placed, full=full)
        lists = {entries: list(entries) for entries in set(report.values())}  # thousands share one tuple
        inventory = self.placer.inventory
        brokers = {
            name: feeds.BrokerEndpoint(
                host=where.host,
                port=where.port,
                run=where.run,
                scram=self._credential is not None and where.authenticates,
            )
            for name, where in self._running.items()
            if name in inventory.brokers and where.port
        }
        self._by_hand |= self.placer.desired.by_hand
        kept = fleet.keeps_sessions(self.placer.desired.flavors)
        self._by_hand = {n: where for n, where in self._by_hand.items() if self._on_by_hand[n] or n in kept}
        brokers |= self._by_hand
        return feeds.PlacementsReport(
            instance=self._name,
            brokers=brokers,
            addresses={name: lists[entries] for name, entries in report.items() if entries},
            removed=[name for name, entries in report.items() if not entries],
        )

    def _placements_answered(self, accepted: bool) -> None:
        self.evaluate(self._reported.answer(accepted))

    def _may_report(self) -> bool:
        return self.readiness.received(*FEEDS) and (self.placements.is_answered or not self.placer.knows_all)

    def _pending(self) -> dict[str, str]:
        """Describe pending work that addresses do not show: brokers starting, being reconfigured, or not read yet."""
        found = {}
        brokers = self.placer.inventory.brokers
        unknown = [name for name, b in brokers.items() if not b.is_known or not self._conversations[name].is_sure]
        if unknown:
            found["addresses"] = f"the contents of these brokers are not known yet: {texts.listed(unknown)}"
        if text := self._upkeep.pending(self._restarting):
            found["flavors"] = text
        return found

    # health

    def healthy(self) -> tuple[bool, str]:
        """Return whether the controller is healthy, and if not, what it waits for."""
        if not self.configuration.connected:
            return False, "no connection to the configuration service"
        if not self.placer.complete:
            return False, "no addresses and flavors were delivered yet"
        if self._provisioner.refused:
            name, reason = min(self._provisioner.refused.items())
            return False, f"cannot request broker {name}: {reason}; correct that, the request is repeated automatically"
        if self._provisioner.damaged:
            reason = min(self._provisioner.damaged.values())
            return False, f"cannot be read: {reason}; put it right, or delete it if that broker holds nothing"
        stopped = {name for name, seen in self._running.items() if seen.is_stopped}  # stopped on purpose
        brokers = self.placer.inventory.brokers
        away = sorted(name for name, broker in brokers.items() if not broker.connected and name not in stopped)
        if away:
            return False, f"not reached: {', '.join(away[:10])}"
        return True, "; ".join((counted(len(brokers), "broker"), *self._pending().values()))

    def metrics(self) -> Iterator[Metric]:
        """Yield metrics of the controller and its brokers (docs/metrics.md)."""
        inventory = self.placer.inventory
        load = [({"broker": name}, float(n)) for name, n in inventory.load.items() if name in inventory.brokers]
        known = len(self.book)
        yield gauge("storage_addresses", "Addresses that are desired or still being removed.", single(known))
        yield gauge("storage_addresses_not_ready", "Those of them that are not ready.", single(self.book.not_ready))
        yield gauge("storage_broker_addresses", "Addresses placed on each broker.", load)
        listed = {name: broker.traffic for name, broker in inventory.brokers.items() if broker.connected}
        yield from address_metrics.families({name: each for name, each in listed.items() if each}, self._most)
