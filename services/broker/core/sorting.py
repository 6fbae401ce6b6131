"""Sorting: messages whose queues many or long selectors choose, or whose properties are large. Each topic's are worked
through by a job in its own turns and in the order of arrival, so that messages to other addresses do not wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from enmasse.logs import log
from services.broker.core.jobs import AT_ONCE, Jobs, Work
from services.broker.core.limits.broker_address import BrokerAddress
from services.broker.core.publishing.admission import Admission
from services.broker.core.queues.queue import Queue
from services.broker.core.routing.routes import Route
from services.broker.selector import Lookup

_log = log.get()
MOST_BYTES = 8 << 20
"""Bytes of messages to one address that are held: beyond it they are released. At half of it, or at MOST, its
producers get no more credit."""
MOST_IN_ALL = 64 << 20
"""As MOST_BYTES, of messages to all addresses."""
MOST = 1000


class WaitingForTurn(NamedTuple):
    """A message that waits for its turn, from container `origin`. `finish` gets its queues, or the exception."""

    route: Route
    lookup: Lookup
    origin: str
    size: int
    finish: Callable[[list[Queue] | None, Exception | None], None]


class SortingHost(Protocol):
    """The part of the broker that sorting uses."""

    admission: Admission
    jobs: Jobs


class _Topic:
    __slots__ = ("held", "octets")

    def __init__(self) -> None:
        self.held: deque[WaitingForTurn] = deque()
        self.octets = 0


class Sorting:
    """Messages that wait, by address. While some do (`BrokerAddress.sorting`), further ones wait behind them."""

    def __init__(self, broker: SortingHost) -> None:
        self._broker = broker
        self._topics: dict[BrokerAddress, _Topic] = {}
        self._octets = 0

    def add(self, held: WaitingForTurn) -> bool:
        """Let a message wait. Return False if too many bytes wait already."""
        owner = held.route.owner
        topic = self._topics.get(owner)
        if topic is None:
            topic = self._topics[owner] = _Topic()
            owner.set_sorting(True)
            self._broker.jobs.start((owner, "sorting"), lambda: self._sort(owner, topic), owner.tenant)
        topic_octets, octets = topic.octets + held.size, self._octets + held.size
        if topic.held and (topic_octets > MOST_BYTES or octets > MOST_IN_ALL):
            self._broker.admission.block_late(owner)
            return False
        topic.held.append(held)
        topic.octets, self._octets = topic_octets, octets
        if topic_octets > MOST_BYTES // 2 or octets > MOST_IN_ALL // 2 or len(topic.held) >= MOST:
            self._broker.admission.block_late(owner)
        return True

    def _sort(self, owner: BrokerAddress, topic: _Topic) -> Work[None]:
        yield AT_ONCE  # others first
        while topic.held:
            held = topic.held[0]
            found: list[Queue] | None = None
            error: Exception | None = None
            try:
                found = yield from held.route.choosing(held.lookup, held.origin)
            except Exception as failure:
                error = failure
            topic.held.popleft()
            topic.octets -= held.size
            self._octets -= held.size
            try:
                held.finish(found, error)
            except Exception:  # it is about this message: others have their turn
                _log.exception("broker.arrival.failed", message=0, count=1)
            if not topic.held:
                break
            yield 1
        del self._topics[owner]
        owner.set_sorting(False)
        self._broker.admission.caught_up(owner)
