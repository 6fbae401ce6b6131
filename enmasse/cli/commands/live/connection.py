"""`enmasse connection list|show|close`: connections at routers, brokers and gateways, from the API of the console."""

from __future__ import annotations

from typing import Any

import click

from enmasse.cli.common import done, port_offset, say
from enmasse.cli.output.lists import Column, WantedRows, list_options, since

EVENTS = (
    Column("for", "time", since), Column("kind", "kind", matched=True), Column("condition", "condition", matched=True),
    Column("description", "description"), Column("address", "address", matched=True),
    Column("user", "user", matched=True), Column("client", "client", matched=True),
    Column("peer", "peer", matched=True), Column("times", "count"),
)  # fmt: skip
CONNECTIONS = (
    Column("connection", "id", matched=True), Column("client", "container", matched=True),
    Column("user", "user", matched=True), Column("protocol", "protocol", matched=True),
    Column("peer", "peer", matched=True), Column("tls", "tls"), Column("links", "links"),
    Column("in/s", "rates.in"), Column("out/s", "rates.out"), Column("for", "since", since),
)  # fmt: skip


@click.group(name="connection", short_help="List, show and close connections of clients.")
def command() -> None:
    """List, show and close connections of clients, of AMQP and of MQTT, and of the suite's own processes.

    Exit status 0: done. 1: refused, with the reason on stderr. 4: no suite is running, or its console does not answer.
    """


_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")


@command.command("list")
@click.option("--refused", is_flag=True, help="Show refusals and closed connections instead, newest first.")
@click.option("--inside", is_flag=True, help="Show the connections of the suite's own processes instead.")
@list_options(CONNECTIONS, EVENTS, former={"from": "peer"})
@port_offset
def list_(refused: bool, inside: bool, wanted: WantedRows, offset: int) -> None:
    """List the connections: client, user, protocol, host, links, messages a second."""
    from enmasse.cli.contexts.console import items

    if refused and inside:
        raise click.UsageError("--refused and --inside cannot be used together")
    where = "events?sort=-time" if refused else "connections?inside=true" if inside else "connections"
    found = items(offset, where)
    if refused:
        wanted.show("items", found, EVENTS, "no client was refused")
    else:
        wanted.show("items", found, CONNECTIONS, "no process is connected" if inside else "no client is connected")


@command.command("show")
@click.argument("id_", metavar="ID")
@_as_json
@port_offset
def show(id_: str, as_json: bool, offset: int) -> None:
    """Show a connection with its links."""
    from enmasse.cli.contexts.console import ask, path
    from enmasse.cli.output.tables import print_json, print_table
    from enmasse.text import printable

    found: dict[str, Any] = ask(offset, "GET", path("connections", id_))
    links = ask(offset, "GET", path("connections", id_, "links"))["items"]
    if as_json:
        print_json({"connection": found, "links": links})
        return
    say(printable(id_))
    for name in ("container", "user", "protocol", "peer", "tls", "component", "since"):
        if found[name]:
            say(f"  {name}: {printable(str(found[name]))}")
    for name, value in (found.get("mqtt") or {}).items():
        say(f"  {name}: {printable(str(value))}")
    rows = [
        (
            it["direction"], it["address"], it["name"], it.get("qos"), it["totals"][it["direction"]], it["credit"],
            it["unsettled"],
        )
        for it in links
    ]  # fmt: skip
    print_table(("direction", "address", "link", "qos", "messages", "credit", "unsettled"), rows)


@command.command("close")
@click.argument("id_", metavar="ID")
@port_offset
def close(id_: str, offset: int) -> None:
    """Close a connection. The client may connect again."""
    from enmasse.cli.contexts.console import ask, path

    ask(offset, "DELETE", path("connections", id_))
    done(f"closed {id_}", "closed", id=id_)
