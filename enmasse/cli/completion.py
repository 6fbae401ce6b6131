"""Shell completion of addresses and flavors: those of the running suite, otherwise those of the files.

A shell calls the command at each TAB, so nothing here waits for long, and whatever cannot be read offers nothing. Nor
does a context: another machine would have to check a password first.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from enmasse.cli.contexts.contexts import in_force

PATIENCE = 1.0
"""Seconds for an answer of the suite."""


def addresses(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return names of addresses, each with its type. None after -a, which names a server's address itself."""
    if context.params.get("url") is not None or in_force(context) is not None:
        return []
    return _items({name: entry.get("type") for name, entry in _addresses(context).items()}, incomplete)


def flavors(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return names of flavors; if the type of the address is known, only those of that type."""
    if in_force(context) is not None:
        return []
    type_ = context.params.get("type_")
    found = _entries(_folder(context) / "flavors.json")
    known = {name: flavor.get("type") for name, flavor in found.items()}
    return _items({name: kind for name, kind in known.items() if type_ in (None, kind)}, incomplete)


def users(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return names of the users and groups in users.json."""
    if in_force(context) is not None:
        return []
    found = _entries(_folder(context) / "users.json")
    return _items({name: "group" if name.startswith("@") else "user" for name in found}, incomplete)


def subscriptions(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return ids of subscriptions of the running suite, each with its kind."""
    from enmasse.cli.messages.subctrl import NoAnswer, Refused, request
    from enmasse.model.sessions import SubscriptionsReply

    if in_force(context) is not None:
        return []
    try:
        rows = request(_offset(context), "subscriptions", None, SubscriptionsReply, PATIENCE).subscriptions
    except (NoAnswer, Refused):
        return []
    return _items({row.id: row.kind for row in rows}, incomplete)


def mqtt_clients(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """MQTT clients that are connected to the running suite, each with its gateway."""
    from enmasse.cli.messages.subctrl import NoAnswer, Refused, request
    from enmasse.model.sessions import SessionsReply

    if in_force(context) is not None:
        return []
    try:
        rows = request(_offset(context), "sessions", None, SessionsReply, PATIENCE).sessions
    except (NoAnswer, Refused):
        return []
    return _items({row.client: row.gateway for row in rows if row.connected}, incomplete)


def _addresses(context: click.Context) -> dict[str, dict[str, Any]]:
    from enmasse.cli.contexts.http import NotRunning, get_status

    if context.params.get("config") is None:
        try:
            return {entry["name"]: entry for entry in get_status(_offset(context), PATIENCE)["addresses"]}
        except NotRunning:
            pass
    return _entries(_folder(context) / "addresses.json")


def _folder(context: click.Context) -> Path:
    from enmasse.cli.contexts.folders import edited_folder

    return edited_folder(context.params.get("config"), _offset(context), PATIENCE)


def _offset(context: click.Context) -> int:
    return context.params.get("offset") or 0


def _entries(path: Path) -> dict[str, dict[str, Any]]:
    """The entries of a configuration file that are objects; of one that cannot be used none."""
    from enmasse.storage.files import read_file

    try:
        content = json.loads(read_file(path))
    except (OSError, ValueError, RecursionError):
        return {}
    entries = content.items() if isinstance(content, dict) else ()
    return {name: entry for name, entry in entries if isinstance(entry, dict)}


def _items(found: dict[str, Any], incomplete: str) -> list[CompletionItem]:
    offered = ((name, kind) for name, kind in found.items() if name.startswith(incomplete))
    return [
        CompletionItem(name, help=kind) for name, kind in offered if name.isprintable()
    ]  # no line end, no surrogate
