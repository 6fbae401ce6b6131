"""Queues: making, changing, deleting and listing them (Artemis' ActiveMQServerControl), and one queue's attributes and
state (QueueControl)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from enmasse.text import whole_number
from services.broker.core import errors
from services.broker.core.errors import BrokerError
from services.broker.core.queues.queue import Queue
from services.broker.management import rows
from services.broker.management.calls import CallContext, Operations
from services.broker.management.configurations import json_object
from services.broker.management.routing_types import routing_type

broker = Operations()
one = Operations()


# -- the queues of the broker ------------------------------------------------------------------------------------------
def _make(c: CallContext, address: str, name: str, kind: str | None, **attributes: Any) -> Queue:
    if not address or address == name:
        address = name  # one string: most queues have an address of their own
    return c.broker.catalogue.create_queue(
        address,
        name,
        routing_type(kind) if kind else c.broker.catalogue.settings.get(address).default_address_routing_type,
        **{"user": c.user, "auto_create_address": True, **attributes},
    )


@broker.add("createQueue", "SSSSBIBB")
def create_queue(
    c: CallContext,
    address: str,
    kind: str | None,
    name: str,
    filter: str | None,
    durable: bool | None,
    max_consumers: int | None,
    purge: bool | None,
    auto_create_address: bool | None,
) -> str:
    """Create a queue. Raises BrokerError if it exists or its address does not."""
    queue = _make(
        c,
        address,
        name,
        kind,
        filter=filter,
        durable=durable is not False,
        max_consumers=max_consumers,
        purge_on_no_consumers=purge,
        auto_create_address=bool(auto_create_address),
    )
    return describe(queue)


def describe(queue: Queue) -> str:
    """Return the text createQueue returns."""
    return (
        f"QueueImpl[name={queue.name}, address={queue.address.name}, routingType={queue.routing_type}, "
        f"durable={rows.text(queue.durable)}]"
    )


# Keys of Artemis' QueueConfiguration that this broker acts on, with the attribute each sets.
_CONFIGURATION = {
    "filter-string": "filter",
    "durable": "durable",
    "user": "user",
    "max-consumers": "max_consumers",
    "exclusive": "exclusive",
    "purge-on-no-consumers": "purge_on_no_consumers",
    "auto-create-address": "auto_create_address",
    "auto-created": "auto_created",
    "auto-delete": "auto_delete",
    "temporary": "temporary",
    "ring-size": "ring_size",
}
# Those it does not act on: only the value that changes nothing is taken.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "id": (),
    "group-rebalance": (False,),
    "group-rebalance-pause-dispatch": (False,),
    "group-buckets": (-1,),
    "group-first-key": (None, ""),
    "last-value": (False,),
    "last-value-key": (None, ""),
    "non-destructive": (False,),
    "enabled": (True,),
    "consumers-before-dispatch": (0,),
    "delay-before-dispatch": (-1,),
    "consumer-priority": (0, -1),
    "auto-delete-delay": (0, -1),
    "auto-delete-message-count": (0, -1),
    "configuration-managed": (False,),
    "internal": (False,),
    "transient": (False,),
}
_TYPES: dict[str, type] = {"filter-string": str, "user": str, "max-consumers": int, "ring-size": int}


def _configuration(given: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a QueueConfiguration (JSON text): name, address and routing-type unchanged, the others as attributes."""
    value = json_object(given, "queue configuration")
    attributes: dict[str, Any] = {}
    for key, item in value.items():
        if key in ("name", "address", "routing-type"):
            continue
        if key in _NEUTRAL:
            if _NEUTRAL[key] and item not in _NEUTRAL[key]:
                raise BrokerError(f"queue configuration {key}: {item!r} is not supported, leave it out")
            continue
        if key not in _CONFIGURATION:
            raise BrokerError(f"queue configuration: {key!r} is not known")
        if item is None:
            continue
        kind = _TYPES.get(key, bool)
        if isinstance(item, str) and kind is not str:  # Artemis writes and reads these as strings too
            number = whole_number(item, signed=True)
            item = item == "true" if kind is bool else item if number is None else number
        if not isinstance(item, kind) or (kind is int and isinstance(item, bool)):
            raise BrokerError(f"queue configuration {key}: {item!r} is not a {kind.__name__}")
        attributes[_CONFIGURATION[key]] = item
    for key in ("name", "address", "routing-type"):
        if key in value and not isinstance(value[key], str):
            raise BrokerError(f"queue configuration {key}: a string is needed, not {value[key]!r}")
    if not value.get("name"):
        raise BrokerError("queue configuration: the name is missing")
    return value, attributes


@broker.add("createQueue", "s")
def create_queue_json(c: CallContext, configuration: str) -> str:
    """Create a queue from JSON. Raises BrokerError if a field is wrong or it exists."""
    return create_queue_json_ignore(c, configuration, False)


@broker.add("createQueue", "sb")
def create_queue_json_ignore(c: CallContext, configuration: str, ignore_if_exists: bool) -> str:
    """Create a queue from JSON, or with `ignore_if_exists` return the existing one. Raises BrokerError."""
    value, attributes = _configuration(configuration)
    existing = c.broker.catalogue.queues.get(value["name"])
    address, kind = value.get("address") or value["name"], value.get("routing-type")
    if existing is None or c.broker.catalogue.may_give_way(existing, address, kind or ""):
        existing = _make(c, address, value["name"], kind, **{"durable": True, **attributes})
    elif not ignore_if_exists:
        raise errors.queue_exists(value["name"], existing.address.name)
    return describe(existing)


@broker.add("updateQueue", "s")
def update_queue(c: CallContext, configuration: str) -> str:
    """Change a queue from JSON. Raises BrokerError if it does not exist or a field cannot be changed."""
    value, attributes = _configuration(configuration)
    queue = c.broker.catalogue.queues.get(value["name"])
    if queue is None:
        raise errors.no_queue(value["name"])
    fixed = {"durable": queue.durable, "temporary": queue.temporary}
    for key, current in fixed.items():
        if attributes.get(key, current) != current:
            raise BrokerError(f"queue {queue.name}: {key} cannot be changed")
    c.broker.catalogue.update_queue(
        queue, {k: v for k, v in attributes.items() if k not in (*fixed, "auto_create_address")}
    )
    return describe(queue)


@broker.add("destroyQueue", "s")
def destroy_queue(c: CallContext, name: str) -> None:
    """Delete a queue. Raises BrokerError if it has consumers or does not exist."""
    c.broker.catalogue.destroy_queue(name)


@broker.add("destroyQueue", "sb")
def destroy_queue_2(c: CallContext, name: str, remove_consumers: bool) -> None:
    """Delete a queue, with `remove_consumers` those as well. Raises BrokerError."""
    c.broker.catalogue.destroy_queue(name, remove_consumers=remove_consumers)


@broker.add("destroyQueue", "sbb")
def destroy_queue_3(c: CallContext, name: str, remove_consumers: bool, auto_delete_address: bool) -> None:
    """Delete a queue, with `auto_delete_address` also an address that was created by itself. Raises BrokerError."""
    c.broker.catalogue.destroy_queue(name, remove_consumers=remove_consumers, auto_delete_address=auto_delete_address)


@broker.add("getQueueNames")
def get_queue_names(c: CallContext) -> list[str]:
    """Return the names of all queues."""
    return list(c.broker.catalogue.queues)


@broker.add("getRevision")
def get_revision(c: CallContext) -> str:
    """Return the revision of the listings of queues and addresses (`Revision.text`), which Artemis does not have."""
    return c.broker.revision.text()


@broker.add("listQueues", "Sii")
def list_queues(c: CallContext, options: str | None, page: int, page_size: int) -> str:
    """Return a page of queues as JSON, with filter and order as Artemis reads them in `options`."""
    return rows.list_rows(c.broker.catalogue.queues.values(), rows.queue_row, options, page, page_size)


# -- one queue ---------------------------------------------------------------------------------------------------------
def _attribute(name: str, function: Callable[[Queue], Any]) -> None:
    one.add(name)(lambda c, q: function(q))


_attribute("getName", lambda q: q.name)
_attribute("getAddress", lambda q: q.address.name)
_attribute("getRoutingType", lambda q: q.routing_type)
_attribute("getFilter", lambda q: q.filter.text if q.filter else None)
_attribute("getUser", lambda q: q.user)
_attribute("getMessageCount", lambda q: q.count)
_attribute("getScheduledCount", lambda q: len(q.schedule))
_attribute("getDeliveringCount", lambda q: q.dispatcher.delivering)
_attribute("getConsumerCount", lambda q: len(q.consumers))
_attribute("getMaxConsumers", lambda q: q.max_consumers)
_attribute("getMessagesAdded", lambda q: q.added)
_attribute("getRingSize", lambda q: q.disposal.ring_size)
_attribute("getMessagesReplaced", lambda q: q.replaced)
_attribute("getMessagesLost", lambda q: q.lost)
_attribute("isDurable", lambda q: q.durable)
_attribute("isTemporary", lambda q: q.temporary)
_attribute("isPaused", lambda q: q.dispatcher.paused)
_attribute("isPurgeOnNoConsumers", lambda q: q.purge_on_no_consumers)
_attribute("isExclusive", lambda q: q.dispatcher.exclusive)
_attribute("isAutoDelete", lambda q: q.auto_delete)
_attribute("isAutoCreated", lambda q: q.auto_created)
_attribute("getDeadLetterAddress", lambda q: q.address.settings.dead_letter_address)
_attribute("getExpiryAddress", lambda q: q.address.settings.expiry_address)


@one.add("pause")
def pause(c: CallContext, q: Queue) -> None:
    """Stop delivery from a queue."""
    c.broker.catalogue.pause_queue(q, True)


@one.add("resume")
def resume(c: CallContext, q: Queue) -> None:
    """Deliver again from a queue."""
    c.broker.catalogue.pause_queue(q, False)
