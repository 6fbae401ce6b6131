"""Tables for people: with colours (rich) on a terminal, as plain lines anywhere else (scripts wait for no library)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

from enmasse.supervisor.lines import error_lines

MAX_ADDRESSES = 200
COLORS = {"yes": "green", "no": "red", "ready": "green", "not ready": "red"}

Titles = Sequence[str]
Rows = Sequence[Sequence[Any]]


def print_status(status: dict[str, Any]) -> None:
    """The status JSON as tables on stdout."""
    rows = [
        (
            c["name"],
            c["pid"],
            c["ready"],
            c["restarts"],
            _age(c["since"]),
            _ports(c["endpoints"]),
            c["detail"],
        )
        for c in status["components"]
    ]
    print_table(("component", "pid", "ready", "restarts", "for", "ports", "detail"), rows)
    # Those that are not ready first: with thousands of addresses they are what somebody looks for.
    addresses = sorted(status["addresses"], key=lambda a: (a["ready"], a["name"]))
    if addresses:
        click.echo()
        print_addresses(addresses[:MAX_ADDRESSES])
    if len(addresses) > MAX_ADDRESSES:
        click.echo(f"… and {len(addresses) - MAX_ADDRESSES} more; --json shows all")
    for line in error_lines(status["errors"]):
        click.secho(line, fg="red")
    verdict = "ready" if status["ready"] else "not ready"
    click.secho(f"\n{verdict}", fg=COLORS[verdict])


def print_addresses(addresses: list[dict[str, Any]]) -> None:
    """Addresses of the status JSON."""
    fields = ("name", "type", "flavor", "ready", "phase", "messages", "consumers", "message")
    print_table(("address", *fields[1:]), [tuple(entry.get(field) for field in fields) for entry in addresses])


def print_table(titles: Titles, rows: Rows) -> None:
    """A table without the columns that would be empty."""
    shown = [i for i in range(len(titles)) if any(row[i] not in (None, "") for row in rows)]
    heads = [titles[i] for i in shown]
    cells = [[_cell(row[i]) for i in shown] for row in rows]
    if not heads:
        return
    if sys.stdout.isatty():
        _print_colored(heads, cells)
        return
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    for line in (heads, *cells):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _print_colored(heads: list[str], cells: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for i, head in enumerate(heads):
        table.add_column(head, overflow="fold", no_wrap=i == 0)
    for row in cells:
        table.add_row(*(Text(cell, style=COLORS.get(cell, "")) for cell in row))
    Console(highlight=False).print(table)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def _ports(endpoints: dict[str, str]) -> str:
    """All are on loopback: the port is what differs."""
    return " ".join(f"{name}:{at.rpartition(':')[2]}" for name, at in endpoints.items())


def _age(since: str) -> str:
    """How long ago a time was, in its two largest units: `2h5m`."""
    try:
        seconds = max(0, int((datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds()))
    except ValueError:
        return since
    units = (("d", seconds // 86400), ("h", seconds // 3600 % 24), ("m", seconds // 60 % 60), ("s", seconds % 60))
    first = next((i for i, (_, count) in enumerate(units) if count), 3)
    return "".join(f"{count}{unit}" for unit, count in units[first : first + 2])
