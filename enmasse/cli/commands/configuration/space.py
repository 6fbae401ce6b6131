"""`enmasse space list|show|add|set|remove`: the address spaces of a running suite."""

from __future__ import annotations

import json
from typing import Any

import click

from enmasse.cli.common import done, port_offset, report, say
from enmasse.cli.configuration import entries
from enmasse.cli.configuration.configured import ContextEntries, removed
from enmasse.cli.configuration.kinds import SPACES
from enmasse.cli.contexts.console import console, items
from enmasse.cli.contexts.contexts import in_force
from enmasse.cli.output.lists import Column, WantedRows, list_options
from enmasse.model.tenants.spaces import TYPES


@click.group(name="space", short_help="List, show, add, change and remove address spaces.")
def command() -> None:
    """List, show, add, change and remove address spaces: what each tenant has of a suite.

    Works on the running suite (at --port-offset), in a context on the suite there, by the API of the console, which
    changes spaces.json. `--space` of other commands names the space that they work on.
    """


_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")


def _there(offset: int) -> ContextEntries:
    context = in_force()
    return ContextEntries(SPACES, offset, "the running suite" if context is None else str(context))


def _ready(row: dict[str, Any]) -> str:
    if row["entry"] is None:
        return "Terminating"
    if not row["phases"]:
        return "?"  # the user may not view all addresses
    return f"{row['phases']['Active']} of {sum(row['phases'].values())}"


SPACES_LISTED = (
    Column("space", "name"), Column("type", "type"), Column("plan", "plan"), Column("hosts", "hosts", " ".join),
    Column("ready", "phases", _ready, of_row=True),
)  # fmt: skip


@command.command("list")
@port_offset
@list_options(SPACES_LISTED)
def list_(offset: int, wanted: WantedRows) -> None:
    """List the address spaces: type, plan, hosts, and addresses that are ready."""
    empty = "there are no address spaces; `enmasse space add` adds one"
    wanted.show("spaces", items(offset, "spaces"), SPACES_LISTED, empty)


@command.command("show")
@click.argument("name")
@port_offset
@_as_json
def show(name: str, offset: int, as_json: bool) -> None:
    """Show an address space, and what it uses of its plan."""
    from enmasse.text import printable

    rows = {row["name"]: row for row in items(offset, "spaces")}
    if name not in rows:
        SPACES.unknown(_there(offset).where, name, rows)
    row = rows[name]
    if as_json:
        click.echo(json.dumps(row))
        return
    say(f"{printable(name)}: {json.dumps(row['entry']) if row['entry'] is not None else 'Terminating'}")
    say(f"  addresses ready: {_ready(row)}")
    for limit in row["limits"] | row["used"]:
        used, most = row["used"].get(limit), row["limits"].get(limit)
        if isinstance(used, dict) or isinstance(most, dict):
            for kind in (most or {}) | (used or {}):
                say(f"  {limit}.{kind}: {_of((used or {}).get(kind, 0), (most or {}).get(kind))}")
        else:
            say(f"  {limit}: {_of(used, most)}")


def _of(used: Any, most: Any) -> str:
    if used is None:
        return f"at most {most}"
    return " of ".join(str(each) for each in (used, most) if each is not None)


@command.command("add")
@click.argument("name")
@click.option("--type", "kind", type=click.Choice(TYPES), help="brokered: one broker has all of its addresses.")
@click.option("--flavor", metavar="NAME", help="Flavor of that broker (default: the first that the space may use).")
@click.option("--plan", metavar="NAME", help="Plan of plans.json; without one the space may use everything.")
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="A host by which clients mean the space, also.")
@port_offset
def add(name: str, kind: str | None, flavor: str | None, plan: str | None, hosts: tuple[str, ...], offset: int) -> None:
    """Add an address space. No client can log in there before it has users: `enmasse user add NAME --space SPACE`."""
    if kind == "brokered" and flavor is None:
        report(
            f"{name} has no flavor: its broker is of the first of `enmasse flavor list` that it may use, which may "
            f"keep messages in memory only. `enmasse space set {name} flavor=NAME` chooses another"
        )
    stated = {"type": kind, "flavor": flavor, "plan": plan, "hosts": list(hosts)}
    entry = {key: value for key, value in stated.items() if value}
    there = _there(offset)
    first = not there.all()
    where = there.add(name, entry)
    if first:
        report(
            "From this first address space on /metrics and the status need `manage` on '#': users with only `view` get "
            "403. Prometheus can have a token: `enmasse token add prometheus --user ADMINISTRATOR --read-only`"
        )
    done(f"added {name} to {where}", "added", name=name, place=where)


@command.command("set")
@click.argument("name")
@click.argument("properties", metavar="KEY=VALUE...", nargs=-1, required=True)
@port_offset
def set_(name: str, properties: tuple[str, ...], offset: int) -> None:
    """Change keys of an address space: plan=NAME, hosts='["HOST"]'; KEY= removes the key."""
    where = _there(offset).change(name, lambda entry, _: entries.with_keys(entry, properties))
    done(f"changed {name} in {where}", "changed", name=name, place=where)


@command.command("remove")
@click.argument("name")
@click.option("--force", is_flag=True, help="Delete the messages that its addresses hold.")
@port_offset
def remove(name: str, force: bool, offset: int) -> None:
    """Remove an address space with its files: its users, addresses and issuers.

    Addresses that hold messages are kept by the suite until they are empty, or until the space is removed with --force;
    that works also after it was removed.
    """
    removed(_there(offset), name, force=force, kind=SPACES)
    _warn_of_listeners(name, offset)


def _warn_of_listeners(name: str, offset: int) -> None:
    """Warn of listeners that are still of a space that was removed: no client can log in there."""
    from enmasse.supervisor import space_listeners

    status, found = console(offset).request("GET", "/api/status")
    if status < 400:
        for line in space_listeners.left_by(name, found.get("listeners", [])):
            report(f"warning: {line}")
