"""Rows of lists as Artemis shows them, and the filtering, sorting and paging of its list operations."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import Any, TypeVar

import msgspec

from enmasse.storage.decoding import decode_any
from services.broker.core.connections import ConnectionInfo, ConsumerInfo, ProducerInfo
from services.broker.core.errors import BrokerError
from services.broker.core.limits.broker_address import BrokerAddress
from services.broker.core.queues.queue import Queue
from services.broker.core.routing.bindings import Divert

Row = Mapping[str, str]


def text(value: object) -> str:
    """Return a value as a string, as all values of listings are: "true", "12", "" for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


# The same for every queue: what this broker does not do.
_CONSTANT = {
    "lastValue": "false",
    "lastValueKey": "",
    "groupRebalance": "false",
    "groupRebalancePauseDispatch": "false",
    "groupBuckets": "-1",
    "groupFirstKey": "",
    "enabled": "true",
    "consumersBeforeDispatch": "0",
    "delayBeforeDispatch": "-1",
    "internalQueue": "false",
}
_BOOLEAN = ("false", "true")


def queue_row(queue: Queue) -> dict[str, str]:
    """Return a queue as Artemis' `listQueues` shows it."""
    return {
        "id": str(queue.id),
        "name": queue.name,
        "address": queue.address.name,
        "filter": queue.filter.text if queue.filter else "",
        "durable": _BOOLEAN[queue.durable],
        "paused": _BOOLEAN[queue.dispatcher.paused],
        "persistedPause": _BOOLEAN[queue.dispatcher.paused and queue.durable],
        "temporary": _BOOLEAN[queue.temporary],
        "purgeOnNoConsumers": _BOOLEAN[queue.purge_on_no_consumers],
        "consumerCount": str(len(queue.consumers)),
        "maxConsumers": str(queue.max_consumers),
        "autoCreated": _BOOLEAN[queue.auto_created],
        "autoDelete": _BOOLEAN[queue.auto_delete],
        "user": queue.user,
        "routingType": queue.routing_type,
        "messagesAdded": str(queue.added),
        "messageCount": str(queue.count),
        "messagesAcked": str(queue.acknowledged),
        "messagesExpired": str(queue.expired),
        "messagesKilled": str(queue.killed),
        "messagesLost": str(queue.lost),
        "stalled": _BOOLEAN[queue.dispatcher.stalled],
        "deliveringCount": str(queue.dispatcher.delivering),
        "scheduledCount": str(len(queue.schedule)),
        "directDeliver": _BOOLEAN[not queue.count],
        "exclusive": _BOOLEAN[queue.dispatcher.exclusive],
        "ringSize": str(queue.disposal.ring_size),
        "messagesReplaced": str(queue.replaced),
        **_CONSTANT,
    }


def address_row(address: BrokerAddress, queues: Collection[Queue], full: str) -> dict[str, str]:
    """Row of listAddresses. `queues`: those bound to the address. `full`: the policy for the next message
    (`Admission.full_policy`)."""
    return {
        "id": str(address.id),
        "name": address.name,
        "routingTypes": _routing_types(frozenset(address.routing_types)),
        "queueCount": str(len(queues)),
        "autoCreated": _BOOLEAN[address.auto_created],
        "internal": "false",
        "temporary": _BOOLEAN[not address.explicit and any(queue.temporary for queue in queues)],
        "paused": _BOOLEAN[address.paused],
        "messageCount": str(sum(queue.count for queue in queues)) if queues else "0",
        "addressSize": str(address.size),
        "limitPercent": str(100 * address.size // address.limit if 0 < address.limit < 2**60 else 0),
        "paging": _BOOLEAN[address.full and address.settings.full_policy == "PAGE"],
        "full": full,
        "routedMessageCount": str(address.routed),
        "unRoutedMessageCount": str(address.unrouted),
    }


def divert_row(divert: Divert) -> dict[str, str]:
    """Return a divert as `listDiverts` shows it."""
    return {
        "name": divert.name,
        "address": divert.pattern,
        "forwardingAddress": divert.address.name,
        "filter": divert.condition.filter.text if divert.condition.filter else "",
        "routingName": divert.routing_name,
        "routingType": divert.routing_type,
        "exclusive": "false",
    }


@functools.cache
def _routing_types(types: frozenset[str]) -> str:
    return json.dumps(sorted(types))


def connection_json(client: ConnectionInfo) -> dict[str, Any]:
    """Return a connection as Artemis shows it; times are milliseconds since 1970, here and below."""
    return {
        "connectionID": client.id,
        "clientAddress": client.remote,
        "creationTime": client.created,
        "implementation": "AMQPConnectionContext",
        "sessionCount": len(client.sessions),
        "clientID": client.container,
        "users": client.user,
        "protocol": "AMQP",
    }


def session_json(client: ConnectionInfo, session: str) -> dict[str, Any]:
    """Return a session as Artemis shows it."""
    return {
        "sessionID": session,
        "creationTime": client.sessions[session],
        "consumerCount": sum(1 for consumer in client.consumers.values() if consumer.session == session),
        "producerCount": sum(1 for producer in client.producers.values() if producer.session == session),
        "principal": client.user,
        "connectionID": client.id,
    }


def producer_json(client: ConnectionInfo, producer: ProducerInfo) -> dict[str, Any]:
    """Return a producer as Artemis shows it."""
    return {
        "id": producer.id,
        "name": producer.id,
        "connectionID": client.id,
        "sessionID": producer.session,
        "creationTime": producer.created,
        "destination": producer.address,
        "msgSent": producer.sent,
        "lastUUIDSent": producer.last_id or None,
        "msgSizeSent": 0,
    }


def consumer_json(client: ConnectionInfo, consumer: ConsumerInfo) -> dict[str, Any]:
    """Return a consumer as Artemis shows it."""
    return {
        "consumerID": consumer.id,
        "sequentialId": int(consumer.id[-8:], 16),
        "connectionID": client.id,
        "sessionID": consumer.session,
        "queueName": consumer.queue,
        "queueAddress": consumer.address,
        "browseOnly": consumer.browse,
        "filter": consumer.filter,
        "creationTime": consumer.created,
        "deliveringCount": consumer.delivering(),
    }


T = TypeVar("T")


def list_rows(
    things: Collection[T], row: Callable[[T], Row], options: str | None, page: float, page_size: float
) -> str:
    """`{"data": [...], "count": n}`: rows that pass the filter in `options`, sorted, one page (from 1; -1 = all)."""
    wanted = _options(options)
    condition = _filter(wanted)
    column = wanted.get("sortColumn") or wanted.get("sortField") or ""
    start, stop = 0, len(things)
    if page > 0 and page_size > 0:
        start = int((page - 1) * page_size)
        stop = start + int(page_size)
    if condition is None and not column:
        count = len(things)
        chosen = [row(thing) for thing in islice(things, start, stop)]
    else:
        every = [found for found in map(row, things) if condition is None or condition(found)]
        if column:
            every.sort(key=lambda found: _sort_key(found.get(column, "")), reverse=wanted.get("sortOrder") == "desc")
        count = len(every)
        chosen = every[start:stop]
    return msgspec.json.encode({"data": chosen, "count": count}).decode()


def equals(options: str | None) -> tuple[str, str] | None:
    """Field and value, if rows are chosen by one being equal to the other."""
    wanted = _options(options)
    field = wanted.get("field")
    return (field, wanted.get("value", "")) if field and wanted.get("operation") == "EQUALS" else None


def _options(options: str | None) -> dict[str, str]:
    if not options:
        return {}
    try:
        value = decode_any(options)
    except ValueError:
        raise BrokerError(f"the list options are not JSON: {options[:200]}") from None
    if not isinstance(value, dict):
        raise BrokerError("the list options are not a JSON object")
    return {str(key): text(item) for key, item in value.items()}


def _sort_key(value: str) -> tuple[int, float, str]:
    try:
        return (0, float(value), "")
    except ValueError:
        return (1, 0.0, value)


def _filter(options: Mapping[str, str]) -> Callable[[Row], bool] | None:
    field, operation, value = options.get("field"), options.get("operation"), options.get("value", "")
    if not field or not operation:
        return None
    if operation == "CONTAINS":
        return lambda row: value in row.get(field, "")
    if operation == "NOT_CONTAINS":
        return lambda row: value not in row.get(field, "")
    if operation == "EQUALS":
        return lambda row: row.get(field, "") == value
    if operation in ("GREATER_THAN", "LESS_THAN"):
        more = operation == "GREATER_THAN"
        limit = _sort_key(value)
        return lambda row: _sort_key(row.get(field, "")) > limit if more else _sort_key(row.get(field, "")) < limit
    raise BrokerError(f"the list operation {operation!r} is not known")
