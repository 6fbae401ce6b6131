"""spaces.json: which address spaces there are beside the default one (docs/decisions/0051-address-spaces.md).

The addresses, users and issuers of a space are in files of its own, below `spaces/NAME`; their names have no prefix.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec

from enmasse.model import values
from enmasse.model.flavors import Flavor
from enmasse.model.jsonfile import Document, Problem, shown
from enmasse.model.mqtt_limits import MOST_GATEWAYS
from enmasse.model.names import DEFAULT_SPACE, space_error
from enmasse.model.tenants.plans import Plans, SpacePlan
from enmasse.model.values import Wrong

SpaceType = Literal["standard", "brokered"]
TYPES: Final[tuple[SpaceType, ...]] = ("standard", "brokered")
MAX_SPACES: Final = 10_000
MOST_OWN_ROUTERS: Final = 7
"""Routers of a space's own: a suite has eight, of which one is for all."""
MAX_HOSTS: Final = 100
"""Hosts of a space."""
FOLDER: Final = "spaces"
"""Folder of the folders of spaces."""
OWN_FILES: Final = ("addresses.json", "users.json", "issuers.json")
"""Files that each space has of its own."""
_EXAMPLE: Final = '{"plan": "small", "hosts": ["orders.example.com"]}'
_LABEL: Final = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")


class Space(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An address space. `type` `brokered`: one broker has all of its addresses; it is of `flavor`, or of the first
    flavor that the space may use (None). `plan`: its plan in plans.json; None: it may use everything. `hosts`: names of
    hosts by which clients mean this space, in small letters."""

    type: SpaceType = "standard"
    flavor: str | None = None
    plan: str | None = None
    hosts: tuple[str, ...] = ()
    gateways: int = 0
    routers: int = 0


def parse_spaces(
    document: Document, plans: Plans, flavors: Mapping[str, Flavor]
) -> tuple[dict[str, Space], list[Problem]]:
    """Return the valid address spaces, and what is wrong with the others. `plans`, `flavors`: those in force."""
    too_many = set(list(document.entries)[MAX_SPACES:])

    def parse(name: str, entry: Any) -> Space:
        if name in too_many:
            raise Wrong(f"{MAX_SPACES} address spaces are possible; remove one")
        reason = space_error(name)
        if reason is not None:
            raise Wrong(reason)
        return _space(entry, plans, flavors)

    good, problems = document.parsed(parse)
    return good, problems + _ambiguous(document, good)


def space_file(space: str, file: str) -> str:
    """Return the path of a file of a space, from the folder of the configuration."""
    return file if space == DEFAULT_SPACE else f"{FOLDER}/{space}/{file}"


class InFile(NamedTuple):
    """A file, and the address space that has it."""

    space: str
    file: str


def split_file(path: str) -> InFile:
    """Return the address space of a file, and its name there: the inverse of `space_file`."""
    parts = path.split("/")
    return InFile(parts[1], parts[2]) if len(parts) == 3 and parts[0] == FOLDER else InFile(DEFAULT_SPACE, path)


class Reached(Protocol):
    """An address space, as far as clients reach it."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the hosts by which clients mean it."""


def hosts_of(spaces: Mapping[str, Reached]) -> dict[str, str]:
    """Return host → the address space that clients mean by it: its own name, and the hosts of its entry."""
    return {**{host: name for name, space in spaces.items() for host in space.hosts}, **{name: name for name in spaces}}


def meant_host(stated: str) -> str:
    """Return the host that a client states as `hosts_of` has it: in small letters, without the dot of the root."""
    return stated.lower().removesuffix(".")


def host_fault(host: str) -> str:
    """Return why a text is no name of a host; empty: it is one."""
    if len(host) > 253 or not _HOST.fullmatch(host):
        return f"{shown(host)!r} is not the name of a host in small letters, such as orders.example.com"
    return ""


def brokered_flavors(plan: str | None, plans: Plans, flavors: Mapping[str, Flavor]) -> list[str]:
    """Return the flavors whose brokers a brokered space of this plan may have: those of the plan and of its address
    plans, of queues or topics, in the order of flavors.json."""
    terms = None if plan is None else plans.spaces.get(plan)
    permitted = None if terms is None else terms.flavors
    if terms is not None and permitted is not None:
        named = (plans.addresses[name].flavor for name in terms.address_plans if name in plans.addresses)
        permitted = (*permitted, *(flavor for flavor in named if flavor is not None))
    return [name for name, flavor in flavors.items() if not flavor.by_hand and (permitted is None or name in permitted)]


def _space(entry: Any, plans: Plans, flavors: Mapping[str, Flavor]) -> Space:
    if not isinstance(entry, dict):
        raise Wrong(f"must be an object such as {_EXAMPLE}, not {values.kind(entry)}")
    checks: dict[str, Callable[[Any], Any]] = {
        "type": _type,
        "flavor": values.text,
        "plan": lambda value: _plan(value, plans.spaces),
        "hosts": _hosts,
        "gateways": lambda value: values.whole(value, 1, MOST_GATEWAYS),
        "routers": lambda value: values.whole(value, 1, MOST_OWN_ROUTERS),
    }
    found = Space(**values.members(entry, checks))
    if found.type != "brokered" and found.flavor is not None:
        raise Wrong("applies to an address space of type 'brokered'; elsewhere each address names its own", "flavor")
    if found.type == "brokered":
        possible = brokered_flavors(found.plan, plans, flavors)
        if not possible or (found.flavor is not None and found.flavor not in possible):
            what = "is missing" if found.flavor is None else f"{shown(found.flavor)!r} is no flavor for its broker"
            raise Wrong(f"{what}; the space may have {', '.join(possible[:10]) or 'none: define one'}", "flavor")
    return found


def type_of(entry: Any) -> str | None:
    """Return the type that an entry states, or has without stating one; None if that is no type."""
    found = entry.get("type", TYPES[0]) if isinstance(entry, dict) else None
    return found if found in TYPES else None


def _type(value: Any) -> str:
    if value not in TYPES:
        raise Wrong(f"must be one of {', '.join(TYPES)}")
    return str(value)


def _plan(value: Any, plans: Mapping[str, SpacePlan]) -> str:
    name = values.text(value)
    if name not in plans:
        known = ", ".join(sorted(plans)[:10]) or "none: define one in plans.json"
        raise Wrong(
            f"no valid plan {shown(name)!r} of kind 'space'; those plans are {known}{values.meant(name, plans)}"
        )
    return name


def _hosts(value: Any) -> tuple[str, ...]:
    found = values.names(value)
    if len(found) > MAX_HOSTS:
        raise Wrong(f"may have {MAX_HOSTS} hosts at most")
    for host in found:
        if fault := host_fault(host):
            raise Wrong(fault)
    return found


def _ambiguous(document: Document, good: dict[str, Space]) -> list[Problem]:
    """Return problems of spaces with a host that another one has, or is called, and remove the later of the two."""
    problems: list[Problem] = []
    owners: dict[str, str] = {name: name for name in good}
    for name, space in list(good.items()):
        taken = next((host for host in space.hosts if owners.setdefault(host, name) != name), None)
        if taken is not None:
            reason = f"{taken!r} is a host of the address space {owners[taken]!r}; remove it from one of the two"
            problems.append(document.problem(reason, name, "hosts"))
            del good[name]
    return problems
