"""`enmasse plan list|show`: the plans of address spaces and of their addresses, from the API of the console."""

from __future__ import annotations

import json
from typing import Any

import click

from enmasse.cli.common import port_offset, say
from enmasse.cli.contexts.console import ask, items, path
from enmasse.cli.output.lists import Column, WantedRows, list_options
from enmasse.cli.output.show import pairs


@click.group(name="plan", short_help="List and show plans of address spaces.")
def command() -> None:
    """List and show plans: what address spaces may use, and what their addresses are.

    Works on the running suite (at --port-offset), in a context on the suite there. With --space, and for a user of a
    space, those that the space may use.
    """


def _terms(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "kind"}


PLANS_LISTED = (
    Column("plan", "name"), Column("kind", "kind"), Column("terms", "entry", lambda entry: pairs(_terms(entry))),
    Column("spaces", "spaces", ", ".join),
)  # fmt: skip


@command.command("list")
@port_offset
@list_options(PLANS_LISTED)
def list_(offset: int, wanted: WantedRows) -> None:
    """List the plans: kind, terms, and the address spaces that have them."""
    wanted.show(
        "items", items(offset, "plans"), PLANS_LISTED, "no plans are in force: address spaces may use everything"
    )


@command.command("show")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@port_offset
def show(name: str, as_json: bool, offset: int) -> None:
    """Show a plan with its terms."""
    from enmasse.text import printable

    row = ask(offset, "GET", path("plans", name))
    if as_json:
        click.echo(json.dumps(row))
        return
    say(printable(name))
    say(f"  kind: {row['kind']}")
    for key, value in _terms(row["entry"]).items():
        for each, term in value.items() if isinstance(value, dict) else (("", value),):
            say(f"  {key}{'.' * bool(each)}{each}: {printable(term if isinstance(term, str) else json.dumps(term))}")
    if row["spaces"]:
        say(f"  spaces: {printable(', '.join(row['spaces']))}")
