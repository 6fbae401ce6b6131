"""The configuration service: takes files and reports, and publishes what follows from them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from enmasse.control import ControlConnection, ControlLink, ControlReceiver, ControlSender
from enmasse.control.errors import NOT_FOUND, RESOURCE_LIMIT
from enmasse.http.health import Health
from enmasse.logs import log
from enmasse.metrics import gauge, single
from enmasse.model import feeds
from enmasse.model.configuration import SPACES, Applied, AppliedState, differing
from enmasse.model.names import AddressName, by_space
from enmasse.model.tenants.shares import COUNTED
from enmasse.model.tenants.tenancy import NAME_IS_KEPT
from enmasse.process import runner, settings
from enmasse.text import counted
from services.configserv.address_phases import Merger
from services.configserv.admitting import USERS, admitted
from services.configserv.bound_placements import BoundPlacements
from services.configserv.changes import MAX_NAMES, log_changes, log_loaded
from services.configserv.configuring import ADDRESS as CONFIGURE
from services.configserv.configuring import Configuring
from services.configserv.drivers import Contents, DriverSettings
from services.configserv.feeds import ChangeFeed, PublishedFeed
from services.configserv.forced import Forced
from services.configserv.placements import Moves, PlacementSource, moves
from services.configserv.problems import StandingProblems
from services.configserv.reported_readiness import TooMany
from services.configserv.reporters import MAX_REPORTERS, ReporterLinks
from services.configserv.reports import Refused, ReportTarget
from services.configserv.shared_limits import ADDRESS as USAGE
from services.configserv.shared_limits import SharedLimits, limits_of
from services.configserv.state.applied import AppliedConfiguration
from services.configserv.state.store import Store
from services.configserv.tenants import space_users
from services.configserv.tenants.endings import Endings

if TYPE_CHECKING:
    from prometheus_client.core import Metric

STATUS_INTERVAL = 0.05
DISK_INTERVAL = 2.0
"""Seconds between two checks of the data directory for failed saves and removed files."""


class ConfigservSettings(DriverSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings (docs/contracts.md, "A service as a process")."""

    listen: settings.HostPort
    peers: str | None = None
    """File of the processes that may connect; None: any peer may, and may do everything."""
    reporters: tuple[str, ...] = ("ragent", "storage_controller")
    binders: tuple[str, ...] = ()
    """Roles that must have bound at a broker before messages of a topic go there."""
    holders: tuple[str, ...] = ()
    """Roles that must have nothing left of a removed address space before another one gets its name."""
    domain: str = ""
    """Clients mean an address space by the host `SPACE.<domain>`; empty: not."""


class ConfigService:
    """State and links of the service. Not thread-safe, but for `compute`."""

    def __init__(
        self,
        store: Store,
        reporters: tuple[str, ...],
        health: Health,
        binders: tuple[str, ...] = (),
        holders: tuple[str, ...] = (),
        *,
        domain: str = "",
        in_cluster: bool = False,
    ) -> None:
        self.on_status: Callable[[], None] = lambda: None
        """Called when the status has changed; `status` gives it."""
        self.on_left: Callable[[], None] = lambda: None
        """Called when something else is left of removed spaces, whose names entries of spaces.json may have."""
        self._health = health
        self._domain = domain
        self._applied = AppliedConfiguration(store, in_cluster=in_cluster)
        self._problems = StandingProblems()
        self._merger = Merger(reporters)
        self._revisions = self._merger.revisions
        self._reporters = ReporterLinks("readiness")
        self._placers = ReporterLinks("placements")
        self._binders = ReporterLinks("bound")
        self._bindings = BoundPlacements(binders)
        self._placed = PlacementSource()
        self.configuring = Configuring()
        self._usage = SharedLimits(lambda: self._status_changed(()), self._ended)
        self._endings = Endings(holders, self._merger)
        self._disk_watch = runner.spawn(self._watch_disk(), "data directory")
        self.forced = Forced(store, self._merger, reporters, self._forced_changed)
        self._address_feed = ChangeFeed("addresses/changes", "enmasse.addresses.changes", self._address_changes)
        self._placement_feed = ChangeFeed("placements/changes", "enmasse.placements.changes", self._placement_changes)
        self._permission_feed = ChangeFeed(
            "permissions/changes", "enmasse.permissions.changes", self._permission_changes
        )
        self._bound_feed = ChangeFeed("bound", "enmasse.bound", self._bound_changes)
        self._leaving: frozenset[AddressName] = frozenset()
        """Names that are no addresses and that placements name."""
        self._status_feed = ChangeFeed(
            "status/changes", "enmasse.status.changes", self._status_changes, STATUS_INTERVAL
        )
        self._feeds = {
            feed.address: feed
            for feed in (
                self._address_feed,
                PublishedFeed("flavors", "enmasse.flavors", self._flavors),
                self._placement_feed,
                self._bound_feed,
                PublishedFeed("spaces", "enmasse.spaces", self._spaces),
                PublishedFeed(USERS, "enmasse.users", self._users),
                PublishedFeed("permissions", "enmasse.permissions", self._permissions),
                self._permission_feed,
                self._status_feed,
            )
        }
        self._targets = {
            "placements": ReportTarget(
                feeds.PlacementsReport, ("full", "change"), self._receive_placements, self._placers.remove
            ),
            "readiness": ReportTarget(
                feeds.ReadinessReport, ("full", "change"), self._receive_readiness, self._reporter_gone
            ),
            "bound": ReportTarget(feeds.BoundReport, ("full", "change"), self._receive_bound, self._binders.remove),
            "force": ReportTarget(feeds.Force, (), self._receive_force),
        }
        self._configure_endings()
        if self._applied.state.complete:
            log_loaded(self._applied.state)  # as saved: it was in force before, so it is no change for auditors
        self._publish(Applied())
        self._merger.configure(self._applied.now)
        self._problems.set(self._applied.problems)
        self._revisions.read(self._applied.state.config)

    def accepted(self, connection: ControlConnection) -> None:
        """Serve a new connection, whose links are feeds and reports."""
        connection.on_attach = self._attach

    def compute(self, contents: Contents) -> Applied:
        """Return the configuration that follows from these files, for `save` and `take`. Any thread may call this."""
        return self._applied.compute(contents)

    @property
    def applied(self) -> Applied:
        """The configuration in force."""
        return self._applied.now

    async def save(self, state: AppliedState) -> None:
        """Save the next configuration, before `take`."""
        await self._applied.save(state)

    def take(self, now: Applied) -> None:
        """Put a configuration in force and publish it."""
        before = self._applied.take(now)
        log_changes(before.state, now)
        self._problems.set(self._applied.problems)
        self._configure_endings()
        moved = self._publish(before)
        touched = self._merger.configure(now) | self._merger.placed(moved) | self._merger.review()
        if now.state.complete:
            self._revisions.read(now.state.config)
        if self._revisions.settle() or touched or now.problems != before.problems:
            self._status_changed(touched)
        self.forced.check()
        self._show_health()
        self._look_at_endings()

    @property
    def left(self) -> Mapping[str, str]:
        """Removed address space → its remains, as text."""
        return self._endings.left

    def _configure_endings(self) -> None:
        self._endings.configure(space_users.ending(self._applied.state))
        self._applied.left = self._endings.left

    def _ended(self, role: str, removals: Mapping[str, str]) -> None:
        """Note that a role has nothing left of these removed spaces, and ask the next ones."""
        before = self._endings.in_stores()
        self._endings.confirm(role, removals)
        if self._endings.in_stores() != before:
            self._permission_feed.changed(())
        self._look_at_endings()

    def _look_at_endings(self) -> None:
        if self._endings.now and self._endings.look():
            before, self._applied.left = self._applied.left, self._endings.left
            waits = any(each.file == SPACES and NAME_IS_KEPT in each.reason for each in self._applied.now.problems)
            if waits or before.keys() - self._applied.left.keys():
                self.on_left()

    def close(self) -> None:
        """Stop timers and feeds."""
        self.forced.close()
        self._disk_watch.cancel()
        for feed in self._feeds.values():
            feed.close()
        self._usage.close()

    def status(self) -> feeds.Status:
        """Return the present status."""
        return msgspec.json.decode(self._status_changes(None), type=feeds.Status)

    @property
    def placements(self) -> Mapping[AddressName, list[feeds.Placement]]:
        """Address → the brokers that carry it, if they are known."""
        return {} if self._placed.now is None else self._placed.now.addresses

    @property
    def reported(self) -> bool:
        """Whether all reporters that addresses need have reported, so that what is not ready is known to be so."""
        return set(self._merger.needed) <= set(self._merger.reporting())

    @property
    def origins(self) -> Mapping[AddressName, str]:
        """Address → the source that has it, if there are several sources."""
        return self._applied.now.origins

    def metrics(self) -> Iterator[Metric]:
        """Metrics of the configuration and its followers (docs/metrics.md)."""
        counts = self._merger.counts()
        phases = [({"phase": str(phase)}, counts.get(phase, 0)) for phase in feeds.PHASES]
        subscribers = [({"feed": name}, feed.subscribers) for name, feed in self._feeds.items()]
        errors = len(self._applied.now.problems)
        spaces = self._usage.of_spaces()
        used = [
            ({"space": space, "limit": limit}, number)
            for space, each in spaces.items()
            for limit, number in (dict.fromkeys(limits_of(each.limits).keys() & {*COUNTED}, 0) | each.used).items()
        ]
        limits = [
            ({"space": space, "limit": limit}, number)
            for space, each in spaces.items()
            for limit, number in limits_of(each.limits).items()
        ]
        yield gauge("enmasse_addresses", "Addresses by phase.", phases)
        yield gauge("enmasse_configuration_errors", "Errors in the configuration files.", single(errors))
        yield gauge("enmasse_configuration_subscribers", "Receivers of each feed.", subscribers)
        if spaces:
            yield gauge("enmasse_space_used", "Use of limits by address spaces.", used)
            yield gauge("enmasse_space_limits", "Limits of address spaces, by their plans.", limits)

    # links

    def _attach(self, link: ControlLink) -> None:
        name = (link.remote_source if link.is_sender else link.remote_target) or ""
        both = {CONFIGURE: self.configuring.attach, USAGE: self._usage.attach}.get(name)
        if both is not None:
            if admitted(link, name):
                both(link)
            return
        if isinstance(link, ControlSender):
            feed = self._feeds.get(link.remote_source or "")
            if feed is None:
                link.refuse(NOT_FOUND, f"no feed {link.remote_source!r}; there are {', '.join(self._feeds)}")
                return
            if admitted(link, feed.address):
                link.accept()
                feed.subscribe(link)
        elif isinstance(link, ControlReceiver):
            name = link.remote_target or ""
            target = self._targets.get(name)
            if target is None:
                link.refuse(NOT_FOUND, f"no target {link.remote_target!r}; there are {', '.join(self._targets)}")
                return
            if not admitted(link, name):
                return
            reporters = {"readiness": self._reporters, "placements": self._placers, "bound": self._binders}.get(name)
            if reporters is not None and not reporters.add(link):
                link.refuse(RESOURCE_LIMIT, f"there are {MAX_REPORTERS} reporters already")
                return
            target.attach(link)

    def _reporter_gone(self, link: ControlReceiver) -> None:
        if self._reporters.remove(link):
            touched = self._merger.forget(link.name)
            if touched:
                self._status_changed(touched)

    # reports

    def _receive_readiness(self, link: ControlReceiver, subject: str, report: feeds.ReadinessReport) -> None:
        self._reporters.check(link, report.instance, full=subject == "full")
        try:
            touched = self._merger.report(link.name, report, full=subject == "full")
        except TooMany as error:
            raise Refused(str(error)) from None
        if self._revisions.settle() or touched:
            self._status_changed(touched)
        self.forced.check()

    def _receive_placements(self, link: ControlReceiver, subject: str, report: feeds.PlacementsReport) -> None:
        if self._placed.by_hand:
            raise Refused("placements come from brokers.json; remove that file to let them be reported")
        full = subject == "full"
        if not full and not (self._placers.has_reported(link) and self._placed.now is not None):
            raise Refused("send a full report first: it is not known what has changed")
        self._placers.check(link, report.instance, full=full)
        moved = self._placed.report(report, full=full)
        if moved is not None:
            self._revisions.change(("placements",))
            self._placements_changed(moved)
            touched = self._merger.placed([*moved.changed, *moved.elsewhere])
            if touched:
                self._status_changed(touched)

    def _receive_bound(self, link: ControlReceiver, subject: str, report: feeds.BoundReport) -> None:
        full = subject == "full"
        if not full and not self._binders.has_reported(link):
            raise Refused("send a full report first: it is not known what has changed")
        self._binders.check(link, report.instance, full=full)
        self._bound_changed(self._bindings.report(link.name, report, full=full))

    def _receive_force(self, link: ControlReceiver, subject: str, report: feeds.Force) -> asyncio.Future[None]:
        peer = link.connection.identity
        who, role = (None, None) if peer is None else (peer.name, str(peer.role))
        return self.force(report.addresses, who, role, link.connection.peer)

    def force(
        self, names: Iterable[AddressName], who: str | None, role: str | None, origin: str
    ) -> asyncio.Future[None]:
        """Let controllers delete these addresses with their messages. `who`, `role`, `origin`: for auditors."""
        listed = list(names)
        for space, of_space in by_space(listed).items():
            what = f"delete with messages: {' '.join(of_space[:MAX_NAMES])}"
            log.audit(
                "audit.messages.forced",
                who=who, role=role, from_=origin, what=what, outcome="ordered", addresses=len(of_space), space=space,
            )  # fmt: skip
        return self.forced.add(listed)

    def _forced_changed(self) -> None:
        self._address_feed.changed()

    # feeds

    def _address_changes(self, names: Iterable[AddressName] | None) -> bytes | None:
        state = self._applied.state
        if not state.complete:
            return None
        found, removed = _parted(names, state.addresses)
        body = feeds.AddressChanges(
            revision=self._revisions.of("addresses"),
            full=names is None,
            addresses=found,
            removed=removed,
            forced=self.forced.names,
            invalid=list(self._applied.now.failed) or msgspec.UNSET,
            leaving=sorted(self._leaving) or msgspec.UNSET,
            remarked=list(state.remarked) or msgspec.UNSET,
            limits=space_users.storage_limits(state),
            ending=self._endings.at_brokers(),
        )
        return msgspec.json.encode(body)

    def _flavors(self) -> bytes | None:
        if not self._applied.state.complete:
            return None
        revision = self._revisions.of("flavors")
        return msgspec.json.encode(feeds.Flavors(revision=revision, flavors=self._applied.state.flavors))

    def _spaces(self) -> bytes | None:
        state = self._applied.state
        if not state.complete:
            return None
        body = feeds.AddressSpaces(revision=self._revisions.of("spaces"))
        if state.tenants is not UNSET:
            spaces = {name: each.space for name, each in state.tenants.spaces.items()}
            body = msgspec.structs.replace(body, spaces=spaces, plans=state.tenants.plans)
        return msgspec.json.encode(body)

    def _users(self) -> bytes | None:
        applied = self._applied.now
        if not applied.users_known:
            return None
        state = applied.state
        body = feeds.Users(
            revision=self._revisions.of(USERS),
            anonymous=state.anonymous,
            users=state.users or {},
            issuers=state.issuers or {},
            salt_key=state.salt_key,
            spaces=space_users.reached(state, self._domain),
            in_spaces=space_users.users(state),
            issuers_in_spaces=space_users.issuers(state),
        )
        return msgspec.json.encode(body)

    def _permissions(self) -> bytes | None:
        applied = self._applied.now
        if not applied.users_known:
            return None
        body = feeds.Permissions(
            revision=self._revisions.of("permissions"),
            anonymous=applied.state.anonymous,
            tokens=bool(applied.state.issuers),
            users={name: feeds.granted(user) for name, user in (applied.state.users or {}).items()},
        )
        return msgspec.json.encode(body)

    def _permission_changes(self, names: Iterable[str] | None) -> bytes | None:
        applied = self._applied.now
        if not applied.users_known:
            return None
        own, in_spaces = applied.state.users or {}, space_users.users(applied.state)
        found, removed = _parted(names, own if in_spaces is UNSET else {**own, **in_spaces})
        granted = {name: feeds.granted(user) for name, user in found.items()}
        spaces = space_users.reached(applied.state, self._domain)
        if spaces is UNSET and SPACES in applied.state.config:
            spaces = {}  # stated: those that were there are removed, their file is not merely missing
        body = feeds.PermissionChanges(
            revision=self._revisions.of("permissions"),
            full=names is None,
            anonymous=applied.state.anonymous,
            tokens=bool(applied.state.issuers),
            users={name: each for name, each in granted.items() if name in own},
            removed=removed,
            spaces=spaces,
            in_spaces=UNSET
            if in_spaces is UNSET
            else {name: each for name, each in granted.items() if name in in_spaces},
            ending=self._endings.in_stores(),
        )
        return msgspec.json.encode(body)

    def _placement_changes(self, names: Iterable[AddressName] | None) -> bytes | None:
        now = self._placed.now
        if now is None:
            return None
        found, removed = _parted(names, now.addresses)
        body = feeds.PlacementChanges(
            revision=self._revisions.of("placements"),
            full=names is None,
            brokers=now.brokers,
            addresses=found,
            removed=removed,
            invalid=now.invalid,
        )
        return msgspec.json.encode(body)

    def _bound_changes(self, names: Iterable[AddressName] | None) -> bytes:
        found, removed = _parted(names, self._bindings.bound)
        body = feeds.BoundChanges(
            revision=self._revisions.of("bound"),
            addresses=found,
            binders=list(self._bindings.binders),
            full=names is None,
            removed=removed,
        )
        return msgspec.json.encode(body)

    def _status_changes(self, names: Iterable[AddressName] | None) -> bytes:
        if names is None:
            return self._status_of({"full": True, "removed": []}, self._merger.pieces)
        pieces = {name: self._merger.piece(name) for name in names}
        removed = [name for name, piece in pieces.items() if piece is None]
        return self._status_of({"full": False, "removed": removed}, [piece for piece in pieces.values() if piece])

    def _status_of(self, more: dict[str, object], pieces: Iterable[bytes]) -> bytes:
        if spaces := self._usage.of_spaces():
            more = {**more, "spaces": spaces}
        head = msgspec.json.encode({"schema": feeds.SCHEMA, "config": self._revisions.config, **more})
        errors = msgspec.json.encode(self._problems.errors())
        return b"".join((head[:-1], b',"addresses":[', b",".join(pieces), b'],"errors":', errors, b"}"))

    def _status_changed(self, addresses: Iterable[AddressName]) -> None:
        self._status_feed.changed(addresses)
        self._look_at_endings()
        self.on_status()

    def _changed(self, *names: str) -> None:
        for name in names:
            self._feeds[name].changed()

    def _placements_changed(self, moved: Moves) -> None:
        self._placement_feed.changed(moved.changed)
        placed = self._placed.now
        self._bound_changed(self._bindings.placed({} if placed is None else placed.addresses, moved.changed))
        if self._look_leaving():
            self._address_feed.changed(())

    def _look_leaving(self) -> bool:
        """Find out which names are no addresses and are still carried by a broker. Return True if they are others."""
        placed, state = self._placed.now, self._applied.state
        names = placed.addresses.keys() - state.addresses.keys() if placed is not None and state.complete else ()
        before, self._leaving = self._leaving, frozenset(names)
        return self._leaving != before

    def _bound_changed(self, names: Collection[AddressName]) -> None:
        if names:
            self._revisions.change(("bound",))
            self._bound_feed.changed(names)

    def _publish(self, before: Applied) -> list[AddressName]:
        """Publish the feeds that a new configuration changes, as a new revision; return the addresses that it moves.

        Called before the change is published.
        """
        now, was = self._applied.state, before.state
        first = now.complete and not was.complete
        revised = []
        changed = list(self._applied.now.changed)
        changed += self._applied.now.failed.keys() ^ before.failed.keys()
        self._look_leaving()
        self._usage.configure(space_users.reached(now) or {}, space_users.counted(now))
        limits_differ = space_users.storage_limits(now) != space_users.storage_limits(was)
        if first or changed or limits_differ or space_users.ending(now) != space_users.ending(was):
            revised.append("addresses")
            self._address_feed.changed(changed)
        if first or now.flavors != was.flavors:
            revised.append("flavors")
            self._changed("flavors")
        if first or space_users.differ(was, now):
            revised.append("spaces")
            self._changed("spaces")
        if self._applied.now.users_known:
            revised += self._users_changed(before)
        placed, moved = self._placed.now, Moves([], [])
        if self._placed.configure(self._applied.now, before):
            revised.append("placements")
            moved = moves(placed, self._placed.now)
            self._placements_changed(moved)
        elif was.brokers is not None and now.brokers is None:
            self._revisions.lose("placements")
            self._placements_changed(moves(placed, None))
            self._placement_feed.restart()
            # Have reporters that were refused because of brokers.json report again.
            for link in list(self._targets["placements"].links):
                link.close("amqp:resource-deleted", "brokers.json is gone: report placements again")
        self._revisions.change(revised)
        return [*moved.changed, *moved.elsewhere]

    def _users_changed(self, before: Applied) -> tuple[str, ...]:
        """Publish the feeds of users and permissions that have changed; return their names."""
        now, was = self._applied.state, before.state
        names = [*differing(was.users or {}, now.users or {}), *space_users.changed_users(was, now)]
        others = _beside_users(now) != _beside_users(was)
        first = not before.users_known
        if first or names or others:
            self._changed("permissions", USERS)
            self._permission_feed.changed(names)
            return ("permissions", USERS)
        if now.issuers != was.issuers or space_users.issuers(now) != space_users.issuers(was):
            self._changed(USERS)
            return (USERS,)
        return ()

    async def _watch_disk(self) -> None:
        while True:
            await asyncio.sleep(DISK_INTERVAL)
            before = self._applied.disk_problems
            await self._applied.save(self._applied.state)
            if self._applied.disk_problems != before:
                self._problems.set(self._applied.problems)
                self._status_changed(())

    def _show_health(self) -> None:
        if self._applied.state.complete:
            count = len(self._applied.now.problems)
            self._health.set(True, f"{counted(count, 'error')} in the files" if count else "")
        else:
            reasons = [str(problem) for problem in self._applied.now.problems if problem.entry is None]
            self._health.set(False, "; ".join(reasons) or "no configuration yet")


def _beside_users(state: AppliedState) -> tuple[bool, bool, feeds.Spaces | UnsetType, Mapping[str, str]]:
    """Return what the feeds of permissions have beside users."""
    return state.anonymous, bool(state.issuers), space_users.reached(state), space_users.ending(state)


N = TypeVar("N", bound=str)
V = TypeVar("V")


def _parted(names: Iterable[N] | None, content: Mapping[N, V]) -> tuple[dict[N, V], list[N]]:
    """Return the entries of these names (None: of all), and the names without an entry."""
    if names is None:
        return dict(content), []
    found = {name: content[name] for name in names if name in content}
    return found, [name for name in names if name not in found]
