"""Address spaces beside the default one: which of their entries are in force, given those that were before. Pure.

Each space is judged by itself, from its own files: what is wrong with one changes nothing of another, and what has not
changed is not judged again.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Final, Protocol

import msgspec

from enmasse.model.addresses import Address, edit_addresses
from enmasse.model.flavors import Flavor
from enmasse.model.issuers import Issuer
from enmasse.model.jsonfile import Document, Problem, edited, shown
from enmasse.model.merged import Content, MergedDocument
from enmasse.model.names import AddressName, LocalName, full_name, space_prefix, split_name
from enmasse.model.tenants.plan_rules import PlanRules
from enmasse.model.tenants.plans import Plans, parse_plans
from enmasse.model.tenants.space_files import Failed, addresses_in_force, in_force, issuers_in_force, users_in_force
from enmasse.model.tenants.spaces import OWN_FILES, Space, parse_spaces, space_file, type_of
from enmasse.model.users import User

NAME_IS_KEPT: Final = "waits until nothing is left of the removed space of this name"


class Reader(Protocol):
    """Reader of the files, which notes what it has read for the status."""

    def document(self, file: str, problems: list[Problem]) -> Document | None:
        """Return the document of a file, None if it cannot be used or is missing; add what is wrong to `problems`."""

    def note(self, file: str) -> None:
        """Note that the content of a file is in force, which `document` does too."""


class SpaceState(msgspec.Struct, frozen=True, kw_only=True):
    """State of a space beside its addresses: its entry of spaces.json, and its users and issuers by the names that
    they have there; None: there has never been a valid file of them."""

    space: Space = Space()
    users: dict[str, User] | None = None
    issuers: dict[str, Issuer] | None = None


class TenantState(msgspec.Struct, frozen=True, kw_only=True):
    """The spaces and plans in force, as stored. `ending`: removed space of which something may be left → id of its
    removal, which no other has (empty until it is saved)."""

    spaces: dict[str, SpaceState] = {}
    plans: Plans = Plans({}, {})
    ending: dict[str, str] = {}


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome for one space. The names are those that its addresses have there, but for `full` and `failed`."""

    state: SpaceState = SpaceState()
    addresses: dict[AddressName, Address] = {}
    """In the order of its file."""
    full: dict[AddressName, Address] = {}
    """Addresses by full names, which `deadletter` and `expiry` have here too."""
    failed: dict[AddressName, Failed] = {}
    """Entries without a valid version, by full names."""
    problems: dict[str, list[Problem]] = {}
    """File → what is wrong with it."""
    contents: dict[str, Content] = {}
    """The files that it comes from."""
    rules: PlanRules | None = None
    """Rules by which its addresses were judged; None: they have not been judged."""
    clung: tuple[str, ...] = ()
    """Flavors that are gone from flavors.json, and stay for those who use them."""
    origins: dict[AddressName, str] = {}
    """Address → the name of its source, by full names, if the file has several sources."""
    plain: bool = False
    """Each entry of addresses.json is in force, and a later edit can be judged by itself."""


def inside(space: str, addresses: Mapping[AddressName, Address]) -> dict[AddressName, Address]:
    """Return the addresses of a space by their full names, and with the full names of the queues that they name."""
    prefix = space_prefix(space)
    return {
        AddressName(prefix + name): address
        if address.deadletter is None and address.expiry is None
        else msgspec.structs.replace(
            address,
            deadletter=None if address.deadletter is None else AddressName(prefix + address.deadletter),
            expiry=None if address.expiry is None else AddressName(prefix + address.expiry),
        )
        for name, address in addresses.items()
    }


def as_stored(state: TenantState, addresses: Mapping[AddressName, Address]) -> dict[str, Judged]:
    """Return what was in force of each space, from the stored state and all addresses by full names."""
    if not state.spaces:
        return {}
    parts: dict[str, tuple[dict[AddressName, Address], dict[AddressName, Address]]]
    parts = {name: ({}, {}) for name in state.spaces}
    for name, address in addresses.items():
        space, local = split_name(name)
        if space in parts:
            own, full = parts[space]
            own[AddressName(local)] = outside(space, address)
            full[name] = address
    return {name: Judged(state=state.spaces[name], addresses=own, full=full) for name, (own, full) in parts.items()}


def outside(space: str, address: Address) -> Address:
    """Return an address of a space with the names there of the queues that it names: the inverse of `inside`."""
    prefix = space_prefix(space)
    if not prefix or (address.deadletter is None and address.expiry is None):
        return address
    return msgspec.structs.replace(
        address,
        deadletter=None if address.deadletter is None else AddressName(address.deadletter.removeprefix(prefix)),
        expiry=None if address.expiry is None else AddressName(address.expiry.removeprefix(prefix)),
    )


def judge(
    space: str,
    entry: Space,
    rules: PlanRules,
    clung: Mapping[str, Flavor],
    contents: Mapping[str, Content],
    reader: Reader,
    before: Judged | None,
) -> Judged:
    """Return what is in force of a space. `entry`: of spaces.json; `clung`: as of `addresses_in_force`."""
    was = Judged() if before is None else before
    files = [space_file(space, file) for file in OWN_FILES]
    addresses_file, users_file, issuers_file = files
    found = {file: contents.get(file) for file in files}
    problems = dict(was.problems)

    def same(file: str) -> bool:
        return was.rules is not None and found[file] == was.contents.get(file)

    users, issuers = was.state.users, was.state.issuers
    most = rules.terms.limits.users
    if not same(users_file) or (was.rules is not None and was.rules.terms.limits.users != most):
        wrong = problems[users_file] = []
        document = reader.document(users_file, wrong)
        users = users_in_force(document, users, wrong, None)
        if document is not None and users is not None:
            wrong += rules.users_exceeded(document, users, was.state.users or {})
    if not same(issuers_file):
        wrong = problems[issuers_file] = []
        issuers = issuers_in_force(reader.document(issuers_file, wrong), issuers, wrong, in_space=True)
    state = SpaceState(space=entry, users=users, issuers=issuers)
    same_rules = was.rules == rules and was.clung == tuple(clung)
    if same_rules and same(addresses_file):
        return msgspec.structs.replace(was, state=state, problems=problems, contents=found)
    wrong = problems[addresses_file] = []
    addresses = _edited(addresses_file, found[addresses_file], was, rules) if same_rules else None
    plain, failed, origins = True, dict[AddressName, Failed](), dict[AddressName, str]()
    if addresses is not None:
        reader.note(addresses_file)
    else:
        document = reader.document(addresses_file, wrong)
        addresses, failed, more = addresses_in_force(document, rules.flavors, clung, was.addresses, rules)
        wrong += more
        plain = document is not None and document.plain and not wrong and not clung
        if isinstance(document, MergedDocument):
            origins = {full_name(space, LocalName(shown(name))): origin for name, origin in document.origins.items()}
    return Judged(
        state=state,
        addresses=addresses,
        full=inside(space, addresses),
        failed={full_name(space, LocalName(name)): each for name, each in failed.items()},
        problems=problems,
        contents=found,
        rules=rules,
        clung=tuple(clung),
        origins=origins,
        plain=plain,
    )


def _edited(file: str, content: Content, was: Judged, rules: PlanRules) -> dict[AddressName, Address] | None:
    """Return the addresses, found from what has changed in the file alone; None if it must be judged as a whole,
    because something in it may be wrong."""
    old = was.contents.get(file)
    if not was.plain or not isinstance(content, bytes) or not isinstance(old, bytes):
        return None
    edit = edited(old, content)
    found = None if edit is None else edit_addresses(file, edit, rules.flavors, was.addresses, rules.parse)
    if edit is None or found is None:
        return None
    return None if rules.exceeded(Document(file, "{}", edit.after, []), dict(found), was.addresses) else found


def plans_in_force(
    document: Document | None, flavors: Mapping[str, Flavor], last: Plans, problems: list[Problem]
) -> Plans:
    """Return the plans; an invalid entry keeps its last good version."""
    if document is None:
        return last
    good, wrong = parse_plans(document, flavors)
    problems += wrong
    addresses = in_force(document, good.addresses, last.addresses)
    spaces = in_force(document, good.spaces, last.spaces)
    return Plans(
        {name: plan for name, plan in addresses.items() if name not in good.spaces},
        {name: plan for name, plan in spaces.items() if name not in good.addresses},
    )


def spaces_in_force(
    document: Document | None,
    plans: Plans,
    flavors: Mapping[str, Flavor],
    last: Mapping[str, SpaceState],
    left: Mapping[str, str],
    problems: list[Problem],
) -> dict[str, Space]:
    """Return the spaces; an invalid entry keeps its last good version. One of a removed space's name waits until
    nothing of that is `left` (space → what is). The type of a space never changes."""
    before = {name: state.space for name, state in last.items()}
    if document is None:
        return before
    good, wrong = parse_spaces(document, plans, flavors)
    types = {name: type_of(entry) for name, entry in document.entries.items() if name in before}
    changed = {name for name, type_ in types.items() if type_ not in (None, before[name].type)}
    problems += [problem for problem in wrong if problem.entry not in changed]  # what else is wrong follows from that
    for name in sorted(changed):
        reason = f"it is {before[name].type!r}, and that cannot change: its queues and topics are on other brokers as "
        reason += "the other type has them. Make another space, and remove this one"
        problems.append(document.problem(reason, name, "type"))
        good.pop(name, None)
    waiting = [name for name in good if name in left and name not in last]
    problems += [document.problem(f"{NAME_IS_KEPT}: {left[name]}", name) for name in waiting]
    return in_force(document, {name: space for name, space in good.items() if name not in waiting}, before)


def ending(now: Container[str], before: TenantState, left: Container[str]) -> dict[str, str]:
    """Return the removed spaces of which something may be left, as stored. `now`: the spaces in force."""
    known = {name: id for name, id in before.ending.items() if name in left and name not in now}
    return known | {name: "" for name in before.spaces if name not in now}


def with_used(plans: Plans, spaces: Iterable[Space], last: Plans) -> Plans:
    """Return the plans, and the last version of those that are gone and that a space or a plan in force names."""
    of_spaces = {
        space.plan: last.spaces[space.plan]
        for space in spaces
        if space.plan is not None and space.plan not in plans.spaces and space.plan in last.spaces
    }
    in_use = {**plans.spaces, **of_spaces}
    of_addresses = {
        name: last.addresses[name]
        for plan in in_use.values()
        for name in plan.address_plans
        if name not in plans.addresses and name in last.addresses
    }
    return Plans({**plans.addresses, **of_addresses}, in_use)
