"""`enmasse address list|show|add|set|remove`: the addresses in a configuration."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import click

from enmasse.cli import cluster, configfile, entries, messages
from enmasse.cli.common import UNREACHABLE, end, port_offset, report
from enmasse.cli.completion import addresses, flavors
from enmasse.cli.folders import edited_folder
from enmasse.text import did_you_mean, offset_option

FILE = "addresses.json"
TYPES = ("queue", "topic", "anycast", "multicast")


@click.group(name="address", short_help="List, show, add, change and remove addresses.")
def command() -> None:
    """List, show, add, change and remove addresses.

    Works on the files in --config. Without it: on those of the running suite (at --port-offset), else on those in
    this directory, else on those in the default folder of `enmasse up`. With --namespace on the ConfigMaps of an
    installation in a Kubernetes cluster. Changes take effect within a second while the suite runs.
    """


messages.add_to(command)


def _options(function: Any) -> Any:
    function = click.option("--config", "config", type=click.Path(path_type=Path), metavar="DIR",
                            help="Folder of addresses.json.")(function)  # fmt: skip
    return cluster.options(port_offset(function))


def _read(folder: Path) -> str:
    return configfile.read(folder / FILE)


def _entries(folder: Path, text: str) -> dict[str, Any]:
    return configfile.entries(folder / FILE, text)


def _running(offset: int, folder: Path) -> dict[str, dict[str, Any]]:
    """Return the addresses in the status of the suite that runs on `folder`, by name; empty if none does."""
    from enmasse.cli.http import NotRunning, get_status, suite_info

    try:
        if not Path(suite_info(offset)["config_dir"]).samefile(folder):
            return {}
        return {entry["name"]: entry for entry in get_status(offset)["addresses"]}
    except (NotRunning, OSError):
        return {}


def _described(name: str, entry: Any, in_memory: set[str], phase: str = "not running") -> dict[str, Any]:
    """Return an entry of the file in the shape of an entry of the status JSON, for an address that is not there.

    `in_memory`: the flavors that keep messages there.
    """
    from enmasse.cli.validate import type_of
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
@click.option("--sort", type=click.Choice(("name", "depth")),
              help="By name, or by the messages they hold, most first. Otherwise as in the file.")  # fmt: skip
@_options
@click.option("--json", "as_json", is_flag=True, help='One JSON object on stdout: {"addresses": [...]}.')
def list_(
    patterns: tuple[str, ...], not_ready: bool, sort: str | None, config: Path | None, offset: int,
    place: cluster.Place | None, as_json: bool,
) -> None:  # fmt: skip
    """List the addresses in the file, with their state if the suite runs: all, or those whose names match a PATTERN
    such as 'orders*' (with * and ?, as names of files in a shell)."""
    from enmasse.cli import validate

    if place is not None:
        wanted, running, phase = cluster.rows(place)
        in_memory: set[str] = set()
    else:
        folder = edited_folder(config, offset)
        wanted = _entries(folder, _read(folder))
        running, phase = _running(offset, folder), "not running"
        in_memory = validate.in_memory(folder)
    rows = [running.get(name) or _described(name, entry, in_memory, phase) for name, entry in wanted.items()]
    rows += [entry for name, entry in running.items() if name not in wanted]  # on their way out
    rows = _chosen(rows, patterns, not_ready, sort)
    if as_json:
        click.echo(json.dumps({"addresses": rows}))
        return
    from enmasse.cli.tables import print_addresses

    print_addresses(rows)


def _chosen(rows: list[dict[str, Any]], patterns: tuple[str, ...], not_ready: bool, sort: str | None) -> Any:
    from fnmatch import fnmatchcase

    found = [
        row
        for row in rows
        if (not patterns or any(fnmatchcase(row["name"], pattern) for pattern in patterns))
        and not (not_ready and row["ready"])
    ]
    if sort is not None:
        found.sort(key=lambda row: row["name"])
    if sort == "depth":
        found.sort(key=lambda row: -(row["messages"] or 0))
    return found


@command.command("show")
@click.argument("name", shell_complete=addresses)
@_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def show(name: str, config: Path | None, offset: int, place: cluster.Place | None, as_json: bool) -> None:
    """Show the entry of one address in the file, and its state if the suite runs."""
    from enmasse.cli import validate
    from enmasse.cli.tables import printable

    in_memory: set[str] = set()
    phase = "not running"
    if place is not None:
        wanted, found, phase = cluster.rows(place)
        where = f"namespace {place.namespace}"
    else:
        folder = edited_folder(config, offset)
        wanted, found = _entries(folder, _read(folder)), _running(offset, folder)
        where, in_memory = str(folder / FILE), validate.in_memory(folder)
    running = found.get(name)
    if name not in wanted and running is None:
        _unknown(where, name, {**wanted, **found})
    shown = {"name": name, "configured": wanted.get(name), "status": running}
    if as_json:
        click.echo(json.dumps(shown))
        return
    click.echo(f"{printable(name)}: {json.dumps(wanted[name]) if name in wanted else 'removed from the file'}")
    if running is None:
        entry = _described(name, wanted[name], in_memory, phase)
        running = {key: entry[key] for key in ("phase", "message")}
    for key, value in running.items():
        if key != "name" and value not in (None, "", []):
            click.echo(f"  {key}: {printable(value) if isinstance(value, str) else json.dumps(value)}")


@command.command("add")
@click.argument("name")
@click.option("--type", "type_", type=click.Choice(TYPES), required=True, help="Semantics of the address.")
@click.option("--flavor", shell_complete=flavors, help="Flavor of flavors.json; needed by queue and topic.")
@click.option("--set", "properties", multiple=True, metavar="KEY=VALUE",
              help="Another property of the entry; VALUE is JSON or a string. May be repeated.")  # fmt: skip
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
    """Add an address to the file."""
    from enmasse.cli import jsonfile

    entry = entries.with_keys({"type": type_, **({"flavor": flavor} if flavor is not None else {})}, properties)
    if place is not None:
        click.echo(f"added {name} to {cluster.add(name, entry, place, config_map)}")
        return
    folder = edited_folder(config, offset)

    def edit(text: str, present: dict[str, Any]) -> str:
        if name in present:
            end(
                "address.name.in-use",
                f"{folder / FILE}: there is an address {name!r} already; nothing was changed. "
                "Choose another name, or remove it first.",
            )
        return jsonfile.add(text, name, entry)

    entries.change(folder, FILE, edit)
    click.echo(f"added {name} to {folder / FILE}")


@command.command("set")
@click.argument("name", shell_complete=addresses)
@click.argument("properties", metavar="KEY=VALUE...", nargs=-1, required=True)
@_options
def set_(name: str, properties: tuple[str, ...], config: Path | None, offset: int, place: cluster.Place | None) -> None:
    """Change keys of an address in the file: VALUE is JSON or a string; KEY= removes the key."""
    from enmasse.cli import jsonfile

    def changed(entry: Any, where: str) -> dict[str, Any]:
        if not isinstance(entry, dict):
            end("configuration.entry.invalid", f"{where}: {name}: is not an object; correct it first.")
        return entries.with_keys(entry, properties)

    if place is not None:
        click.echo(f"changed {name} in {cluster.change(name, changed, place)}")
        return
    folder = edited_folder(config, offset)

    def edit(text: str, present: dict[str, Any]) -> str:
        if name not in present:
            _unknown(f"{folder / FILE}", name, present, "nothing was changed. ")
        return jsonfile.replace(text, name, changed(present[name], f"{folder / FILE}"))

    entries.change(folder, FILE, edit)
    click.echo(f"changed {name} in {folder / FILE}")


@command.command("remove")
@click.argument("name", shell_complete=addresses)
@click.option("--force", is_flag=True, help="Delete the messages it holds (needs the running suite, or --namespace).")
@_options
def remove(name: str, force: bool, config: Path | None, offset: int, place: cluster.Place | None) -> None:
    """Remove an address from the file.

    An address that holds messages is kept by the running suite until it is empty, or until it is removed with
    --force; that works also after it was removed from the file.
    """
    from enmasse.cli import jsonfile

    if place is not None:
        where = cluster.remove(name, place, lambda problem: report(f"warning: {problem}"), force=force)
        click.echo(f"removed {name} from {where}")
        if force:
            click.echo(f"what {name} holds is thrown away")
        return
    folder = edited_folder(config, offset)
    found = True

    def edit(text: str, present: dict[str, Any]) -> str:
        nonlocal found
        found = name in present
        if not found and not (force and name in _running(offset, folder)):
            _unknown(f"{folder / FILE}", name, present, "nothing was changed. ")
        return jsonfile.remove(text, name)

    entries.change(folder, FILE, edit, warn=True)  # such as a dead-letter queue that others name
    if found:
        click.echo(f"removed {name} from {folder / FILE}")
    if force:
        _force(name, offset)


def _force(name: str, offset: int) -> None:
    from enmasse.cli.http import NotRunning, request

    try:
        _, answer = request(offset, "POST", "/api/force", {"addresses": [name]})
    except NotRunning as error:
        again = f"enmasse address remove {name} --force{offset_option(offset)}"
        end(
            "address.messages.not-deleted",
            f"the messages of {name} were not deleted: {error} Then run `{again}` again.",
            UNREACHABLE,
        )
    if not answer.get("accepted"):
        end("address.messages.not-deleted", f"the messages of {name} were not deleted: {answer.get('message')}")
    click.echo(f"what {name} holds is thrown away")


def _unknown(where: str, name: str, known: Iterable[str], outcome: str = "") -> NoReturn:
    shown = f"{outcome}`enmasse address list` shows them.{did_you_mean(name, known)}"
    end("address.name.unknown", f"{where}: there is no address {name!r}; {shown}")
