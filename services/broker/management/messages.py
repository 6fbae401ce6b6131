"""The messages of one queue: counting, listing, removing, moving them (Artemis' QueueControl)."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from enmasse.amqp.scan import MESSAGE_ANNOTATIONS, PROPERTIES
from services.broker.core import errors
from services.broker.core.broker import Broker
from services.broker.core.death import Death, Reason
from services.broker.core.dispatcher import Unreadable
from services.broker.core.errors import BrokerError
from services.broker.core.front import readable
from services.broker.core.jobs import Work
from services.broker.core.order import anyone
from services.broker.core.queue import Queue
from services.broker.core.stalls import remedy
from services.broker.core.stored_message import DURABLE, PRIORITY_SHIFT, StoredMessage
from services.broker.management.calls import Context, Operations
from services.broker.selector import SelectorError, compile_selector

T = TypeVar("T")

one = Operations()
MAX_LISTED = 200  # messages that one answer shows, as Artemis' management-browse-page-size


# -- which messages ----------------------------------------------------------------------------------------------------
def _chosen(broker: Broker, q: Queue, filter: str | None) -> Callable[[StoredMessage], bool]:
    if not filter:
        return anyone
    try:
        selector = compile_selector(filter)
    except SelectorError as error:
        raise BrokerError(f"AMQ229020: Invalid filter: {filter}: {error}", "amqp:invalid-field") from None

    def chosen(message: StoredMessage) -> bool:
        payload = _load(broker, q, message)
        return payload is not None and selector.matches(q.dispatcher.selection.lookup(payload, message))

    return chosen


def _load(broker: Broker, q: Queue, message: StoredMessage) -> bytes | None:
    """Return the payload, None if it is gone for good. Raises BrokerError if it cannot be read now."""
    try:
        return broker.payloads.load(message)
    except OSError as error:
        raise BrokerError(
            f"message {message.id} of queue {q.name} cannot be read: {error}; {remedy(error)}, and ask again",
            "amqp:internal-error",
        ) from None


def _finished(q: Queue, work: Work[T]) -> Work[T]:
    """Return the result of work over the whole queue. Raises BrokerError if the queue was deleted meanwhile."""
    result = yield from work
    if q.deleted:
        raise errors.no_queue(q.name)
    return result


def _counted(q: Queue, chosen: Callable[[StoredMessage], bool]) -> Work[int]:
    count = 0
    for portion in q.look():
        count += sum(map(chosen, portion))
        yield len(portion)
    return count


@one.add("countMessages", "S")
def count_messages(c: Context, q: Queue, filter: str | None) -> int | Work[int]:
    """Return the number of messages; with a filter, of waiting ones that match."""
    return _finished(q, _counted(q, _chosen(c.broker, q, filter))) if filter else q.count


@one.add("removeAllMessages purge")
def remove_all(c: Context, q: Queue) -> Work[int]:
    """Remove all waiting messages; return how many."""
    return remove_messages(c, q, None)


@one.add("removeMessages", "S")
def remove_messages(c: Context, q: Queue, filter: str | None) -> Work[int]:
    """Remove waiting messages that match; return how many."""
    count = yield from _finished(q, q.disposal.remove(_chosen(c.broker, q, filter)))
    c.broker.ask_commit(True)
    return count


@one.add("removeMessage", "i")
def remove_message(c: Context, q: Queue, id: int) -> bool:
    """Remove a waiting message; return False if no message has this id."""
    message = q.take_one(id)
    if message is None:
        return False
    q.finish(message)
    c.broker.removed_some()
    c.broker.ask_commit(True)
    return True


@one.add("moveMessages", "Ss")
def move_messages(c: Context, q: Queue, filter: str | None, target: str) -> Work[int]:
    """Move waiting messages that match to another queue; return how many. Raises BrokerError if that does not exist."""
    other = c.broker.catalogue.queues.get(target)
    if other is None:
        raise errors.no_queue(target)
    return _finished(q, q.disposal.dispose(partial(_move, c, other), _chosen(c.broker, q, filter)))


def _move(c: Context, other: Queue, q: Queue, message: StoredMessage) -> bool:
    """To just this queue. False: it could not be read, or was not taken there, and is back in its place; or it is gone
    for good."""
    payload = q.dispatcher.read(message)
    if isinstance(payload, Unreadable):
        return False
    if other.deleted:
        raise errors.no_queue(other.name)
    if not c.broker.dead_letters.move_copy(q, message, payload, f"{other.address.name}::{other.name}", {}):
        q.dispatcher.reinsert([message])  # its filter did not want it
        return False
    q.finish(message)
    return True


def _kill(c: Context, q: Queue, message: StoredMessage) -> bool:
    return c.broker.dead_letters.kill(q, message, Death(Reason.BY_ORDER))


@one.add("sendMessagesToDeadLetterAddress", "S")
def send_to_dead_letters(c: Context, q: Queue, filter: str | None) -> Work[int]:
    """Move waiting messages that match to the dead-letter address; return how many."""
    return _finished(q, q.disposal.dispose(partial(_kill, c), _chosen(c.broker, q, filter)))


@one.add("sendMessageToDeadLetterAddress", "i")
def send_one_to_dead_letters(c: Context, q: Queue, id: int) -> bool:
    """Move a waiting message to the dead-letter address; return False if no message has this id."""
    return _ended(c, q, id, partial(_kill, c))


@one.add("expireMessages", "S")
def expire_messages(c: Context, q: Queue, filter: str | None) -> Work[int]:
    """Treat waiting messages that match as expired; return how many."""
    return _finished(q, q.disposal.dispose(c.broker.dead_letters.expire, _chosen(c.broker, q, filter)))


@one.add("expireMessage", "i")
def expire_message(c: Context, q: Queue, id: int) -> bool:
    """Treat a waiting message as expired; return False if no message has this id."""
    return _ended(c, q, id, c.broker.dead_letters.expire)


def _ended(c: Context, q: Queue, id: int, how: Callable[[Queue, StoredMessage], bool]) -> bool:
    message = None if q.dispatcher.stalled else q.take_one(id)
    done = message is not None and how(q, message)
    c.broker.removed_some()
    return done


@one.add("retryMessages")
def retry_messages(c: Context, q: Queue) -> Work[int]:
    """Dead letters go back to the queue their annotation names, if it still exists."""

    def home(message: StoredMessage) -> Queue | None:
        payload = _load(c.broker, q, message)
        annotations = readable(payload, MESSAGE_ANNOTATIONS) if payload is not None else None
        name = annotations.get("x-opt-ORIG-QUEUE") if isinstance(annotations, dict) else None
        return c.broker.catalogue.queues.get(name) if isinstance(name, str) else None

    def back(q: Queue, message: StoredMessage) -> bool:
        queue = home(message)
        return queue is not None and _move(c, queue, q, message)

    return _finished(q, q.disposal.dispose(back, lambda message: home(message) is not None))


# -- looking at them ---------------------------------------------------------------------------------------------------
def _message_json(broker: Broker, q: Queue, message: StoredMessage) -> dict[str, Any]:
    payload = _load(broker, q, message) or b""
    fields = readable(payload, PROPERTIES)
    properties = fields if isinstance(fields, list) else []
    lookup = q.dispatcher.selection.lookup(payload, message)
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


def _listed(c: Context, q: Queue, filter: str | None, skip: int = 0, most: int = MAX_LISTED) -> Work[str]:
    """Return the first `most` messages that pass the filter, behind `skip` others."""
    chosen = _chosen(c.broker, q, filter)
    found: list[dict[str, Any]] = []
    for portion in q.look():
        passed = [message for message in portion if chosen(message)]
        some = passed[skip : skip + most - len(found)]
        skip = max(0, skip - len(passed))
        found += [_message_json(c.broker, q, message) for message in some]
        if len(found) >= most:
            break
        yield len(portion)
    return json.dumps(found)


@one.add("listMessagesAsJSON listMessages", "S")
def list_messages(c: Context, q: Queue, filter: str | None) -> Work[str]:
    """Return the first waiting messages that match, MAX_LISTED at most."""
    return _finished(q, _listed(c, q, filter))


@one.add("browse")
def browse(c: Context, q: Queue) -> Work[str]:
    """Return the first waiting messages, MAX_LISTED at most."""
    return _finished(q, _listed(c, q, None))


@one.add("browse", "ii")
def browse_page(c: Context, q: Queue, page: int, page_size: int) -> Work[str]:
    """Return a page of waiting messages; pages count from 1."""
    size = max(1, min(page_size, MAX_LISTED))
    return _finished(q, _listed(c, q, None, max(0, page - 1) * size, size))
