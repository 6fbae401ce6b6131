"""The configuration service: driver, merger, feeds and reports put together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from enmasse import log, settings
from enmasse.control import Connection, Link, Receiver, Sender, listen
from enmasse.control.errors import NOT_FOUND, RESOURCE_LIMIT
from enmasse.health import Health, metric
from enmasse.model import feeds
from enmasse.model.brokers import place
from enmasse.model.configuration import Applied, apply
from enmasse.model.jsonfile import Problem
from services.configserv import v1
from services.configserv.drivers import Contents
from services.configserv.drivers.files import FilesDriver
from services.configserv.feeds import ChangeFeed, Feed
from services.configserv.forced import Forced
from services.configserv.merge import Merger, TooMany
from services.configserv.reports import Refused, Target
from services.configserv.store import Store

CONTAINER = "configuration-service"
STATUS_INTERVAL, CHANGES_INTERVAL = 0.2, 0.05
SAVE_AGAIN = 2.0
"""Seconds after which the configuration is saved again where that failed."""
MAX_CONNECTIONS, MAX_LINKS = 256, 64
MAX_REPORT = 32 * 1024 * 1024
"""Bytes of a report; 10,000 addresses take one or two million."""
MAX_REPORTERS = 64
MAX_LOGGED = 100
"""Problems of one change of the files that are logged one by one."""


class Settings(settings.Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """See docs/contracts.md."""

    listen: settings.HostPort
    config_dir: str
    data_dir: str
    reporters: tuple[str, ...] = ("ragent", "storage_controller")


class ConfigService:
    """State and conversations; everything runs in the event loop."""

    def __init__(self, store: Store, reporters: tuple[str, ...], health: Health) -> None:
        self._store = store
        self._health = health
        self._applied = Applied(state=store.configuration())
        self._saved = self._applied.state
        self._since: dict[tuple[str, str | None, str | None, str], str] = {}
        self._merger = Merger(reporters)
        self._reporters: dict[str, Receiver] = {}
        self._reported: feeds.Placements | None = None
        self._disk_error: str | None = None
        self._save_again: asyncio.TimerHandle | None = None
        self.forced = Forced(store, self._merger, reporters, self._forced_changed)
        self._feeds = {
            feed.address: feed
            for feed in (
                Feed("addresses", "enmasse.addresses", self._addresses),
                Feed("flavors", "enmasse.flavors", self._flavors),
                Feed("placements", "enmasse.placements", self._placements),
                Feed("status", "enmasse.status", self._status, STATUS_INTERVAL),
                ChangeFeed("status/changes", "enmasse.status.changes", self._status_changes, CHANGES_INTERVAL),
                Feed("maas", None, self._maas),
                Feed("v1/addresses", "enmasse.io/v1/AddressList", self._v1_addresses, STATUS_INTERVAL),
            )
        }
        self._targets = {
            "placements": Target(feeds.Placements, ("full",), self._take_placements),
            "readiness": Target(feeds.ReadinessReport, ("full", "change"), self._take_readiness, self._reporter_gone),
            "force": Target(feeds.Force, (), self._take_force),
        }
        self._merger.configure(self._applied)

    def accepted(self, connection: Connection) -> None:
        """A new connection: its links are feeds and reports."""
        connection.on_attach = self._attach

    def configure(self, contents: Contents) -> None:
        """The files as they are now."""
        before = self._applied
        self._applied = applied = apply(contents, before.state)
        self._note(applied.problems)
        self._save()
        touched = self._merger.configure(applied)
        if touched or applied.problems != before.problems or applied.state.config != before.state.config:
            self._status_changed(touched)
        first = applied.state.complete and not before.state.complete
        if first or applied.state.addresses != before.state.addresses:
            self._changed("addresses", "maas", "v1/addresses")
        if first or applied.state.flavors != before.state.flavors:
            self._changed("flavors")
        self._placements_configured(before)
        self.forced.check()
        self._show_health()

    def close(self) -> None:
        self.forced.close()
        if self._save_again is not None:
            self._save_again.cancel()
        for feed in self._feeds.values():
            feed.close()

    def metrics(self) -> str:
        """Prometheus' text."""
        counts = self._merger.counts()
        phases = ("Pending", "Configuring", "Active", "Failed", "Terminating")
        return "".join(
            (
                metric(
                    "enmasse_addresses",
                    "gauge",
                    "Addresses by phase",
                    [({"phase": phase}, counts.get(phase, 0)) for phase in phases],
                ),
                metric(
                    "enmasse_configuration_errors",
                    "gauge",
                    "Errors in the configuration files",
                    [({}, len(self._applied.problems))],
                ),
                metric(
                    "enmasse_configuration_subscribers",
                    "gauge",
                    "Receivers of each feed",
                    [({"feed": name}, feed.subscribers) for name, feed in self._feeds.items()],
                ),
            )
        )

    # links

    def _attach(self, link: Link) -> None:
        if isinstance(link, Sender):
            feed = self._feeds.get(link.remote_source or "")
            if feed is None:
                link.refuse(NOT_FOUND, f"no feed {link.remote_source!r}; there are {', '.join(self._feeds)}")
                return
            link.accept()
            feed.subscribe(link)
        elif isinstance(link, Receiver):
            name = link.remote_target or ""
            target = self._targets.get(name)
            if target is None:
                link.refuse(NOT_FOUND, f"no target {link.remote_target!r}; there are {', '.join(self._targets)}")
                return
            if name == "readiness":
                # The newest link of a reporter speaks for it: the old one belongs to a connection that is dying.
                before = self._reporters.get(link.name)
                if before is None and len(self._reporters) >= MAX_REPORTERS:
                    link.refuse(RESOURCE_LIMIT, f"there are {MAX_REPORTERS} reporters already")
                    return
                self._reporters[link.name] = link
                if before is not None:
                    before.close("amqp:link:stolen", "another link of this name was attached")
            target.attach(link)

    def _reporter_gone(self, link: Receiver) -> None:
        if self._reporters.get(link.name) is link:
            del self._reporters[link.name]
            touched = self._merger.forget(link.name)
            if touched:
                self._status_changed(touched)

    # reports

    def _take_readiness(self, link: Receiver, subject: str, report: feeds.ReadinessReport) -> None:
        if self._reporters.get(link.name) is not link:
            raise Refused("another link of this name speaks for the reporter")
        try:
            touched = self._merger.report(link.name, report, full=subject == "full")
        except TooMany as error:
            raise Refused(str(error)) from None
        if touched:
            self._status_changed(touched)
        self.forced.check()

    def _take_placements(self, link: Receiver, subject: str, report: feeds.Placements) -> None:
        if self._applied.state.brokers is not None:
            raise Refused("placements come from brokers.json; remove that file to let them be reported")
        if report != self._reported:
            self._reported = report
            self._changed("placements")

    def _take_force(self, link: Receiver, subject: str, report: feeds.Force) -> None:
        self.forced.add(report.addresses)

    def _forced_changed(self) -> None:
        self._changed("addresses")

    # feeds

    def _addresses(self) -> bytes | None:
        if not self._applied.state.complete:
            return None
        body = feeds.Addresses(addresses=self._applied.state.addresses, forced=self.forced.names)
        return msgspec.json.encode(body)

    def _flavors(self) -> bytes | None:
        if not self._applied.state.complete:
            return None
        return msgspec.json.encode(feeds.Flavors(flavors=self._applied.state.flavors))

    def _placements(self) -> bytes | None:
        state = self._applied.state
        if state.brokers is not None:
            return msgspec.json.encode(place(state.brokers, state.addresses)) if state.complete else None
        return None if self._reported is None else msgspec.json.encode(self._reported)

    def _status(self) -> bytes:
        return self._status_of({}, self._merger.pieces)

    def _status_changes(self, names: Iterable[str] | None) -> bytes:
        if names is None:
            return self._status_of({"full": True, "removed": []}, self._merger.pieces)
        pieces = {name: self._merger.piece(name) for name in names}
        removed = [name for name, piece in pieces.items() if piece is None]
        return self._status_of({"full": False, "removed": removed}, [piece for piece in pieces.values() if piece])

    def _status_of(self, more: dict[str, object], pieces: Iterable[bytes]) -> bytes:
        head = msgspec.json.encode({"schema": feeds.SCHEMA, "config": self._applied.state.config, **more})
        errors = msgspec.json.encode([self._error(problem) for problem in self._problems()])
        return b"".join((head[:-1], b',"addresses":[', b",".join(pieces), b'],"errors":', errors, b"}"))

    def _maas(self) -> bytes | None:
        return v1.address_map(self._applied.state.addresses) if self._applied.state.complete else None

    def _v1_addresses(self) -> bytes | None:
        if not self._applied.state.complete:
            return None
        ready = {name: self._merger.phase(name) == "Active" for name in self._applied.state.addresses}
        return v1.address_list(self._applied.state.addresses, ready)

    def _status_changed(self, addresses: Iterable[str]) -> None:
        self._feeds["status/changes"].changed(addresses)
        self._changed("status", "v1/addresses")

    def _changed(self, *names: str) -> None:
        for name in names:
            self._feeds[name].changed()

    def _placements_configured(self, before: Applied) -> None:
        now, was = self._applied.state, before.state
        if now.brokers is not None:
            if now.brokers != was.brokers or now.addresses != was.addresses or not was.complete:
                self._changed("placements")
        elif was.brokers is not None:
            # Whoever was refused because of brokers.json is to report now.
            self._changed("placements")
            for link in list(self._targets["placements"].links):
                link.close("amqp:resource-deleted", "brokers.json is gone: report placements again")

    # problems

    def _problems(self) -> list[Problem]:
        if self._disk_error is None:
            return self._applied.problems
        return [*self._applied.problems, Problem(file="configuration.json", reason=self._disk_error)]

    def _note(self, problems: list[Problem]) -> None:
        """Remembers since when each problem stands, and logs the new ones."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        since = {_key(problem): self._since.get(_key(problem), now) for problem in problems}
        new = [problem for problem in problems if _key(problem) not in self._since]
        for problem in new[:MAX_LOGGED]:
            log.get().warning("invalid configuration", **msgspec.structs.asdict(problem))
        if len(new) > MAX_LOGGED:
            log.get().warning("more invalid configuration", count=len(new) - MAX_LOGGED)
        self._since = since

    def _error(self, problem: Problem) -> feeds.ErrorStatus:
        since = self._since.get(_key(problem)) or datetime.now(UTC).isoformat(timespec="milliseconds")
        return feeds.ErrorStatus(**msgspec.structs.asdict(problem), since=since)

    def _save(self) -> None:
        if self._applied.state == self._saved or not self._applied.state.complete:
            self._disk_error = None
            return
        try:
            self._store.save_configuration(self._applied.state)
        except OSError as error:
            # What runs goes on; after a restart the files are read again, and only entries that are invalid by then
            # miss their last good version.
            self._disk_error = (
                f"cannot be saved in the data directory: {error.strerror}; free space or make it writable"
            )
            log.get().error("the configuration cannot be saved", reason=str(error))
            if self._save_again is None:
                self._save_again = asyncio.get_running_loop().call_later(SAVE_AGAIN, self._try_to_save)
        else:
            self._saved = self._applied.state
            self._disk_error = None

    def _try_to_save(self) -> None:
        self._save_again = None
        self._save()
        if self._disk_error is None:
            self._status_changed(())

    def _show_health(self) -> None:
        if self._applied.state.complete:
            self._health.set(
                True, f"{len(self._applied.problems)} errors in the files" if self._applied.problems else ""
            )
        else:
            reasons = [str(problem) for problem in self._applied.problems if problem.entry is None]
            self._health.set(False, "; ".join(reasons) or "no configuration yet")


def _key(problem: Problem) -> tuple[str, str | None, str | None, str]:
    return problem.file, problem.entry, problem.field, problem.reason


async def serve(config: Settings, stop: asyncio.Event) -> None:
    """Runs the service until `stop`."""
    health = Health(config.health)
    await health.start()
    service = ConfigService(Store(config.data_dir), config.reporters, health)
    health.metrics = service.metrics
    driver = FilesDriver(config.config_dir)
    host, port = settings.host_port(config.listen)
    listener = await listen(
        host,
        port,
        service.accepted,
        container=CONTAINER,
        max_connections=MAX_CONNECTIONS,
        max_links=MAX_LINKS,
        max_message_size=MAX_REPORT,
    )
    health.endpoints = {"amqp": f"{listener.host}:{listener.port}"}
    driver.start(service.configure)  # before any connection is served: nothing was awaited since the port is open
    await stop.wait()
    driver.close()
    service.close()
    await listener.close()
    await health.close()
