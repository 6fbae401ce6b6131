"""Log events for the differences between two configurations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enmasse import log
from enmasse.model.configuration import ADDRESSES, BROKERS, FLAVORS, USERS, AppliedState, differing

MAX_NAMES = 100
"""Names in one list of an event at most; `more` counts the others of all lists."""


def log_changes(was: AppliedState, now: AppliedState) -> None:
    """Log an event for each file whose entries in force have changed, or one for the first complete configuration."""
    if not now.complete:
        return
    if not was.complete:
        log.get().info("configserv.configuration.loaded", addresses=len(now.addresses), flavors=len(now.flavors))
        return
    for file, old, new in (
        (ADDRESSES, was.addresses, now.addresses),
        (FLAVORS, was.flavors, now.flavors),
        (BROKERS, was.brokers or {}, now.brokers or {}),
        (USERS, was.users or {}, now.users or {}),
    ):
        if old != new:
            log.get().info("configserv.configuration.changed", file=file, **_differences(old, new))


def _differences(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the names that were added, changed and removed; empty lists are left out."""
    names: dict[str, list[str]] = {"added": [], "changed": [], "removed": []}
    for name in differing(old, new):
        names["added" if name not in old else "changed" if name in new else "removed"].append(str(name))
    found: dict[str, Any] = {what: some[:MAX_NAMES] for what, some in names.items() if some}
    if more := sum(max(0, len(some) - MAX_NAMES) for some in names.values()):
        found["more"] = more
    return found
