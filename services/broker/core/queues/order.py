"""The messages that wait in a queue, in the order in which they will be delivered."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import attrgetter

from services.broker.core.messages.payloads import Payloads
from services.broker.core.messages.stored_message import PRIORITY_SHIFT, StoredMessage
from services.broker.core.queues import backlog
from services.broker.core.queues.backlog import Backlog, Slice

NORMAL = 4  # the priority of most messages
HIGHEST = 9
PORTION_BYTES = 1 << 20  # of messages that a cursor passes at a time
_by_id = attrgetter("id")
_NONE: deque[StoredMessage] = deque()
"""`ready` of the queues at which nothing has ever waited, of which there are thousands: it stays empty."""


def anyone(_: StoredMessage | Slice) -> bool:
    """Return True: the choice of all messages."""
    return True


class Cursor:
    """Place between waiting messages, for work that takes several turns of the loop. The order of a queue may change
    between two turns: a cursor is no position but the priority and the id behind which the work continues. It does not
    reach messages that come after its start."""

    __slots__ = ("after", "last", "priority", "seen")

    def __init__(self, after: int, last: int) -> None:
        """`after`, `last`: for messages with ids between them, `last` included."""
        self.after = after
        self.last = last
        self.priority = HIGHEST
        self.seen = after


class MessageOrder:
    """`ready`: those of normal priority that come first; all there are, as a rule. `backlog`: what is behind `ready`,
    which may be empty before it. `levels`: by priority, `ready` among them; None while all have the normal one."""

    __slots__ = ("_durable", "_payloads", "backlog", "levels", "ready")

    def __init__(self, payloads: Payloads, durable: bool) -> None:
        """`durable`: the queue is."""
        self._payloads = payloads
        self._durable = durable
        self.ready = _NONE
        self.backlog: Backlog | None = None
        self.levels: list[deque[StoredMessage]] | None = None

    # -- in ------------------------------------------------------------------------------------------------------------
    def append(self, message: StoredMessage) -> None:
        """Put a message behind all others of its priority."""
        priority = message.flags >> PRIORITY_SHIFT
        if priority != NORMAL:
            self._by_priority()[priority].append(message)
        elif self.backlog is None and len(self.ready) < backlog.HEAD:
            if self.ready is _NONE:
                self.ready = deque()
            self.ready.append(message)
        else:
            self.extend([message])

    def _own(self) -> deque[StoredMessage]:
        """Return `ready` to be changed."""
        if self.ready is _NONE:
            self.ready = deque()
        return self.ready

    def extend(self, messages: Sequence[StoredMessage]) -> None:
        """Messages of normal priority."""
        if self.backlog is None:
            ready = self._own()
            if len(ready) + len(messages) <= backlog.HEAD:
                ready.extend(messages)
                return
            self.backlog = Backlog(self._payloads, self._durable)
        self.backlog.extend(messages)

    def restore(self, some: Slice) -> None:
        """Usual messages found at the start, behind all others."""
        if self.backlog is None:
            self._own()
            self.backlog = Backlog(self._payloads, self._durable)
        self.backlog.restore(some)

    def merge(self, messages: list[StoredMessage]) -> int:
        """Put messages that were taken out back in their places. Return the lowest id of those that did not belong
        behind the head; 0: all did."""
        messages.sort(key=_by_id)
        if messages and self.backlog is not None:
            messages = self.backlog.merge(messages)
        if not messages:
            return 0
        lowest = messages[0].id
        if self.levels is None and all(m.flags >> PRIORITY_SHIFT == NORMAL for m in messages):
            _merge(self._own(), messages)
            return lowest
        levels = self._by_priority()
        for priority in range(10):
            some = [m for m in messages if m.flags >> PRIORITY_SHIFT == priority]
            if some:
                _merge(levels[priority], some)
        return lowest

    def _by_priority(self) -> list[deque[StoredMessage]]:
        if self.levels is None:
            self.levels = [deque() for _ in range(10)]
            self.levels[NORMAL] = self._own()
        return self.levels

    # -- contents ------------------------------------------------------------------------------------------------------
    def first_id(self) -> int | None:
        """Return the lowest id of the messages that wait, as far as the first of each priority shows; None: none
        wait."""
        first = [level[0].id for level in ((self.ready,) if self.levels is None else self.levels) if level]
        if self.backlog is not None and self.backlog.slices and self.backlog.slices[0].first:
            first.append(self.backlog.slices[0].first)
        return min(first, default=None)

    @property
    def empty(self) -> bool:
        """Whether no messages of normal priority wait."""
        return not self.ready and self.backlog is None

    def parts(self) -> Iterator[Iterable[StoredMessage] | Slice]:
        """Yield the messages in order: those in memory level by level, those of the backlog in slices."""
        for level in (self.ready,) if self.levels is None else reversed(self.levels):
            yield level
            if level is self.ready and self.backlog is not None:
                yield from self.backlog.parts()

    def messages(self) -> Iterator[StoredMessage]:
        """One by one. Those of the backlog are made for the occasion: to be looked at, and not kept."""
        return chain.from_iterable(part.messages() if isinstance(part, Slice) else part for part in self.parts())

    # -- from message to message over several turns ------------------------------------------------------------------
    def start(self) -> Cursor:
        """Return a cursor before all messages that wait now."""
        if self.backlog is not None:
            self.backlog.seal()
        ends = [level[-1].id for level in self.levels or (self.ready,) if level]
        if self.backlog is not None and self.backlog.slices:
            ends.append(self.backlog.slices[-1].highest)
        return Cursor(0, max(ends, default=0))

    def look(self, cursor: Cursor, count: int, worth: Callable[[Slice], bool] = anyone) -> list[StoredMessage]:
        """Move the cursor past up to `count` messages and return them; an empty list ends the walk. `worth`: of a slice
        of the backlog, whether to look at it. Messages of the backlog are made for the caller, not to be kept."""
        while cursor.priority >= 0:
            found = self._behind(cursor, count, worth)
            if found:
                found = _light(found)
                cursor.seen = found[-1].id
                return found
            cursor.priority -= 1
            cursor.seen = cursor.after
        return []

    def _behind(self, cursor: Cursor, count: int, worth: Callable[[Slice], bool]) -> list[StoredMessage]:
        """Return messages behind the cursor that have its priority."""
        found: list[StoredMessage] = []
        level = self._level(cursor.priority)
        if level and level[-1].id > cursor.seen:
            at = bisect_right(level, cursor.seen, key=_by_id)
            level.rotate(-at)
            found = list(islice(level, min(count, len(level) - at)))
            level.rotate(at)
        elif cursor.priority == NORMAL and self.backlog is not None:
            some = self.backlog.behind(cursor.seen, worth)
            if some is not None:
                found = some.behind(cursor.seen, count)
        return [message for message in found if message.id <= cursor.last]

    def _level(self, priority: int) -> deque[StoredMessage] | None:
        if self.levels is not None:
            return self.levels[priority]
        return self.ready if priority == NORMAL else None

    def take(self, messages: Collection[StoredMessage]) -> list[StoredMessage]:
        """Take out messages that `look` has just returned, or some of them: what a queue is to end or to move."""
        if not messages:
            return []
        ids = {message.id for message in messages}
        first = min(ids)
        level = self._level(next(iter(messages)).flags >> PRIORITY_SHIFT)
        if level and level[-1].id >= first:
            at = bisect_right(level, first - 1, key=_by_id)
            level.rotate(-at)
            taken: list[StoredMessage] = []
            kept: list[StoredMessage] = []
            while len(taken) < len(ids):
                message = level.popleft()
                (taken if message.id in ids else kept).append(message)
            level.extendleft(reversed(kept))
            level.rotate(at)
            return taken
        assert self.backlog is not None
        some = self.backlog.behind(first - 1, anyone)
        assert some is not None
        taken = some.take(ids, self._payloads, self._durable)
        if not some.count:
            self.backlog.prune()
            if not self.backlog:
                self.backlog = None
        return taken

    def find(self, id: int) -> StoredMessage | None:
        """Return the waiting message with this id."""
        if self.backlog is not None:
            self.backlog.seal()
        return next(iter(self.look(Cursor(id - 1, id), 1)), None)

    # -- out -----------------------------------------------------------------------------------------------------------
    def advance(self) -> bool:
        """Move the first messages of the backlog to the end of `ready`. False: the backlog is empty."""
        while self.backlog is not None:
            messages = self.backlog.shift()
            self.ready.extend(messages)
            if not self.backlog:
                self.backlog = None
            if messages:
                return True
        return False

    def take_oldest(self, count: int) -> Iterator[StoredMessage]:
        """Take out `count` messages (or all), the lowest priority first: a generator, to be exhausted."""
        for level in self.levels or (self.ready,):
            while count > 0 and (level or (level is self.ready and self.advance())):
                yield level.popleft()
                count -= 1

    def settle(self) -> None:
        """There may be normal priorities only by now."""
        if self.levels is not None and not any(self.levels[i] for i in range(10) if i != NORMAL):
            self.levels = None


def _light(messages: list[StoredMessage]) -> list[StoredMessage]:
    """Return the first messages, at least one, up to PORTION_BYTES together."""
    size = 0
    for at, message in enumerate(messages):
        size += message.size
        if size > PORTION_BYTES and at:
            return messages[:at]
    return messages


def _merge(level: deque[StoredMessage], messages: list[StoredMessage]) -> None:
    """Put messages (sorted by id) back where they belong, which is nearly always the head."""
    highest = messages[-1].id
    while level and level[0].id < highest:
        messages.append(level.popleft())
    messages.sort(key=_by_id)
    level.extendleft(reversed(messages))
