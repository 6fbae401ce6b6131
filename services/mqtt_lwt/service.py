"""The service: its settings, its conversations with the router and the configuration service, health and metrics."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter as Tally
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

import msgspec

from enmasse.control import ControlConnection, ControlError, keep_connected, keep_connected_to
from enmasse.control.feeds import follow
from enmasse.control.local_usage import UsageReporter
from enmasse.control.reports import report_beside
from enmasse.http import health
from enmasse.identity.processes.credentials import AnyCredential, own
from enmasse.identity.processes.roles import Role
from enmasse.logs import log
from enmasse.metrics import by_space, counter, gauge, of_space, single
from enmasse.model.feeds import AddressChanges, Addresses, PermissionChanges, completed
from enmasse.model.names import DEFAULT_SPACE
from enmasse.model.topic_map import TopicMaps
from enmasse.network.deadline import TimerClock
from enmasse.process import runner, settings
from enmasse.process.places import SILENCE
from enmasse.stores import StoreError, StoreSettings, make_store
from enmasse.text import counted
from services.mqtt_lwt.keeper import Keeper, due
from services.mqtt_lwt.links import CONTAINER, MAX_LINKS, NODES, Counters, Links
from services.mqtt_lwt.permits import Permits
from services.mqtt_lwt.records import Records
from services.mqtt_lwt.will_publisher import WillPublisher
from services.mqtt_lwt.wills import State, WillBook

if TYPE_CHECKING:
    from prometheus_client.core import Metric

PROBES = {node: f"lwt-service-probe {node}" for node in NODES}
"""Node → name of the link by which the service tests whether clients can reach it there. Names differ, because a router
may not have detached one link when the other attaches."""
PROBE_AGAIN = 0.25
AGAIN = 1.0
"""Seconds until a restart of all work after an unexpected error."""


class LastWillSettings(settings.RoutedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The service's settings (docs/contracts.md, "A service as a process" and "`$lwt`")."""

    store: StoreSettings
    grace_seconds: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 5.0


class LastWillService:
    """Reads the store, then serves the router; if the store fails, it starts over."""

    def __init__(self, config: LastWillSettings, clock: TimerClock) -> None:
        self._config = config
        self._credential = own(config)
        self._clock = clock
        self._store = make_store(config.store)
        self._counters = Counters()
        self._topics: TopicMaps | None = None
        self._permits = Permits(clock.time)
        self._life: _Life | None = None
        self._failures = 0
        """Number of unexpected errors, including those of earlier runs."""
        self._totals: Tally[str] = Tally()
        """Totals of earlier runs."""

    async def run(self) -> None:
        """Serve until cancelled."""
        self._store.start()
        host, port = settings.host_port(self._config.configserv)
        feeding = runner.spawn(
            keep_connected(host, port, self._feed, container=self._config.name, credential=self._credential),
            "feeds",
        )
        logging = runner.spawn(self._permits.write_repeated(), "log of dropped wills")
        try:
            while True:
                await self._store.ready()
                try:
                    await self._live()
                except StoreError as error:
                    log.get().error("mqtt-lwt.store.failed", reason=str(error))
                except Exception as error:
                    self._failures += 1
                    log.get().error("mqtt-lwt.service.failed", exc_info=error)
                    await asyncio.sleep(AGAIN)
        finally:
            feeding.cancel()
            logging.cancel()
            await self._store.close()

    async def _live(self) -> None:
        life = _Life(self._config, self._credential, Records(self._store), self._permits, self._counters, self._clock)
        try:
            await life.load()
            if self._topics is not None:
                life.publisher.addresses(self._topics)
            self._life = life
            await life.run()
        finally:
            self._life = None
            self._totals.update(life.totals())
            self._failures += life.publisher.failures

    async def _feed(self, connection: ControlConnection) -> None:
        receivers = (
            follow(connection, "addresses/changes", completed(self._addresses), AddressChanges),
            follow(connection, "permissions/changes", self._permissions, PermissionChanges),
        )
        reporter = UsageReporter(Role.LWT, self._permits.plans.all_limits, self._uses, self._ended)
        await report_beside(receivers, [reporter.run(connection)])

    def _uses(self) -> dict[str, Mapping[str, int]]:
        """Return the limits that this service keeps: name → space → what it uses."""
        return {} if self._life is None else {"wills": self._life.book.number.of_spaces}

    def _ended(self) -> Mapping[str, str]:
        return {} if self._life is None else self._life.keeper.ended()

    def _addresses(self, snapshot: Addresses) -> None:
        self._topics = TopicMaps(snapshot.addresses, snapshot.leaving or None)
        if self._life is not None:
            self._life.publisher.addresses(self._topics)

    def _permissions(self, snapshot: PermissionChanges) -> None:
        self._permits.take(snapshot)
        if self._life is not None:
            self._life.publisher.permitted()
            self._life.keeper.end_spaces()

    # for operators

    def healthy(self) -> tuple[bool, str]:
        """Return whether wills are accepted, and the reason if not or how many there are."""
        if not self._store.state.ready:
            return False, f"no will is accepted: {self._store.state.detail}"
        if self._life is None:
            return False, "reading the stored wills"
        if not self._life.reachable:
            return False, self._life.unreachable
        if self._topics is None:
            return False, "no addresses were delivered yet"
        if not self._permits.known:
            return False, "no permissions were delivered yet"
        wills = counted(len(self._life.book), "will")
        if failures := self._failures + self._life.publisher.failures:
            return True, f"{wills}, {counted(failures, 'unexpected error')}: see the log"
        return True, wills

    def counts(self) -> dict[str, int]:
        """Return the numbers for the status: name → number."""
        return {"wills": len(self._life.book) if self._life is not None else 0}

    def metrics(self) -> Iterator[Metric]:
        """Yield the service's metrics (docs/metrics.md)."""
        book = self._life.book if self._life is not None else ()
        states = Tally((will.state, will.author.space) for will in book)
        spaces = sorted({DEFAULT_SPACE, *(space for _, space in states)})
        totals = self._totals + (self._life.totals() if self._life is not None else Tally[str]())
        yield gauge(
            "lwt_wills",
            "Wills, by what has become of their clients.",
            [({"state": s.value, **of_space(space)}, states[s, space]) for space in spaces for s in State],
        )
        sizes = by_space(self._life.book.bytes.used, self._life.book.bytes.of_spaces) if self._life else single(0)
        yield gauge("lwt_wills_bytes", "Bytes of their messages.", sizes)
        yield gauge("lwt_links", "Links attached to $lwt.", single(self._counters.links))
        yield gauge("lwt_store_ready", "1 while the store can be used.", single(self._store.state.ready))
        yield gauge("lwt_store_waiting", "Writes that wait for the store.", single(self._store.waiting))
        yield counter("lwt_store_commits_total", "Transactions of the store.", single(self._store.commits))
        yield counter("lwt_published_total", "Wills published.", single(totals["published"]))
        yield counter("lwt_retried_total", "Publications that were not accepted.", single(totals["retried"]))
        yield counter("lwt_dropped_total", "Wills that no address takes.", single(totals["dropped"]))
        yield counter(
            "lwt_not_allowed_total", "Wills dropped because their user may not send.", single(self._permits.dropped)
        )
        yield counter("lwt_refused_total", "Requests to $lwt that were refused.", single(self._counters.refused))


class _Life:
    """The service between a reading of the store and its failure."""

    def __init__(
        self,
        config: LastWillSettings,
        credential: AnyCredential | None,
        records: Records,
        permits: Permits,
        counters: Counters,
        clock: TimerClock,
    ) -> None:
        self.book = WillBook(config.grace_seconds)
        self.publisher = WillPublisher(self.book, records, permits, self._fail)
        self.reachable = False
        self.unreachable = "no connection to the router"
        self._config = config
        self._credential = credential
        self._records = records
        self._permits = permits
        self._counters = counters
        self._clock = clock
        self.keeper = Keeper(self.book, records, self.publisher, self._fail, clock, permits.plans, permits.ending)
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def load(self) -> None:
        """Read the store. Raises StoreError."""
        await self._records.load(self.book, self._clock.time())
        self.publisher.add(due(self.book))
        self.keeper.end_spaces()

    async def run(self) -> None:
        """Serve. Raises StoreError when the store fails."""
        conversation = runner.spawn(
            keep_connected_to(
                self._config.routers,
                self._session,
                container=CONTAINER,
                prepare=self._prepare,
                credential=self._credential,
                properties={"product": "mqtt_lwt"},
                idle=SILENCE,
                max_links=2 * MAX_LINKS,
            ),
            "router",
        )
        try:
            await self._failure
        finally:
            conversation.cancel()
            await asyncio.wait([conversation])
            self.publisher.disconnected()
            self.keeper.close()

    def totals(self) -> Tally[str]:
        done = self.publisher
        return Tally(published=done.published, dropped=done.dropped, retried=done.retried)

    def _fail(self, error: Exception) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)

    def _prepare(self, connection: ControlConnection) -> None:
        connection.on_attach = Links(connection, self.keeper, self._permits, self._counters, PROBES.values()).attach

    async def _session(self, connection: ControlConnection) -> None:
        self.publisher.connected(connection)
        try:
            await self._until_reachable(connection)
            self.reachable = True
            self.keeper.resume()
            await connection.wait_closed()
        finally:
            self.reachable = False
            self.unreachable = "no connection to the router"
            self.publisher.disconnected()
            self.keeper.suspend()

    async def _until_reachable(self, connection: ControlConnection) -> None:
        """Try to attach to each node through the router, like a client, until the links arrive here."""
        for node, name in PROBES.items():
            self.unreachable = f"the router has no way to {node} yet"
            while True:
                probe = connection.sender(node, name=name)
                with contextlib.suppress(ControlError):
                    await probe.opened()
                    probe.close()
                    break
                await asyncio.sleep(PROBE_AGAIN)


async def serve(config: LastWillSettings, stop: asyncio.Event, clock: TimerClock | None = None) -> None:
    """Run the service until `stop` is set. Raises process.Fatal if a port cannot be opened, or for a bad store URL."""
    service = LastWillService(config, clock or asyncio.get_running_loop())
    state = health.Health(
        config.health,
        service.metrics,
        check=service.healthy,
        counts=service.counts,
        metrics_secret=config.metrics_secret,
    )
    await state.start()
    work = runner.spawn(service.run(), "wills")
    try:
        await stop.wait()
    finally:
        work.cancel()
        await asyncio.wait([work])
        await state.close()
