"""`enmasse events`: why clients were refused or closed, from the API of the console."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from urllib.parse import urlencode

import click

from enmasse.cli.common import port_offset, report, say

MOST_LOOKED_AT = 1000
"""Events whose kinds are named when none has the one that was asked for."""
FILTERS = {
    "condition": "AMQP condition, or the name of a reason code of MQTT.",
    "address": "Address or topic.",
    "user": "User of the client.",
    "client": "Container-id or client identifier.",
    "peer": "Where the client connects from: host, or host:port.",
    "component": "Router, broker or gateway that has refused it.",
}
"""Filters of the API beside the kind, by their names there."""
FACTS = ("component", "address", "user", "client", "peer")
"""Fields of an event that its line names; the component of those that are about no client."""
Text = Callable[[dict[str, Any]], str]
"""Function that makes the line of an event."""


def _filters(function: Any) -> Any:
    for name, text in reversed(FILTERS.items()):
        function = click.option(f"--{name}", f"of_{name}", metavar="PATTERN", help=text)(function)
    return function


@click.command(name="events", short_help="Show why clients were refused or closed.")
@click.option("-f", "--follow", is_flag=True, help="Show new events too, until Ctrl-C.")
@click.option("--count", "--limit", "-n", "count", type=click.IntRange(1), default=100, show_default=True, metavar="N",
              help="Begin with the last N events.")  # fmt: skip
@click.option("--kind", "--type", "kind", metavar="PATTERN", help="Kind of event, such as 'client.refused'.")
@_filters
@click.option("--all-spaces", is_flag=True, help="Events of all address spaces, for the operator.")
@click.option("--json", "as_json", is_flag=True, help="An event a line, as the API has it.")
@port_offset
def command(
    follow: bool, count: int, kind: str | None, all_spaces: bool, as_json: bool, offset: int, **filters: str | None
) -> None:
    """Show refusals of clients, and connections that were closed for a limit, in the order of time; the suite keeps
    the last 1,000 of each router, broker and gateway. Equal ones within a minute make two lines: of the first at once,
    later of all others with their number. A PATTERN is the text itself, or has * and ?.

    Exit status 0: shown. 1: refused. 4: no suite is running, or its console does not answer.
    """
    from enmasse.cli.contexts.console import items
    from enmasse.cli.contexts.contexts import space

    if all_spaces and (name := space()) is not None:
        raise click.UsageError(f"--all-spaces: the command works in the address space {name} alone; leave that out")
    given = {"kind": kind, **{name: filters[f"of_{name}"] for name in FILTERS}}
    filter = {name: value for name, value in given.items() if value is not None}
    place = {"allSpaces": "true"} if all_spaces else {}
    text = json.dumps if as_json else partial(_line, ("space", *FACTS) if all_spaces else FACTS)
    if follow:
        _follow(offset, urlencode({"watch": "1", **place, **filter}), count, text)
    newest = items(offset, f"events?{urlencode({'sort': '-time', **place, **filter})}", most=count)
    _show(reversed(newest), text)
    if not newest and not as_json:
        known = items(offset, f"events?{urlencode(place)}", most=MOST_LOOKED_AT) if kind else []
        kinds = sorted({row["kind"] for row in known})
        hint = f"; those have the kinds {', '.join(kinds)}" if kinds and kind not in kinds else ""
        report(f"no such event among those that are kept{hint}" if filter else "no client was refused")


def _follow(offset: int, query: str, count: int, text: Text) -> None:
    from enmasse.cli.contexts.api_problems import Lost, lost
    from enmasse.cli.contexts.console import API, console
    from enmasse.cli.contexts.streams import follow

    there = console(offset)
    there.request("GET", f"{API}me")  # logs in, if the console wants that
    waiting: list[dict[str, Any]] | None = []
    shown: dict[str, int] = {}
    try:
        for kind, data in follow(there, f"events?{query}"):
            if kind == "snapshot" and waiting is not None:
                waiting = []
            rows = [row for row in data["items"] if shown.get(row["id"]) != row["count"]]
            shown.update((row["id"], row["count"]) for row in rows)
            for id in data["removed"]:
                shown.pop(id, None)
            if waiting is None:
                _show(sorted(rows, key=_moment), text)
                continue
            waiting += rows
            if not data["more"]:
                _show(sorted(waiting, key=_moment)[-count:], text)
                waiting = None
    except Lost as error:
        lost(error)


def _moment(row: dict[str, Any]) -> str:
    return str(row["time"])


def _show(rows: Iterable[dict[str, Any]], text: Text) -> None:
    for row in rows:
        say(text(row))


def _line(names: tuple[str, ...], row: dict[str, Any]) -> str:
    """Return an event as a line, with its facts of these names."""
    from enmasse.text import printable

    reason = ": ".join(part for part in (row["condition"], row["description"]) if part)
    user = row["user"] or ("(unknown user)" if row["more"].get("proved") is False else "")
    shown = {**row, "user": user, "component": "" if row["peer"] else row["component"]}
    facts = " ".join(f"{name}={shown[name]}" for name in names if shown[name])
    times = f"({row['count']} times)" if row["count"] > 1 else ""
    return printable("  ".join(part for part in (row["time"], row["kind"], reason, facts, times) if part))
