"""`enmasse address list|show|add|set|remove`: the addresses in a configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from enmasse.cli.commands.configuration import address_messages
from enmasse.cli.common import done, end, port_offset, report, say
from enmasse.cli.completion import addresses, flavors
from enmasse.cli.configuration import cluster, entries
from enmasse.cli.configuration.configured import (
    ContextEntries,
    Entries,
    opened,
    removed,
    running_on,
    with_consumers_of_topics,
)
from enmasse.cli.configuration.kinds import ADDRESSES
from enmasse.cli.contexts.folders import edited_folder
from enmasse.cli.output.lists import Column, WantedRows, list_options
from enmasse.model.address_types import TYPES
from enmasse.model.names import SPACE
from enmasse.model.values import FULL_POLICIES

ADDRESSES_LISTED = tuple(
    Column(title, field)
    for title, field in (
        ("address", "name"),
        *((each, each) for each in ("type", "flavor", "ready", "phase", "messages", "consumers")),
    )
)


PROPERTIES = {
    "messageTtl": ('{"minimum": MS, "maximum": MS}', "limits of the time to live"),
    "messageRedelivery": ('{"maximumDeliveryAttempts": N, "redeliveryDelay": MS}', "number and delay of deliveries"),
    "deadletter": ("QUEUE", "for messages that cannot be delivered"),
    "expiry": ("QUEUE", "for messages that expired"),
    "maxSize": ("512Mi", "size of the address"),
    "fullPolicy": ("|".join(FULL_POLICIES), "what happens to messages for a full address"),
    "duplicates": ("message-id", "duplicates are detected"),
    "mqttDefault": ("true", "the topic for all other MQTT topics"),
}
"""Keys of an entry beside type and flavor: what a VALUE is like, and the meaning."""
_PROPERTIES = "\n".join(f"    {key}={value}: {meaning}" for key, (value, meaning) in PROPERTIES.items())


@click.group(name="address", short_help="List, show, add, change and remove addresses.")
def command() -> None:
    """List, show, add, change and remove addresses.

    Works on the files in --config. Without it: on those of the running suite (at --port-offset), which changes them
    itself, else on those in this directory, else on those in the default folder of `enmasse up`. With --namespace on
    the ConfigMaps of an installation in a Kubernetes cluster, in a context on the suite there.
    """


address_messages.add_to(command)


def _options(function: Any) -> Any:
    function = click.option("--config", "config", type=click.Path(path_type=Path), metavar="DIR",
                            help="Folder of addresses.json.")(function)  # fmt: skip
    return cluster.options(port_offset(function))


def _looked_up(
    config: Path | None, offset: int, place: cluster.Place | None
) -> tuple[str, dict[str, Any], dict[str, dict[str, Any]], str, set[str]]:
    """Return the place of the entries, the entries, the addresses of the space in the status of the suite that runs
    there, the phase of those that are not in it, and the flavors that keep messages in memory."""
    from enmasse.cli.configuration import validate

    there = opened(ADDRESSES, config, offset, place)
    if isinstance(there, cluster.ClusterEntries):
        running, phase = there.rows()
        return there.where, there.all(), _of_default_space(running), phase, set()
    if isinstance(there, ContextEntries):
        return there.where, there.all(), there.rows(), "not shown", set()
    folder = edited_folder(config, offset)
    running = with_consumers_of_topics(_of_default_space(running_on(folder, offset)), offset)
    return there.where, there.all(), running, "not running", validate.in_memory(folder)


def _of_default_space(rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the addresses that are in no other space: the status has all."""
    return {name: row for name, row in rows.items() if not name.startswith(SPACE)}


def _described(name: str, entry: Any, in_memory: set[str], phase: str = "not running") -> dict[str, Any]:
    """Return an entry of the file in the shape of an entry of the status JSON, for an address that is not there.

    `in_memory`: the flavors that keep messages there.
    """
    from enmasse.cli.configuration.validate import type_of
    from enmasse.model.flavors import IN_MEMORY

    flavor = entry.get("flavor") if isinstance(entry, dict) else None
    message = IN_MEMORY if isinstance(flavor, str) and flavor in in_memory else ""
    return {
        "name": name, "type": type_of(entry), "flavor": flavor, "ready": False, "phase": phase,
        "message": message, "components": [], "messages": None, "consumers": None,
    }  # fmt: skip


@command.command("list")
@click.argument("patterns", metavar="[PATTERN]...", nargs=-1, shell_complete=addresses)
@click.option("--not-ready", is_flag=True, help="Only addresses that are not ready.")
@_options
@list_options(ADDRESSES_LISTED, former={"depth": "-messages"})
def list_(
    patterns: tuple[str, ...], not_ready: bool, wanted: WantedRows, config: Path | None, offset: int,
    place: cluster.Place | None,
) -> None:  # fmt: skip
    """List the addresses in the file, with their state if the suite runs: all, or those whose names match a PATTERN
    such as 'orders*' (the same as --match).

    Messages and consumers of a running suite are those of some seconds ago: 1 to 2, up to 5 with many addresses.
    """
    from enmasse.cli.output.tables import OF_BROKERS, has_topics, print_notes

    _, entered, running, phase, in_memory = _looked_up(config, offset, place)
    rows = [running.get(name) or _described(name, entry, in_memory, phase) for name, entry in entered.items()]
    rows += [entry for name, entry in running.items() if name not in entered]  # leaving
    rows = [row for row in rows if not (not_ready and row["ready"])]
    shown = wanted.also(patterns).show("addresses", rows, ADDRESSES_LISTED)
    if not wanted.as_json:
        print_notes((row["name"], row.get("message")) for row in shown)
        if place is not None and has_topics(shown):
            report(OF_BROKERS)


@command.command("show")
@click.argument("name", shell_complete=addresses)
@_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def show(name: str, config: Path | None, offset: int, place: cluster.Place | None, as_json: bool) -> None:
    """Show the entry of one address in the file; if the suite runs also its state, and its receivers at each router and
    gateway."""
    from enmasse.text import printable

    where, wanted, found, phase, in_memory = _looked_up(config, offset, place)
    running = found.get(name)
    if name not in wanted and running is None:
        ADDRESSES.unknown(where, name, {**wanted, **found})
    receivers = _receivers(name, offset) if running is not None and place is None else None
    shown = {"name": name, "configured": wanted.get(name), "status": running, "receivers": receivers}
    if as_json:
        click.echo(json.dumps(shown))
        return
    say(f"{printable(name)}: {json.dumps(wanted[name]) if name in wanted else 'removed from the file'}")
    if running is None:
        entry = _described(name, wanted[name], in_memory, phase)
        running = {key: entry[key] for key in ("phase", "message")}
    for key, value in running.items():
        if key != "name" and value not in (None, "", []):
            say(f"  {key}: {printable(value) if isinstance(value, str) else json.dumps(value)}")
    if receivers:
        say(f"  receivers: {', '.join(f'{count} at {component}' for component, count in receivers.items())}")


def _receivers(name: str, offset: int) -> dict[str, int] | None:
    """Return router or gateway → receivers of an address there, from the console; None if it does not tell."""
    from enmasse.cli.contexts.console import LocalConsole, api, console, path
    from enmasse.cli.contexts.http import NotRunning

    there = console(offset)
    ask = there.attempt if isinstance(there, LocalConsole) else there.request
    try:
        status, found = ask("GET", api(path("addresses", name)))
    except NotRunning:
        return None
    return found["stats"].get("receivers") if status < 400 else None


@command.command(
    "add",
    help=f"""Add an address to the file.

    \b
    Properties of a queue or topic for --set (docs/configuration.md has all that they may have):
{_PROPERTIES}
    """,
)
@click.argument("name")
@click.option("--type", "type_", type=click.Choice(tuple(TYPES)), required=True, help="Semantics of the address.")
@click.option("--flavor", shell_complete=flavors, help="Flavor of flavors.json; needed by queue and topic.")
@click.option("--set", "properties", multiple=True, metavar="KEY=VALUE",
              help="Another property of the entry, such as messageTtl.maximum=60000; VALUE is JSON or a string. May be "
                   "repeated.")  # fmt: skip
@click.option("--configmap", "config_map", metavar="NAME",
              help="With --namespace: the ConfigMap that it is added to, if not that of the release.")  # fmt: skip
@_options
def add(
    name: str,
    type_: str,
    flavor: str | None,
    properties: tuple[str, ...],
    config_map: str | None,
    config: Path | None,
    offset: int,
    place: cluster.Place | None,
) -> None:
    base = {"type": type_, **({"flavor": flavor} if flavor is not None else {})}
    entry = entries.with_keys(base, properties, new=True)
    if place is not None:
        there: Entries = cluster.ClusterEntries(place, ADDRESSES, config_map)
    else:
        there = opened(ADDRESSES, config, offset, place)
    where = there.add(name, entry)
    done(f"added {name} to {where}", "added", name=name, place=where)


@command.command("set")
@click.argument("name", shell_complete=addresses)
@click.argument("properties", metavar="KEY=VALUE...", nargs=-1, required=True)
@_options
def set_(name: str, properties: tuple[str, ...], config: Path | None, offset: int, place: cluster.Place | None) -> None:
    """Change keys of an address in the file, such as messageTtl.maximum=60000: VALUE is JSON or a string; KEY= removes
    the key."""

    def changed(entry: Any, where: str) -> dict[str, Any]:
        if not isinstance(entry, dict):
            end("configuration.entry.invalid", f"{where}: {name}: is not an object; correct it first.")
        return entries.with_keys(entry, properties)

    where = opened(ADDRESSES, config, offset, place).change(name, changed)
    done(f"changed {name} in {where}", "changed", name=name, place=where)


@command.command("remove")
@click.argument("name", shell_complete=addresses)
@click.option("--force", is_flag=True, help="Delete the messages it holds (needs the running suite, or --namespace).")
@_options
def remove(name: str, force: bool, config: Path | None, offset: int, place: cluster.Place | None) -> None:
    """Remove an address from the file.

    An address that holds messages is kept by the running suite until it is empty, or until it is removed with
    --force; that works also after it was removed from the file.
    """
    removed(opened(ADDRESSES, config, offset, place), name, force=force)
