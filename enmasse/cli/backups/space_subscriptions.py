"""Durable subscriptions of AMQP clients on the topics of an address space: their queues at a broker."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from enmasse.aio.client import Client
from enmasse.amqp.codec.errors import INTERNAL_ERROR, AmqpError
from enmasse.amqp.messages.message import Message
from enmasse.model.names import space_prefix

NODE = "activemq.management"
SECONDS = 60.0
_KEYS = {
    "filter": "filter-string",
    "user": "user",
    "maxConsumers": "max-consumers",
    "exclusive": "exclusive",
    "purgeOnNoConsumers": "purge-on-no-consumers",
    "autoCreated": "auto-created",
    "autoDelete": "auto-delete",
    "ringSize": "ring-size",
}
"""Columns of listQueues, and what createQueue calls them."""
_OF_SERVICE = "subserv:"
"""Beginning of the `user` of queues of MQTT sessions."""


async def ask(client: Client, operation: str, *arguments: Any, resource: str = "broker") -> Any:
    """Return the answer of a broker's management. Raises AmqpError, TimeoutError."""
    named = {"_AMQ_ResourceName": resource, "_AMQ_OperationName": operation}
    reply = await client.request(Message(json.dumps(arguments), application_properties=named), NODE, timeout=SECONDS)
    if not (reply.application_properties or {}).get("_AMQ_OperationSucceeded"):
        raise AmqpError(INTERNAL_ERROR, f"{operation}: {reply.body}")
    found = json.loads(str(reply.body)) if reply.body else [None]
    return found[0] if isinstance(found, list) and len(found) == 1 else found


async def queue_rows(client: Client) -> list[dict[str, str]]:
    """Return the rows of all queues of a broker. Raises AmqpError, TimeoutError."""
    found: list[dict[str, str]] = json.loads(str(await ask(client, "listQueues", "", 1, 1 << 30)))["data"]
    return found


def subscriptions(rows: Iterable[dict[str, str]], space: str) -> list[dict[str, str]]:
    """Return the rows of the queues of durable subscriptions of a space."""
    return [
        row
        for row in rows
        if row["address"].startswith(space_prefix(space))
        and (row["routingType"], row["durable"], row["temporary"]) == ("MULTICAST", "true", "false")
        and not row["user"].startswith(_OF_SERVICE)
    ]


async def make(client: Client, row: dict[str, str], names: tuple[str, str]) -> str:
    """Make the queue of a row, empty, and return its name. `names`: the space of the row, and that of the queue. Raises
    AmqpError, TimeoutError."""
    before, now = names
    name = owned_by(row["name"], before, now)
    made = {_KEYS[key]: value for key, value in row.items() if key in _KEYS and value != ""}
    made |= {"name": name, "address": space_prefix(now) + row["address"].removeprefix(space_prefix(before))}
    made["user"] = owned_by(row["user"], before, now)
    await ask(client, "createQueue", json.dumps({**made, "routing-type": "MULTICAST", "durable": True}), True)
    await ask(client, "removeAllMessages", resource=f"queue.{name}")  # of a restore that was killed
    return name


def owned_by(name: str, before: str, now: str) -> str:
    """Return the name of what a user of one space owns (enmasse/identity/owned.py), for the same user of another."""
    if name.startswith(space_prefix(before)):
        return space_prefix(now) + name.removeprefix(space_prefix(before))
    return re.sub(rf"^((?:%[0-9]+\.)?~[^/@]*)@{re.escape(before)}/", rf"\1@{now}/", name)
