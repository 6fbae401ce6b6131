"""The messages of one queue: counting, listing, removing, moving them (Artemis' QueueControl)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeVar

import msgspec

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.messages.scan import DATA, MESSAGE_ANNOTATIONS, PROPERTIES
from enmasse.identity.annotations import DEATH, ORIGINAL_ADDRESS, ORIGINAL_QUEUE
from services.broker.core import errors
from services.broker.core.broker import Broker
from services.broker.core.errors import BrokerError
from services.broker.core.jobs import FILTERED, MANY, PORTION, Work
from services.broker.core.messages.dead_letter_reasons import Death, Reason
from services.broker.core.messages.leading_sections import readable, sections_of
from services.broker.core.messages.stored_message import DURABLE, PRIORITY_SHIFT, StoredMessage
from services.broker.core.queues.dispatcher import ReadFailure
from services.broker.core.queues.order import anyone
from services.broker.core.queues.queue import Queue
from services.broker.core.queues.stalls import remedy
from services.broker.management.calls import CallContext, Operations
from services.broker.selector import SelectorError, compile_selector

T = TypeVar("T")

one = Operations()
MAX_LISTED = 200  # messages that one answer shows, as Artemis' management-browse-page-size
MAX_BROWSED = 8 << 20  # bytes of messages in one answer
CONSTRUCTOR = 8  # bytes before the content of a body: section, type, length


# -- which messages ----------------------------------------------------------------------------------------------------
def chosen(broker: Broker, q: Queue, filter: str | None) -> Callable[[StoredMessage], bool]:
    """Return which messages a filter takes. Raises BrokerError if it is invalid."""
    if not filter:
        return anyone
    try:
        selector = compile_selector(filter)
    except SelectorError as error:
        raise BrokerError(f"AMQ229020: Invalid filter: {filter}: {error}", "amqp:invalid-field") from None

    def takes(message: StoredMessage) -> bool:
        payload = _load(broker, q, message)
        return payload is not None and selector.matches(q.dispatcher.selection.lookup(payload, message))

    return takes


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


def _counted(q: Queue, takes: Callable[[StoredMessage], bool]) -> Work[int]:
    count = 0
    for portion in q.look(PORTION if takes is anyone else FILTERED):
        count += sum(map(takes, portion))
        yield len(portion)
    return count


@one.add("countMessages", "S")
def count_messages(c: CallContext, q: Queue, filter: str | None) -> int | Work[int]:
    """Return the number of messages; with a filter, of waiting ones that match."""
    return _finished(q, _counted(q, chosen(c.broker, q, filter))) if filter else q.count


@one.add("removeAllMessages purge")
def remove_all(c: CallContext, q: Queue) -> Work[int]:
    """Remove all waiting messages; return how many."""
    return remove_messages(c, q, None)


@one.add("removeMessages", "S")
def remove_messages(c: CallContext, q: Queue, filter: str | None) -> Work[int]:
    """Remove waiting messages that match; return how many."""
    count = yield from _finished(q, q.disposal.remove(chosen(c.broker, q, filter)))
    c.broker.ask_commit(True)
    return count


@one.add("removeMessage", "i")
def remove_message(c: CallContext, q: Queue, id: int) -> bool:
    """Remove a waiting message; return False if no message has this id."""
    message = q.take_one(id)
    if message is None:
        return False
    q.finish(message)
    c.broker.removed_some()
    c.broker.ask_commit(True)
    return True


@one.add("moveMessages", "Ss")
def move_messages(c: CallContext, q: Queue, filter: str | None, target: str) -> Work[int]:
    """Move waiting messages that match to another queue; return how many. Raises BrokerError if that does not exist."""
    other = c.broker.catalogue.queues.get(target)
    if other is None:
        raise errors.no_queue(target)
    return _finished(q, q.disposal.dispose(partial(_move, c, other), chosen(c.broker, q, filter)))


def _move(c: CallContext, other: Queue, q: Queue, message: StoredMessage) -> bool:
    """To just this queue. False: it could not be read, or was not taken there, and is back in its place; or it is gone
    for good."""
    payload = q.dispatcher.read(message)
    if isinstance(payload, ReadFailure):
        return False
    if other.deleted:
        raise errors.no_queue(other.name)
    if not c.broker.dead_letters.move_copy(q, message, payload, f"{other.address.name}::{other.name}", {}):
        q.dispatcher.reinsert([message])  # its filter did not want it
        return False
    q.finish(message)
    return True


def _kill(c: CallContext, q: Queue, message: StoredMessage) -> bool:
    return c.broker.dead_letters.kill(q, message, Death(Reason.BY_ORDER))


@one.add("sendMessagesToDeadLetterAddress", "S")
def send_to_dead_letters(c: CallContext, q: Queue, filter: str | None) -> Work[int]:
    """Move waiting messages that match to the dead-letter address; return how many."""
    return _finished(q, q.disposal.dispose(partial(_kill, c), chosen(c.broker, q, filter)))


@one.add("sendMessageToDeadLetterAddress", "i")
def send_one_to_dead_letters(c: CallContext, q: Queue, id: int) -> bool:
    """Move a waiting message to the dead-letter address; return False if no message has this id."""
    return _ended(c, q, id, partial(_kill, c))


@one.add("expireMessages", "S")
def expire_messages(c: CallContext, q: Queue, filter: str | None) -> Work[int]:
    """Treat waiting messages that match as expired; return how many."""
    return _finished(q, q.disposal.dispose(c.broker.dead_letters.expire, chosen(c.broker, q, filter)))


@one.add("expireMessage", "i")
def expire_message(c: CallContext, q: Queue, id: int) -> bool:
    """Treat a waiting message as expired; return False if no message has this id."""
    return _ended(c, q, id, c.broker.dead_letters.expire)


def _ended(c: CallContext, q: Queue, id: int, how: Callable[[Queue, StoredMessage], bool]) -> bool:
    message = None if q.dispatcher.stalled else q.take_one(id)
    done = message is not None and how(q, message)
    c.broker.removed_some()
    return done


@one.add("retryMessages")
def retry_messages(c: CallContext, q: Queue) -> Work[int]:
    """Dead letters go back to the queue they came from, if it still exists and sends them here."""
    back = partial(_back, c)
    return _finished(q, q.disposal.dispose(back, lambda message: _home(c, q, message) is not None))


def origin(broker: Broker, q: Queue, message: StoredMessage) -> str | None:
    """Return the name of the queue that a dead letter came from: of its annotations for Artemis' clients, unless it was
    moved since it died; None: it is no dead letter. Raises BrokerError if it cannot be read now."""
    payload = _load(broker, q, message)
    annotations = readable(payload, MESSAGE_ANNOTATIONS) if payload is not None else None
    if not isinstance(annotations, dict):
        return None
    name = annotations.get(ORIGINAL_QUEUE)
    death = annotations.get(DEATH)
    source = death.get("source") if isinstance(death, dict) else None
    if source is not None and source != annotations.get(ORIGINAL_ADDRESS):
        name = source
    return name if isinstance(name, str) else None


def _home(c: CallContext, q: Queue, message: StoredMessage) -> Queue | None:
    """Return the queue that a dead letter came from; None: it is not here, or does not send its dead letters or expired
    messages to this address."""
    name = origin(c.broker, q, message)
    home = None if name is None else c.broker.catalogue.queues.get(name)
    if home is None or q.address.name not in (home.address.dead_letter_address, home.address.expiry_address):
        return None
    return home


def _back(c: CallContext, q: Queue, message: StoredMessage) -> bool:
    queue = _home(c, q, message)
    return queue is not None and queue is not q and _move(c, queue, q, message)


# -- in portions: progress, and an end in between, for the console -----------------------------------------------------
class Portion(msgspec.Struct, frozen=True, kw_only=True):
    """Part of an operation on messages. `ids`: these; None: waiting ones that the `filter` takes, behind the `cursor`.
    `most`: messages that are looked at, about; `limit`: that are dealt with. `to`: queue of a move; `sources`:
    addresses to which redrive may send, None: any."""

    operation: Literal["remove", "move", "redrive"]
    ids: list[int] | None = None
    filter: str = ""
    to: str = ""
    sources: list[str] | None = None
    cursor: tuple[int, int, int] | None = None
    most: int = MANY
    limit: int | None = None


@one.add("workOnMessages", "o")
def work_on_messages(c: CallContext, q: Queue, order: dict[str, Any]) -> Work[list[Any]]:
    """Remove, move or redrive messages (`Portion`). Return how many, and the cursor with which the work continues;
    null: this was the last portion."""
    portion = msgspec.convert(order, Portion)
    return _finished(q, _several(c, q, portion, _how(c, q, portion), chosen(c.broker, q, portion.filter)))


def _how(c: CallContext, q: Queue, portion: Portion) -> Callable[[Queue, StoredMessage], bool]:
    if portion.operation == "redrive":
        return partial(_back, c)
    if portion.operation == "remove":
        return _end
    other = c.broker.catalogue.queues.get(portion.to)
    if other is None:
        raise errors.no_queue(portion.to)
    if other is q:
        raise BrokerError(f"the messages are in queue {q.name} already", "amqp:not-allowed")
    return partial(_move, c, other)


def _end(q: Queue, message: StoredMessage) -> bool:
    q.finish(message)
    return True


def _several(
    c: CallContext,
    q: Queue,
    portion: Portion,
    how: Callable[[Queue, StoredMessage], bool],
    takes: Callable[[StoredMessage], bool],
) -> Work[list[Any]]:
    done = wanted = 0

    def fits(message: StoredMessage) -> bool:
        nonlocal wanted
        if portion.limit is not None and wanted >= portion.limit:
            return False
        if portion.operation == "redrive":
            home = _home(c, q, message)
            if home is None or (portion.sources is not None and home.address.name not in portion.sources):
                return False
        fit = takes(message)
        wanted += fit
        return fit

    def counted(q: Queue, message: StoredMessage) -> bool:
        nonlocal done
        dealt = how(q, message)
        done += dealt
        return dealt

    if portion.ids is not None:
        for id in portion.ids:
            message = None if q.dispatcher.stalled else q.take_one(id)
            if message is not None and fits(message):
                counted(q, message)
            elif message is not None:
                q.dispatcher.reinsert([message])
            yield 1
        cursor = None
    else:
        cursor = q.order.start()
        if portion.cursor is not None:
            cursor.priority, cursor.seen, cursor.last = portion.cursor
        everything = portion.operation == "remove" and not portion.filter and portion.limit is None
        work = q.disposal.remove(anyone, cursor) if everything else q.disposal.dispose(counted, fits, cursor=cursor)
        looked, ended = 0, True
        for some in work:
            looked += some
            done += some if everything else 0
            yield some
            if looked >= portion.most or wanted == portion.limit:
                ended = False
                break
        work.close()
        q.dispatcher.settle_mode()
        if ended or wanted == portion.limit:
            cursor = None
    c.broker.removed_some()
    c.broker.ask_commit(True)
    if q.dispatcher.stalled:
        raise BrokerError(f"a message of queue {q.name} cannot be read now: see the log of the broker")
    return [done, None if cursor is None else [cursor.priority, cursor.seen, cursor.last]]


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


def _listed(c: CallContext, q: Queue, filter: str | None, skip: int = 0, most: int = MAX_LISTED) -> Work[str]:
    """Return the first `most` messages that pass the filter, behind `skip` others."""
    takes = chosen(c.broker, q, filter)
    found: list[dict[str, Any]] = []
    for portion in q.look(FILTERED if filter else PORTION):
        passed = [message for message in portion if takes(message)]
        some = passed[skip : skip + most - len(found)]
        skip = max(0, skip - len(passed))
        found += [_message_json(c.broker, q, message) for message in some]
        if len(found) >= most:
            break
        yield len(portion)
    return json.dumps(found)


@one.add("listMessagesAsJSON listMessages", "S")
def list_messages(c: CallContext, q: Queue, filter: str | None) -> Work[str]:
    """Return the first waiting messages that match, MAX_LISTED at most."""
    return _finished(q, _listed(c, q, filter))


@one.add("browse")
def browse(c: CallContext, q: Queue) -> Work[str]:
    """Return the first waiting messages, MAX_LISTED at most."""
    return _finished(q, _listed(c, q, None))


@one.add("browse", "ii")
def browse_page(c: CallContext, q: Queue, page: int, page_size: int) -> Work[str]:
    """Return a page of waiting messages; pages count from 1."""
    size = max(1, min(page_size, MAX_LISTED))
    return _finished(q, _listed(c, q, None, max(0, page - 1) * size, size))


@one.add("browseMessages", "iii")
def browse_messages(c: CallContext, q: Queue, after: int, limit: int, most: int) -> Work[str]:
    """Return waiting messages in the order of arrival, those with ids above `after`: {"messages", "more"}. `most`:
    bytes of a body; longer ones are cut."""
    return browse_selected(c, q, after, limit, most, None)


@one.add("browseMessages", "iiiS")
def browse_selected(c: CallContext, q: Queue, after: int, limit: int, most: int, filter: str | None) -> Work[str]:
    """Return what `browse_messages` does, of the messages that a filter takes."""
    takes = chosen(c.broker, q, filter)
    return _finished(q, _browsed(c.broker, q, after, max(1, min(limit, MAX_LISTED)), max(0, most), takes))


def _browsed(
    broker: Broker, q: Queue, after: int, limit: int, most: int, takes: Callable[[StoredMessage], bool]
) -> Work[str]:
    cursor = q.order.start()
    cursor.after = cursor.seen = after
    ids: list[int] = []
    while portion := q.order.look(cursor, PORTION if takes is anyone else FILTERED):
        ids = sorted([*ids, *(message.id for message in portion if takes(message))])[: limit + 1]
        if q.order.levels is None and len(ids) > limit:
            break  # one priority: the order of delivery is that of arrival
        yield len(portion)
    rows: list[dict[str, Any]] = []
    size, more = 0, len(ids) > limit
    for id in ids[:limit]:
        message = q.order.find(id)
        payload = None if message is None else _load(broker, q, message)
        if message is None or payload is None:
            continue
        row = _shown(broker, q, message, payload, most)
        size += len(row["payload"])
        if rows and size > MAX_BROWSED:
            more = True
            break
        rows.append(row)
        yield 1
    return msgspec.json.encode({"messages": rows, "more": more}).decode()


def _shown(broker: Broker, q: Queue, message: StoredMessage, payload: bytes, most: int) -> dict[str, Any]:
    try:
        body = sections_of(payload).begin(DATA)
    except AmqpError:
        body = 0
    return {
        "id": message.id,
        "size": message.size,
        "durable": bool(message.flags & DURABLE),
        "priority": message.flags >> PRIORITY_SHIFT,
        "expires": broker.to_wall(message.expires),
        "attempts": q.attempts.get(message.id, 0),
        "body": body,
        "cut": len(payload) > body + most + CONSTRUCTOR,
        "payload": base64.b64encode(payload[: body + most + CONSTRUCTOR]).decode(),
    }
