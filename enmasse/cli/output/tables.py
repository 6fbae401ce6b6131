"""Tables for people: plain lines with short columns. Long texts are printed below the table."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import product
from typing import Any

import click

from enmasse.cli.common import HTTP_PORT, report
from enmasse.cli.same_suite import typed
from enmasse.engines import EMBEDDED
from enmasse.model.address_types import TYPES
from enmasse.process.service_table import CONSOLE, SERVICES, client_urls, entry_point
from enmasse.supervisor import space_listeners
from enmasse.supervisor.error_lines import INSECURE, error_lines
from enmasse.text import counted, printable

MAX_ADDRESSES = 200
OF_BROKERS = "consumers of topics: without MQTT subscriptions, which the console counts"
"""Line of a list whose numbers are those of the brokers."""
MAX_NAMED = 5
"""Names printed with one message; the others are counted."""
COLORS = {"yes": "green", "no": "red"}

LEAST = 6
"""Characters that a column keeps on a narrow terminal."""
LONGEST = 120
"""Characters of a cell; --json has all of them."""

Titles = Sequence[str]
Rows = Sequence[Sequence[Any]]


def has_topics(addresses: Iterable[Mapping[str, Any]]) -> bool:
    """Whether MQTT clients subscribe at the brokers of one of these rows."""
    return any(TYPES[row["type"]].levels for row in addresses if row["type"] in TYPES)


def print_status(status: dict[str, Any], offset: int | None, missing: Sequence[str] = ()) -> None:
    """The status JSON as a line that sums it up, and tables, on stdout. `offset` None: of a cluster, whose entry points
    others know. `missing`: what --wait waited for in vain."""
    verdict, color = _verdict(status, missing)
    first, *more = wrapped(f"{verdict}: {summary(status)}").splitlines()
    click.echo("\n".join([first.replace(verdict, click.style(verdict, fg=color), 1), *more, ""]))
    if offset is not None:
        _print_entry_points(status, offset)
    for word in status.get("insecure", ()):
        click.secho(f"INSECURE: {INSECURE.get(word, word)}\n", fg="red")
    for line in space_listeners.problems(status.get("listeners", [])):
        click.secho(wrapped(printable(typed(line))) + "\n", fg="red")
    for line in status.get("certificates", ()):
        click.secho(wrapped(f"CERTIFICATE {printable(line)}") + "\n", fg="red")
    rows = [(c["name"], c["pid"], c["ready"], c["restarts"], age(c["since"]), _counts(c)) for c in status["components"]]
    print_table(("component", "pid", "ready", "restarts", "for", "has"), rows)
    print_notes((c["name"], c["detail"]) for c in status["components"])
    for c in status["components"]:
        if c.get("routes"):
            click.echo(wrapped(f"{_cell(c['name'])} reaches {printable(routes_text(c['routes']))}"))
    # Those that are not ready come first: among thousands of addresses these matter.
    addresses = sorted(status["addresses"], key=lambda a: (a["ready"], a["name"]))
    if addresses:
        click.echo()
        print_addresses(addresses[:MAX_ADDRESSES])
        kinds = {c["kind"] for c in status["components"]}
        if "mqtt_gateway" in kinds and has_topics(addresses):
            click.echo("\n" + wrapped(OF_BROKERS))
    if len(addresses) > MAX_ADDRESSES:
        click.echo(f"… and {len(addresses) - MAX_ADDRESSES} more; --json shows all")
    lines = error_lines(status["errors"])
    if lines:
        click.echo()
    for line in lines:
        click.secho(wrapped(printable(line)), fg="red")
    for line in status.get("omitted", ()):
        click.echo("\n" + wrapped(f"left out, because a ConfigMap has no room for it: {printable(line)}"))
    click.echo()
    if missing and status["ready"]:
        verdict += f": {printable(missing[0])}"
    click.secho(verdict, fg=color)


def _verdict(status: dict[str, Any], missing: Sequence[str]) -> tuple[str, str]:
    """Return whether the suite is ready, in words, and the colour of that."""
    if not status["ready"]:
        return "not ready", "red"
    if missing:
        return "not ready with the present files", "red"
    if exceptions := _exceptions(status):
        return f"ready, but {exceptions}", "yellow"
    return "ready", "green"


def summary(status: dict[str, Any]) -> str:
    """Return how many components and addresses are ready, and what these hold."""
    components, addresses = status["components"], status["addresses"]
    components = [each for each in components if not each.get("leaving")]
    ready = [sum(1 for each in found if each["ready"]) for found in (components, addresses)]
    held = [a["messages"] for a in addresses if a["messages"] is not None]
    consumers = [a["consumers"] for a in addresses if a["consumers"] is not None]
    parts = [
        f"{ready[0]} of {counted(len(components), 'component')}",
        f"{ready[1]} of {counted(len(addresses), 'address', 'addresses')}",
        *([counted(sum(held), "message")] if held else []),
        *([counted(sum(consumers), "consumer")] if consumers else []),
    ]
    return ", ".join(parts)


def _exceptions(status: dict[str, Any]) -> str:
    """Return what is wrong although the suite is ready: addresses that are not, and errors in the files."""
    phases = Counter(a["phase"] for a in status["addresses"] if not a["ready"])
    found = [f"{counted(count, 'address', 'addresses')} {phase}" for phase, count in sorted(phases.items())]
    if degraded := status.get("degraded"):
        found.append(f"degraded: {'; '.join(degraded)}")
    if unserved := len(space_listeners.problems(status.get("listeners", []))):
        found.append(f"{counted(unserved, 'listener')} of an address space that is not there")
    if status["errors"]:
        found.append(f"{counted(len(status['errors']), 'error')} in the files")
    return ", ".join(found)


def _counts(component: dict[str, Any]) -> str:
    """The names are plurals, or no nouns: `2 sessions`, `1 session`, `1 connected`."""
    counts = component.get("counts", {}).items()
    return ", ".join(f"{number} {name.removesuffix('s') if number == 1 else name}" for name, number in counts)


def routes_text(routes: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the routers that a router reaches, with cost and next router: `router-2 (cost 2, over router-1)`."""
    found = []
    for name, row in routes.items():
        over = f", over {row['next']}" if row["next"] != name else ""
        found.append(f"{name} (cost {row['cost']}{over})")
    return ", ".join(found)


def _print_entry_points(status: Mapping[str, Any], offset: int) -> None:
    """Print the URLs for clients, without listeners of other components and for operators; and the CA of TLS."""
    components, ca = status["components"], status.get("ca")
    space_of = {(each["protocol"], each["at"]): each["space"] for each in status.get("listeners", ())}
    relayed = any(c["kind"] == "router" and c.get("engine", EMBEDDED) == EMBEDDED for c in components)
    for kind, service in SERVICES.items():
        for (space, endpoints), scheme in product(_listening(components, kind).items(), service.schemes):
            for name, at in endpoints.items():  # a second one of a scheme has a number
                if name.partition("-")[0] == scheme:
                    its_space = space or space_of.get((scheme, at))
                    for url in client_urls(scheme, at, relays=relayed):
                        click.echo(entry_point(scheme.upper(), url, its_space))
    if ca is not None:
        click.echo(entry_point("CA", printable(ca)))
    console: dict[str, str] = next((c["endpoints"] for c in components if c["kind"] == "console"), {})
    for name, at in console.items():
        if name.startswith("https"):
            click.echo(entry_point(CONSOLE, f"https://{at}"))
    click.echo(entry_point(CONSOLE, f"http://127.0.0.1:{HTTP_PORT + offset}\n"))


def _listening(components: list[dict[str, Any]], kind: str) -> dict[str, dict[str, str]]:
    """Return address space → endpoints of the processes of a kind that are its own, which all have the same; empty: of
    those that all spaces share."""
    found: dict[str, dict[str, str]] = {}
    for each in components:
        if each["kind"] == kind and each["endpoints"]:
            space = each["name"].removeprefix(f"{kind}-").rpartition("-")[0]
            found.setdefault(space, each["endpoints"])
    return found


def print_addresses(addresses: list[dict[str, Any]]) -> None:
    """Addresses of the status JSON, and below them the message of each."""
    fields = ("name", "type", "flavor", "ready", "phase", "messages", "consumers")
    print_table(("address", *fields[1:]), [tuple(entry.get(field) for field in fields) for entry in addresses])
    print_notes((entry["name"], entry.get("message")) for entry in addresses)


def print_table(titles: Titles, rows: Rows, none: str = "") -> None:
    """A table without the columns that would be empty. `none`: line for stderr instead of a table without rows."""
    if none and not rows:
        report(none)
    for line in table(titles, rows, width()):
        click.echo(line)


def table(titles: Titles, rows: Rows, room: int | None) -> list[str]:
    """Return the lines of a table that is `room` characters wide at most; without rows no line."""
    shown = [i for i in range(len(titles)) if any(row[i] not in (None, "") for row in rows)]
    heads = [titles[i] for i in shown]
    cells = [[_cell(row[i]) for i in shown] for row in rows]
    if not heads:
        return []
    widths = fitting([max(map(len, column)) for column in zip(heads, *cells, strict=True)], room)
    return [_line(line, widths) for line in (heads, *cells)]


def width() -> int | None:
    """Return the columns of the terminal that stdout is; None for a file or a program, which get whole lines."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns


def fitting(widths: list[int], room: int | None) -> list[int]:
    """Return the widths of columns that fit into `room`, with two spaces between them: the widest are cut first."""
    widths = list(widths)
    while room is not None and (excess := sum(widths) + 2 * (len(widths) - 1) - room) > 0:
        widest = max(range(len(widths)), key=widths.__getitem__)
        next_one = max((each for i, each in enumerate(widths) if i != widest), default=LEAST)
        least = max(LEAST, min(next_one, widths[widest] - 1))
        if widths[widest] <= LEAST:
            return widths
        widths[widest] = max(least, widths[widest] - excess)
    return widths


def wrapped(text: str) -> str:
    """Return a text in lines that are not wider than the terminal."""
    import textwrap

    room = width()
    return text if room is None or len(text) <= room else textwrap.fill(text, max(room, 20), subsequent_indent="  ")


def user_of(client: str) -> str:
    """Return the user of a client with this name, in its address space; empty for the anonymous user."""
    from enmasse.identity.owned import owner
    from enmasse.identity.principal import ANONYMOUS

    user = owner(client).user
    return "" if user == ANONYMOUS else user


def print_json(value: Any) -> None:
    """A struct as one JSON object on a line, with all its fields."""
    import msgspec  # `status` does without

    click.echo(json.dumps(msgspec.to_builtins(value)))


def _line(cells: list[str], widths: list[int]) -> str:
    last = max((i for i, cell in enumerate(cells) if cell), default=0)
    shown = []
    for i in range(last + 1):
        text = cells[i] if len(cells[i]) <= widths[i] else cells[i][: widths[i] - 1] + "…"
        text = text.ljust(widths[i]) if i < last else text
        shown.append(click.style(text, fg=COLORS[cells[i]]) if cells[i] in COLORS else text)
    return "  ".join(shown)


def print_notes(notes: Iterable[tuple[str, str | None]]) -> None:
    """Print `name: text` for each (name, text) with a text; one line for all with the same."""
    found: dict[str, list[str]] = {}
    for name, text in notes:
        if text:
            found.setdefault(text, []).append(name)
    if found:
        click.echo()
    for text, names in found.items():
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        click.echo(wrapped(f"{', '.join(map(_cell, names[:MAX_NAMED]))}{more}: {printable(typed(text))}"))


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = "" if value is None else printable(str(value))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def age(since: str) -> str:
    """Return how long ago a time was, in its two largest units: `2h5m`."""
    try:
        seconds = max(0, int((datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds()))
    except ValueError:
        return since
    units = (("d", seconds // 86400), ("h", seconds // 3600 % 24), ("m", seconds // 60 % 60), ("s", seconds % 60))
    first = next((i for i, (_, count) in enumerate(units) if count), 3)
    return "".join(f"{count}{unit}" for unit, count in units[first : first + 2])
