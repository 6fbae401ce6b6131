"""`enmasse retained list|remove`: the retained messages of the suite."""

from __future__ import annotations

import click

from enmasse.cli.common import end, port_offset, say

_WILDCARDS = ("+", "#")


@click.group(name="retained", short_help="List and remove retained messages.")
def command() -> None:
    """List and remove the messages that topics retain for new subscribers.

    FILTER is an MQTT topic filter such as home/+/temperature or home/#.

    Exit status 0: done. 1: refused, with the reason on stderr. 4: no suite is running, or its subscription service
    does not answer.
    """


@command.command("list")
@click.argument("filter_", metavar="[FILTER]", default="#")
@click.option("--limit", type=click.IntRange(1, 10_000), default=1000, show_default=True, metavar="N",
              help="Show at most N messages.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@port_offset
def list_(filter_: str, limit: int, as_json: bool, offset: int) -> None:
    """List the retained messages whose topics match FILTER (default: all)."""
    from enmasse.cli.commands.live.subscribers import retained
    from enmasse.cli.output.tables import age, print_json, print_table

    found = retained(offset, filter_, limit)
    if as_json:
        print_json(found)
        return
    rows = [
        (row.topic, row.size, row.qos, age(row.since), row.expires, row.broker, row.user + " !" * bool(row.withheld))
        for row in found.retained
    ]
    titles = ("topic", "bytes", "qos", "for", "expires", "broker", "user")
    print_table(titles, rows, f"no retained message matches {filter_}")
    if any(row.withheld for row in found.retained):
        click.echo("! not given to new subscribers: the user may no longer send there (--json has the reasons)")
    if found.total > len(rows):
        say(f"… and {found.total - len(rows)} more; --limit shows more of them")


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
            say(f"no retained message matches {filter_}")
            return
        end(
            "retained.messages.kept",
            f"{filter_} matches {counted(total, 'retained message')}; nothing was cleared. --force clears them all.",
        )
    say(f"cleared {counted(subscribers.clear(offset, filter_), 'retained message')}")
