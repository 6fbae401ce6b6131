"""`enmasse subscription list|show|remove`: what outlives a connection, of AMQP clients and of MQTT clients alike."""

from __future__ import annotations

from typing import Any

import click

from enmasse.cli.common import done, end, port_offset, say
from enmasse.cli.completion import subscriptions
from enmasse.cli.output.lists import Column, WantedRows, list_options, since
from enmasse.text import counted, printable

MOST_FILTERS = 3
"""Filters of a subscription shown in the table."""


@click.group(name="subscription", short_help="List, show and remove subscriptions and MQTT sessions.")
def command() -> None:
    """List, show and remove durable subscriptions of AMQP clients, MQTT sessions with their subscriptions, and shared
    subscriptions.

    Exit status 0: done. 1: refused, with the reason on stderr. 4: no suite is running, or its subscription service
    does not answer.
    """


_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")


def _user(row: dict[str, Any]) -> str:
    from enmasse.cli.output.tables import user_of

    return user_of(row["client"]) if row["kind"] == "mqtt" else ""


def _filters(filters: dict[str, str]) -> str:
    more = f" and {len(filters) - MOST_FILTERS} more" if len(filters) > MOST_FILTERS else ""
    return ", ".join(list(filters)[:MOST_FILTERS]) + more


SUBSCRIPTIONS = (
    Column("subscription", "id", matched=True), Column("kind", "kind"), Column("client", "client", matched=True),
    Column("user", "client", _user, of_row=True), Column("connected", "connected"),
    Column("filters", "filters", _filters), Column("waiting", "depth"),
    Column("for", "since", since), Column("brokers", "brokers", ", ".join),
)  # fmt: skip


@command.command("list")
@list_options(SUBSCRIPTIONS, former={"messages": "depth"})
@port_offset
def list_(wanted: WantedRows, offset: int) -> None:
    """List all subscriptions: whose, the filters, how many messages wait, since when, on which brokers."""
    from enmasse.cli.commands.live.subscribers import subscriptions

    wanted.show("subscriptions", subscriptions(offset), SUBSCRIPTIONS, "there are no subscriptions")


@command.command("show")
@click.argument("id_", metavar="ID", shell_complete=subscriptions)
@_as_json
@port_offset
def show(id_: str, as_json: bool, offset: int) -> None:
    """Show one subscription with all its filters. ID: as `subscription list` shows it; for an MQTT session also its
    client, as `mqtt disconnect` takes it."""
    from enmasse.cli.commands.live.subscribers import id_of_subscription, subscription
    from enmasse.cli.output.tables import print_json

    row = subscription(offset, id_of_subscription(offset, id_))
    if as_json:
        print_json(row)
        return
    say(printable(row.id))
    facts = {
        "kind": row.kind, "client": row.client, "connected": "yes" if row.connected else "no",
        "waiting": row.depth, "since": row.since, "brokers": ", ".join(row.brokers),
    }  # fmt: skip
    for name, value in facts.items():
        if value != "":
            say(f"  {name}: {printable(str(value))}")
    for filter_, tag in row.filters.items():
        say(f"  filter: {printable(filter_)} ({'QoS ' if row.kind in ('mqtt', 'share') else ''}{tag})")


@command.command("remove")
@click.argument("id_", metavar="ID", shell_complete=subscriptions)
@click.option("--force", is_flag=True, help="Delete it with its messages, also while its client is connected.")
@port_offset
def delete(id_: str, force: bool, offset: int) -> None:
    """Remove a subscription, or an MQTT session with its subscriptions.

    One that holds messages, or whose client is connected, is deleted with --force only. ID as in `subscription show`.
    """
    from enmasse.cli.commands.live import subscribers

    id_ = subscribers.id_of_subscription(offset, id_)
    if not force:
        row = subscribers.subscription(offset, id_)
        if row.connected:
            end(
                "subscription.client.connected",
                f"{id_}: its client is connected; nothing was deleted. --force deletes it.",
            )
        if row.depth:
            end(
                "subscription.messages.kept",
                f"{id_}: it holds {counted(row.depth, 'message')}; nothing was deleted. --force deletes them too.",
            )
    subscribers.delete(offset, id_)
    done(f"deleted {id_}", "removed", id=id_)
