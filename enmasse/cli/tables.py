"""Tables for people (rich)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from enmasse.supervisor.lines import error_lines

MAX_ADDRESSES = 200


def make_console() -> Console:
    """Stdout. Where it is no terminal, lines are as long as their content."""
    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(highlight=False, width=1000)


def print_status(status: dict[str, Any]) -> None:
    """The status JSON as tables on stdout."""
    console = make_console()
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
    console.print(_table(("component", "pid", "ready", "restarts", "for", "ports", "detail"), rows))
    # Those that are not ready first: with thousands of addresses they are what somebody looks for.
    addresses = sorted(status["addresses"], key=lambda a: (a["ready"], a["name"]))
    if addresses:
        console.print()
        console.print(address_table(addresses[:MAX_ADDRESSES]))
    if len(addresses) > MAX_ADDRESSES:
        console.print(f"… and {len(addresses) - MAX_ADDRESSES} more; --json shows all")
    for line in error_lines(status["errors"]):
        console.print(f"[red]{escape(line)}[/red]")
    console.print("\n[green]ready[/green]" if status["ready"] else "\n[red]not ready[/red]")


def address_table(addresses: list[dict[str, Any]]) -> Table:
    """Addresses of the status JSON."""
    fields = ("name", "type", "flavor", "ready", "phase", "messages", "consumers", "message")
    return _table(("address", *fields[1:]), [tuple(entry.get(field) for field in fields) for entry in addresses])


def _table(titles: tuple[str, ...], rows: list[tuple[Any, ...]]) -> Table:
    """A table without the columns that would be empty."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    shown = [i for i in range(len(titles)) if any(row[i] not in (None, "") for row in rows)]
    for i in shown:
        table.add_column(titles[i], overflow="fold", no_wrap=i == 0)
    for row in rows:
        table.add_row(*(_cell(row[i]) for i in shown))
    return table


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "[green]yes[/green]" if value else "[red]no[/red]"
    return "" if value is None else escape(str(value))


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
