"""Bodies of the configuration service's feeds and reports (docs/contracts.md, "configserv")."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from enmasse.model.addresses import Address, AddressType
from enmasse.model.flavors import Flavor
from enmasse.model.names import AddressName

SCHEMA: Final = 1
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Phase = Literal["Pending", "Configuring", "Active", "Failed", "Terminating"]
PHASES: Final[tuple[Phase, ...]] = ("Pending", "Configuring", "Active", "Failed", "Terminating")


class Addresses(msgspec.Struct, frozen=True, kw_only=True):
    """Feed `addresses`: every valid address; `forced` may be deleted together with their messages.

    `invalid` (optional): names whose entry is wrong and that have no last good version. Controllers make and delete
    nothing for them.

    `revision`, here and in the feeds below: grows with every change of the content; 0: not stated.
    """

    schema: Literal[1] = SCHEMA
    revision: Count = 0
    addresses: dict[AddressName, Address]
    forced: list[AddressName] = []
    invalid: list[AddressName] | msgspec.UnsetType = msgspec.UNSET


class Flavors(msgspec.Struct, frozen=True, kw_only=True):
    """Feed `flavors`."""

    schema: Literal[1] = SCHEMA
    revision: Count = 0
    flavors: dict[str, Flavor]


class BrokerEndpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Where a broker listens for AMQP."""

    host: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    by_hand: bool = False
    """People manage it, and no storage controller makes or reads what lies there: the router agent reads it
    (docs/decisions/0006, 0028)."""
    run: str = ""
    """Differs after each start of the broker: then whoever is connected to it may not be."""


StoredType = Literal["queue", "topic"]
"""What lies on a broker."""


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """A broker that carries an address. Draining: it is emptied, nothing new goes there.

    `type`: what lies on the broker; None: what the address is, else a queue.
    """

    broker: str
    state: Literal["active", "draining"] = "active"
    type: StoredType | None = None

    @property
    def draining(self) -> bool:
        """It is being emptied: consumers only, no producers."""
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


class PlacementsReport(Placements, frozen=True, kw_only=True):
    """Report `placements`. `instance`: which process of its role reports; empty: not stated."""

    instance: str = ""

    def placements(self) -> Placements:
        """What is reported, without who reports it."""
        return Placements(revision=self.revision, brokers=self.brokers, addresses=self.addresses, invalid=self.invalid)


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """What one reporter reports of one address. `messages` and `consumers` are None if it does not know."""

    ready: bool
    failed: bool = False
    message: str = ""
    components: tuple[str, ...] = ()
    messages: Count | None = None
    consumers: Count | None = None


class ReadinessReport(msgspec.Struct, frozen=True, kw_only=True):
    """Report `readiness`, subject `full` (all addresses of the reporter) or `change`.

    `seen`: feed → revision of the newest snapshot that everything reported so far takes into account (0: none on this
    link yet), for the feeds it follows; None: not stated. `pending`: feed → what is still to be done because of that
    snapshot, besides single addresses. `instance`: which process of its role reports; empty: not stated.
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


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Feed `status`. `config`: file → SHA-256 (hex) of the content that every reporter has taken into account."""

    schema: Literal[1] = SCHEMA
    config: dict[str, str] = {}
    addresses: list[AddressStatus] = []
    errors: list[ErrorStatus] = []


class Force(msgspec.Struct, frozen=True, kw_only=True):
    """Report `force`: discard what these addresses hold."""

    addresses: list[AddressName]
