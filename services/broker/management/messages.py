"""The messages of one queue: counting, listing, removing, moving them (Artemis' QueueControl)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from enmasse.amqp.scan import MESSAGE_ANNOTATIONS, PROPERTIES
from services.broker.core import errors
from services.broker.core.broker import Broker
from services.broker.core.errors import BrokerError
from services.broker.core.front import readable
from services.broker.core.queue import Queue, Unreadable
from services.broker.core.stalls import remedy
from services.broker.core.stored_message import DURABLE, PRIORITY_SHIFT, StoredMessage
from services.broker.management.calls import Context, Operations
from services.broker.selector import SelectorError, compile_selector

one = Operations()
MAX_LISTED = 200  # messages that one answer shows, as Artemis' management-browse-page-size


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
    """The payload, None if it is gone for good. Raises BrokerError if it cannot be read now."""
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


@one.add("countMessages", "S")
def count_messages(c: Context, q: Queue, filter: str | None) -> int:
    if not filter:
        return q.count
    return sum(map(_chosen(c.broker, q, filter), q.messages()))


@one.add("removeAllMessages purge")
def remove_all(c: Context, q: Queue) -> int:
    return _remove(c, q, q.dequeue_all())


@one.add("removeMessages", "S")
def remove_messages(c: Context, q: Queue, filter: str | None) -> int:
    return _remove(c, q, q.dequeue(_chosen(c.broker, q, filter)))


@one.add("removeMessage", "i")
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


@one.add("moveMessages", "Ss")
def move_messages(c: Context, q: Queue, filter: str | None, target: str) -> int:
    return _move(c, q, q.dequeue(_chosen(c.broker, q, filter)), target)


def _each(messages: Iterator[StoredMessage], end: Callable[[Queue, StoredMessage], bool], q: Queue) -> int:
    count = q.dispose(messages, end)
    q.broker.removed_some()
    return count


@one.add("sendMessagesToDeadLetterAddress", "S")
def send_to_dead_letters(c: Context, q: Queue, filter: str | None) -> int:
    return _each(q.dequeue(_chosen(c.broker, q, filter)), c.broker.dead_letters.kill, q)


@one.add("sendMessageToDeadLetterAddress", "i")
def send_one_to_dead_letters(c: Context, q: Queue, id: int) -> bool:
    return _each(q.dequeue_ids({id}), c.broker.dead_letters.kill, q) == 1


@one.add("expireMessages", "S")
def expire_messages(c: Context, q: Queue, filter: str | None) -> int:
    return _each(q.dequeue(_chosen(c.broker, q, filter)), c.broker.dead_letters.expire, q)


@one.add("expireMessage", "i")
def expire_message(c: Context, q: Queue, id: int) -> bool:
    return _each(q.dequeue_ids({id}), c.broker.dead_letters.expire, q) == 1


@one.add("retryMessages")
def retry_messages(c: Context, q: Queue) -> int:
    """Dead letters go back to the queue their annotation names, if it still exists."""

    def home(message: StoredMessage) -> Queue | None:
        payload = _load(c.broker, q, message)
        annotations = readable(payload).get(MESSAGE_ANNOTATIONS) if payload is not None else None
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


@one.add("listMessagesAsJSON listMessages", "S")
def list_messages(c: Context, q: Queue, filter: str | None) -> str:
    return _listed(c, q, filter)


@one.add("browse")
def browse(c: Context, q: Queue) -> str:
    return _listed(c, q, None)


@one.add("browse", "ii")
def browse_page(c: Context, q: Queue, page: int, page_size: int) -> str:
    size = max(1, min(page_size, MAX_LISTED))
    found = islice(q.messages(), max(0, page - 1) * size, max(1, page) * size)
    return json.dumps([_message_json(c.broker, q, message) for message in found])
