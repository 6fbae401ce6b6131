"""`enmasse address browse|purge|move|redrive`: the messages of a queue, from the API of the console."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from enmasse.cli.common import FAILED, end, port_offset, say
from enmasse.cli.completion import addresses
from enmasse.cli.output.lists import Column, WantedRows, list_options

LOOK_SECONDS = 0.3
"""Seconds between two looks at a job that runs."""
BODY = 60
"""Characters of a body in a table."""
LOOKED_AT = 1000
"""Messages, the oldest, that --match and --sort of `browse` look at."""
DONE = {"purge": "purged", "move": "moved", "redrive": "redriven"}

_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
_selector = click.option("--selector", metavar="TEXT", default="", help="Only messages that this selector takes.")


def _reason(message: dict[str, Any]) -> str:
    return str(message["deaths"][-1]["reason"]) if message["deaths"] else ""


MESSAGES = (
    Column("id", "id"), Column("message-id", "messageId", matched=True), Column("size", "size"),
    Column("deliveries", "deliveryCount"), Column("reason", "deaths", _reason, of_row=True),
    Column("body", "body", lambda body: (body or "")[:BODY], matched=True),
)  # fmt: skip


def add_to(group: click.Group) -> None:
    """Add the commands to `enmasse address`."""
    for each in (browse, purge, move, redrive):
        group.add_command(each)


@click.command("browse")
@click.argument("name", shell_complete=addresses)
@list_options(MESSAGES, default=100, former_limit=("--count",))
@port_offset
def browse(name: str, wanted: WantedRows, offset: int) -> None:
    """Show the messages that wait in a queue, oldest first, and leave them there. Bodies are cut at 64 KiB."""
    from enmasse.cli.contexts.console import items, path

    most = LOOKED_AT if wanted.looks_at_all else wanted.limit or LOOKED_AT
    found = items(offset, f"{path('addresses', name, 'messages')}?bytes=65536", most=most + 1)
    wanted.show("items", found[:most], MESSAGES, "no message waits", None if len(found) > most else 0)


@click.command("purge")
@click.argument("name", shell_complete=addresses)
@click.option("--force", is_flag=True, help="Do not ask.")
@_as_json
@port_offset
def purge(name: str, force: bool, as_json: bool, offset: int) -> None:
    """Remove all messages that wait in a queue; consumers keep those that they have."""
    if not force:
        if not sys.stdin.isatty():
            raise click.UsageError("It removes messages for good; where no terminal can confirm it, add --force.")
        click.confirm(f"Remove all messages that wait in {name}?", abort=True, err=True)
    _work(offset, name, "purge", {}, as_json)


@click.command("move")
@click.argument("source", metavar="FROM", shell_complete=addresses)
@click.argument("to", shell_complete=addresses)
@_selector
@click.option("--count", type=click.IntRange(1), help="Messages at most.")
@_as_json
@port_offset
def move(source: str, to: str, selector: str, count: int | None, as_json: bool, offset: int) -> None:
    """Move the messages that wait in a queue to another one."""
    _work(offset, source, "move", {"to": to, "selector": selector, "limit": count}, as_json)


@click.command("redrive")
@click.argument("name", metavar="DEADLETTERS", shell_complete=addresses)
@_selector
@click.option("--count", type=click.IntRange(1), help="Messages at most.")
@_as_json
@port_offset
def redrive(name: str, selector: str, count: int | None, as_json: bool, offset: int) -> None:
    """Send dead letters back to the queues they came from."""
    _work(offset, name, "redrive", {"selector": selector, "limit": count}, as_json)


def _work(offset: int, name: str, kind: str, body: dict[str, Any], as_json: bool) -> None:
    """Order work on messages, wait for its end, and print how many it was. Ctrl-C stops it."""
    from enmasse.cli.contexts.console import ask, path
    from enmasse.cli.output.tables import print_json

    job = ask(offset, "POST", path("addresses", name, kind), {key: it for key, it in body.items() if it})
    try:
        while job["state"] == "running":
            time.sleep(LOOK_SECONDS)
            job = ask(offset, "GET", path("jobs", job["id"]))
    except KeyboardInterrupt:
        ask(offset, "DELETE", path("jobs", job["id"]))
        raise
    if as_json:
        print_json(job)
    elif job["state"] == "done":
        say(f"{DONE[kind]} {job['done']} of {name}")
    if job["state"] != "done":
        end(
            "address.messages.stopped", f"{kind} of {name}: {job['state']} after {job['done']}: {job['detail']}", FAILED
        )
