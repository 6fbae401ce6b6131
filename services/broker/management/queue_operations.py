"""Operations of the resources `queue.<name>` and `address.<name>` (Artemis' QueueControl and AddressControl)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from services.broker.core import errors
from services.broker.core.broker import Broker
from services.broker.core.broker_address import BrokerAddress
from services.broker.core.errors import BrokerError
from services.broker.core.front import ANNOTATIONS, PROPERTIES, readable
from services.broker.core.queue import Queue, Unreadable
from services.broker.core.stalls import remedy
from services.broker.core.stored_message import DURABLE, PRIORITY_SHIFT, StoredMessage
from services.broker.management import rows
from services.broker.management.calls import Operations
from services.broker.management.context import Context
from services.broker.selector import SelectorError, compile_selector

queue = Operations()
address = Operations()
op = queue.add
MAX_LISTED = 200  # messages that one answer shows, as Artemis' management-browse-page-size


def _getter(names: str, function: Callable[[Queue], Any]) -> None:
    queue.add(names)(lambda c, q: function(q))


_getter("getName", lambda q: q.name)
_getter("getID", lambda q: q.id)
_getter("getAddress", lambda q: q.address.name)
_getter("getRoutingType", lambda q: q.routing_type)
_getter("getFilter", lambda q: q.filter.text if q.filter else None)
_getter("getUser", lambda q: q.user)
_getter("getMessageCount countMessages", lambda q: q.count)
_getter("getDurableMessageCount", lambda q: q.count if q.durable else 0)
_getter("getPersistentSize", lambda q: q.bytes)
_getter("getScheduledCount getDurableScheduledCount", lambda q: len(q.schedule))
_getter("getDeliveringCount", lambda q: q.delivering)
_getter("getConsumerCount", lambda q: len(q.consumers))
_getter("getMaxConsumers", lambda q: q.max_consumers)
_getter("getMessagesAdded", lambda q: q.added)
_getter("getMessagesAcknowledged getAcknowledgeAttempts", lambda q: q.acknowledged)
_getter("getMessagesExpired", lambda q: q.expired)
_getter("getMessagesKilled", lambda q: q.killed)
_getter("getMessagesLost", lambda q: q.lost)
_getter("isDurable", lambda q: q.durable)
_getter("isTemporary", lambda q: q.temporary)
_getter("isPaused", lambda q: q.paused)
_getter("isPersistedPause", lambda q: q.paused and q.durable)
_getter("isPurgeOnNoConsumers", lambda q: q.purge_on_no_consumers)
_getter("isExclusive", lambda q: q.exclusive)
_getter("isAutoDelete", lambda q: q.auto_delete)
_getter("isAutoCreated", lambda q: q.auto_created)
_getter("isLastValue isInternalQueue isGroupRebalance", lambda q: False)
_getter("isEnabled", lambda q: True)
_getter("getRingSize getGroupBuckets", lambda q: -1)
_getter("getDeadLetterAddress", lambda q: q.address.settings.dead_letter_address)
_getter("getExpiryAddress", lambda q: q.address.settings.expiry_address)


# -- which messages ----------------------------------------------------------------------------------------------------
def _chosen(broker: Broker, q: Queue, filter: str | None) -> Callable[[StoredMessage], bool]:
    if not filter:
        return lambda message: True
    try:
        selector = compile_selector(filter)
    except SelectorError as error:
        raise BrokerError(f"AMQ229020: Invalid filter: {filter}: {error}", "amqp:invalid-field") from None

    def chosen(message: StoredMessage) -> bool:
        payload = _load(broker, q, message)
        return payload is not None and selector.matches(q.selection.lookup(payload, message))

    return chosen


def _load(broker: Broker, q: Queue, message: StoredMessage) -> bytes | None:
    """The payload, None where it is gone for good. Raises BrokerError where it cannot be read now."""
    try:
        return broker.payloads.load(message)
    except OSError as error:
        raise BrokerError(
            f"message {message.id} of queue {q.name} cannot be read: {error}; {remedy(error)}, and ask again",
            "amqp:internal-error",
        ) from None


def _remove(c: Context, q: Queue, messages: Iterator[StoredMessage]) -> int:
    count = q.finish_all(messages)
    c.broker.ask_commit(True)
    return count


@op("countMessages", "S")
def count_messages(c: Context, q: Queue, filter: str | None) -> int:
    if not filter:
        return q.count
    return sum(map(_chosen(c.broker, q, filter), q.messages()))


@op("removeAllMessages purge")
def remove_all(c: Context, q: Queue) -> int:
    return _remove(c, q, q.dequeue_all())


@op("removeMessages", "S")
def remove_messages(c: Context, q: Queue, filter: str | None) -> int:
    return _remove(c, q, q.dequeue(_chosen(c.broker, q, filter)))


@op("removeMessages", "iS")
def remove_messages_limited(c: Context, q: Queue, _batch: int, filter: str | None) -> int:
    # The number is that of messages a transaction, not a limit.
    return _remove(c, q, q.dequeue(_chosen(c.broker, q, filter)))


@op("removeMessage", "i")
def remove_message(c: Context, q: Queue, id: int) -> bool:
    return _remove(c, q, q.dequeue_ids({id})) == 1


def _move(c: Context, q: Queue, messages: Iterator[StoredMessage], target: str) -> int:
    other = c.broker.catalogue.queues.get(target)
    if other is None:
        raise errors.no_queue(target)
    return _each(messages, lambda q, message: _move_one(c, q, message, other), q)


def _move_one(c: Context, q: Queue, message: StoredMessage, other: Queue) -> bool:
    """To just this queue. False: it could not be read, or was not taken there, and is back in its place; or it is gone
    for good."""
    payload = q.read(message)
    if isinstance(payload, Unreadable):
        return False
    if not c.broker.dead_letters.move_copy(q, message, payload, f"{other.address.name}::{other.name}", {}):
        q.reinsert([message])  # its filter did not want it
        return False
    q.finish(message)
    return True


@op("moveMessages", "Ss")
def move_messages(c: Context, q: Queue, filter: str | None, target: str) -> int:
    return _move(c, q, q.dequeue(_chosen(c.broker, q, filter)), target)


@op("moveMessages", "Ssb")
def move_messages_3(c: Context, q: Queue, filter: str | None, target: str, _reject_duplicates: bool) -> int:
    return _move(c, q, q.dequeue(_chosen(c.broker, q, filter)), target)


@op("moveMessage", "is")
def move_message(c: Context, q: Queue, id: int, target: str) -> bool:
    return _move(c, q, q.dequeue_ids({id}), target) == 1


def _each(messages: Iterator[StoredMessage], end: Callable[[Queue, StoredMessage], bool], q: Queue) -> int:
    count = q.dispose(messages, end)
    q.broker.removed_some()
    return count


@op("sendMessagesToDeadLetterAddress", "S")
def send_to_dead_letters(c: Context, q: Queue, filter: str | None) -> int:
    return _each(q.dequeue(_chosen(c.broker, q, filter)), c.broker.dead_letters.kill, q)


@op("sendMessageToDeadLetterAddress", "i")
def send_one_to_dead_letters(c: Context, q: Queue, id: int) -> bool:
    return _each(q.dequeue_ids({id}), c.broker.dead_letters.kill, q) == 1


@op("expireMessages", "S")
def expire_messages(c: Context, q: Queue, filter: str | None) -> int:
    return _each(q.dequeue(_chosen(c.broker, q, filter)), c.broker.dead_letters.expire, q)


@op("expireMessage", "i")
def expire_message(c: Context, q: Queue, id: int) -> bool:
    return _each(q.dequeue_ids({id}), c.broker.dead_letters.expire, q) == 1


@op("retryMessages")
def retry_messages(c: Context, q: Queue) -> int:
    """Dead letters go back to the queue their annotation names, where it still exists."""

    def home(message: StoredMessage) -> Queue | None:
        payload = _load(c.broker, q, message)
        annotations = readable(payload).get(ANNOTATIONS) if payload is not None else None
        name = annotations.get("x-opt-ORIG-QUEUE") if isinstance(annotations, dict) else None
        return c.broker.catalogue.queues.get(name) if isinstance(name, str) else None

    homes: dict[int, Queue] = {}

    def has_home(message: StoredMessage) -> bool:
        queue = home(message)
        if queue is not None:
            homes[message.id] = queue
        return queue is not None

    return _each(q.dequeue(has_home), lambda q, message: _move_one(c, q, message, homes.pop(message.id)), q)


# -- looking at them ---------------------------------------------------------------------------------------------------
def _message_json(broker: Broker, q: Queue, message: StoredMessage) -> dict[str, Any]:
    payload = _load(broker, q, message) or b""
    fields = readable(payload).get(PROPERTIES)
    properties = fields if isinstance(fields, list) else []
    lookup = q.selection.lookup(payload, message)
    user_id = properties[0] if properties else None
    return {
        "messageID": message.id,
        "userID": None if user_id is None else str(user_id),
        "address": q.address.name,
        "durable": bool(message.flags & DURABLE),
        "expiration": broker.to_wall(message.expires),
        "priority": message.flags >> PRIORITY_SHIFT,
        "timestamp": lookup("AMQTimestamp") or 0,
        "persistentSize": message.size,
        "redelivered": q.attempts.get(message.id, 0) > 0,
        "protocol": "AMQP",
    }


def _listed(c: Context, q: Queue, filter: str | None, skip: int = 0) -> str:
    chosen = _chosen(c.broker, q, filter)
    found = islice((message for message in q.messages() if chosen(message)), skip, skip + MAX_LISTED)
    return json.dumps([_message_json(c.broker, q, message) for message in found])


@op("listMessagesAsJSON listMessages", "S")
def list_messages(c: Context, q: Queue, filter: str | None) -> str:
    return _listed(c, q, filter)


@op("browse")
def browse(c: Context, q: Queue) -> str:
    return _listed(c, q, None)


@op("browse", "ii")
def browse_page(c: Context, q: Queue, page: int, page_size: int) -> str:
    size = max(1, min(page_size, MAX_LISTED))
    found = islice(q.messages(), max(0, page - 1) * size, max(1, page) * size)
    return json.dumps([_message_json(c.broker, q, message) for message in found])


@op("getFirstMessageAsJSON")
def first_message(c: Context, q: Queue) -> str:
    return json.dumps([_message_json(c.broker, q, message) for message in islice(q.messages(), 1)])


@op("listConsumersAsJSON")
def list_consumers(c: Context, q: Queue) -> str:
    return json.dumps(
        [
            rows.consumer_json(client, consumer)
            for client in c.clients.all.values()
            for consumer in client.consumers.values()
            if consumer.queue == q.name
        ]
    )


# -- what it does ------------------------------------------------------------------------------------------------------
@op("pause")
def pause(c: Context, q: Queue) -> None:
    c.broker.catalogue.pause_queue(q, True)


@op("pause", "b")
def pause_persistently(c: Context, q: Queue, _persist: bool) -> None:
    c.broker.catalogue.pause_queue(q, True)


@op("resume")
def resume(c: Context, q: Queue) -> None:
    c.broker.catalogue.pause_queue(q, False)


@op("resetMessagesAdded")
def reset_added(c: Context, q: Queue) -> None:
    q.reset_added()


@op("resetMessagesAcknowledged")
def reset_acknowledged(c: Context, q: Queue) -> None:
    q.reset_acknowledged()


@op("resetMessagesExpired")
def reset_expired(c: Context, q: Queue) -> None:
    q.reset_expired()


@op("resetMessagesKilled")
def reset_killed(c: Context, q: Queue) -> None:
    q.reset_killed()


# -- addresses ---------------------------------------------------------------------------------------------------------
def _address_getter(names: str, function: Callable[[BrokerAddress], Any]) -> None:
    address.add(names)(lambda c, a: function(a))


def _queues(c: Context, a: BrokerAddress) -> list[Queue]:
    return list(c.broker.catalogue.queues_of(a).values())


_address_getter("getAddress getName", lambda a: a.name)
_address_getter("getId", lambda a: a.id)
_address_getter("getRoutingTypes", lambda a: sorted(a.routing_types))
_address_getter("getRoutingTypesAsJSON", lambda a: json.dumps(sorted(a.routing_types)))
address.add("getQueueNames getAllQueueNames getBindingNames")(lambda c, a: [q.name for q in _queues(c, a)])
address.add("getQueueCount")(lambda c, a: len(_queues(c, a)))
address.add("getMessageCount getNumberOfMessages")(lambda c, a: sum(q.count for q in _queues(c, a)))
_address_getter("getAddressSize", lambda a: a.size)
_address_getter("getMaxSizeBytes", lambda a: a.settings.max_size_bytes)
_address_getter("getRoutedMessageCount", lambda a: a.routed)
_address_getter("getUnRoutedMessageCount", lambda a: a.unrouted)
_address_getter("isPaging", lambda a: a.full and a.settings.full_policy == "PAGE")
_address_getter("isPaused", lambda a: a.paused)
_address_getter("isAutoCreated", lambda a: a.auto_created)
_address_getter("isTemporary isInternal", lambda a: False)


@address.add("pause")
def pause_address(c: Context, a: BrokerAddress) -> None:
    a.paused = True
    for q in _queues(c, a):
        c.broker.catalogue.pause_queue(q, True)


@address.add("resume")
def resume_address(c: Context, a: BrokerAddress) -> None:
    a.paused = False
    for q in _queues(c, a):
        c.broker.catalogue.pause_queue(q, False)


@address.add("block")
def block_address(c: Context, a: BrokerAddress) -> bool:
    c.broker.admission.block(a)
    return True


@address.add("unblock")
def unblock_address(c: Context, a: BrokerAddress) -> None:
    c.broker.admission.check_blocked()


@address.add("purge")
def purge_address(c: Context, a: BrokerAddress) -> int:
    return sum(_remove(c, q, q.dequeue_all()) for q in _queues(c, a))
