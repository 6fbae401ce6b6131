"""Bodies of the configuration service's feeds and reports (docs/contracts.md, "configserv")."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Annotated, Final, Generic, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from enmasse.model.address_types import AddressType, StoredType
from enmasse.model.addresses import Address
from enmasse.model.flavors import Flavor
from enmasse.model.issuers import Issuer
from enmasse.model.names import AddressName
from enmasse.model.tenants.plans import NO_LIMITS, Plans, SpaceLimits
from enmasse.model.tenants.shares import Use
from enmasse.model.tenants.spaces import Space
from enmasse.model.users import Granted, TokenFacts, User

B = TypeVar("B")
SCHEMA: Final = 1
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Phase = Literal["Pending", "Configuring", "Active", "Failed", "Terminating"]
PHASES: Final[tuple[Phase, ...]] = ("Pending", "Configuring", "Active", "Failed", "Terminating")


class FollowedFeed(NamedTuple, Generic[B]):
    """A feed that a process follows: its name, the type of its body, and `received(body)`, called with each message."""

    name: str
    kind: type[B]
    received: Callable[[B], None]


Ending = dict[str, str]
"""Removed address space → id of its removal, which no other has."""


class Addresses(msgspec.Struct, frozen=True, kw_only=True):
    """Feed `addresses`: every valid address; `forced` may be deleted together with their messages.

    `invalid` (optional): names whose entry is wrong and that have no last good version. Controllers make and delete
    nothing for them. `leaving` (optional): names that are no addresses and that a broker still carries: no
    other address takes their topics. `limits` (optional): limits of the spaces whose stored messages have one. `ending`
    (optional): removed spaces of which brokers may still have something. `remarked` (optional): topics whose
    `mqttDefault` was set or taken back after they were made.

    `revision`, here and in the feeds below: grows with every change of the content; 0: not stated.
    """

    schema: Literal[1] = SCHEMA
    revision: Count = 0
    addresses: dict[AddressName, Address]
    forced: list[AddressName] = []
    invalid: list[AddressName] | msgspec.UnsetType = msgspec.UNSET
    leaving: list[AddressName] | msgspec.UnsetType = msgspec.UNSET
    remarked: list[AddressName] | msgspec.UnsetType = msgspec.UNSET
    limits: dict[str, SpaceLimits] | msgspec.UnsetType = msgspec.UNSET
    ending: Ending | msgspec.UnsetType = msgspec.UNSET


class AddressChanges(Addresses, frozen=True, kw_only=True):
    """Feed `addresses/changes`: all addresses if `full`, else those that have changed since the message before, and the
    names that are gone. `forced`, `invalid`, `leaving`, `remarked`, `limits` and `ending` are complete in each
    message.

    A name of `invalid` is in `removed` when it becomes invalid, and again when its entry is removed.
    """

    full: bool = True
    removed: list[AddressName] = []

    def complete(self, before: Addresses | None) -> Addresses:
        """Return all addresses, given those `before` this message (not needed if it is full)."""
        if self.full or before is None:
            return self
        found = {**before.addresses, **self.addresses}
        for name in self.removed:
            found.pop(name, None)
        return Addresses(
            revision=self.revision,
            addresses=found,
            forced=self.forced,
            invalid=self.invalid,
            leaving=self.leaving,
            remarked=self.remarked,
            limits=self.limits,
            ending=self.ending,
        )


class Flavors(msgspec.Struct, frozen=True, kw_only=True):
    """Feed `flavors`."""

    schema: Literal[1] = SCHEMA
    revision: Count = 0
    flavors: dict[str, Flavor]


class AddressSpaces(msgspec.Struct, frozen=True, kw_only=True):
    """Feed `spaces`: the address spaces beside the default one, with the plans in force."""

    schema: Literal[1] = SCHEMA
    revision: Count = 0
    spaces: dict[str, Space] = {}
    plans: Plans = Plans({}, {})


class ReachedSpace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How clients reach an address space: they mean it by its name, and by these `hosts`. `tokens`: there are issuers
    whose tokens may name users of the space without an entry. `plan`, `limits`: name and limits of its plan."""

    hosts: tuple[str, ...] = ()
    tokens: bool = False
    plan: str = ""
    limits: SpaceLimits = NO_LIMITS


Spaces = dict[str, ReachedSpace]
"""All address spaces but the default one; absent in a message without any."""


class Users(msgspec.Struct, frozen=True, kw_only=True):
    """Feed `users`: entries of users.json with hashes; names of groups begin with `@`. Only the authentication service
    may follow it. `issuers`: those of issuers.json in their order, with the secrets of clients. `anonymous`: there is
    neither file, clients need no credentials. `salt_key`: from which the salts of unknown users are derived, so that
    they stay the same as those of known ones do. `in_spaces`: users and groups of the other `spaces` by their full
    names, `!!SPACE/NAME`; `issuers_in_spaces`: space → its issuers; earlier versions read none of the three."""

    schema: Literal[1] = SCHEMA
    revision: Count = 0
    anonymous: bool = False
    users: dict[str, User] = {}
    issuers: dict[str, Issuer] = {}
    salt_key: bytes = b""
    spaces: Spaces | msgspec.UnsetType = msgspec.UNSET
    in_spaces: dict[str, User] | msgspec.UnsetType = msgspec.UNSET
    issuers_in_spaces: dict[str, dict[str, Issuer]] | msgspec.UnsetType = msgspec.UNSET


class GrantedUser(Granted, frozen=True, kw_only=True, omit_defaults=True):
    """Groups, permissions and limits of a user. `credentials`: a text that differs after a change of the password, and
    that reveals neither password nor hash; empty without a password. `tokens`: of the API, by name."""

    credentials: str = ""
    tokens: dict[str, TokenFacts] = msgspec.field(default_factory=dict)


class Permissions(msgspec.Struct, frozen=True, kw_only=True):
    """Feed `permissions`, which EnMasse 0.2.0 follows: the feed `users` without hashes and issuers. `anonymous`: there
    are neither, everything is allowed. `tokens`: there are issuers, whose tokens may name users without an entry."""

    schema: Literal[1] = SCHEMA
    revision: Count = 0
    anonymous: bool = False
    tokens: bool = True
    users: dict[str, GrantedUser] = {}


class PermissionChanges(Permissions, frozen=True, kw_only=True):
    """Feed `permissions/changes`: all users if `full`, else those that have changed since the message before, and the
    names that are gone. `anonymous`, `tokens`, `spaces` and `ending` are complete in each message. `in_spaces`: users
    and groups of the other `spaces` by their full names, `!!SPACE/NAME`, of which `removed` may have some; `ending`:
    removed spaces of which the followers may still have something. Earlier versions read none of the three."""

    full: bool = True
    removed: list[str] = []
    spaces: Spaces | msgspec.UnsetType = msgspec.UNSET
    in_spaces: dict[str, GrantedUser] | msgspec.UnsetType = msgspec.UNSET
    ending: Ending | msgspec.UnsetType = msgspec.UNSET


def granted(user: User) -> GrantedUser:
    """Return an entry of the feed `permissions`."""
    secret = msgspec.json.encode((user.password, user.scram)) if user.password or user.scram else b""
    credentials = hashlib.sha256(secret).hexdigest()[:16] if secret else ""
    return GrantedUser(
        groups=user.groups, permissions=user.permissions, limits=user.limits, credentials=credentials,
        tokens={name: token.facts for name, token in user.tokens.items()},
    )  # fmt: skip


class BrokerEndpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Address at which a broker listens for AMQP."""

    host: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    by_hand: bool = False
    """Managed by hand: no storage controller creates or reads its queues, the router agent reads them
    (docs/decisions/0006, 0028)."""
    run: str = ""
    """Different after each start of the broker: older connections may be lost."""
    scram: bool = False
    """The broker authenticates the suite's processes by SCRAM-SHA-256, and no other peer. This decides how a process
    connects, not what the broker offers: a program in its place cannot ask for less."""


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """A broker that carries an address. Prepared: it will; until all that must bind there have reported this `epoch`,
    no message goes there. Draining: it is emptied, nothing new goes there.

    `type`: entity on the broker; None: that of the address, otherwise a queue.
    """

    broker: str
    state: Literal["prepared", "active", "draining"] = "active"
    type: StoredType | None = None
    epoch: Count | msgspec.UnsetType = msgspec.UNSET
    """Number of the preparation, which no other has; only a prepared placement has one."""

    @property
    def active(self) -> bool:
        """Return True if producers and consumers are led to the broker."""
        return self.state == "active"

    @property
    def draining(self) -> bool:
        """Return True if the broker is being emptied: consumers only, no producers."""
        return self.state == "draining"


class Placements(msgspec.Struct, frozen=True, kw_only=True):
    """Feed `placements`: which broker carries which address.

    `invalid` (optional): brokers whose host and port are unknown. Routers keep what they have for these.
    """

    schema: Literal[1] = SCHEMA
    revision: Count = 0
    brokers: dict[str, BrokerEndpoint]
    addresses: dict[AddressName, list[Placement]]
    invalid: list[str] | msgspec.UnsetType = msgspec.UNSET


class PlacementChanges(Placements, frozen=True, kw_only=True):
    """Feed `placements/changes`: all placements if `full`, else those of the addresses that have changed since the
    message before, and the addresses that no longer have any. `brokers` and `invalid` are complete in each message.
    """

    full: bool = True
    removed: list[AddressName] = []

    def complete(self, before: Placements | None) -> Placements:
        """Return all placements, given those `before` this message (not needed if it is full)."""
        found = self.addresses
        if not self.full and before is not None:
            found = {**before.addresses, **found}
            for name in self.removed:
                found.pop(name, None)
        return Placements(revision=self.revision, brokers=self.brokers, addresses=found, invalid=self.invalid)


class PlacementsReport(Placements, frozen=True, kw_only=True):
    """Report `placements`, subject `full` or `change`. `removed`: addresses that no longer have a placement, in a
    `change`. `instance`: which process of its role reports; empty: not stated.
    """

    instance: str = ""
    removed: list[AddressName] = []


class BoundReport(msgspec.Struct, frozen=True, kw_only=True):
    """Report `bound`, subject `full` or `change`: address → broker → epoch of each prepared placement at which the
    reporter has bound all that it must. `removed`: addresses without any, in a `change`."""

    instance: str = ""
    addresses: dict[AddressName, dict[str, Count]] = {}
    removed: list[AddressName] = []


class BoundChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Feed `bound`: the prepared placements that every one of `binders` (roles) has reported; all if `full`, else those
    of the addresses that have changed since the message before, and the addresses without any."""

    schema: Literal[1] = SCHEMA
    revision: Count = 0
    addresses: dict[AddressName, dict[str, Count]]
    binders: list[str] = []
    full: bool = True
    removed: list[AddressName] = []


def gone(body: Addresses | Placements, known: Iterable[AddressName]) -> list[AddressName]:
    """Return the names that a message removes: those that it lists, or the known ones that a full message lacks."""
    if isinstance(body, AddressChanges | PlacementChanges) and not body.full:
        return body.removed
    return [name for name in known if name not in body.addresses]


W = TypeVar("W")


class Changes(Protocol[W]):
    """Message of a feed of changes (AddressChanges, PlacementChanges)."""

    def complete(self, before: W | None) -> W:
        """Return the complete content, given that `before` this message."""


def completed(received: Callable[[W], None]) -> Callable[[Changes[W]], None]:
    """Return a receiver of a feed of changes that passes the complete content on to `received`, after each message."""
    content: W | None = None

    def on_changes(body: Changes[W]) -> None:
        nonlocal content
        content = body.complete(content)
        received(content)

    return on_changes


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """Report of one reporter about one address. `messages` and `consumers`: None if unknown."""

    ready: bool
    failed: bool = False
    message: str = ""
    components: tuple[str, ...] = ()
    messages: Count | None = None
    consumers: Count | None = None


class ReadinessReport(msgspec.Struct, frozen=True, kw_only=True):
    """Report `readiness`, subject `full` (all addresses of the reporter) or `change`.

    `seen`: feed → revision of the newest snapshot that everything reported so far takes into account (0: none on this
    link yet), for the feeds it follows; None: not stated. `pending`: feed → pending work because of that
    snapshot, apart from single addresses. `instance`: which process of its role reports; empty: not stated.
    """

    instance: str = ""
    addresses: dict[AddressName, Readiness] = {}
    removed: list[AddressName] = []
    seen: dict[str, Count] | None = None
    pending: dict[str, str] = {}


class AddressStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One address as people see it."""

    name: AddressName
    type: AddressType | None
    flavor: str | None
    ready: bool
    phase: Phase
    message: str
    components: list[str]
    messages: int | None
    consumers: int | None


class ErrorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A Problem that stands, and since when (ISO 8601, UTC)."""

    file: str
    entry: str | None
    field: str | None
    line: int | None
    reason: str
    since: str


class SpaceUse(msgspec.Struct, frozen=True, kw_only=True):
    """Address space with the name and the limits of its plan (`plan` empty: without), and what of these is `used`: the
    name of a limit → number; a limit that no process has counted yet is missing."""

    plan: str = ""
    limits: SpaceLimits = NO_LIMITS
    used: dict[str, int] = {}


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Feed `status`. `config`: file → SHA-256 (hex) of the content that every reporter has taken into account.
    `spaces`: all address spaces but the default one; absent without any."""

    schema: Literal[1] = SCHEMA
    config: dict[str, str] = {}
    addresses: list[AddressStatus] = []
    errors: list[ErrorStatus] = []
    spaces: dict[str, SpaceUse] | msgspec.UnsetType = msgspec.UNSET


class StatusChanges(Status, frozen=True, kw_only=True):
    """Feed `status/changes`: all addresses if `full`, else those that have changed since the message before, and the
    names that are gone. `config`, `errors` and `spaces` are complete in each message."""

    full: bool = True
    removed: list[AddressName] = []


class Force(msgspec.Struct, frozen=True, kw_only=True):
    """Report `force`: discard what these addresses hold."""

    addresses: list[AddressName]


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """Report `usage` of one process: what its clients use of limits of address spaces, those that changed since the
    report before, and those of which they use nothing now. `number`: counts the reports over one link, from 1; `seen`:
    the number of the last message of shares (0: none yet).

    A limit is `NAME/SPACE`, or `connections/SPACE/USER` for the connections of one user. `role`: of the process, where
    it reports what has `ended`: the removals of which it has nothing left, as it has stored that; earlier versions send
    and read neither.
    """

    number: Count
    seen: Count
    uses: dict[str, Use] = {}
    removed: list[str] = []
    role: str = ""
    ended: Ending | msgspec.UnsetType = msgspec.UNSET


class Share(msgspec.Struct, frozen=True, array_like=True):
    """Share of a process in a limit, and what all processes use of it."""

    share: Count
    used: Count


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """Feed `usage`, each process its own: the shares that changed since the message before. `number`: counts them over
    one link, from 1; `seen`: the number of the last report that they take into account."""

    schema: Literal[1] = SCHEMA
    number: Count
    seen: Count
    shares: dict[str, Share] = {}
