"""Taking waiting messages out of a queue otherwise than by delivering them: purged, moved, expired, forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify
from itertools import chain
from typing import TYPE_CHECKING

from services.broker.core.backlog import Slice
from services.broker.core.stored_message import STORED, StoredMessage

if TYPE_CHECKING:
    from services.broker.core.queue import Queue

_RECORDED = 1000  # removals written together


def anyone(_: StoredMessage | Slice) -> bool:
    return True


def take(
    queue: Queue, chosen: Callable[[StoredMessage], bool], worth: Callable[[Slice], bool] = anyone
) -> Iterator[StoredMessage]:
    """Takes out the waiting and scheduled messages that are chosen, in order; not yet released. In slices: to be run to
    its end. `worth`: of a slice of the backlog, whether it may hold such messages."""
    slices = list(queue.backlog.parts()) if queue.backlog is not None else []
    taken: list[StoredMessage] = []
    for level in queue.levels or (queue.ready,):
        keep: list[StoredMessage] = []
        for message in level:
            (taken if chosen(message) else keep).append(message)
        if len(keep) < len(level):
            level.clear()
            level.extend(keep)
    yield from taken
    for some in slices:
        if worth(some):
            yield from some.take(chosen, queue)
    if queue.backlog is not None:
        queue.backlog.prune()
        if not queue.backlog:
            queue.backlog = None
    late = [entry for entry in queue.scheduled if chosen(entry[2])]
    if late:
        ids = {entry[1] for entry in late}
        queue.scheduled = [entry for entry in queue.scheduled if entry[1] not in ids]
        heapify(queue.scheduled)
    yield from [entry[2] for entry in late]


def take_ids(queue: Queue, ids: set[int]) -> Iterator[StoredMessage]:
    """`take` of the messages with these ids."""
    return take(queue, lambda message: message.id in ids, lambda some: some.holds(ids))


def finish_all(queue: Queue, messages: Iterable[StoredMessage]) -> int:
    """The end of messages taken out, however many; their number."""
    count = 0
    gone: list[int] = []
    store = queue.broker.store if queue.durable else None
    try:
        for message in messages:
            count += 1
            if message.flags & STORED:
                gone.append(message.id)
            queue.finish(message, recorded=True)
            if store is not None and len(gone) >= _RECORDED:
                store.remove_many(gone, queue.id)
                gone = []
    finally:  # a message further on could not be read: what is gone is gone
        if store is not None and gone:
            store.remove_many(gone, queue.id)
    return count


def end_all(queue: Queue, messages: Iterable[StoredMessage], end: Callable[[Queue, StoredMessage], bool]) -> int:
    """Gives messages taken out to `end`, until one of them cannot be read (`Queue.hold`): that one and those behind it
    are back in the queue. The number of those that came to their end."""
    count = 0
    kept: list[StoredMessage] = []
    for message in messages:
        if queue.stalled:
            kept.append(message)
        else:
            count += end(queue, message)
    queue.reinsert(kept)
    return count


def expire_due(queue: Queue) -> None:
    """Takes out what has expired while waiting."""
    now = queue.broker.now
    if not queue.expiring or queue.next_expiry > now or queue.stalled:
        return

    def due(expires: int) -> bool:
        return 0 < expires <= now

    expired = take(queue, lambda message: due(message.expires), lambda some: due(some.nearest))
    end_all(queue, expired, queue.broker.dead_letters.expire)
    waiting = chain(*(queue.levels or (queue.ready,)), (entry[2] for entry in queue.scheduled))
    times = [message.expires for message in waiting if message.expires]
    if queue.backlog is not None:
        times += queue.backlog.expiries()
    queue.next_expiry = min(times, default=now + 1000 if queue.expiring else 0)
    queue.broker.acknowledged_some()
