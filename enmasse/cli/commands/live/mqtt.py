"""`enmasse mqtt clients|disconnect|wills`: the MQTT clients of the suite, and their wills."""

from __future__ import annotations

import click

from enmasse.cli.common import done, end, port_offset
from enmasse.cli.completion import mqtt_clients
from enmasse.cli.output.lists import Column, WantedRows, list_options, since

_VERSIONS = {4: "3.1.1", 5: "5"}


def _user(client: str) -> str:
    from enmasse.cli.output.tables import user_of

    return user_of(client)


CLIENTS = (
    Column("client", "client"), Column("user", "client", _user), Column("connected", "connected"),
    Column("gateway", "gateway"), Column("peer", "peer"),
    Column("protocol", "protocol", lambda version: _VERSIONS.get(version, version)), Column("for", "since", since),
    Column("subscriptions", "subscriptions"), Column("in flight", "in_flight"),
    Column("waiting", "waiting"),
)  # fmt: skip


WILLS = (
    Column("client", "client", matched=True), Column("user", "user", matched=True),
    Column("topic", "topic", matched=True), Column("qos", "qos"), Column("retain", "retain"), Column("delay", "delay"),
    Column("size", "size"), Column("state", "state"), Column("due", "due"),
)  # fmt: skip


@click.group(name="mqtt", short_help="List and disconnect MQTT clients, list wills.")
def command() -> None:
    """List and disconnect MQTT clients, and list their wills.

    Exit status 0: done. 1: refused, with the reason on stderr. 4: no suite is running, or its subscription service
    does not answer.
    """


@command.command("clients")
@click.option("--all", "all_", is_flag=True, help="Show the sessions of clients that are away too.")
@list_options(CLIENTS, former={"from": "peer"})
@port_offset
def clients(all_: bool, wanted: WantedRows, offset: int) -> None:
    """List the clients that are connected: gateway, address, protocol, subscriptions, messages of QoS 1 and 2 in
    flight, messages that wait."""
    from enmasse.cli.commands.live import subscribers

    found = [row for row in subscribers.clients(offset) if all_ or row["connected"]]
    none = "there are no sessions" if all_ else "no client is connected; --all shows the sessions of those away too"
    wanted.show("clients", found, CLIENTS, none)


@command.command("disconnect")
@click.argument("client", metavar="CLIENT", shell_complete=mqtt_clients)
@click.option("--owner", "user", metavar="USER", help="User of the client; then CLIENT is its own client identifier.")
@port_offset
def disconnect(client: str, user: str | None, offset: int) -> None:
    """Disconnect a client, named as `mqtt clients` shows it, or by its client identifier if no other user's client has
    it. Its session stays as long as its expiry says; the client may connect again."""
    from enmasse.cli.commands.live import subscribers
    from enmasse.identity.owned import owned
    from enmasse.identity.principal import Principal

    if user is not None:
        client = owned(Principal(user, space=subscribers.space_worked_in(offset)), client)
    client = subscribers.named_client(offset, client)
    if not subscribers.disconnect(offset, client):
        end("mqtt.client.unknown", f"{client}: there is no such client: `enmasse mqtt clients --all` lists them")
    done(f"disconnected {client}", "disconnected", client=client)


@command.command("wills")
@list_options(WILLS)
@port_offset
def wills(wanted: WantedRows, offset: int) -> None:
    """List the wills: what is published when a client is lost, after a delay in seconds. Never their bodies."""
    from enmasse.cli.contexts.console import items

    wanted.show("items", items(offset, "wills"), WILLS, "there are no wills")
