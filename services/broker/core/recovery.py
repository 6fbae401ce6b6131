"""The broker's start: what was durable comes back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from services.broker.core.address import Address
from services.broker.core.message import DURABLE, PRIORITY_SHIFT, REWRITE, STORED, Message
from services.broker.core.topology import MULTICAST
from services.broker.selector import compile_selector
from services.broker.storage.store import Recovered, Store

if TYPE_CHECKING:
    from services.broker.core.broker import Broker


def recover(broker: Broker, store: Store) -> None:
    """Makes again what the store holds: settings, addresses, queues with their messages (payloads stay on disk)."""
    definitions = [(id, json.loads(value)) for id, value in store.recovered.definitions.items()]
    for id, value in definitions:
        if value["kind"] == "settings":
            broker.settings_ids[value["match"]] = id
            broker.settings.put(value["match"], value["values"])
    for id, value in definitions:
        if value["kind"] == "address":
            name = value["name"]
            address = Address(name, frozenset(value["routingTypes"]), broker.settings.get(name), id=id, explicit=True)
            address.auto_created = value["autoCreated"]
            broker.addresses[name] = address
            store.limit_duplicates(id, max(1, address.settings.id_cache_size))
    shared: dict[int, Message] = {}
    for id, value in definitions:
        if value["kind"] == "queue":
            _recover_queue(broker, store, id, value, shared)
    store.recovered = Recovered()  # taken in: 30 bytes a message given back


def _recover_queue(broker: Broker, store: Store, id: int, value: dict[str, Any], shared: dict[int, Message]) -> None:
    address = broker.address_for_queue(value["address"], value["routingType"], create=True, temporary=True)
    queue = broker.new_queue(
        id,
        value["name"],
        address,
        value["routingType"],
        durable=True,
        filter=compile_selector(value["filter"]) if value["filter"] else None,
        no_local=value["noLocal"],
        max_consumers=value["maxConsumers"],
        purge_on_no_consumers=value["purgeOnNoConsumers"],
        exclusive=value["exclusive"],
        auto_created=value["autoCreated"],
        auto_delete=value["autoDelete"],
        user=value["user"],
    )
    queue.paused = value["paused"]
    queue.simple = not queue.paused and not queue.exclusive
    queue.subscription = tuple(value["subscription"]) if value["subscription"] else None
    broker.bind(queue)
    owner = address.root
    for ref in store.recovered.references(id):
        message = shared.get(ref.message) if queue.routing_type == MULTICAST else None
        if message is None:
            flags = STORED | DURABLE | REWRITE | ref.priority << PRIORITY_SHIFT
            message = Message(ref.message, None, ref.size, flags, ref.expiry, owner, 0)
            owner.size += ref.size
            owner.count += 1
            broker.size += ref.size
            if queue.routing_type == MULTICAST:
                shared[ref.message] = message
        message.refs += 1
        queue.restore(message, ref.delivery_count, ref.not_before)
