"""Requests of `subscription`, `retained` and `mqtt`: to the subscription service of the suite on this machine, or to
the console of the context in force."""

from __future__ import annotations

import time
from shlex import quote
from typing import Any, Final, TypeVar

from msgspec import to_builtins
from msgspec.structs import replace

from enmasse.cli.common import end
from enmasse.cli.contexts.api_problems import refused
from enmasse.cli.contexts.console import LocalConsole, api, ask, console, items, path
from enmasse.cli.contexts.contexts import in_force, space
from enmasse.identity.owned import owned, owner, space_of_subscription
from enmasse.identity.principal import ANONYMOUS, Principal
from enmasse.identity.processes.operator import OPERATOR
from enmasse.model.names import DEFAULT_SPACE
from enmasse.model.sessions import (
    ByClient,
    ByFilter,
    ById,
    Done,
    RetainedReply,
    RetainedRow,
    SessionRow,
    SessionsReply,
    SubscriptionRow,
    SubscriptionsReply,
)

R = TypeVar("R")
OfClient = TypeVar("OfClient", SessionRow, SubscriptionRow)
SHOWN: Final = 10.0
"""Seconds for which the connection of a client with a session is waited for, which its gateway shows a little later."""
LOOK: Final = 0.2
BRIEFLY: Final = 3.0
"""Seconds for an answer that a command can do without."""
MOST_NAMES: Final = 5
"""Clients that an error names."""


def subscriptions(offset: int) -> list[SubscriptionRow]:
    """Return the subscriptions of the address space."""
    if in_force() is None and space() is None:
        found = _here(offset, "subscriptions", None, SubscriptionsReply).subscriptions
        return [row for row in found if space_of_subscription(row.kind, row.client, row.names) == DEFAULT_SPACE]
    rows = items(offset, "subscriptions")
    within = space_worked_in(offset)
    return [_subscription(row, within) for row in rows]


def number_without_user(offset: int) -> int:
    """Return the number of MQTT sessions with subscriptions, in the default address space, of clients without a user;
    0 if the subscription service of the suite on this machine does not answer."""
    from enmasse.cli.messages.subctrl import NoAnswer, Refused, request

    try:
        found = request(offset, "subscriptions", None, SubscriptionsReply, BRIEFLY).subscriptions
    except (NoAnswer, Refused):
        return 0
    return sum(row.kind == "mqtt" and owner(row.client)[::2] == (ANONYMOUS, DEFAULT_SPACE) for row in found)


def id_of_subscription(offset: int, name: str) -> str:
    """Return the id of the subscription with this id, or of the MQTT session of the client with this name. Ends the
    command if several clients are meant."""
    rows = subscriptions(offset)
    if any(row.id == name for row in rows):
        return name
    of_client = _meant([row for row in rows if row.kind == "mqtt"], name)
    return name if of_client is None else of_client.id


def subscription(offset: int, id: str) -> SubscriptionRow:
    """Return the subscription with this id. Ends the command if it does not exist."""
    if in_force() is None and space() is None:
        return _here(offset, "subscription", ById(id=id), SubscriptionRow, "subscription.name.unknown")
    status, found = console(offset).request("GET", api(path("subscriptions", id)))
    if status == 404:
        end("subscription.name.unknown", f"there is no subscription {id}")
    if status >= 400:
        refused(status, found)
    return _subscription(found, space_worked_in(offset))


def delete(offset: int, id: str) -> None:
    """Delete a subscription. Ends the command if it does not exist."""
    if in_force() is None and space() is None:
        _here(offset, "delete", ById(id=id, by=OPERATOR), Done, "subscription.name.unknown")
    else:
        ask(offset, "DELETE", path("subscriptions", id))


def space_worked_in(offset: int) -> str:
    """Return the address space that the running command works in."""
    if (named := space()) is not None:
        return named
    found: str = DEFAULT_SPACE if in_force() is None else ask(offset, "GET", "me").get("space", DEFAULT_SPACE)
    return found


def sessions(offset: int) -> list[SessionRow]:
    """Return the MQTT sessions of the address space."""
    if in_force() is None and space() is None:
        found = _here(offset, "sessions", None, SessionsReply).sessions
        return [row for row in found if owner(row.client).space == DEFAULT_SPACE]
    return [_session(row) for row in items(offset, "sessions")]


def clients(offset: int) -> list[dict[str, Any]]:
    """Return the MQTT sessions of the address space, each with the number of messages that wait for it (`waiting`)."""
    if in_force() is None and space() is None:
        found = sessions(offset)
        waiting: dict[str, int | None] = dict.fromkeys((row.client for row in found), 0)
        waiting |= {row.client: row.depth for row in subscriptions(offset) if row.kind == "mqtt"}
    else:
        rows = items(offset, "sessions")
        found, waiting = [_session(row) for row in rows], {row["id"]: row.get("waiting") for row in rows}
    return [{**to_builtins(row), "waiting": waiting[row.client]} for row in _with_all_in_flight(offset, found)]


def _with_all_in_flight(offset: int, found: list[SessionRow]) -> list[SessionRow]:
    """Return the MQTT sessions. `in_flight` of those that are connected counts messages of QoS 1 too, which the gateway
    knows and the subscription service does not, if the console answers."""
    if not any(row.connected for row in found) or not _console_answers(offset):
        return found
    under_way = {
        (row["component"], row["user"] or ANONYMOUS, row["container"]): row["mqtt"]["inFlightIn"]
        + row["mqtt"]["inFlightOut"]
        for row in items(offset, "connections?protocol=mqtt*")
        if row["mqtt"] is not None  # a broker may have MQTT clients of its own
    }

    def counted(row: SessionRow) -> SessionRow:
        of = owner(row.client)
        known = under_way.get((row.gateway, of.user, of.client)) if row.connected else None
        return row if known is None else replace(row, in_flight=known)

    return [counted(row) for row in found]


def _console_answers(offset: int) -> bool:
    from enmasse.cli.contexts.http import NotRunning

    there = console(offset)
    if not isinstance(there, LocalConsole):
        return True
    try:
        return there.attempt("GET", api("me"))[0] < 400
    except NotRunning:
        return False


def named_client(offset: int, client: str) -> str:
    """Return the name of the MQTT client that is meant by its name, or by a client identifier that only one has; the
    given text if no client has it. Ends the command if the client is away, or several are meant."""
    found = _meant(sessions(offset), client, "name one of them, or its user with --owner")
    if found is None:
        return client
    if not found.connected:
        text = f"is away and has no connection: `enmasse subscription remove {quote(found.client)}` deletes its session"
        end("mqtt.client.unknown", f"{found.client} {text}")
    return found.client


def _meant(rows: list[OfClient], client: str, remedy: str = "name one of them") -> OfClient | None:
    """Return the row of the client with this name, or of the only one with this client identifier; None if no client
    has it. Ends the command if several do."""
    found = [row for row in rows if row.client == client] or [row for row in rows if owner(row.client).client == client]
    if len(found) > 1:
        names = ", ".join(sorted(row.client for row in found)[:MOST_NAMES])
        end("mqtt.client.unknown", f"{client}: {len(found)} clients have this identifier: {remedy}: {names}")
    return found[0] if found else None


def disconnect(offset: int, client: str) -> int:
    """Disconnect an MQTT client; return how many there were."""
    if in_force() is None and space() is None:
        return _here(offset, "disconnect", ByClient(client=client, by=OPERATOR), Done, "mqtt.client.unknown").count
    of, until = owner(client), time.monotonic() + SHOWN
    while True:
        sessions = [row for row in items(offset, "sessions") if row["id"] == client]  # of this address space
        gateways = {row["gateway"] for row in sessions}
        found = [
            row["id"]
            for row in items(offset, "connections?protocol=mqtt*")
            if row["component"] in gateways  # a broker may have MQTT clients of its own
            and (row["user"] or ANONYMOUS, row["container"]) == (of.user, of.client)
        ]
        if found or not any(row["connected"] for row in sessions) or time.monotonic() > until:
            break
        time.sleep(LOOK)  # the gateway has not shown the connection yet
    for id in found:
        ask(offset, "DELETE", path("connections", id))
    return len(found)


def retained(offset: int, filter: str, limit: int) -> RetainedReply:
    """Return the first retained messages that match a filter, and how many do."""
    if in_force() is None and space() is None:
        return _here(offset, "retained", ByFilter(filter=filter, limit=limit), RetainedReply)
    found = _matching(offset, filter)
    return RetainedReply(retained=found[:limit], total=len(found))


def clear(offset: int, filter: str) -> int:
    """Clear the retained messages that match a filter; return how many there were."""
    if in_force() is None and space() is None:
        return _here(offset, "clear_retained", ByFilter(filter=filter), Done).count
    found = _matching(offset, filter)
    for row in found:
        ask(offset, "DELETE", path("retained", row.topic))
    return len(found)


def _here(offset: int, subject: str, body: Any, reply: type[R], id: str = "subscription.request.refused") -> R:
    """Ask the service of the suite on this machine. `id`: the error if it does not find what is named."""
    from enmasse.cli.messages.subctrl import ask as ask_service  # imports the AMQP engine

    return ask_service(offset, subject, body, reply, id)


def _matching(offset: int, filter: str) -> list[RetainedRow]:
    from enmasse.mqtt.topics import fault_of_filter, matches

    if fault := fault_of_filter(filter):
        end("subscription.request.refused", f"{filter!r} {fault}")
    return [
        RetainedRow(
            topic=row["topic"], size=row["size"], qos=row["qos"], since=row["since"], expires=row["expires"] or "",
            broker=row["broker"], user=row["user"] or "", withheld=row["withheld"],
            name=next(iter(row.get("names", ())), ""),
        )
        for row in items(offset, "retained")
        if matches(filter, row["topic"])
    ]  # fmt: skip


def _session(row: dict[str, Any]) -> SessionRow:
    return SessionRow(
        client=row["id"], connected=row["connected"], gateway=row["gateway"], peer=row["peer"],
        protocol=row["protocol"], since=row["since"], expiry=row["expiry"], subscriptions=row["subscriptions"],
        in_flight=row["inFlight"],
    )  # fmt: skip


def _subscription(row: dict[str, Any], within: str) -> SubscriptionRow:
    client = row["client"]
    if row["kind"] in ("mqtt", "amqp"):
        client = owned(Principal(row["user"] or ANONYMOUS, space=within), client)
    return SubscriptionRow(
        id=row["id"], kind=row["kind"], client=client, filters=row["filters"], depth=row["depth"],
        since=row["since"] or "", brokers=row["brokers"], connected=row["connected"], names=row.get("names", []),
    )  # fmt: skip
