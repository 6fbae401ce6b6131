"""Definitions of what is durable, as they stand in the store: JSON objects with a `kind`.

The binding of a queue is part of the queue's definition (address, filter, noLocal). A divert has a definition of its
own, so that one more costs the same however many lead to an address.
"""

from __future__ import annotations

import json
from typing import Any

from services.broker.core.limits.broker_address import BrokerAddress
from services.broker.core.limits.settings import Value
from services.broker.core.queues.queue import Queue
from services.broker.core.routing.bindings import Divert


def address_definition(address: BrokerAddress) -> bytes:
    """Return the definition of an address for the store, as JSON."""
    return _encoded(
        {
            "kind": "address",
            "name": address.name,
            "routingTypes": sorted(address.routing_types),
            "autoCreated": address.auto_created,
        }
    )


def queue_definition(queue: Queue) -> bytes:
    """Return the definition of a queue for the store, as JSON."""
    return _encoded(
        {
            "kind": "queue",
            "name": queue.name,
            "address": queue.address.name,
            "routingType": queue.routing_type,
            **queue.condition.definition(),
            "maxConsumers": queue.max_consumers,
            "purgeOnNoConsumers": queue.purge_on_no_consumers,
            "exclusive": queue.dispatcher.exclusive,
            "autoCreated": queue.auto_created,
            "autoDelete": queue.auto_delete,
            "user": queue.user,
            "paused": queue.dispatcher.paused,
            "subscription": queue.subscription,
            "identity": None if queue.identity == queue.name else queue.identity,
            "client": queue.client,
            "ringSize": queue.disposal.ring_size,
        }
    )


def divert_definition(divert: Divert) -> bytes:
    """Return the definition of a divert for the store, as JSON."""
    return _encoded(
        {
            "kind": "divert",
            "name": divert.name,
            "pattern": divert.pattern,
            "address": divert.address.name,
            "filter": divert.condition.text,
            "routingType": divert.routing_type,
            "routingName": divert.routing_name,
        }
    )


def settings_definition(match: str, values: dict[str, Value]) -> bytes:
    """Return the definition of the settings for the addresses that `match` covers, as JSON."""
    return _encoded({"kind": "settings", "match": match, "values": values})


def _encoded(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()
