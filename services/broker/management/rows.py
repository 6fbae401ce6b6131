"""Rows of lists as Artemis shows them, and the filtering, sorting and paging of its list operations."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from services.broker.core.address import Address
from services.broker.core.clients import Client, ConsumerInfo, ProducerInfo
from services.broker.core.errors import BrokerError
from services.broker.core.queue import Queue

Row = Mapping[str, str]


def text(value: object) -> str:
    """List values are strings throughout: "true", "12", "" for nothing."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def queue_row(queue: Queue) -> dict[str, str]:
    values: dict[str, object] = {
        "id": queue.id,
        "name": queue.name,
        "address": queue.address.name,
        "filter": queue.filter.text if queue.filter else None,
        "durable": queue.durable,
        "paused": queue.paused,
        "persistedPause": queue.paused and queue.durable,
        "temporary": queue.temporary,
        "purgeOnNoConsumers": queue.purge_on_no_consumers,
        "consumerCount": len(queue.consumers),
        "maxConsumers": queue.max_consumers,
        "autoCreated": queue.auto_created,
        "autoDelete": queue.auto_delete,
        "user": queue.user,
        "routingType": queue.routing_type,
        "messagesAdded": queue.added,
        "messageCount": queue.count,
        "messagesAcked": queue.acknowledged,
        "messagesExpired": queue.expired,
        "messagesKilled": queue.killed,
        "deliveringCount": queue.delivering,
        "scheduledCount": len(queue.scheduled),
        "directDeliver": not queue.count,
        "exclusive": queue.exclusive,
        "lastValue": False,
        "lastValueKey": None,
        "groupRebalance": False,
        "groupRebalancePauseDispatch": False,
        "groupBuckets": -1,
        "groupFirstKey": None,
        "enabled": True,
        "ringSize": -1,
        "consumersBeforeDispatch": 0,
        "delayBeforeDispatch": -1,
        "internalQueue": False,
    }
    return {key: text(value) for key, value in values.items()}


def address_row(address: Address) -> dict[str, str]:
    values: dict[str, object] = {
        "id": address.id,
        "name": address.name,
        "routingTypes": json.dumps(sorted(address.routing_types)),
        "queueCount": len(address.queues),
        "autoCreated": address.auto_created,
        "internal": False,
        "temporary": not address.explicit and any(queue.temporary for queue in address.queues.values()),
        "paused": address.paused,
        "messageCount": sum(queue.count for queue in address.queues.values()),
        "addressSize": address.size,
        "limitPercent": 100 * address.size // address.limit if 0 < address.limit < 2**60 else 0,
        "paging": address.full and address.settings.full_policy == "PAGE",
        "routedMessageCount": address.routed,
        "unRoutedMessageCount": address.unrouted,
    }
    return {key: text(value) for key, value in values.items()}


def connection_json(client: Client) -> dict[str, Any]:
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


def session_json(client: Client, session: str) -> dict[str, Any]:
    return {
        "sessionID": session,
        "creationTime": client.sessions[session],
        "consumerCount": sum(1 for consumer in client.consumers.values() if consumer.session == session),
        "producerCount": sum(1 for producer in client.producers.values() if producer.session == session),
        "principal": client.user,
        "connectionID": client.id,
    }


def producer_json(client: Client, producer: ProducerInfo) -> dict[str, Any]:
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


def consumer_json(client: Client, consumer: ConsumerInfo) -> dict[str, Any]:
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


def list_rows(rows: Iterable[Row], options: str | None, page: float, page_size: float) -> str:
    """`{"data": [...], "count": n}`: rows that pass the filter in `options`, sorted, one page (from 1; -1 = all)."""
    wanted = _options(options)
    chosen = list(rows)
    condition = _filter(wanted)
    if condition is not None:
        chosen = [row for row in chosen if condition(row)]
    column = wanted.get("sortColumn") or wanted.get("sortField") or ""
    if column:
        chosen.sort(key=lambda row: _sort_key(row.get(column, "")), reverse=wanted.get("sortOrder") == "desc")
    count = len(chosen)
    if page > 0 and page_size > 0:
        start = int((page - 1) * page_size)
        chosen = chosen[start : start + int(page_size)]
    return json.dumps({"data": chosen, "count": count}, separators=(",", ":"))


def _options(options: str | None) -> dict[str, str]:
    if not options:
        return {}
    try:
        value = json.loads(options)
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
