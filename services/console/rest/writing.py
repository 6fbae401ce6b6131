"""Changes of the configuration, one entry each, through configserv."""

from __future__ import annotations

import asyncio
from typing import Any

from enmasse.api.types import Change, ChangeResult, Kind
from services.console.door.access import Caller
from services.console.errors import RequestError
from services.console.following.redaction import shown_faults
from services.console.following.space_rows import AnyRows
from services.console.rest.api_operations import Call
from services.console.rest.components import Components

SEEN_SECONDS = 5.0
"""For a change to be in force."""
TARGETS = ("deadletter", "expiry")
"""Keys that name another address, which gets messages of this one."""


async def put(parts: Components, call: Call, kind: Kind, name: str, entry: dict[str, Any], *, exists: bool) -> str:
    """Write an entry, and return its etag when the feeds have it. `exists`: there is one, so If-Match is needed.
    Raises RequestError."""
    change = Change(kind=kind, set={name: entry}, if_={name: _based(call, exists=exists)})
    result = await made(parts, call, change)
    if kind == "users" and "password" in entry:
        parts.gate.withdraw(name, parts.space, None)
    etag = result.etags.get(name, "")
    await seen(parts, kind, name, etag)
    return etag


async def remove(parts: Components, call: Call, kind: Kind, name: str) -> None:
    """Remove an entry. Raises RequestError."""
    await made(parts, call, Change(kind=kind, remove=[name], if_={name: _based(call, exists=True)}))
    if kind == "users":
        parts.gate.withdraw(name, parts.space)
    await seen(parts, kind, name, None)


def _rows(parts: Components, kind: Kind) -> AnyRows[Any]:
    configuration = parts.configuration
    found: dict[str, AnyRows[Any]] = {
        "addresses": parts.addresses,
        "users": parts.principals,
        "flavors": configuration.flavors,
        "spaces": configuration.space_rows,
        "plans": configuration.plan_rows,
    }
    return found[kind]


def _based(call: Call, *, exists: bool) -> str | None:
    """Return the etag that the change is based on; None: there must not be an entry. Raises RequestError."""
    etag = call.if_match()
    if etag is None and exists:
        raise RequestError("console.etag.missing", "send If-Match with the ETag of the entry that you have read, or *")
    return etag


async def made(parts: Components, call: Call, change: Change) -> ChangeResult:
    """Have configserv make a change. Raises RequestError."""
    result = await parts.configuration.configure(change, call.caller, call.host)
    if result.accepted:
        return result
    errors = shown_faults(parts.addresses, call.caller, change.kind, result.errors)
    reasons = "; ".join(error.reason for error in errors)
    if result.conflict:
        if any(expected is None for expected in change.if_.values()):
            raise RequestError("console.name.in-use", reasons, errors)
        raise RequestError("console.etag.differs", reasons, errors)
    raise RequestError("console.change.refused", f"nothing was changed: {reasons}", errors)


def merged(entry: Any, patch: Any) -> Any:
    """Return an entry with a merge patch applied (RFC 7396): null removes a key."""
    if not isinstance(patch, dict):
        return patch
    found = dict(entry) if isinstance(entry, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found


def may_have(caller: Caller, name: str, entry: Any) -> None:
    """Raise RequestError if the entry of the address `name` would send messages to where the caller may not send."""
    for key in TARGETS:
        target = entry.get(key) if isinstance(entry, dict) else None
        if isinstance(target, str) and not caller.may("send", target):
            text = f"{key} of {name!r} needs the permission `send` on {target[:200]!r}"
            raise RequestError("console.permission.denied", text)
    if isinstance(entry, dict) and entry.get("mqttDefault") is True:
        administers(caller)


def changes_users(caller: Caller) -> None:
    """Raise RequestError if an API token states the caller: a user or password that it made would outlive it."""
    if caller.token:
        text = "an API token changes no users, which would outlive it: log in with the password"
        raise RequestError("console.permission.denied", text)


def administers(caller: Caller) -> None:
    """Raise RequestError unless the caller may manage everything."""
    if not caller.administrator:
        raise RequestError("console.permission.denied", "this needs the permission `manage` on `#`")


async def seen(parts: Components, kind: Kind, name: str, etag: str | None) -> None:
    """Wait until the row has this etag, so that a request that follows finds the change; and, for users, until
    passwords and tokens are checked by it, so that a login that follows does."""
    rows = _rows(parts, kind)
    try:
        async with asyncio.timeout(SEEN_SECONDS):
            with rows.watched() as watcher:
                while (None if (row := rows.get(name)) is None else row.etag) != etag:
                    watcher.take()
                    await watcher.wait()
            if kind == "users":
                await parts.authserv.has_users(parts.configuration.users_revision)
    except (TimeoutError, RequestError):
        pass  # it is in force later, for example because an edit by hand has broken the file meanwhile
