"""`enmasse connection list|show|close`: connections at routers, brokers and gateways, from the API of the console."""

from __future__ import annotations

from typing import Any

import click

from enmasse.cli.common import port_offset, say


@click.group(name="connection", short_help="List, show and close connections of clients.")
def command() -> None:
    """List, show and close connections of clients, of AMQP and of MQTT, and of the suite's own processes.

    Exit status 0: done. 1: refused, with the reason on stderr. 4: no suite is running, or its console does not answer.
    """


_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")


@command.command("list")
@click.option("--refused", is_flag=True, help="Show refusals and closed connections instead, newest first.")
@click.option("--inside", is_flag=True, help="Show the connections of the suite's own processes instead.")
@_as_json
@port_offset
def list_(refused: bool, inside: bool, as_json: bool, offset: int) -> None:
    """List the connections: client, user, protocol, host, links, messages a second."""
    from enmasse.cli.contexts.console import items
    from enmasse.cli.output.tables import age, print_json, print_table

    if refused and inside:
        raise click.UsageError("--refused and --inside cannot be used together")
    where = "events?sort=-time" if refused else "connections?inside=true" if inside else "connections"
    found = items(offset, where)
    if as_json:
        print_json({"items": found})
    elif refused:
        of_events = ("for", "kind", "condition", "description", "address", "user", "client", "from", "times")
        events = [
            (age(it["time"]), it["kind"], it["condition"], it["description"], it["address"], it["user"], it["client"],
             it["peer"], it["count"])
            for it in found
        ]  # fmt: skip
        print_table(of_events, events, "no client was refused")
    else:
        titles = ("connection", "client", "user", "protocol", "from", "tls", "links", "in/s", "out/s", "for")
        rows = [
            (it["id"], it["container"], it["user"], it["protocol"], it["peer"], it["tls"], it["links"],
             it["rates"]["in"], it["rates"]["out"], age(it["since"] or ""))
            for it in found
        ]  # fmt: skip
        print_table(titles, rows, "no process is connected" if inside else "no client is connected")


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
    say(f"closed {id_}")
