"""The configuration service: driver, merger, feeds and reports put together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from enmasse import log, settings
from enmasse.control import ControlConnection, ControlLink, ControlReceiver, ControlSender, listen
from enmasse.control.errors import NOT_FOUND, RESOURCE_LIMIT
from enmasse.health import Health
from enmasse.metrics import gauge, single
from enmasse.model import feeds
from enmasse.model.brokers import place
from enmasse.model.configuration import Applied, State, apply
from enmasse.model.jsonfile import Problem
from enmasse.model.names import AddressName
from enmasse.text import counted
from services.configserv import v1
from services.configserv.changes import log_changes
from services.configserv.drivers import Contents
from services.configserv.drivers.files import FilesDriver
from services.configserv.feeds import ChangeFeed, Feed
from services.configserv.forced import Forced
from services.configserv.merge import Merger, TooMany
from services.configserv.reports import Refused, Target
from services.configserv.store import Store

if TYPE_CHECKING:
    from prometheus_client.core import Metric

CONTAINER = "configuration-service"
STATUS_INTERVAL, CHANGES_INTERVAL = 0.2, 0.05
TEND = 2.0
"""Seconds between two looks at the data directory: whether something is to be saved (again), or was taken away."""
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
        self._revisions = self._merger.revisions
        self._reporters: dict[str, ControlReceiver] = {}
        self._placed: feeds.Placements | None = None
        """The placements in force, from brokers.json or reported; None: nobody has delivered them yet."""
        self._disk: list[Problem] = store.problems()
        """What is wrong in the data directory."""
        self._tending = asyncio.get_running_loop().call_later(TEND, self._tend)
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
        self._publish(Applied(state=State()))
        self._merger.configure(self._applied)
        self._note()
        self._revisions.read(self._applied.state.config)

    def accepted(self, connection: ControlConnection) -> None:
        """A new connection: its links are feeds and reports."""
        connection.on_attach = self._attach

    def configure(self, contents: Contents) -> None:
        """The files as they are now."""
        before = self._applied
        self._applied = applied = apply(contents, before.state)
        self._save()
        self._note()
        moved = self._publish(before)
        touched = self._merger.configure(applied) | self._merger.placed(moved) | self._merger.review()
        if applied.state.complete:
            self._revisions.read(applied.state.config)
        if self._revisions.settle() or touched or applied.problems != before.problems:
            self._status_changed(touched)
        self.forced.check()
        self._show_health()

    def close(self) -> None:
        self.forced.close()
        self._tending.cancel()
        for feed in self._feeds.values():
            feed.close()

    def metrics(self) -> Iterator[Metric]:
        """Of the configuration and who follows it (docs/metrics.md)."""
        counts = self._merger.counts()
        phases = [({"phase": str(phase)}, counts.get(phase, 0)) for phase in feeds.PHASES]
        subscribers = [({"feed": name}, feed.subscribers) for name, feed in self._feeds.items()]
        errors = len(self._applied.problems)
        yield gauge("enmasse_addresses", "Addresses by phase.", phases)
        yield gauge("enmasse_configuration_errors", "Errors in the configuration files.", single(errors))
        yield gauge("enmasse_configuration_subscribers", "Receivers of each feed.", subscribers)

    # links

    def _attach(self, link: ControlLink) -> None:
        if isinstance(link, ControlSender):
            feed = self._feeds.get(link.remote_source or "")
            if feed is None:
                link.refuse(NOT_FOUND, f"no feed {link.remote_source!r}; there are {', '.join(self._feeds)}")
                return
            link.accept()
            feed.subscribe(link)
        elif isinstance(link, ControlReceiver):
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

    def _reporter_gone(self, link: ControlReceiver) -> None:
        if self._reporters.get(link.name) is link:
            del self._reporters[link.name]
            touched = self._merger.forget(link.name)
            if touched:
                self._status_changed(touched)

    # reports

    def _take_readiness(self, link: ControlReceiver, subject: str, report: feeds.ReadinessReport) -> None:
        if self._reporters.get(link.name) is not link:
            raise Refused("another link of this name speaks for the reporter")
        try:
            touched = self._merger.report(link.name, report, full=subject == "full")
        except TooMany as error:
            raise Refused(str(error)) from None
        if self._revisions.settle() or touched:
            self._status_changed(touched)
        self.forced.check()

    def _take_placements(self, link: ControlReceiver, subject: str, report: feeds.Placements) -> None:
        if self._applied.state.brokers is not None:
            raise Refused("placements come from brokers.json; remove that file to let them be reported")
        if report != self._placed:
            before, self._placed = self._placed, report
            self._revisions.change(("placements",))
            self._changed("placements")
            touched = self._merger.placed(moved(before, report))
            if touched:
                self._status_changed(touched)

    def _take_force(self, link: ControlReceiver, subject: str, report: feeds.Force) -> None:
        self.forced.add(report.addresses)

    def _forced_changed(self) -> None:
        self._changed("addresses")

    # feeds

    def _addresses(self) -> bytes | None:
        if not self._applied.state.complete:
            return None
        applied = self._applied
        body = feeds.Addresses(
            revision=self._revisions.of("addresses"),
            addresses=applied.state.addresses,
            forced=self.forced.names,
            invalid=list(applied.failed) or msgspec.UNSET,
        )
        return msgspec.json.encode(body)

    def _flavors(self) -> bytes | None:
        if not self._applied.state.complete:
            return None
        revision = self._revisions.of("flavors")
        return msgspec.json.encode(feeds.Flavors(revision=revision, flavors=self._applied.state.flavors))

    def _placements(self) -> bytes | None:
        if self._placed is None:
            return None
        return msgspec.json.encode(msgspec.structs.replace(self._placed, revision=self._revisions.of("placements")))

    def _status(self) -> bytes:
        return self._status_of({}, self._merger.pieces)

    def _status_changes(self, names: Iterable[AddressName] | None) -> bytes:
        if names is None:
            return self._status_of({"full": True, "removed": []}, self._merger.pieces)
        pieces = {name: self._merger.piece(name) for name in names}
        removed = [name for name, piece in pieces.items() if piece is None]
        return self._status_of({"full": False, "removed": removed}, [piece for piece in pieces.values() if piece])

    def _status_of(self, more: dict[str, object], pieces: Iterable[bytes]) -> bytes:
        head = msgspec.json.encode({"schema": feeds.SCHEMA, "config": self._revisions.config, **more})
        errors = msgspec.json.encode([self._error(problem) for problem in self._problems()])
        return b"".join((head[:-1], b',"addresses":[', b",".join(pieces), b'],"errors":', errors, b"}"))

    def _maas(self) -> bytes | None:
        return v1.address_map(self._applied.state.addresses) if self._applied.state.complete else None

    def _v1_addresses(self) -> bytes | None:
        if not self._applied.state.complete:
            return None
        ready = {name: self._merger.phase(name) == "Active" for name in self._applied.state.addresses}
        return v1.address_list(self._applied.state.addresses, ready)

    def _status_changed(self, addresses: Iterable[AddressName]) -> None:
        self._feeds["status/changes"].changed(addresses)
        self._changed("status", "v1/addresses")

    def _changed(self, *names: str) -> None:
        for name in names:
            self._feeds[name].changed()

    def _publish(self, before: Applied) -> list[AddressName]:
        """Another configuration becomes another revision of what it has changed; gives the addresses that moved by it.

        Called before anybody is told of the change.
        """
        now, was = self._applied.state, before.state
        log_changes(was, now)
        first = now.complete and not was.complete
        changed = []
        if first or now.addresses != was.addresses:
            changed.append("addresses")
            self._changed("maas", "v1/addresses")
        elif self._applied.failed.keys() != before.failed.keys():
            changed.append("addresses")
        if first or now.flavors != was.flavors:
            changed.append("flavors")
        placed = self._placed
        if now.brokers is not None:
            failed, others = self._applied.failed_brokers, before.failed_brokers
            if now.complete and (first or (now.brokers, now.addresses, failed) != (was.brokers, was.addresses, others)):
                self._placed = place(now.brokers, now.addresses, failed)
                if self._placed != placed:
                    changed.append("placements")
        elif was.brokers is not None:
            self._placed = None
            self._revisions.lose("placements")
            self._changed("placements")
            # Whoever was refused because of brokers.json is to report now.
            for link in list(self._targets["placements"].links):
                link.close("amqp:resource-deleted", "brokers.json is gone: report placements again")
        self._revisions.change(changed)
        self._changed(*changed)
        return moved(placed, self._placed) if "placements" in changed else []

    # problems

    def _problems(self) -> list[Problem]:
        return [*self._applied.problems, *self._disk]

    def _note(self) -> None:
        """Remembers since when each problem stands, and logs the new ones."""
        problems = self._problems()
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        since = {_key(problem): self._since.get(_key(problem), now) for problem in problems}
        new = [problem for problem in problems if _key(problem) not in self._since]
        for problem in new[:MAX_LOGGED]:
            log.get().warning("invalid configuration", **msgspec.structs.asdict(problem))
        if len(new) > MAX_LOGGED:
            log.get().warning("more invalid configuration", count=len(new) - MAX_LOGGED)
        self._since = since

    def _error(self, problem: Problem) -> feeds.ErrorStatus:
        return feeds.ErrorStatus(**msgspec.structs.asdict(problem), since=self._since[_key(problem)])

    def _save(self) -> None:
        self._disk = self._store.problems()
        state = self._applied.state
        if not state.complete or (state == self._saved and self._store.has_configuration):
            return
        try:
            self._store.save_configuration(state)
        except OSError as error:
            # What runs goes on; after a restart the files are read again, and only entries that are invalid by then
            # miss their last good version.
            reason = f"cannot be saved in the data directory: {error.strerror}; free space or make it writable"
            self._disk.append(Problem(file="configuration.json", reason=reason))
        else:
            self._saved = state

    def _tend(self) -> None:
        self._tending = asyncio.get_running_loop().call_later(TEND, self._tend)
        before = self._disk
        self._save()
        if self._disk != before:
            self._note()
            self._status_changed(())

    def _show_health(self) -> None:
        if self._applied.state.complete:
            count = len(self._applied.problems)
            self._health.set(True, f"{counted(count, 'error')} in the files" if count else "")
        else:
            reasons = [str(problem) for problem in self._applied.problems if problem.entry is None]
            self._health.set(False, "; ".join(reasons) or "no configuration yet")


def moved(before: feeds.Placements | None, now: feeds.Placements | None) -> list[AddressName]:
    """The addresses that lie elsewhere, or whose broker is elsewhere."""
    nothing = feeds.Placements(brokers={}, addresses={})
    old, new = before or nothing, now or nothing
    gone = {name for name in old.brokers.keys() | new.brokers.keys() if old.brokers.get(name) != new.brokers.get(name)}
    found = [
        name
        for name, entries in new.addresses.items()
        if old.addresses.get(name) != entries or (gone and any(entry.broker in gone for entry in entries))
    ]
    return found + [name for name in old.addresses if name not in new.addresses]


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
    health.endpoints = lambda: {"amqp": f"{listener.host}:{listener.port}"}
    driver.start(service.configure)  # before any connection is served: nothing was awaited since the port is open
    await stop.wait()
    driver.close()
    service.close()
    await listener.close()
    await health.close()
