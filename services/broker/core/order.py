"""The messages that wait in a queue, in the order in which they will be delivered."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter

from services.broker.core import backlog
from services.broker.core.backlog import Backlog, Slice
from services.broker.core.payloads import Payloads
from services.broker.core.stored_message import PRIORITY_SHIFT, StoredMessage

NORMAL = 4  # the priority of most messages
_by_id = attrgetter("id")


def anyone(_: StoredMessage | Slice) -> bool:
    return True


class MessageOrder:
    """`ready`: those of normal priority that come first; all there are, as a rule. `backlog`: what is behind `ready`,
    which may be empty before it. `levels`: by priority, `ready` among them; None while all have the normal one."""

    __slots__ = ("_durable", "_payloads", "backlog", "levels", "ready")

    def __init__(self, payloads: Payloads, durable: bool) -> None:
        """`durable`: the queue is."""
        self._payloads = payloads
        self._durable = durable
        self.ready: deque[StoredMessage] = deque()
        self.backlog: Backlog | None = None
        self.levels: list[deque[StoredMessage]] | None = None

    # -- in ------------------------------------------------------------------------------------------------------------
    def append(self, message: StoredMessage) -> None:
        priority = message.flags >> PRIORITY_SHIFT
        if priority != NORMAL:
            self._by_priority()[priority].append(message)
        elif self.backlog is None and len(self.ready) < backlog.HEAD:
            self.ready.append(message)
        else:
            self.extend([message])

    def extend(self, messages: Sequence[StoredMessage]) -> None:
        """Messages of normal priority."""
        if self.backlog is None:
            if len(self.ready) + len(messages) <= backlog.HEAD:
                self.ready.extend(messages)
                return
            self.backlog = Backlog(self._payloads, self._durable)
        self.backlog.extend(messages)

    def restore(self, some: Slice) -> None:
        """Usual messages found at the start, behind all others."""
        if self.backlog is None:
            self.backlog = Backlog(self._payloads, self._durable)
        self.backlog.restore(some)

    def merge(self, messages: list[StoredMessage]) -> int:
        """Messages taken out are back in their places. The lowest id of those that were not behind the head; 0: all
        were."""
        messages.sort(key=_by_id)
        if messages and self.backlog is not None:
            messages = self.backlog.merge(messages)
        if not messages:
            return 0
        lowest = messages[0].id
        if self.levels is None and all(m.flags >> PRIORITY_SHIFT == NORMAL for m in messages):
            _merge(self.ready, messages)
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
            self.levels[NORMAL] = self.ready
        return self.levels

    # -- what is there -------------------------------------------------------------------------------------------------
    @property
    def empty(self) -> bool:
        """Of messages of normal priority."""
        return not self.ready and self.backlog is None

    def parts(self) -> Iterator[Iterable[StoredMessage] | Slice]:
        for level in (self.ready,) if self.levels is None else reversed(self.levels):
            yield level
            if level is self.ready and self.backlog is not None:
                yield from self.backlog.parts()

    def messages(self) -> Iterator[StoredMessage]:
        """One by one. Those of the backlog are made for the occasion: to be looked at, and not kept."""
        return chain.from_iterable(part.messages() if isinstance(part, Slice) else part for part in self.parts())

    def by_id(self, ids: set[int]) -> Iterator[StoredMessage]:
        for part in self.parts():
            if isinstance(part, Slice):
                yield from (m for m in part.messages() if m.id in ids) if part.holds(ids) else ()
            else:
                yield from (m for m in part if m.id in ids)

    def expiries(self) -> list[int]:
        """When messages expire; of a slice of the backlog, when the first of it does."""
        times = [message.expires for message in chain(*(self.levels or (self.ready,))) if message.expires]
        return times + self.backlog.expiries() if self.backlog is not None else times

    # -- out -----------------------------------------------------------------------------------------------------------
    def advance(self) -> bool:
        """What is first in the backlog comes to the end of `ready`. False: there is none."""
        while self.backlog is not None:
            messages = self.backlog.shift()
            self.ready.extend(messages)
            if not self.backlog:
                self.backlog = None
            if messages:
                return True
        return False

    def take(
        self, chosen: Callable[[StoredMessage], bool], worth: Callable[[Slice], bool] = anyone
    ) -> Iterator[StoredMessage]:
        """Takes out those that are chosen, in order; in slices: to be run to its end. `worth`: of a slice of the
        backlog, whether it may hold such messages."""
        slices = list(self.backlog.parts()) if self.backlog is not None else []
        taken: list[StoredMessage] = []
        for level in self.levels or (self.ready,):
            keep: list[StoredMessage] = []
            for message in level:
                (taken if chosen(message) else keep).append(message)
            if len(keep) < len(level):
                level.clear()
                level.extend(keep)
        yield from taken
        for some in slices:
            if worth(some):
                yield from some.take(chosen, self._payloads, self._durable)
        if self.backlog is not None:
            self.backlog.prune()
            if not self.backlog:
                self.backlog = None

    def take_oldest(self, count: int) -> Iterator[StoredMessage]:
        """Takes out so many (or all there are), those of the lowest priority first: to be run to its end."""
        for level in self.levels or (self.ready,):
            while count > 0 and (level or (level is self.ready and self.advance())):
                yield level.popleft()
                count -= 1

    def settle(self) -> None:
        """There may be normal priorities only by now."""
        if self.levels is not None and not any(self.levels[i] for i in range(10) if i != NORMAL):
            self.levels = None


def _merge(level: deque[StoredMessage], messages: list[StoredMessage]) -> None:
    """Puts messages (sorted by id) back where they belong, which is nearly always the head."""
    highest = messages[-1].id
    while level and level[0].id < highest:
        messages.append(level.popleft())
    messages.sort(key=_by_id)
    level.extendleft(reversed(messages))
