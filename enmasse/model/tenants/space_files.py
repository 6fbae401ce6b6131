"""The files of one address space: which of their entries are in force, given those that were before. Pure.

An invalid entry keeps its last good version, or fails if it never had one; the others apply.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from enmasse.model.address_types import AddressType, type_of
from enmasse.model.addresses import Address, indistinct, parse_addresses, references, shadowed
from enmasse.model.flavors import Flavor
from enmasse.model.issuers import Issuer, parse_issuers
from enmasse.model.jsonfile import Document, Problem, shown
from enmasse.model.merged import kept
from enmasse.model.names import AddressName
from enmasse.model.users import Known, User, parse_users, unknown_groups

V = TypeVar("V")


class Failed(msgspec.Struct, frozen=True):
    """Entry without a valid version: the reason, and its known fields."""

    reason: str
    type: AddressType | None = None
    flavor: str | None = None


class Rules(Protocol):
    """Terms of the plan of a space for its addresses."""

    def parse(self, entry: Any) -> Address:
        """Return one entry of addresses.json in canonical form. Raises Wrong."""

    def exceeded(
        self, document: Document, found: dict[AddressName, Address], last: Mapping[AddressName, Address]
    ) -> list[Problem]:
        """Return problems of the addresses that are too many beside those of `last`, and take these out of `found`, or
        give them their last version."""


def in_force(document: Document, good: Mapping[str, V], before: dict[str, V]) -> dict[str, V]:
    """Return the valid entries of a document in its order, the last good version of its other ones, and what it keeps
    of sources that cannot be read."""
    found = {name: found for name in document.entries if (found := good.get(name) or before.get(name)) is not None}
    return {**found, **kept(document, before)}


def users_in_force(
    document: Document | None, last: dict[str, User] | None, problems: list[Problem], known: Known | None
) -> dict[str, User] | None:
    """Return the users; a file that is gone or cannot be used takes none away."""
    if document is None:
        return last
    good, wrong = parse_users(document, known)
    problems += wrong
    found = in_force(document, good, last or {})
    problems += unknown_groups(document, found)
    return found


def issuers_in_force(
    document: Document | None, last: dict[str, Issuer] | None, problems: list[Problem], *, in_space: bool = False
) -> dict[str, Issuer] | None:
    """Return the issuers in the order of the file; a file that is gone or cannot be used takes none away. `in_space`:
    as of `parse_issuers`."""
    if document is None:
        return last
    good, wrong = parse_issuers(document, in_space=in_space)
    problems += wrong
    return in_force(document, good, last or {})


def addresses_in_force(
    document: Document | None,
    flavors: Mapping[str, Flavor],
    clung: Mapping[str, Flavor],
    last: dict[AddressName, Address],
    rules: Rules | None = None,
) -> tuple[dict[AddressName, Address], dict[AddressName, Failed], list[Problem]]:
    """Return the addresses, the entries that have no valid version, and the problems. `flavors`: those in force, of
    which `clung` are gone from flavors.json and stay for the addresses that use them already."""
    if document is None:
        return last, {}, []
    parse = None if rules is None else rules.parse
    good, problems = parse_addresses(document, flavors, last, parse)
    for name, address in list(good.items()) if clung else ():
        before = last.get(name)
        if address.flavor in clung and (before is None or before.flavor != address.flavor):
            problems.append(
                document.problem(f"the flavor {address.flavor!r} is no longer in flavors.json", name, "flavor")
            )
            del good[name]
    result = good
    if len(good) != len(document.entries):
        result = {}
        for name in map(AddressName, document.entries):
            found = good.get(name) or last.get(name)
            if found is not None:
                result[name] = found
    result = {**result, **kept(document, last)}
    if result.keys() != good.keys():  # of those that are kept, some may not go together with new ones
        problems += indistinct(document, result, last)
        problems += shadowed(document, result, last)
    if rules is not None and (exceeded := rules.exceeded(document, result, last)):
        order = list(result)
        problems += [*exceeded, *references(document, result, last)]
        result = {name: found for name in order if (found := result.get(name) or last.get(name)) is not None}
    reasons: dict[str, str] = {}
    for problem in problems:
        if problem.entry is not None:
            reasons.setdefault(problem.entry, f"{problem.field}: {problem.reason}" if problem.field else problem.reason)
    failed = {
        AddressName(shown(name)): _failed(entry, reasons.get(shown(name), "is not valid"))
        for name, entry in document.entries.items()
        if name not in result
    }
    return result, failed, problems


def _failed(entry: Any, reason: str) -> Failed:
    if not isinstance(entry, dict):
        return Failed(reason)
    flavor = entry.get("flavor")
    return Failed(reason, type_of(entry), shown(flavor) if isinstance(flavor, str) else None)
