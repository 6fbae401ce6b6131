"""plans.json: what address spaces of tenants, and their addresses, may use (docs/decisions/0051-address-spaces.md).

An entry is a plan of addresses (`"kind": "address"`) or of address spaces (`"kind": "space"`). A space has one plan;
its addresses have a plan among those of the space's plan, or name a flavor among its flavors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from enmasse.model import values
from enmasse.model.address_types import TYPES, AddressType
from enmasse.model.addresses import Ttl, parse_address, time_to_live
from enmasse.model.flavors import Flavor
from enmasse.model.jsonfile import Document, Problem, shown
from enmasse.model.names import simple_error
from enmasse.model.values import Wrong

ADDRESS: Final = "address"
SPACE: Final = "space"
MAX_COUNT: Final = 2**53
_EXAMPLES: Final = (
    '{"kind": "address", "type": "queue", "flavor": "…"} or {"kind": "space", "addressPlans": ["…"], "limits": {…}}'
)


class Credits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Fractions of a router and of a broker that one address uses, or that a space may use in all. `aggregate`: of both
    together, for a space only. None: it does not count, or there is no limit."""

    router: float | None = None
    broker: float | None = None
    aggregate: float | None = None


class AddressPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A plan of addresses. `flavor` is set if brokers store them. `message_ttl`, `max_size`: of each address that
    states none, and the most that it may state."""

    type: AddressType
    flavor: str | None = None
    message_ttl: Ttl | None = None
    max_size: int | None = None
    credits: Credits = Credits()


class SpaceLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Limits of a space in the whole installation; None: without. Sizes are in bytes."""

    addresses: int | None = None
    addresses_by_type: dict[AddressType, int] = {}
    users: int | None = None
    """Entries of users.json that are no groups."""
    connections: int | None = None
    connections_per_user: int | None = None
    links_per_connection: int | None = None
    messages_per_second: int | None = None
    bytes_per_second: int | None = None
    max_message_size: int | None = None
    storage: int | None = None
    """Bytes of stored messages at all brokers."""
    memory: int | None = None
    """Bytes of stored messages that brokers keep in memory."""
    sessions: int | None = None
    """MQTT sessions, connected ones included."""
    retained: int | None = None
    """Retained messages."""
    wills: int | None = None


NO_LIMITS: Final = SpaceLimits()


class SpacePlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A plan of address spaces. `address_plans`: those that addresses may have. `flavors`: those that addresses may
    name instead of a plan; None: each flavor of flavors.json."""

    address_plans: tuple[str, ...] = ()
    flavors: tuple[str, ...] | None = None
    limits: SpaceLimits = NO_LIMITS
    credit_limits: Credits = Credits()


class Plans(NamedTuple):
    """All plans, by name; a name occurs once in both."""

    addresses: dict[str, AddressPlan]
    spaces: dict[str, SpacePlan]

    @property
    def any(self) -> bool:
        """Return whether there is a plan."""
        return bool(self.addresses or self.spaces)


def _count(value: Any) -> int:
    return values.whole(value, 0, MAX_COUNT)


def _rate(value: Any) -> int:
    return values.whole(value, 1, MAX_COUNT)


def _by_type(value: Any) -> dict[str, int]:
    return values.members(value, {str(kind): _count for kind in TYPES})


_LIMITS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "addresses": _count,
    "addressesByType": _by_type,
    "users": _count,
    "connections": _count,
    "connectionsPerUser": _rate,
    "linksPerConnection": _rate,
    "messagesPerSecond": _rate,
    "bytesPerSecond": values.size,
    "maxMessageSize": values.size,
    "storage": values.size,
    "memory": values.size,
    "sessions": _count,
    "retained": _count,
    "wills": _count,
}


def _credit(value: Any) -> float:
    return values.number(value, 0, 1_000_000)


def _credits(value: Any) -> Credits:
    return Credits(**values.members(value, {"router": _credit, "broker": _credit}))


def _credit_limits(value: Any) -> Credits:
    return Credits(**values.members(value, {"router": _credit, "broker": _credit, "aggregate": _credit}))


def _limits(value: Any) -> SpaceLimits:
    return msgspec.convert(values.members(value, _LIMITS), SpaceLimits)


_OF_ADDRESS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "kind": values.text,
    "type": values.text,
    "flavor": values.text,
    "messageTtl": time_to_live,
    "maxSize": values.size,
    "credits": _credits,
}
_OF_SPACE: Final[Mapping[str, Callable[[Any], Any]]] = {
    "kind": values.text,
    "addressPlans": values.names,
    "flavors": values.names,
    "limits": _limits,
    "creditLimits": _credit_limits,
}
_SAME_IN_ADDRESSES: Final = ("type", "flavor", "messageTtl", "maxSize")
"""Fields of a plan that an entry of addresses.json may have too, checked alike."""


def parse_plans(
    document: Document, flavors: Mapping[str, Flavor], others: Mapping[str, AddressPlan] = {}
) -> tuple[Plans, list[Problem]]:
    """Return the valid plans, and what is wrong with the others. `flavors`: those in force; `others`: plans of
    addresses that are not in the document."""
    good, problems = document.parsed(lambda name, entry: _plan(name, entry, flavors))
    plans = Plans(
        {name: plan for name, plan in good.items() if isinstance(plan, AddressPlan)},
        {name: plan for name, plan in good.items() if isinstance(plan, SpacePlan)},
    )
    for name, plan in list(plans.spaces.items()):
        wrong = _unknown(plan, {**others, **plans.addresses}, flavors)
        if wrong is not None:
            problems.append(document.problem(str(wrong), name, *wrong.path))
            del plans.spaces[name]
    return plans, problems


def _plan(name: str, entry: Any, flavors: Mapping[str, Flavor]) -> AddressPlan | SpacePlan:
    reason = simple_error(name, "plan")
    if reason is not None:
        raise Wrong(reason)
    if not isinstance(entry, dict):
        raise Wrong(f"must be an object such as {_EXAMPLES}, not {values.kind(entry)}")
    kind = entry.get("kind")
    if kind == ADDRESS:
        return _address_plan(entry, flavors)
    if kind == SPACE:
        found = values.members(entry, _OF_SPACE)
        del found["kind"]
        return msgspec.convert(found, SpacePlan)
    raise Wrong(f"{'is missing' if kind is None else 'is unknown'}; write {ADDRESS!r} or {SPACE!r}", "kind")


def _address_plan(entry: dict[str, Any], flavors: Mapping[str, Flavor]) -> AddressPlan:
    found = values.members(entry, _OF_ADDRESS)
    if "type" not in entry:
        raise Wrong(f"is missing; write one of {', '.join(TYPES)}", "type")
    address = parse_address({key: entry[key] for key in _SAME_IN_ADDRESSES if key in entry}, flavors)
    return AddressPlan(
        type=address.type,
        flavor=address.flavor,
        message_ttl=address.message_ttl,
        max_size=address.max_size,
        credits=found.get("credits", Credits()),
    )


def _unknown(plan: SpacePlan, addresses: Mapping[str, AddressPlan], flavors: Mapping[str, Flavor]) -> Wrong | None:
    """Return what a plan of spaces names that does not exist."""
    for name in plan.address_plans:
        if name not in addresses:
            return Wrong(
                f"no valid plan {shown(name)!r} of kind {ADDRESS!r}: add it, or remove it here", "addressPlans"
            )
    for name in plan.flavors or ():
        if name not in flavors:
            return Wrong(f"no flavor {shown(name)!r} in flavors.json: put it there, or remove it here", "flavors")
    return None
