"""Bodies of the configuration service's feeds and reports (docs/contracts.md, "configserv")."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from enmasse.model.addresses import Address, AddressType
from enmasse.model.flavors import Flavor

SCHEMA: Final = 1
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Phase = Literal["Pending", "Configuring", "Active", "Failed", "Terminating"]


class Addresses(msgspec.Struct, frozen=True, kw_only=True):
    """Feed `addresses`: every valid address; `forced` may be thrown away together with their messages."""

    schema: Literal[1] = SCHEMA
    addresses: dict[str, Address] = {}
    forced: list[str] = []


class Flavors(msgspec.Struct, frozen=True, kw_only=True):
    """Feed `flavors`."""

    schema: Literal[1] = SCHEMA
    flavors: dict[str, Flavor] = {}


class Broker(msgspec.Struct, frozen=True, kw_only=True):
    """Where a broker listens for AMQP."""

    host: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """A broker that carries an address. Draining: it is emptied, nothing new goes there.

    `type`: what lies on the broker; None: what the address is, else a queue.
    """

    broker: str
    state: Literal["active", "draining"] = "active"
    type: Literal["queue", "topic"] | None = None


class Placements(msgspec.Struct, frozen=True, kw_only=True):
    """Feed and report `placements`: which broker carries which address."""

    schema: Literal[1] = SCHEMA
    brokers: dict[str, Broker] = {}
    addresses: dict[str, list[Placement]] = {}


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """What one reporter says of one address. `messages` and `consumers` are None where it does not know."""

    ready: bool
    failed: bool = False
    message: str = ""
    components: list[str] = []
    messages: Count | None = None
    consumers: Count | None = None


class ReadinessReport(msgspec.Struct, frozen=True, kw_only=True):
    """Report `readiness`, subject `full` (all addresses of the reporter) or `change`."""

    addresses: dict[str, Readiness] = {}
    removed: list[str] = []


class AddressStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One address as people see it."""

    name: str
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
    """Feed `status`. `config`: file → SHA-256 (hex) of the content that is applied."""

    schema: Literal[1] = SCHEMA
    config: dict[str, str] = {}
    addresses: list[AddressStatus] = []
    errors: list[ErrorStatus] = []


class Force(msgspec.Struct, frozen=True, kw_only=True):
    """Report `force`: discard what these addresses hold."""

    addresses: list[str]
