"""Content of configserv's feeds: addresses with their status and brokers, flavors, users, errors; and orders to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Literal, TypeVar

import msgspec
from msgspec import UNSET

from enmasse.api.types import (
    Address,
    Change,
    ChangeResult,
    Entry,
    Fault,
    Flavor,
    Permission,
    Plan,
    Space,
    Stats,
    Token,
    User,
)
from enmasse.control import ControlConnection, ControlError, keep_connected
from enmasse.control.feeds import encode_message, follow
from enmasse.identity.permissions import Rule
from enmasse.identity.principal import Principal, named
from enmasse.identity.processes.credentials import AnyCredential
from enmasse.identity.user_directory import UserDirectory
from enmasse.model import feeds
from enmasse.model.address_types import TYPES, AddressType
from enmasse.model.addresses import Address as AddressEntry
from enmasse.model.etags import etag
from enmasse.model.flavors import Flavor as FlavorEntry
from enmasse.model.names import (
    DEFAULT_SPACE,
    MAX_ADDRESS,
    SPACE,
    AddressName,
    in_space,
    space_of,
    space_prefix,
    split_name,
)
from enmasse.model.tenants.plans import Plans
from enmasse.model.tenants.shares import COUNTED
from enmasse.model.tenants.spaces import Space as SpaceEntry
from enmasse.model.tenants.tenancy import outside
from enmasse.model.users import GROUP
from enmasse.process.settings import host_port
from services.console.door.access import Caller
from services.console.door.token_uses import TokenUses, key_of
from services.console.errors import RequestError
from services.console.following.rows import Rows
from services.console.following.space_rows import between
from services.console.request_links import Requester

MAX_SNAPSHOT = 256 << 20
SECONDS = 10.0
OF_ALL_SPACES = ("flavors", "spaces", "plans")
"""Kinds of entries that no address space has of its own."""
MAX_OWNERS = 100_000
"""Names on the wire whose address is remembered."""
FEEDS = ("addresses/changes", "flavors", "spaces", "permissions/changes", "status/changes")
"""Feeds without which nothing is answered."""
T = TypeVar("T")


class Configuration:
    """Follower of the feeds of configserv at `address` (host:port). `stats`: traffic of an address."""

    def __init__(self, address: str, name: str, credential: AnyCredential | None) -> None:
        self.users = UserDirectory()
        self.users_revision = 0
        """Revision of the permissions in force, which is that of the feed `users` or an older one."""
        self.errors: list[Fault] = []
        self.spaces: dict[str, SpaceEntry] = {}
        """Address spaces beside the default one."""
        self.plans = Plans({}, {})
        self.files: dict[str, str] = {}
        """File → SHA-256 of the content that is in force."""
        self.brokers: dict[str, feeds.BrokerEndpoint] = {}
        self.space_rows: Rows[Space] = Rows(self._names_of_spaces, self._space)
        self.plan_rows: Rows[Plan] = Rows(lambda: {**self.plans.addresses, **self.plans.spaces}, self._plan)
        self.stats: Callable[[str], Stats] = lambda _: Stats()
        self.on_permissions: list[Callable[[], None]] = []
        self.on_brokers: list[Callable[[], None]] = []
        self.addresses: Rows[Address] = Rows(lambda: self._status, self._address)
        """By full names, as those of `principals`; what rows say is by names in their space."""
        self.flavors: Rows[Flavor] = Rows(lambda: self._flavors, self._flavor)
        self.principals: Rows[User] = Rows(lambda: self.users.entries(), self._user)
        self.tokens: Rows[Token] = Rows(self._names_of_tokens, self._token)
        """API tokens, by the full name of the user and their own (`token_uses.key_of`)."""
        self._token_uses: TokenUses | None = None
        self.connected = False
        self._host, self._port = host_port(address)
        self._name = name
        self._credential = credential
        self._entries: dict[AddressName, AddressEntry] = {}
        self._forced: frozenset[str] = frozenset()
        self._status: dict[str, feeds.AddressStatus] = {}
        self._uses: dict[str, dict[str, int]] = {}
        """Space → what processes have reported of its limits."""
        self._placements: dict[AddressName, list[feeds.Placement]] = {}
        self._flavors: dict[str, FlavorEntry] = {}
        self._used: dict[str, int] = {}
        self._owners: dict[str, tuple[str, AddressType] | tuple[()]] = {}
        self._seen: set[str] = set()
        self._complete = asyncio.Event()
        self._connection: ControlConnection | None = None
        self._configuring: Requester | None = None
        self._placements_seen: feeds.Placements | None = None

    async def run(self) -> None:
        """Follow until cancelled."""
        await keep_connected(
            self._host, self._port, self._session,
            container=self._name, credential=self._credential, max_message_size=MAX_SNAPSHOT,
        )  # fmt: skip

    async def complete(self, seconds: float) -> bool:
        """Wait until every feed has delivered; return False if that takes longer. Placements may come later: only a
        controller reports them."""
        try:
            async with asyncio.timeout(seconds):
                await self._complete.wait()
        except TimeoutError:
            return False
        return True

    def follow_tokens(self, uses: TokenUses) -> None:
        """Show the last uses of API tokens."""
        self._token_uses = uses
        uses.seen = lambda key: self.tokens.changed({key}, other_keys=False)

    @property
    def status(self) -> list[feeds.AddressStatus]:
        """The status of each address, by name."""
        return [self._status[name] for name in sorted(self._status)]

    @property
    def entries(self) -> Mapping[AddressName, AddressEntry]:
        """The addresses of all spaces."""
        return self._entries

    @property
    def phases(self) -> dict[str, int]:
        """Number of addresses in each phase."""
        found = dict.fromkeys(feeds.PHASES, 0)
        for each in self._status.values():
            found[each.phase] += 1
        return {str(phase): count for phase, count in found.items()}

    def placed(self, broker: str) -> dict[str, str]:
        """Return address → `active`, `prepared` or `draining` of a broker."""
        found: dict[str, str] = {}
        for name, places in self._placements.items():
            for place in places:
                if place.broker == broker:
                    found[name] = place.state
        return found

    def endpoint_of(self, address: str) -> tuple[str, feeds.BrokerEndpoint] | None:
        """Return the broker that carries an address; None if none does. A draining one counts if there is no other."""
        places = sorted(self._placements.get(AddressName(address), ()), key=lambda place: not place.active)
        for place in places:
            if place.state != "prepared" and (endpoint := self.brokers.get(place.broker)) is not None:
                return place.broker, endpoint
        return None

    def brokers_of(self, address: str) -> list[str]:
        """Return the names of the brokers that have messages of an address, draining ones too."""
        places = self._placements.get(AddressName(address), ())
        return sorted(place.broker for place in places if place.state != "prepared")

    def nearest(self, address: str, broker: str) -> str | None:
        """Return the broker to which messages at `broker` go that are for an address: the same if it carries that,
        else one that is not draining; None: none carries it."""
        if broker in self.brokers_of(address):
            return broker
        found = self.endpoint_of(address)
        return None if found is None else found[0]

    def has(self, name: str) -> bool:
        """Return whether there is an address of this name."""
        status = self._status.get(name)
        return status is not None and status.type is not None

    def owner_of(self, wire: str) -> tuple[str, AddressType] | None:
        """Return the address that a name on the wire belongs to, and its type: itself, or the topic above it."""
        found = self._owners.get(wire)
        if found is None:
            found = self._find_owner(wire)
            if len(wire) > MAX_ADDRESS:
                return found or None
            if len(self._owners) > MAX_OWNERS:
                self._owners.clear()
            self._owners[wire] = found
        return found or None

    def _find_owner(self, wire: str) -> tuple[str, AddressType] | tuple[()]:
        cut = len(wire) if len(wire) <= MAX_ADDRESS else wire.rfind("/", 0, MAX_ADDRESS + 1)
        while cut > 0:
            name = wire[:cut]
            status = self._status.get(name)
            if status is not None and status.type is not None and (name == wire or TYPES[status.type].levels):
                return name, status.type
            cut = wire.rfind("/", 0, cut)
        return ()

    # -- orders

    async def force(self, names: list[str]) -> None:
        """Have the messages of removed addresses discarded. Raises RequestError."""
        await self._deliver("force", encode_message("", {"addresses": names}))

    async def configure(self, change: Change, caller: Caller, client: str) -> ChangeResult:
        """Have the configuration of the space in which the caller acts changed, or checked. `client`: its host, for
        auditors. Raises RequestError."""
        connection = self._connection
        if connection is None:
            raise RequestError("console.service.unavailable", "the configuration service is not reached; try again")
        body = msgspec.to_builtins(change) | {"who": caller.title, "role": caller.role or "", "client": client}
        if change.kind not in OF_ALL_SPACES:
            body["space"] = caller.space
        try:
            if self._configuring is None or self._configuring.error is not None:
                self._configuring = Requester(connection, "configure")
            return msgspec.json.decode(await self._configuring.ask(body, SECONDS), type=ChangeResult)
        except (ControlError, TimeoutError, msgspec.DecodeError) as error:
            text = "the configuration service (configserv) has not answered: it may have changed this or not"
            remedy = "`enmasse status` shows whether it runs. Look at what is in force, then try again"
            raise RequestError("console.service.failed", f"{text}. {remedy}") from error

    async def _deliver(self, target: str, message: bytes) -> None:
        connection = self._connection
        if connection is None:
            raise RequestError("console.service.unavailable", "the configuration service is not reached; try again")
        try:
            with closing(connection.sender(target)) as sender:
                async with asyncio.timeout(SECONDS):
                    outcome = await sender.deliver(message)
        except (ControlError, TimeoutError) as error:
            text = f"the configuration service did not take it: {error or 'no answer'}"
            id = "console.service.unavailable" if not connection.is_open else "console.service.failed"
            raise RequestError(id, text) from None
        if not outcome.accepted:
            raise RequestError("console.service.failed", f"the configuration service refused: {outcome.description}")

    # -- feeds

    async def _session(self, connection: ControlConnection) -> None:
        self._connection = connection
        ended = asyncio.Event()

        def on(feed: str, received: Callable[[T], None], kind: type[T]) -> None:
            def taken(body: T) -> None:
                received(body)
                self._seen.add(feed)
                if self._seen.issuperset(FEEDS):
                    self._complete.set()

            follow(connection, feed, taken, kind).on_closed = lambda _: ended.set()

        try:
            on("addresses/changes", self._take_addresses, feeds.AddressChanges)
            on("flavors", self._take_flavors, feeds.Flavors)
            on("spaces", self._take_spaces, feeds.AddressSpaces)
            on("placements/changes", self._take_placements, feeds.PlacementChanges)
            on("permissions/changes", self._take_permissions, feeds.PermissionChanges)
            on("status/changes", self._take_status, feeds.StatusChanges)
            self.connected = True
            await ended.wait()
        finally:
            self._connection, self._configuring, self.connected = None, None, False

    def _take_addresses(self, body: feeds.AddressChanges) -> None:
        changed = set(body.addresses) | set(body.removed) | (self._forced ^ frozenset(body.forced))
        if body.full:
            changed |= self._entries.keys()
            self._entries = {}
        for name in body.removed:
            self._entries.pop(name, None)
        self._entries.update(body.addresses)
        self._forced = frozenset(body.forced)
        self._count_flavors()
        self.addresses.changed(changed, other_keys=False)
        self._spaces_changed(changed)

    def _take_status(self, body: feeds.StatusChanges) -> None:
        changed = {each.name for each in body.addresses} | set(body.removed)
        if body.full:
            changed |= {AddressName(name) for name in self._status}
            self._status = {}
        for name in body.removed:
            self._status.pop(name, None)
        before = len(self._status)
        self._status.update((each.name, each) for each in body.addresses)
        other = body.full or bool(body.removed) or len(self._status) != before
        if other:
            self._owners.clear()
        self.errors = [msgspec.convert(each, Fault, from_attributes=True) for each in body.errors]
        self.files = body.config
        uses = {name: each.used for name, each in body.spaces.items()} if body.spaces else {}
        others = {name for name in uses.keys() | self._uses.keys() if uses.get(name) != self._uses.get(name)}
        self._uses = uses
        self.space_rows.changed(others, other_keys=False)
        self.addresses.changed(changed, other_keys=other)
        self._spaces_changed(changed)

    def _spaces_changed(self, addresses: Iterable[str]) -> None:
        """Note that addresses have changed, which their spaces count."""
        if self.spaces or self.space_rows.keys():
            found = {space_of(name) for name in addresses} - {DEFAULT_SPACE}
            self.space_rows.changed(found, other_keys=not found <= self.spaces.keys())

    def _take_flavors(self, body: feeds.Flavors) -> None:
        self._flavors = body.flavors
        self._count_flavors()
        self.flavors.changed(None)

    def _take_spaces(self, body: feeds.AddressSpaces) -> None:
        self.spaces, self.plans = body.spaces, body.plans
        self.space_rows.changed(None)
        self.plan_rows.changed(None)

    def _count_flavors(self) -> None:
        used: dict[str, int] = {}
        for each in self._entries.values():
            if each.flavor is not None:
                used[each.flavor] = used.get(each.flavor, 0) + 1
        changed = {name for name in used.keys() | self._used.keys() if used.get(name) != self._used.get(name)}
        self._used = used
        if changed:
            self.flavors.changed(changed, other_keys=False)

    def _take_placements(self, body: feeds.PlacementChanges) -> None:
        before = self._placements_seen
        changed = set(body.addresses) | set(body.removed)
        if body.full:
            changed |= self._placements.keys()
        self._placements_seen = body.complete(before)
        self._placements = self._placements_seen.addresses
        self.brokers = body.brokers
        self.addresses.changed(changed, other_keys=False)
        for call in self.on_brokers:
            call()

    def _take_permissions(self, body: feeds.PermissionChanges) -> None:
        others = body.full or bool(body.removed) or body.in_spaces is not UNSET
        others = others or not body.users.keys() <= self.users.users.keys()
        names = self.users.take(body)
        self.users_revision = body.revision
        if names is not None and any(named(name).name.startswith(GROUP) for name in names):
            names = None  # the rows of its users have its permissions, too
        self.principals.changed(names, other_keys=others)
        self.tokens.changed(None)
        for call in self.on_permissions:
            call()

    # -- rows

    def _address(self, name: str) -> Address | None:
        status = self._status.get(name)
        if status is None:
            return None
        space, local = split_name(status.name)
        entry = self._entries.get(status.name)
        if entry is not None:
            entry = outside(space, entry)
        stats = self.stats(name)
        if stats.messages is None or stats.consumers is None:
            stats = msgspec.structs.replace(
                stats,
                messages=status.messages if stats.messages is None else stats.messages,
                consumers=status.consumers if stats.consumers is None else stats.consumers,
            )
        return Address(
            name=local,
            type=status.type,
            flavor=status.flavor,
            ready=status.ready,
            phase=status.phase,
            message=in_space(space, status.message),
            components=status.components,
            brokers=[place.broker for place in self._placements.get(status.name, ())],
            forced=name in self._forced,
            entry=None if entry is None else entry.written(),
            etag=None if entry is None else etag(entry),
            stats=stats,
        )

    def _flavor(self, name: str) -> Flavor | None:
        entry = self._flavors.get(name)
        if entry is None:
            return None
        return Flavor(
            name=name, type=entry.type, entry=msgspec.to_builtins(entry), etag=etag(entry),
            addresses=self._used.get(name, 0),
        )  # fmt: skip

    def _names_of_spaces(self) -> set[str]:
        """Return the names of the spaces, also of removed ones whose addresses are about to go."""
        return {*self.spaces, *(space_of(name) for name in self._in_spaces())}

    def _in_spaces(self) -> list[AddressName]:
        """Return the full names of the addresses of other spaces than the default one."""
        return [AddressName(name) for name in between(self.addresses.keys(), SPACE)]

    def _space(self, name: str) -> Space | None:
        if name == DEFAULT_SPACE:
            return None
        entry = self.spaces.get(name)
        phases = dict.fromkeys(feeds.PHASES, 0)
        addresses = between(self.addresses.keys(), space_prefix(name))
        by_type: dict[str, int] = {}
        for address in addresses:
            row = self._status[address]
            phases[row.phase] += 1
            if row.type is not None and row.phase != "Terminating":
                by_type[row.type] = by_type.get(row.type, 0) + 1
        if entry is None and not addresses:
            return None
        plan = None if entry is None or entry.plan is None else self.plans.spaces.get(entry.plan)
        limits = {} if plan is None else msgspec.to_builtins(plan.limits)
        uses = dict.fromkeys((limit for limit in COUNTED if limit in limits), 0) | self._uses.get(name, {})
        return Space(
            name=name,
            type="standard" if entry is None else entry.type,
            plan=None if entry is None else entry.plan,
            hosts=[] if entry is None else list(entry.hosts),
            ready=entry is not None and phases["Active"] == len(addresses),
            phases={str(phase): count for phase, count in phases.items()},
            used={"addresses": sum(by_type.values()), "addressesByType": by_type, **uses},
            limits=limits,
            entry=None if entry is None else msgspec.to_builtins(entry),
            etag=None if entry is None else etag(entry),
        )

    def _plan(self, name: str) -> Plan | None:
        address, space = self.plans.addresses.get(name), self.plans.spaces.get(name)
        found = address or space
        if found is None:
            return None
        kind: Literal["address", "space"] = "space" if address is None else "address"
        spaces = [each for each, entry in self.spaces.items() if entry.plan == name and kind == "space"]
        entry = {"kind": kind, **msgspec.to_builtins(found)}
        return Plan(name=name, kind=kind, entry=entry, etag=etag(found), spaces=sorted(spaces))

    def _names_of_tokens(self) -> list[str]:
        return [key_of(full_name, token) for full_name, entry in self.users.entries().items() for token in entry.tokens]

    def _token(self, key: str) -> Token | None:
        full_name, _, token = key.rpartition("/")
        user = named(full_name)
        entry = self.users.granted(user.name, user.space)
        facts = None if entry is None else entry.tokens.get(token)
        if facts is None:
            return None
        used = None if self._token_uses is None else self._token_uses.last(key, facts.created)
        return Token(
            id=key_of(user.name, token),
            user=user.name,
            name=token,
            created=instant(facts.created),
            expires=None if facts.expires is None else instant(facts.expires),
            used=None if used is None else instant(used),
            read_only=facts.read_only,
        )

    def _user(self, full_name: str) -> User | None:
        name, _, space = named(full_name)
        entry = self.users.granted(name, space)
        if entry is None:
            return None
        own = [Rule(f"{name}.permissions.{number}", each) for number, each in enumerate(entry.permissions)]
        permissions = self.users.permissions_of(space)
        effective = tuple(own) if name.startswith(GROUP) else permissions.rights(Principal(name, space=space)).rules
        return User(
            name=name,
            groups=list(entry.groups),
            permissions=[permission(rule) for rule in own],
            effective=[permission(rule) for rule in effective],
            connections=entry.limits.connections,
            connects_per_second=entry.limits.connects_per_second,
            password=bool(entry.credentials),
            entry=as_written(entry),
            etag=etag(entry),
        )


def instant(seconds: int) -> str:
    """Return a time in seconds since 1970 as the API shows it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def as_written(entry: feeds.GrantedUser) -> Entry:
    """Return an entry in the form of users.json, without hashes."""
    found: Entry = {"groups": list(entry.groups)} if entry.groups else {}
    found["permissions"] = [
        {each.effect: list(each.operations), "addresses": list(each.addresses)} for each in entry.permissions
    ]
    if limits := msgspec.to_builtins(entry.limits):
        found["limits"] = limits
    return found


def permission(rule: Rule) -> Permission:
    """Return a permission with its place."""
    found = rule.permission
    return Permission(
        effect=found.effect, operations=list(found.operations), addresses=list(found.addresses), source=rule.where
    )
