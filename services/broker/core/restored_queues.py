"""Settings, addresses, queues and diverts that the broker makes again at its start, from what its store has found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from services.broker.core.limits.usage import BrokerTotals
from services.broker.core.messages.condition import Condition
from services.broker.core.messages.stored_message import DURABLE, PRIORITY_SHIFT, REWRITE, STORED, StoredMessage
from services.broker.core.persistence import FoundReference, FoundRun, MessageStore, Progress
from services.broker.core.queues import backlog
from services.broker.core.queues.queue import Queue
from services.broker.core.routing.bindings import Divert
from services.broker.core.routing.catalogue import Catalogue
from services.broker.core.routing.subscription import name_of_stored

UNKNOWN = "unknown-queue-"
"""With its id, the name of a queue whose definition is damaged."""

_FLAGS = STORED | DURABLE | REWRITE  # of every message found; what stood in its header is not on record


def recover(
    catalogue: Catalogue, ledger: BrokerTotals, store: MessageStore, from_wall: Callable[[int], int], progress: Progress
) -> set[int]:
    """Make again what the store holds: settings, addresses, queues with their messages (payloads stay on disk).
    `from_wall`: from milliseconds since 1970 to the broker's clock. Returns the ids of queues whose
    definitions are damaged.

    May run in a thread, as long as nothing else uses what it works on before it returns.
    """
    found = store.take_recovered()
    definitions = [(id, msgspec.json.decode(value)) for id, value in found.definitions.items()]
    for id, value in definitions:
        if value["kind"] == "settings":
            catalogue.restore_settings(id, value["match"], value["values"])
    for id, value in definitions:
        if value["kind"] == "address":
            kinds = frozenset(value["routingTypes"])
            catalogue.restore_address(id, value["name"], kinds, auto_created=value["autoCreated"])
    shared: dict[int, StoredMessage] = {}
    total, done = sum(map(found.count, found.queues())), 0
    unknown = [(id, _unknown_queue(id)) for id in found.unknown]
    for id, value in definitions + unknown:
        if value["kind"] == "queue":
            queue = _recover_queue(catalogue, id, value)
            queue.count_lost(store.losses.queues.get(value["name"], store.losses.queues.get(queue.name, 0)))
            for part in found.parts(id, backlog.SLICE):
                progress(done / total)
                if isinstance(part, Sequence):
                    done += len(part)
                    for ref in part:
                        _recover_message(ledger, from_wall, queue, ref, found.holders(ref.message), shared)
                else:
                    done += len(part.messages)
                    _recover_run(ledger, queue, part)
    for id, value in definitions:
        if value["kind"] == "divert" and not _recover_divert(catalogue, id, value):
            store.undefine(id)
    store.losses.on_cleared = lambda: _forget_losses(catalogue)
    return set(found.unknown)


def _forget_losses(catalogue: Catalogue) -> None:
    for queue in catalogue.queues.values():
        queue.reset_lost()


def _unknown_queue(id: int) -> dict[str, Any]:
    """In place of a definition of which every copy is damaged: its messages can be looked at and moved, and are where
    they were if the definition returns. Not written down as long as the queue is not changed."""
    name = f"{UNKNOWN}{id}"
    return {
        "kind": "queue",
        "name": name,
        "address": name,
        "routingType": "ANYCAST",
        "filter": None,
        "noLocal": None,
        "maxConsumers": -1,
        "purgeOnNoConsumers": False,
        "exclusive": False,
        "autoCreated": False,
        "autoDelete": False,
        "user": "",
        "paused": False,
        "subscription": None,
    }


def _recover_queue(catalogue: Catalogue, id: int, value: dict[str, Any]) -> Queue:
    address = catalogue.address_for_queue(value["address"], value["routingType"], create=True, temporary=True)
    client = value.get("client")  # absent in older definitions
    name = value["name"] if value["subscription"] is None else name_of_stored(value["name"], client)
    queue = catalogue.new_queue(
        id,
        name if name not in catalogue.queues else value["name"],
        address,
        value["routingType"],
        durable=True,
        condition=Condition.stored(value),
        max_consumers=value["maxConsumers"],
        purge_on_no_consumers=value["purgeOnNoConsumers"],
        exclusive=value["exclusive"],
        auto_created=value["autoCreated"],
        auto_delete=value["autoDelete"],
        user=value["user"],
        client=client,
        ring_size=value.get("ringSize", -1),
    )
    queue.dispatcher.pause(value["paused"])
    if value["subscription"]:
        queue.subscription = tuple(value["subscription"])
        queue.identity = value.get("identity") or queue.name
    catalogue.add_queue(queue, client)
    return queue


def _recover_divert(catalogue: Catalogue, id: int, value: dict[str, Any]) -> bool:
    """False: it ended with its destination, as far as that was written."""
    address = catalogue.addresses.get(value["address"])
    if address is None or value["name"] in catalogue.diverts.by_name:
        return False
    condition = Condition.stored(value)
    catalogue.diverts.restore(
        Divert(
            value["name"],
            value["pattern"],
            address,
            condition,
            routing_type=value["routingType"],
            routing_name=value["routingName"],
            id=id,
        )
    )
    return True


def _recover_run(ledger: BrokerTotals, queue: Queue, run: FoundRun) -> None:
    """Straight into the backlog."""
    owner = queue.address.root
    size = sum(run.sizes)
    ledger.restore(owner, len(run.messages), size)
    queue.restore_packed(backlog.Slice(run.messages, run.sizes, _FLAGS | 4 << PRIORITY_SHIFT, owner), size)


def _recover_message(
    ledger: BrokerTotals,
    from_wall: Callable[[int], int],
    queue: Queue,
    ref: FoundReference,
    holders: int,
    shared: dict[int, StoredMessage],
) -> None:
    """`holders`: how many queues refer to it; `shared`: those that several refer to."""
    message = shared.get(ref.message)
    if message is None:
        owner = queue.address.root
        flags = _FLAGS | ref.priority << PRIORITY_SHIFT
        message = StoredMessage(ref.message, None, ref.size, flags, from_wall(ref.expiry), owner, holders)
        ledger.restore(owner, 1, ref.size)
        if holders > 1:
            shared[ref.message] = message
    queue.restore(message, ref.delivery_count, from_wall(ref.not_before))
