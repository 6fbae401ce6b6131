"""Tables for people: plain lines with short columns. Long texts are printed below the table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

from enmasse.cli.common import HTTP_PORT
from enmasse.supervisor.lines import INSECURE, error_lines
from enmasse.text import counted

MAX_ADDRESSES = 200
MAX_NAMED = 5
"""Names printed with one message; the others are counted."""
CLIENT_SCHEMES = {
    "router": {"amqp": "", "amqps": ""},
    "mqtt_gateway": {"mqtt": "", "mqtts": "", "ws": "/mqtt", "wss": "/mqtt"},
}
"""Kind of component → scheme of its listeners for clients → path."""
COLORS = {"yes": "green", "no": "red"}

LONGEST = 120
"""Characters of a cell; --json has all of them."""

Titles = Sequence[str]
Rows = Sequence[Sequence[Any]]


def print_status(status: dict[str, Any], offset: int | None, missing: Sequence[str] = ()) -> None:
    """The status JSON as tables on stdout. `offset` None: of a cluster, whose entry points others know. `missing`: what
    --wait waited for in vain."""
    if offset is not None:
        _print_entry_points(status["components"], offset, status.get("ca"))
    for word in status.get("insecure", ()):
        click.secho(f"INSECURE: {INSECURE.get(word, word)}\n", fg="red")
    rows = [(c["name"], c["pid"], c["ready"], c["restarts"], age(c["since"]), _counts(c)) for c in status["components"]]
    print_table(("component", "pid", "ready", "restarts", "for", "has"), rows)
    _print_notes((c["name"], c["detail"]) for c in status["components"])
    # Those that are not ready come first: among thousands of addresses these matter.
    addresses = sorted(status["addresses"], key=lambda a: (a["ready"], a["name"]))
    if addresses:
        click.echo()
        print_addresses(addresses[:MAX_ADDRESSES])
    if len(addresses) > MAX_ADDRESSES:
        click.echo(f"… and {len(addresses) - MAX_ADDRESSES} more; --json shows all")
    lines = error_lines(status["errors"])
    if lines:
        click.echo()
    for line in lines:
        click.secho(printable(line), fg="red")
    for line in status.get("omitted", ()):
        click.echo(f"\nleft out, because a ConfigMap has no room for it: {line}")
    click.echo()
    if not status["ready"]:
        click.secho("not ready", fg="red")
    elif missing:
        click.secho(f"not ready with the present files: {missing[0]}", fg="red")
    elif exceptions := _exceptions(status):
        click.secho(f"ready, but {exceptions}", fg="yellow")
    else:
        click.secho("ready", fg="green")


def _exceptions(status: dict[str, Any]) -> str:
    """Return what is wrong although the suite is ready: addresses that are not, and errors in the files."""
    phases = Counter(a["phase"] for a in status["addresses"] if not a["ready"])
    found = [f"{counted(count, 'address', 'addresses')} {phase}" for phase, count in sorted(phases.items())]
    if status["errors"]:
        found.append(f"{counted(len(status['errors']), 'error')} in the files")
    return ", ".join(found)


def _counts(component: dict[str, Any]) -> str:
    """The names are plurals, or no nouns: `2 sessions`, `1 session`, `1 connected`."""
    counts = component.get("counts", {}).items()
    return ", ".join(f"{number} {name.removesuffix('s') if number == 1 else name}" for name, number in counts)


def _print_entry_points(components: list[dict[str, Any]], offset: int, ca: str | None) -> None:
    """Print the URLs for clients, without listeners of other components and for operators; and the CA of TLS."""
    for kind, schemes in CLIENT_SCHEMES.items():
        endpoints: dict[str, str] = next(
            (c["endpoints"] for c in components if c["kind"] == kind and c["endpoints"]), {}
        )
        for scheme, path in schemes.items():
            for name, at in endpoints.items():  # all gateways have the same; a second one has a number
                if name.partition("-")[0] == scheme:
                    click.echo(f"{scheme.upper():6} {scheme}://{at}{path}")
    if ca is not None:
        click.echo(f"{'CA':6} {printable(ca)}")
    click.echo(f"{'HTTP':6} http://127.0.0.1:{HTTP_PORT + offset}\n")


def print_addresses(addresses: list[dict[str, Any]]) -> None:
    """Addresses of the status JSON, and below them the message of each."""
    fields = ("name", "type", "flavor", "ready", "phase", "messages", "consumers")
    print_table(("address", *fields[1:]), [tuple(entry.get(field) for field in fields) for entry in addresses])
    _print_notes((entry["name"], entry.get("message")) for entry in addresses)


def print_table(titles: Titles, rows: Rows, none: str = "") -> None:
    """A table without the columns that would be empty. `none`: line for stderr instead of a table without rows."""
    if none and not rows:
        click.echo(none, err=True)
    shown = [i for i in range(len(titles)) if any(row[i] not in (None, "") for row in rows)]
    heads = [titles[i] for i in shown]
    cells = [[_cell(row[i]) for i in shown] for row in rows]
    if not heads:
        return
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    _print_line(heads, widths)
    for line in cells:
        _print_line(line, widths)


def user_of(client: str) -> str:
    """Return the user of a client with this name; empty for the anonymous user."""
    from enmasse.identity.owned import owner
    from enmasse.identity.principal import ANONYMOUS

    user = owner(client).user
    return "" if user == ANONYMOUS else user


def print_json(value: Any) -> None:
    """A struct as one JSON object on a line, with all its fields."""
    import msgspec  # `status` does without

    click.echo(json.dumps(msgspec.to_builtins(value)))


def _print_line(cells: list[str], widths: list[int]) -> None:
    last = max((i for i, cell in enumerate(cells) if cell), default=0)
    shown = []
    for i in range(last + 1):
        text = cells[i].ljust(widths[i]) if i < last else cells[i]
        shown.append(click.style(text, fg=COLORS[cells[i]]) if cells[i] in COLORS else text)
    click.echo("  ".join(shown))


def _print_notes(notes: Any) -> None:
    """`name: text` for each (name, text) with a text; one line for all with the same."""
    found: dict[str, list[str]] = {}
    for name, text in notes:
        if text:
            found.setdefault(text, []).append(name)
    if found:
        click.echo()
    for text, names in found.items():
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        click.echo(f"{', '.join(map(_cell, names[:MAX_NAMED]))}{more}: {printable(text)}")


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = "" if value is None else printable(str(value))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def printable(text: str) -> str:
    """Return a name with escapes (`\\x1b`) for characters that would move the cursor or break the line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def age(since: str) -> str:
    """Return how long ago a time was, in its two largest units: `2h5m`."""
    try:
        seconds = max(0, int((datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds()))
    except ValueError:
        return since
    units = (("d", seconds // 86400), ("h", seconds // 3600 % 24), ("m", seconds // 60 % 60), ("s", seconds % 60))
    first = next((i for i, (_, count) in enumerate(units) if count), 3)
    return "".join(f"{count}{unit}" for unit, count in units[first : first + 2])
