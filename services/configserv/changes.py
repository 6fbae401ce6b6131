"""Log events for the differences between two configurations."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import UNSET

from enmasse.logs import log
from enmasse.model.addresses import Address
from enmasse.model.configuration import (
    ADDRESSES,
    BROKERS,
    FLAVORS,
    ISSUERS,
    PLANS,
    SPACES,
    USERS,
    Applied,
    AppliedState,
    differing,
)
from enmasse.model.names import DEFAULT_SPACE, AddressName, LocalName, space_of, split_name
from enmasse.model.tenants.spaces import space_file, split_file
from enmasse.model.tenants.tenancy import SpaceState, TenantState

MAX_NAMES = 100
"""Names in one list of an event at most; `more` counts the others of all lists."""


def log_loaded(state: AppliedState) -> None:
    """Log an event for the first complete configuration of this process."""
    log.get().info("configserv.configuration.loaded", addresses=len(state.addresses), flavors=len(state.flavors))


def log_changes(was: AppliedState, applied: Applied) -> None:
    """Log an event for each file whose entries in force have changed, or one for the first complete configuration."""
    now = applied.state
    if not now.complete:
        return
    files = [each for each in _files(was, applied) if each.names]
    _audit(files)
    if not was.complete:
        log_loaded(now)
        return
    for each in files:
        space = split_file(each.file).space
        log.get().info("configserv.configuration.changed", file=each.file, space=space, **_cut(each.parted()))


class _Changed(NamedTuple):
    """The entries of a file before and now, and the names of those that differ."""

    file: str
    old: Mapping[Any, Any]
    new: Mapping[Any, Any]
    names: Collection[str]

    def parted(self) -> dict[str, list[str]]:
        """Return the names that were added, changed and removed."""
        names: dict[str, list[str]] = {"added": [], "changed": [], "removed": []}
        for name in self.names:
            names["added" if name not in self.old else "changed" if name in self.new else "removed"].append(str(name))
        return names


def _audit(files: Iterable[_Changed]) -> None:
    """Log the same for auditors: of files only counts, of users and groups the names. Who edits a file is not known."""
    facts: dict[str, Any] = {"who": None, "outcome": "in force"}
    for each in files:
        if split_file(each.file).file == USERS:
            _audit_users(each, facts)
        else:
            counts = {what: len(names) for what, names in each.parted().items()}
            what = f"entries of {each.file}"
            space = split_file(each.file).space
            log.audit("audit.configuration.changed", from_=each.file, what=what, space=space, **facts, **counts)


def _audit_users(of: _Changed, facts: Mapping[str, Any]) -> None:
    old, new = of.old, of.new
    both = [name for name in of.names if name in old and name in new]
    passwords = [
        name for name in both if (old[name].password, old[name].scram) != (new[name].password, new[name].scram)
    ]
    names = _cut(
        {
            "added": [name for name in new if name not in old],
            "removed": [name for name in old if name not in new],
            "passwords": passwords,
            "tokens": [name for name in both if old[name].tokens != new[name].tokens],
            "permissions": [name for name in both if old[name].granted != new[name].granted],
        }
    )
    space = split_file(of.file).space
    log.audit("audit.users.changed", from_=of.file, what="users and groups", space=space, **facts, **names)


def _files(was: AppliedState, applied: Applied) -> Iterator[_Changed]:
    now = applied.state
    changed: dict[str, list[AddressName]] = {DEFAULT_SPACE: []}
    for name in applied.changed:
        changed.setdefault(space_of(name), []).append(name)
    yield _Changed(ADDRESSES, was.addresses, now.addresses, changed.pop(DEFAULT_SPACE))
    for file, old, new in (
        (FLAVORS, was.flavors, now.flavors),
        (BROKERS, was.brokers or {}, now.brokers or {}),
        (USERS, was.users or {}, now.users or {}),
        (ISSUERS, was.issuers or {}, now.issuers or {}),
    ):
        yield _Changed(file, old, new, differing(old, new))
    if was.tenants is not now.tenants:
        yield from _files_of_tenants(was, now)
    for space, names in changed.items():
        before, after = _local(names, was), _local(names, now)
        yield _Changed(space_file(space, ADDRESSES), before, after, list(before | after))


def _local(names: Iterable[AddressName], state: AppliedState) -> dict[LocalName, Address]:
    """Return the addresses of these names that there are, by their names in their space."""
    return {split_name(name).local: state.addresses[name] for name in names if name in state.addresses}


def _files_of_tenants(was: AppliedState, now: AppliedState) -> Iterator[_Changed]:
    """Yield the files of spaces and plans, and of users and issuers of each space."""
    before, after = (TenantState() if each.tenants is UNSET else each.tenants for each in (was, now))
    entries: list[Mapping[str, Any]] = [
        {name: each.space for name, each in state.spaces.items()} for state in (before, after)
    ]
    plans: list[Mapping[str, Any]] = [{**state.plans.addresses, **state.plans.spaces} for state in (before, after)]
    for file, (old, new) in ((SPACES, entries), (PLANS, plans)):
        yield _Changed(file, old, new, differing(old, new))
    for space in {**before.spaces, **after.spaces}:
        was_there, is_there = before.spaces.get(space, SpaceState()), after.spaces.get(space, SpaceState())
        users, issuers = (
            (was_there.users or {}, is_there.users or {}),
            (was_there.issuers or {}, is_there.issuers or {}),
        )
        yield _Changed(space_file(space, USERS), *users, differing(*users))
        yield _Changed(space_file(space, ISSUERS), *issuers, differing(*issuers))


def _cut(names: dict[str, list[str]]) -> dict[str, Any]:
    found: dict[str, Any] = {what: some[:MAX_NAMES] for what, some in names.items() if some}
    if more := sum(max(0, len(some) - MAX_NAMES) for some in names.values()):
        found["more"] = more
    return found
