"""Tables for people (rich)."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from enmasse.supervisor.lines import error_lines

MAX_ADDRESSES = 200


def print_status(status: dict[str, Any]) -> None:
    """The status JSON as tables on stdout."""
    console = Console(highlight=False)
    components = Table("component", "kind", "pid", "ready", "restarts", "since", "endpoints", "detail", box=None)
    for entry in status["components"]:
        ends = " ".join(f"{name}={at}" for name, at in entry["endpoints"].items())
        components.add_row(
            *_cells(entry["name"], entry["kind"], entry["pid"]), _ready(entry["ready"]),
            *_cells(entry["restarts"], entry["since"], ends, entry["detail"]),
        )  # fmt: skip
    console.print(components)
    console.print()
    # Those that are not ready first: with thousands of addresses they are what somebody looks for.
    addresses = sorted(status["addresses"], key=lambda a: (a["ready"], a["name"]))
    console.print(address_table(addresses[:MAX_ADDRESSES]))
    if len(addresses) > MAX_ADDRESSES:
        console.print(f"… and {len(addresses) - MAX_ADDRESSES} more that are ready or like these; --json shows all")
    for line in error_lines(status["errors"]):
        console.print(f"[red]{escape(line)}[/red]")
    console.print()
    console.print("[green]ready[/green]" if status["ready"] else "[red]not ready[/red]")


def address_table(addresses: list[dict[str, Any]]) -> Table:
    """Addresses of the status JSON."""
    table = Table("address", "type", "flavor", "ready", "phase", "messages", "consumers", "message", box=None)
    for entry in addresses:
        table.add_row(
            *_cells(entry["name"], entry["type"], entry.get("flavor")), _ready(entry["ready"]),
            *_cells(entry["phase"], entry.get("messages"), entry.get("consumers"), entry.get("message")),
        )  # fmt: skip
    return table


def _cells(*values: Any) -> list[str]:
    return ["" if value is None else escape(str(value)) for value in values]


def _ready(value: bool) -> str:
    return "[green]yes[/green]" if value else "[red]no[/red]"
