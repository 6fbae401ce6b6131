"""Log events for the differences between two configurations."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from enmasse.logs import log
from enmasse.model.configuration import ADDRESSES, BROKERS, FLAVORS, ISSUERS, USERS, Applied, AppliedState, differing

MAX_NAMES = 100
"""Names in one list of an event at most; `more` counts the others of all lists."""


def log_changes(was: AppliedState, applied: Applied) -> None:
    """Log an event for each file whose entries in force have changed, or one for the first complete configuration."""
    now = applied.state
    if not now.complete:
        return
    files = [each for each in _files(was, applied) if each.names]
    _audit(was, now, files)
    if not was.complete:
        log.get().info("configserv.configuration.loaded", addresses=len(now.addresses), flavors=len(now.flavors))
        return
    for each in files:
        log.get().info("configserv.configuration.changed", file=each.file, **_cut(each.parted()))


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


def _audit(was: AppliedState, now: AppliedState, files: Iterable[_Changed]) -> None:
    """Log the same for auditors: of files only counts, of users and groups the names. Who edits a file is not known."""
    facts: dict[str, Any] = {"who": None, "outcome": "in force"}
    for each in files:
        if each.file != USERS:
            counts = {what: len(names) for what, names in each.parted().items()}
            what = f"entries of {each.file}"
            log.audit("audit.configuration.changed", from_=each.file, what=what, **facts, **counts)
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


def _files(was: AppliedState, applied: Applied) -> Iterator[_Changed]:
    now = applied.state
    yield _Changed(ADDRESSES, was.addresses, now.addresses, applied.changed)
    for file, old, new in (
        (FLAVORS, was.flavors, now.flavors),
        (BROKERS, was.brokers or {}, now.brokers or {}),
        (USERS, was.users or {}, now.users or {}),
        (ISSUERS, was.issuers or {}, now.issuers or {}),
    ):
        yield _Changed(file, old, new, differing(old, new))


def _cut(names: dict[str, list[str]]) -> dict[str, Any]:
    found: dict[str, Any] = {what: some[:MAX_NAMES] for what, some in names.items() if some}
    if more := sum(max(0, len(some) - MAX_NAMES) for some in names.values()):
        found["more"] = more
    return found
