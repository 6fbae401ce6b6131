"""`enmasse flavor list|show|add|set|remove`: the flavors in a configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from enmasse.cli.common import done, end, port_offset, say
from enmasse.cli.completion import flavors
from enmasse.cli.configuration import cluster, entries
from enmasse.cli.configuration.configured import ContextEntries, opened
from enmasse.cli.configuration.kinds import ADDRESSES, FLAVORS
from enmasse.cli.output.lists import Column, WantedRows, list_options
from enmasse.cli.output.show import pairs
from enmasse.model.flavors import TEMPLATES
from enmasse.text import counted

PARAMETERS = "templateParameters"


@click.group(name="flavor", short_help="List, show, add, change and remove flavors.")
def command() -> None:
    """List, show, add, change and remove flavors: pools of brokers that carry queues or topics.

    Works on flavors.json in the folder, cluster or suite that `enmasse address` works on.
    """


def _options(function: Any) -> Any:
    function = click.option("--config", "config", type=click.Path(path_type=Path), metavar="DIR",
                            help="Folder of flavors.json.")(function)  # fmt: skip
    return cluster.options(port_offset(function))


_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")


def _parameters(given: Any) -> str:
    return pairs(given) if isinstance(given, dict) else json.dumps(given)


FLAVORS_LISTED = (
    Column("flavor", "name"), Column("type", "type"), Column("template", "templateName"),
    Column("parameters", PARAMETERS, _parameters), Column("addresses", "addresses", len),
)  # fmt: skip


@command.command("list")
@_options
@list_options(FLAVORS_LISTED)
def list_(config: Path | None, offset: int, place: cluster.Place | None, wanted: WantedRows) -> None:
    """List the flavors in the file, and how many addresses use each."""
    there = opened(FLAVORS, config, offset, place)
    used = _used(config, offset, place)
    rows = [_row(name, entry, used) for name, entry in there.all().items()]
    none = " that you may use" if isinstance(there, ContextEntries) else "; `enmasse flavor add` adds one"
    wanted.show("flavors", rows, FLAVORS_LISTED, f"{there.where} has no flavors{none}")


@command.command("show")
@click.argument("name", shell_complete=flavors)
@_options
@_as_json
def show(name: str, config: Path | None, offset: int, place: cluster.Place | None, as_json: bool) -> None:
    """Show one flavor and the addresses that use it."""
    from enmasse.text import printable

    there = opened(FLAVORS, config, offset, place)
    found = there.all()
    if name not in found:
        FLAVORS.unknown(there.where, name, found)
    row = _row(name, found[name], _used(config, offset, place))
    if as_json:
        click.echo(json.dumps(row))
        return
    say(printable(name))
    for key, value in row.items():
        if key != "name" and value not in (None, {}, []):
            text = ", ".join(value) if key == "addresses" else _parameters(value) if key == PARAMETERS else value
            say(f"  {key}: {printable(str(text))}")


@command.command("add")
@click.argument("name")
@click.option("--template", type=click.Choice(list(TEMPLATES)), required=True, help="What its brokers are.")
@click.argument("parameters", metavar="[PARAMETER=VALUE]...", nargs=-1)
@_options
def add(
    name: str, template: str, parameters: tuple[str, ...], config: Path | None, offset: int, place: cluster.Place | None
) -> None:
    """Add a flavor to the file, with parameters such as BROKERS=2 or STORAGE_CAPACITY=5Gi."""
    given = entries.with_keys({}, parameters, new=True)
    entry = {"type": TEMPLATES[template], "templateName": template, **({PARAMETERS: given} if given else {})}
    where = opened(FLAVORS, config, offset, place).add(name, entry)
    done(f"added {name} to {where}", "added", name=name, place=where)


@command.command("set")
@click.argument("name", shell_complete=flavors)
@click.argument("parameters", metavar="PARAMETER=VALUE...", nargs=-1, required=True)
@_options
def set_(name: str, parameters: tuple[str, ...], config: Path | None, offset: int, place: cluster.Place | None) -> None:
    """Change parameters of a flavor in the file: VALUE is JSON or a string; PARAMETER= removes it."""

    def changed(entry: Any, where: str) -> dict[str, Any]:
        before = entry.get(PARAMETERS) or {} if isinstance(entry, dict) else None
        if not isinstance(before, dict):
            end("configuration.entry.invalid", f"{where}: {name}: is not valid; correct it first.")
        after = entries.with_keys(before, parameters)
        kept = {key: value for key, value in entry.items() if key != PARAMETERS or after}
        return {**kept, **({PARAMETERS: after} if after else {})}

    where = opened(FLAVORS, config, offset, place).change(name, changed)
    done(f"changed {name} in {where}", "changed", name=name, place=where)


@command.command("remove")
@click.argument("name", shell_complete=flavors)
@_options
def remove(name: str, config: Path | None, offset: int, place: cluster.Place | None) -> None:
    """Remove a flavor that no address uses from the file."""
    there = opened(FLAVORS, config, offset, place)
    if users := _used(config, offset, place).get(name):
        shown = ", ".join(users[:5]) + (f" and {len(users) - 5} more" if len(users) > 5 else "")
        has = counted(len(users), "address uses", "addresses use")
        end("flavor.addresses.present", f"{there.where}: {has} {name!r}: {shown}; nothing was changed.")
    where = there.remove(name, force=False)
    done(f"removed {name} from {where}", "removed", name=name, place=where)


def _used(config: Path | None, offset: int, place: cluster.Place | None) -> dict[str, list[str]]:
    """Return flavor → the addresses that have it."""
    found: dict[str, list[str]] = {}
    for name, entry in opened(ADDRESSES, config, offset, place).all().items():
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
