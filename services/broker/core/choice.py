"""Which consumer gets which message, where filters, priorities or exclusions have to be looked at."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING

from services.broker.core.consumer import Consumer
from services.broker.core.stored_message import StoredMessage

if TYPE_CHECKING:
    from services.broker.core.queue import Queue

SLICE = 500  # messages sent, or looked at in search of a match, in one go; then others have their turn
_NORMAL = 4  # the priority of most messages
_by_id = attrgetter("id")


def dispatch_by_choice(queue: Queue) -> bool:
    """Filters, priorities, exclusions: each consumer with credit, highest priority first, looks for its next."""
    left = SLICE
    waiting = deque(sorted(queue.active, key=lambda consumer: -consumer.priority))
    while waiting:
        consumer = waiting.popleft()
        if consumer.outlet.credit <= 0:
            queue.deactivate(consumer)
            continue
        if queue.exclusive and consumer is not queue.consumers[0]:
            continue
        message, looked = _next_for(queue, consumer, left)
        if queue.stalled:
            return False
        left -= looked
        if message is not None:
            queue.send(consumer, message)
            if queue.stalled:
                return False
            # Equal priorities take turns; a lower one waits until the higher ones want nothing.
            at = len(waiting)
            while at and waiting[at - 1].priority < consumer.priority:
                at -= 1
            waiting.insert(at, consumer)
            if consumer.active and len(queue.active) > 1:
                queue.active.remove(consumer)
                queue.active.append(consumer)
        if left <= 0:
            return True
    queue.settle_mode()
    return False


def _next_for(queue: Queue, consumer: Consumer, limit: int) -> tuple[StoredMessage | None, int]:
    """The first waiting message for this consumer, taken out, and how many were looked at."""
    looked = 1
    now = queue.broker.now
    scanned = consumer.scanned
    levels = ((_NORMAL, queue.ready),) if queue.levels is None else reversed(tuple(enumerate(queue.levels)))
    for priority, level in levels:
        seen = scanned[priority]
        start = len(level)
        if level and level[-1].id > seen:
            start = bisect_right(level, seen, key=_by_id) if seen else 0
        at = start
        for message in islice(level, start, None):
            looked += 1
            if message.expires and message.expires <= now:
                del level[at]
                if not queue.broker.dead_letters.expire(queue, message):
                    return None, looked
                return _go_on(queue, consumer, looked, limit)
            try:
                wanted = suits(queue, consumer, message)
            except OSError as error:
                queue.stand_still(message, error)
                return None, looked
            if wanted:
                if at:
                    scanned[priority] = level[at - 1].id
                del level[at]
                return message, looked
            if looked > limit:
                scanned[priority] = message.id
                return None, looked
            at += 1
        if level:
            scanned[priority] = max(seen, level[-1].id)
        if level is queue.ready and queue.backlog is not None:
            queue.advance()
            return _go_on(queue, consumer, looked, limit)
    return None, looked


def _go_on(queue: Queue, consumer: Consumer, looked: int, limit: int) -> tuple[StoredMessage | None, int]:
    if looked > limit:
        return None, looked
    message, more = _next_for(queue, consumer, limit - looked)
    return message, looked + more


def suits(queue: Queue, consumer: Consumer, message: StoredMessage) -> bool:
    """Whether the message is for this consumer. Raises OSError where that cannot be known now."""
    if queue.exclusions and queue.exclusions.excludes(message.id, consumer):
        return False
    if consumer.selector is None:
        return True
    payload = message.payload if message.payload is not None else queue.broker.payloads.load(message)
    if payload is None:
        return True  # gone for good: `Queue.send` deals with it
    return consumer.selector.matches(queue.lookup(payload, message))
