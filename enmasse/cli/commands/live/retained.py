"""`enmasse retained list|show|remove`: the retained messages of the suite."""

from __future__ import annotations

import json

import click

from enmasse.cli.common import done, end, port_offset, report, say
from enmasse.cli.output.lists import Column, WantedRows, list_options, since

_WILDCARDS = ("+", "#")
MOST, SHOWN = 10_000, 1000
"""Messages in a reply of the service, and shown without --limit."""
RETAINED = (
    Column("topic", "topic"), Column("size", "size"), Column("qos", "qos"), Column("for", "since", since),
    Column("expires", "expires"), Column("broker", "broker"),
    Column("user", "user", lambda row: row["user"] + " !" * bool(row["withheld"]), of_row=True),
)  # fmt: skip


@click.group(name="retained", short_help="List, show and remove retained messages.")
def command() -> None:
    """List, show and remove the messages that topics retain for new subscribers.

    FILTER is an MQTT topic filter such as home/+/temperature or home/#.

    Exit status 0: done. 1: refused, with the reason on stderr. 4: no suite is running, or its subscription service
    does not answer.
    """


@command.command("list")
@click.argument("filter_", metavar="[FILTER]", default="#")
@list_options(RETAINED, default=SHOWN)
@port_offset
def list_(filter_: str, wanted: WantedRows, offset: int) -> None:
    """List the retained messages whose topics match FILTER (default: all)."""
    from enmasse.cli.commands.live.subscribers import retained

    most = MOST if wanted.looks_at_all else min(wanted.limit or SHOWN, MOST)
    found = retained(offset, filter_, most)
    unseen = found.total - len(found.retained)
    shown = wanted.show("retained", found.retained, RETAINED, f"no retained message matches {filter_}", unseen)
    if any(row["withheld"] for row in shown) and not wanted.as_json:
        report("! not given to new subscribers: the user may no longer send there (--json has the reasons)")


@command.command("show")
@click.argument("topic", metavar="TOPIC")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@port_offset
def show(topic: str, as_json: bool, offset: int) -> None:
    """Show the retained message of a topic with its payload, from the console.

    The payload needs the permission recv. The first 64 KiB of it are shown.
    """
    from enmasse.cli.contexts.console import ask, path
    from enmasse.text import printable

    row = ask(offset, "GET", path("retained", topic))
    if as_json:
        click.echo(json.dumps(row))
        return
    say(printable(row["topic"]))
    facts = {name: row[name] for name in ("qos", "size", "since", "expires", "broker", "user", "withheld")}
    facts["content type"] = row["contentType"]
    payload = "payload (Base64)" if row["encoding"] == "base64" else "payload"
    facts[f"{payload}, the first 64 KiB" if row["truncated"] else payload] = row["payload"]
    for name, value in facts.items():
        if value is not None and value != "":
            say(f"  {name}: {printable(str(value))}")
    if row["payload"] is None:
        report("the payload is not shown: it needs the permission recv")


@command.command("remove")
@click.argument("filter_", metavar="FILTER")
@click.option("--force", is_flag=True, help="Clear all messages that a FILTER with wildcards matches.")
@port_offset
def clear(filter_: str, force: bool, offset: int) -> None:
    """Remove the retained message of a topic, or with --force all that match a filter with wildcards.

    Current subscribers are not notified; later ones get no retained message.
    """
    from enmasse.cli.commands.live import subscribers
    from enmasse.text import counted

    if not force and filter_.endswith(_WILDCARDS) | any(f"{sign}/" in filter_ for sign in _WILDCARDS):
        total = subscribers.retained(offset, filter_, 1).total
        if not total:
            done(f"no retained message matches {filter_}", "removed", filter=filter_, count=0)
            return
        end(
            "retained.messages.kept",
            f"{filter_} matches {counted(total, 'retained message')}; nothing was cleared. --force clears them all.",
        )
    count = subscribers.clear(offset, filter_)
    done(f"cleared {counted(count, 'retained message')}", "removed", filter=filter_, count=count)
