"""Typed and validated configuration: addresses, link routes, auto-links, the policy.

The texts of the errors are those of Qpid Dispatch if it has one: its tools show them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from enmasse.model.names import space_of
from services.router.routing.address_text import canonical

MULTICAST = "multicast"
CLOSEST = "closest"
BALANCED = "balanced"
UNAVAILABLE = "unavailable"

MAX_PHASE = 9
MAX_PRIORITY = 9


def _canonical(prefix: str | None, pattern: str | None) -> str:
    """Return the canonical pattern of a prefix or a pattern; exactly one must be given. Raises ValueError."""
    if prefix is None and pattern is None:
        raise ValueError("Either a 'prefix' or 'pattern' attribute must be provided")
    if prefix is not None and pattern is not None:
        raise ValueError("Cannot specify both a 'prefix' and a 'pattern' attribute")
    text = prefix if prefix is not None else pattern
    which = "Prefix" if prefix is not None else "Pattern"
    if not text:
        raise ValueError(f"{which} must be a non-empty string type")
    try:
        spelling = canonical(text)
        return spelling if prefix is None else canonical(spelling + "/#")
    except ValueError:
        raise ValueError(f"{which} invalid - no tokens") from None


def _check_container(connection: str | None, container_id: str | None) -> None:
    if connection and container_id:
        raise ValueError("Both connection and containerId cannot be specified. Specify only one")


@dataclass(frozen=True, slots=True)
class AddressConfig:
    """Treatment of addresses that match `prefix` or `pattern`. Raises ValueError.

    `identity` is unique among all configured entities, `name` among addresses. `priority` -1: none is configured.
    `matched` is the canonical pattern.
    """

    identity: int
    name: str
    prefix: str | None = None
    pattern: str | None = None
    treatment: str = BALANCED
    ingress_phase: int = 0
    egress_phase: int = 0
    priority: int = -1
    matched: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "matched", _canonical(self.prefix, self.pattern))
        if not (0 <= self.ingress_phase <= MAX_PHASE and 0 <= self.egress_phase <= MAX_PHASE):
            raise ValueError("Phase values must be between 0 and 9")
        if not -1 <= self.priority <= MAX_PRIORITY:
            raise ValueError("Priority value, if present, must be between 0 and QDR_MAX_PRIORITY")

    @property
    def waypoint(self) -> bool:
        """True if its messages pass through a broker."""
        return self.ingress_phase == 0 and self.egress_phase == 1


@dataclass(frozen=True, slots=True)
class LinkRouteConfig:
    """Attaches of one direction (`in`: the client sends) to addresses that match are passed on to a route container:
    the one with `container_id`, or the one that is connected through the listener or connector `connection`.

    Raises ValueError.
    """

    identity: int
    name: str
    direction: str | None
    prefix: str | None = None
    pattern: str | None = None
    connection: str | None = None
    container_id: str | None = None
    add_prefix: str | None = None
    del_prefix: str | None = None
    matched: str = field(init=False)

    def __post_init__(self) -> None:
        if self.direction is None:
            raise ValueError("No 'direction' attribute provided - it is mandatory")
        if self.direction not in ("in", "out"):
            raise ValueError("Invalid value for 'direction'")
        object.__setattr__(self, "matched", _canonical(self.prefix, self.pattern))
        _check_container(self.connection, self.container_id)

    @property
    def space(self) -> str:
        """Return the address space of what it covers."""
        return space_of(self.matched)

    @property
    def stated(self) -> str:
        """Return the pattern with the separators of the configuration, `.` or `/`."""
        return self.pattern if self.prefix is None else f"{self.prefix}/#"  # type: ignore[return-value]  # one is given

    def external(self, address: str) -> str:
        """Return the container's name for the address."""
        if self.del_prefix and address.startswith(self.del_prefix):
            address = address[len(self.del_prefix) :]
        return self.add_prefix + address if self.add_prefix else address


@dataclass(frozen=True, slots=True)
class AutoLinkConfig:
    """A link that the router makes to a route container (see LinkRouteConfig for which), so that the container's node
    `external` (or `address`) takes part in `address`. Direction `in`: messages come from the container.

    `phase` is that of the address; None: 1 for `in`, 0 for `out`. Raises ValueError.
    """

    identity: int
    name: str
    address: str
    direction: str
    phase: int | None = None
    connection: str | None = None
    container_id: str | None = None
    external: str | None = None

    def __post_init__(self) -> None:
        if not self.address or not self.direction:
            raise ValueError("address and direction fields are mandatory")
        if self.phase is None:
            object.__setattr__(self, "phase", 1 if self.direction == "in" else 0)
        if not 0 <= (self.phase or 0) <= MAX_PHASE:
            raise ValueError("autoLink phase must be between 0 and 9")
        _check_container(self.connection, self.container_id)

    @property
    def space(self) -> str:
        """Return the address space of the address."""
        return space_of(self.address)

    @property
    def node(self) -> str:
        """The address as the container knows it."""
        return self.external or self.address


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig:
    """Bounds of the whole router. `max_message_size` is in bytes, 0: no limit."""

    max_connections: int = 65535
    max_message_size: int = 0
