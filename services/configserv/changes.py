"""Log events for the differences between two configurations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from enmasse import log
from enmasse.model.configuration import ADDRESSES, BROKERS, FLAVORS, ISSUERS, USERS, AppliedState, differing

MAX_NAMES = 100
"""Names in one list of an event at most; `more` counts the others of all lists."""


def log_changes(was: AppliedState, now: AppliedState) -> None:
    """Log an event for each file whose entries in force have changed, or one for the first complete configuration."""
    if not now.complete:
        return
    _audit(was, now)
    if not was.complete:
        log.get().info("configserv.configuration.loaded", addresses=len(now.addresses), flavors=len(now.flavors))
        return
    for file, old, new in _files(was, now):
        if old != new:
            log.get().info("configserv.configuration.changed", file=file, **_differences(old, new))


def _audit(was: AppliedState, now: AppliedState) -> None:
    """Log the same for auditors: of files only counts, of users and groups the names. Who edits a file is not known."""
    facts: dict[str, Any] = {"who": None, "outcome": "in force"}
    for file, old, new in _files(was, now):
        if file == USERS or old == new:
            continue
        counts = _counted(old, new)
        log.audit("audit.configuration.changed", from_=file, what=f"entries of {file}", **facts, **counts)
    old_users, new_users = was.users or {}, now.users or {}
    if old_users == new_users:
        return
    both = [name for name in differing(old_users, new_users) if name in old_users and name in new_users]
    passwords = [
        name
        for name in both
        if (old_users[name].password, old_users[name].scram) != (new_users[name].password, new_users[name].scram)
    ]
    names = _cut(
        {
            "added": [name for name in new_users if name not in old_users],
            "removed": [name for name in old_users if name not in new_users],
            "passwords": passwords,
            "permissions": [name for name in both if old_users[name].granted != new_users[name].granted],
        }
    )
    log.audit("audit.users.changed", from_=USERS, what="users and groups", **facts, **names)


def _files(was: AppliedState, now: AppliedState) -> Iterator[tuple[str, Mapping[Any, Any], Mapping[Any, Any]]]:
    yield ADDRESSES, was.addresses, now.addresses
    yield FLAVORS, was.flavors, now.flavors
    yield BROKERS, was.brokers or {}, now.brokers or {}
    yield USERS, was.users or {}, now.users or {}
    yield ISSUERS, was.issuers or {}, now.issuers or {}


def _counted(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> dict[str, int]:
    found = {"added": 0, "changed": 0, "removed": 0}
    for name in differing(old, new):
        found["added" if name not in old else "changed" if name in new else "removed"] += 1
    return found


def _differences(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the names that were added, changed and removed; empty lists are left out."""
    names: dict[str, list[str]] = {"added": [], "changed": [], "removed": []}
    for name in differing(old, new):
        names["added" if name not in old else "changed" if name in new else "removed"].append(str(name))
    return _cut(names)


def _cut(names: dict[str, list[str]]) -> dict[str, Any]:
    found: dict[str, Any] = {what: some[:MAX_NAMES] for what, some in names.items() if some}
    if more := sum(max(0, len(some) - MAX_NAMES) for some in names.values()):
        found["more"] = more
    return found
