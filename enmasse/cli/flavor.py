"""`enmasse flavor list|show|add|set|remove`: the flavors in a configuration."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import click

from enmasse.cli import configfile, entries
from enmasse.cli.common import end, port_offset
from enmasse.cli.completion import flavors
from enmasse.cli.folders import edited_folder
from enmasse.model.flavors import TEMPLATES
from enmasse.text import counted, did_you_mean

FILE, ADDRESSES = "flavors.json", "addresses.json"
PARAMETERS = "templateParameters"


@click.group(name="flavor", short_help="List, show, add, change and remove flavors.")
def command() -> None:
    """List, show, add, change and remove flavors: pools of brokers that carry queues or topics.

    Works on flavors.json in the folder that `enmasse address` works on. Changes take effect within a second while the
    suite runs.
    """


def _options(function: Any) -> Any:
    function = click.option("--config", "config", type=click.Path(path_type=Path), metavar="DIR",
                            help="Folder of flavors.json.")(function)  # fmt: skip
    return port_offset(function)


_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")


@command.command("list")
@_options
@_as_json
def list_(config: Path | None, offset: int, as_json: bool) -> None:
    """List the flavors in the file, and how many addresses use each."""
    from enmasse.cli.tables import print_table

    folder = edited_folder(config, offset)
    used = _used(folder)
    rows = [_row(name, entry, used) for name, entry in _read(folder).items()]
    if as_json:
        click.echo(json.dumps({"flavors": rows}))
        return
    titles = ("flavor", "type", "template", "parameters", "addresses")
    cells = [
        (row["name"], row["type"], row["templateName"], _parameters(row[PARAMETERS]), len(row["addresses"]))
        for row in rows
    ]
    print_table(titles, cells, f"{folder / FILE} has no flavors; `enmasse flavor add` adds one")


@command.command("show")
@click.argument("name", shell_complete=flavors)
@_options
@_as_json
def show(name: str, config: Path | None, offset: int, as_json: bool) -> None:
    """Show one flavor and the addresses that use it."""
    from enmasse.cli.tables import printable

    folder = edited_folder(config, offset)
    found = _read(folder)
    if name not in found:
        _unknown(folder, name, found)
    row = _row(name, found[name], _used(folder))
    if as_json:
        click.echo(json.dumps(row))
        return
    click.echo(printable(name))
    for key, value in row.items():
        if key != "name" and value not in (None, {}, []):
            text = ", ".join(value) if key == "addresses" else _parameters(value) if key == PARAMETERS else value
            click.echo(f"  {key}: {printable(str(text))}")


@command.command("add")
@click.argument("name")
@click.option("--template", type=click.Choice(list(TEMPLATES)), required=True, help="What its brokers are.")
@click.argument("parameters", metavar="[PARAMETER=VALUE]...", nargs=-1)
@_options
def add(name: str, template: str, parameters: tuple[str, ...], config: Path | None, offset: int) -> None:
    """Add a flavor to the file, with parameters such as BROKERS=2 or STORAGE_CAPACITY=5Gi."""
    from enmasse.cli import jsonfile

    folder = edited_folder(config, offset)
    given = entries.with_keys({}, parameters)
    entry = {"type": TEMPLATES[template], "templateName": template, **({PARAMETERS: given} if given else {})}

    def edit(text: str, present: dict[str, Any]) -> str:
        if name in present:
            text = f"{folder / FILE}: there is a flavor {name!r} already; nothing was changed. Choose another name."
            end("flavor.name.in-use", text)
        return jsonfile.add(text, name, entry)

    entries.change(folder, FILE, edit)
    click.echo(f"added {name} to {folder / FILE}")


@command.command("set")
@click.argument("name", shell_complete=flavors)
@click.argument("parameters", metavar="PARAMETER=VALUE...", nargs=-1, required=True)
@_options
def set_(name: str, parameters: tuple[str, ...], config: Path | None, offset: int) -> None:
    """Change parameters of a flavor in the file: VALUE is JSON or a string; PARAMETER= removes it."""
    from enmasse.cli import jsonfile

    folder = edited_folder(config, offset)

    def edit(text: str, present: dict[str, Any]) -> str:
        if name not in present:
            _unknown(folder, name, present, "nothing was changed. ")
        entry = present[name]
        before = entry.get(PARAMETERS) or {} if isinstance(entry, dict) else None
        if not isinstance(before, dict):
            end("configuration.entry.invalid", f"{folder / FILE}: {name}: is not valid; correct it first.")
        after = entries.with_keys(before, parameters)
        changed = {key: value for key, value in entry.items() if key != PARAMETERS or after}
        return jsonfile.replace(text, name, {**changed, **({PARAMETERS: after} if after else {})})

    entries.change(folder, FILE, edit)
    click.echo(f"changed {name} in {folder / FILE}")


@command.command("remove")
@click.argument("name", shell_complete=flavors)
@_options
def remove(name: str, config: Path | None, offset: int) -> None:
    """Remove a flavor that no address uses from the file."""
    from enmasse.cli import jsonfile

    folder = edited_folder(config, offset)

    def edit(text: str, present: dict[str, Any]) -> str:
        if name not in present:
            _unknown(folder, name, present, "nothing was changed. ")
        if users := _used(folder).get(name):
            shown = ", ".join(users[:5]) + (f" and {len(users) - 5} more" if len(users) > 5 else "")
            has = counted(len(users), "address uses", "addresses use")
            end("flavor.addresses.present", f"{folder / FILE}: {has} {name!r}: {shown}; nothing was changed.")
        return jsonfile.remove(text, name)

    entries.change(folder, FILE, edit)
    click.echo(f"removed {name} from {folder / FILE}")


def _read(folder: Path) -> dict[str, Any]:
    return configfile.entries(folder / FILE, configfile.read(folder / FILE))


def _used(folder: Path) -> dict[str, list[str]]:
    """Return flavor → the addresses of addresses.json that have it."""
    path = folder / ADDRESSES
    found: dict[str, list[str]] = {}
    for name, entry in configfile.entries(path, configfile.read(path, "{}")).items():
        if isinstance(entry, dict) and isinstance(flavor := entry.get("flavor"), str):
            found.setdefault(flavor, []).append(name)
    return found


def _row(name: str, entry: Any, used: dict[str, list[str]]) -> dict[str, Any]:
    entry = entry if isinstance(entry, dict) else {}
    return {
        "name": name,
        "type": entry.get("type"),
        "templateName": entry.get("templateName"),
        PARAMETERS: entry.get(PARAMETERS) or {},
        "addresses": used.get(name, []),
    }


def _parameters(given: Any) -> str:
    if not isinstance(given, dict):
        return json.dumps(given)
    pairs = ((key, value if isinstance(value, str) else json.dumps(value)) for key, value in given.items())
    return " ".join(f"{key}={value}" for key, value in pairs)


def _unknown(folder: Path, name: str, known: Iterable[str], outcome: str = "") -> NoReturn:
    end(
        "flavor.name.unknown",
        f"{folder / FILE}: there is no flavor {name!r}; {outcome}`enmasse flavor list` shows them."
        f"{did_you_mean(name, known)}",
    )
