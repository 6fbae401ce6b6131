"""Desired entities of one broker for subscribers, and the conversation that makes them (enmasse.reconcile.Managed).

The keys are ids of subscribers. Everything is computed from what is desired now and what the broker lists: a queue
whose subscriber has gone, or whose mark names an earlier one of the same id, is deleted with what it holds; a queue to
which no filter leads any more is kept until it is empty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from itertools import islice
from typing import Any, NamedTuple, Protocol

from enmasse.control import ConnectionLost, ControlConnection, ControlError, Reply
from enmasse.logs import log
from enmasse.reconcile import NEVER, NOW, Reconciler, Step
from services.subserv import broker_names
from services.subserv.brokers.broker_requests import ERRORS, BrokerManagement, Row, outcomes
from services.subserv.brokers.retained_feed import RetainedFeed
from services.subserv.brokers.slices import portions

SWEEP_FIRST, SWEEP_LAST = 5.0, 60.0
"""Seconds between two looks at everything; COST times as long as a look takes, in between."""
COST = 200
RETIRE_EVERY = 1.0
"""Seconds between two looks at queues that are kept until they are empty."""
RETIRE_BATCH = 100
OPERATIONS = 500
"""Operations under way together beside the urgent ones: a request waits for at most these, or for those of one
subscriber."""
URGENT = 500
"""Subscribers that a caller waits for, at most, in a portion; they come before all others."""


_FEEDS = (broker_names.FEED, broker_names.EARLIER_FEED)


class QueueOwner(Enum):
    """Owner of a queue. OTHERS: another suite, on a broker that several may use. UNKNOWN: the store does not know it,
    and has not ended it: it is reported and kept."""

    OURS = "ours"
    OTHERS = "others"
    UNKNOWN = "unknown"


class Want(NamedTuple):
    """Desired state of a subscriber on a broker: patterns that lead to its queue. None: only what it still holds."""

    created: int
    patterns: set[str]


class ActualQueue:
    """Actual state of a subscriber on the broker. `created`: number of the subscriber for which the queue was made."""

    __slots__ = ("created", "patterns", "paused")

    def __init__(self, created: int, patterns: set[str], *, paused: bool = False) -> None:
        self.created = created
        self.patterns = patterns
        self.paused = paused


class Bound(NamedTuple):
    """A subscriber's patterns lead to its queue. Retained messages that came before `before` did not reach the queue
    by these; those that came after `after` did (positions in the broker's feed)."""

    before: asyncio.Future[int]
    after: asyncio.Future[int]


class Refused(Exception):
    """The broker has refused something; the text says what and why."""


class Owner(Protocol):
    """Interface of the owner of the desired state."""

    @property
    def complete(self) -> bool:
        """True if the desired state is complete: everything else may be deleted."""

    def want(self, broker: str, id: str, *, held: bool) -> Want | None:
        """Return the desired state of a subscriber on a broker; None: there is no such subscriber."""

    @property
    def suite(self) -> str:
        """The suite's id."""

    @property
    def has_earlier(self) -> bool:
        """Whether there were queues without the suite's id in their names."""

    def claim(self, broker: str, id: str, created: int | None) -> QueueOwner:
        """Return the owner of a queue with this id and number; `created` None: a divert without a queue."""

    def is_known(self, created: int) -> bool:
        """Return whether this store has given the number out."""

    def ids(self) -> Iterable[str]:
        """Return the ids of all subscribers."""

    def placement_changed(self, ids: Iterable[str]) -> None:
        """Note that the brokers that hold queues of these subscribers have changed."""


class BrokerConversation:
    """The conversation with one broker, over one connection after the other (`session`)."""

    def __init__(self, broker: str, owner: Owner, feed: RetainedFeed) -> None:
        self.broker = broker
        self.feed = feed
        self.held: dict[str, ActualQueue] = {}
        self.unknown: dict[str, str] = {}
        """Queues that the store does not know: name → id."""
        self.connected = False
        """Everything has been read over the connection there is."""
        self.was_connected = False
        """True once it was connected since the service started: from then on no retained message is missed."""
        self.carries_topics = True
        """False at a broker managed by hand while no topic is there: nothing is made then. What it has kept for
        subscribers is received, and deleted when it is empty or they have ended."""
        self._owner = owner
        self._connection: ControlConnection
        self._management: BrokerManagement
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, list[asyncio.Future[Bound]]] = {}
        self._readers: list[asyncio.Future[None]] = []
        """Callers that wait for the next reading of the broker."""
        self._closed = False
        self._earlier_feed = False
        """There is a feed of retained messages that an earlier version has made."""
        self._has_feed = False
        """There is a feed of retained messages, as last read."""
        self._retiring: set[str] = set()
        self._ended: set[str] = set()
        self._retire_at = NEVER
        self._resuming: set[str] = set()
        """Queues that an operation has paused."""
        self._reconciler: Reconciler[str] = Reconciler(
            self,
            changed=owner.placement_changed,
            lost=lambda _: None,
            steps=(Step(self._retire_due, self._retire),),
            errors=ERRORS,
            logger=log.get(broker=broker),
        )

    # what the service asks for

    async def session(self, connection: ControlConnection) -> None:
        """Work over this connection until it is lost (run by `keep_connected`)."""
        self._connection = connection
        try:
            await self._reconciler.run()
        finally:
            self.connected = False
            self.feed.lost()

    def close(self) -> None:
        """End the conversation: waiting callers get ConnectionLost."""
        self._closed = True
        gone = self._gone()
        waiting, self._waiting = self._waiting, {}
        readers, self._readers = self._readers, []
        callers: list[asyncio.Future[Any]] = [*readers]
        for futures in waiting.values():
            callers += futures
        for future in callers:
            if not future.done():
                future.set_exception(gone)
                future.exception()

    def _gone(self) -> ConnectionLost:
        return ConnectionLost("connection lost", f"broker {self.broker} is gone")

    def touch(self, ids: Iterable[str]) -> None:
        """Note that the desired state of these subscribers may have changed."""
        self._reconciler.queue(ids)

    def subscriber_ended(self, id: str) -> None:
        """Delete the queue of a subscriber that has ended, even if another one of the same id follows."""
        if id in self.held:
            self._ended.add(id)
        self._reconciler.queue((id,))

    def read_again(self) -> None:
        """Read the broker again: more is known of what may be deleted."""
        self._reconciler.read_again()

    def carry_topics(self, carries: bool) -> None:
        """Take whether the broker carries topics."""
        before, self.carries_topics = self.carries_topics, carries
        if carries and not before:
            self._reconciler.read_again()

    @property
    def pending(self) -> int:
        """Subscribers for which something could not be done."""
        return len(self._reconciler.refused)

    async def bound(self, id: str) -> Bound:
        """Wait until the broker has the desired state of this subscriber. Raises Refused, ConnectionLost."""
        if self._closed:
            raise self._gone()
        future: asyncio.Future[Bound] = self._loop.create_future()
        self._waiting.setdefault(id, []).append(future)
        self._reconciler.queue((id,))
        return await future

    async def read_now(self) -> None:
        """Wait until the broker has been read, over a connection that it has now. Raises ConnectionLost."""
        if self._closed:
            raise self._gone()
        future: asyncio.Future[None] = self._loop.create_future()
        self._readers.append(future)
        self._reconciler.read_again()
        await future

    def differing(self, ids: Iterable[str]) -> list[str]:
        """Return those of these subscribers that differ from the desired state, as last read."""
        return [id for id in ids if self._differs(id)]

    async def pause(self, id: str) -> None:
        """Pause the queue until `resume`. Raises ControlError."""
        self._resuming.add(id)
        await outcomes([(id, self._management.pause(id))])

    async def resume(self, id: str) -> None:
        """Resume a paused queue. Raises ControlError; the queue is then resumed as soon as the broker can be asked."""
        await outcomes([(id, self._management.resume(id))])
        self._resuming.discard(id)

    async def has_live(self, id: str, name: str) -> bool:
        """Return whether a message that was published to this name as retained is in its queue. Raises ControlError."""
        return await self._management.live(id, name) > 0

    def leave_paused(self, id: str) -> None:
        """Leave a queue paused that could not be resumed: the next reading of the broker resumes it."""
        self._resuming.discard(id)
        self._reconciler.read_again()

    async def depth(self, id: str) -> int:
        """Return the number of messages in a subscriber's queue, also those on their way to a consumer; 0 without a
        queue. Raises ControlError, ValueError or OSError if it is not known."""
        if not self.connected:
            raise ControlError("amqp:not-found", f"no connection to broker {self.broker}")
        return await self._management.depth(id) if id in self.held else 0

    async def depth_of_address(self, address: str) -> int:
        """Return the number of messages in the queue of this address. Raises as `depth`."""
        if not self.connected:
            raise ControlError("amqp:not-found", f"no connection to broker {self.broker}")
        return await self._management.depth_of_queue(address)

    async def rows(self) -> list[Row]:
        """Return every queue of the broker. Raises ControlError, ValueError."""
        return (await self._management.listing()).queues

    async def delete_queue(self, name: str) -> None:
        """Delete a queue by its name, and the diverts that lead to it if the store does not know it. Raises
        ControlError."""
        if name in self.unknown:
            diverts = (await self._management.listing()).diverts
            parts = [each for each in map(broker_names.divert_parts, diverts) if each and each[0] == self.unknown[name]]
            await outcomes([(part, self._management.undivert(*part)) for part in parts])
        await self._management.destroy_named(name)
        self.unknown.pop(name, None)

    # what the reconciler asks for

    @property
    def is_gone(self) -> bool:
        """True once the connection is lost."""
        return self._connection.is_gone

    async def open(self) -> None:
        """Open the link to the broker's management. Raises ControlError."""
        self._management = BrokerManagement(self.broker, self._owner.suite, self._connection)
        await self._management.opened()

    def failed(self, error: Exception) -> None:
        """Note that the broker's state is unknown; the links are closed if the connection lives: the feed has room for
        one receiver."""
        self.connected = False
        if self._connection.is_gone:
            self.feed.lost()
        else:
            self.feed.detach()
            self._management.close()

    async def read(self) -> None:
        """Read the broker's queues and diverts, and attach to its feed of retained messages. Raises ControlError,
        ValueError."""
        count = len(self._readers)  # a later caller waits for a later reading
        await self._read()
        readers, self._readers = self._readers[:count], self._readers[count:]
        for future in readers:
            if not future.done():
                future.set_result(None)

    async def _read(self) -> None:
        if self.carries_topics:
            await self._management.configure()
        await self._look()
        if not self.feed.attached and (self.carries_topics or self._has_feed):
            if self._earlier_feed and self._owner.has_earlier:
                await self._take_earlier_feed()
            feed = broker_names.of_suite(broker_names.FEED, self._owner.suite)
            await self.feed.attach(self._connection, broker_names.queue_name(self.broker, feed))
        self.connected = self.was_connected = True
        self._reconciler.queue(self._waiting)
        self._reconciler.news(self.held)

    async def _take_earlier_feed(self) -> None:
        """Store the rest of the feed that an earlier version has made, and delete it. The new one exists by now."""
        feed = broker_names.EARLIER_FEED
        await outcomes([(feed, self._management.undivert(feed, "#"))])
        await self.feed.attach(self._connection, broker_names.queue_name(self.broker, feed))
        await self.feed.mark()
        self.feed.detach()
        await outcomes([(feed, self._management.destroy(feed))])
        self._earlier_feed = False

    async def apply(self, keys: Sequence[str]) -> Mapping[str, str]:
        """Apply those with a waiting caller first, then as many others as go together: the rest follows."""
        urgent = dict.fromkeys(islice(self._waiting, URGENT))
        waiting: dict[str, list[asyncio.Future[Bound]]] = {}
        before = self.feed.mark() if urgent else None
        under_way: list[tuple[str, asyncio.Future[Reply]]] = []
        then: dict[str, ActualQueue | None] = {}
        most = OPERATIONS
        try:
            for key in {**urgent, **dict.fromkeys(keys)}:
                if key in urgent:
                    most = len(under_way) + OPERATIONS
                elif len(under_way) >= most:
                    self._reconciler.queue((key,))
                    continue
                self._reconciler.drop(key)
                if key in self._waiting:
                    waiting[key] = self._waiting.pop(key)
                held = self.held.get(key)
                want = self._owner.want(self.broker, key, held=held is not None)
                then[key] = self._begin(key, want, held, under_way)
            refused = await outcomes(under_way)
        except BaseException:
            for key, futures in waiting.items():
                self._waiting.setdefault(key, [])[:0] = futures
            if self._closed:
                self.close()
            raise
        changed = []
        for key, result in then.items():
            if key in refused:
                continue
            was = self.held.get(key)
            if (was is None) != (result is None):
                changed.append(key)
            if result is None:
                self.held.pop(key, None)
            else:
                self.held[key] = result
            self._ended.discard(key)
        self._answer(waiting, refused, before)
        self._reconciler.news(changed)
        return refused

    async def verify(self, keys: Collection[str]) -> Mapping[str, str]:
        """Return nothing: each operation was confirmed after it was stored, and the sweep finds later losses."""
        return {}

    async def reread(self, keys: Collection[str]) -> Iterable[str]:
        """Read the broker again, because the outcome of these keys is unknown. Returns all of them."""
        await self._look()  # their outcome is unknown
        return keys

    async def sweep(self) -> float:
        """Read the broker again. Returns the seconds until the next time: more, the longer it took."""
        began = self._loop.time()
        await self._look()
        return max(SWEEP_FIRST, min(SWEEP_LAST, COST * (self._loop.time() - began)))

    # how

    def _begin(
        self, key: str, want: Want | None, held: ActualQueue | None, under_way: list[tuple[str, asyncio.Future[Reply]]]
    ) -> ActualQueue | None:
        """Send the changes to the desired state, new before old; return the resulting state."""
        management = self._management
        if held is not None and self._is_old(key, want, held):
            if want is None and not self._owner.complete:
                return held
            under_way += [(key, management.undivert(key, pattern)) for pattern in held.patterns]
            under_way.append((key, management.destroy(key)))
            held = None
        if want is None:
            return held
        if held is None:
            if not want.patterns:
                return None
            under_way.append((key, management.create(key, want.created)))
            under_way += [(key, management.divert(key, pattern)) for pattern in want.patterns]
            return ActualQueue(want.created, set(want.patterns))
        under_way += [(key, management.divert(key, pattern)) for pattern in want.patterns - held.patterns]
        if self._owner.complete:
            under_way += [(key, management.undivert(key, pattern)) for pattern in held.patterns - want.patterns]
        if not want.patterns:
            self._retiring.add(key)
            self._retire_at = min(self._retire_at, self._loop.time())
        return ActualQueue(held.created, set(want.patterns))

    def _is_old(self, key: str, want: Want | None, held: ActualQueue) -> bool:
        """Return whether the subscriber for which the queue was made has ended."""
        if want is None or key in self._ended:
            return True
        return held.created < want.created and self._owner.is_known(held.created)

    def _answer(
        self,
        waiting: Mapping[str, list[asyncio.Future[Bound]]],
        refused: Mapping[str, str],
        before: asyncio.Future[int] | None,
    ) -> None:
        if before is None:
            return
        bound = Bound(before, self.feed.mark())
        for key, futures in waiting.items():
            for future in futures:
                if future.done():
                    continue
                if key in refused:
                    future.set_exception(Refused(refused[key]))
                else:
                    future.set_result(bound)

    async def _look(self) -> None:
        """List everything, and queue the ids whose state differs from the desired one."""
        listing = await self._management.listing()
        found: dict[str, ActualQueue] = {}
        unknown: dict[str, str] = {}
        self._earlier_feed = self._has_feed = False
        for row in listing.queues:
            id, created = broker_names.id_of(self.broker, row.name), broker_names.marked(row.user)
            if id == broker_names.of_suite(broker_names.FEED, self._owner.suite):
                self._has_feed = True
                continue
            if id is None or created is None:
                continue
            if id == broker_names.EARLIER_FEED and self._owner.has_earlier:
                self._earlier_feed = True
            elif (claim := self._owner.claim(self.broker, id, created)) is QueueOwner.OURS:
                found[id] = ActualQueue(created, set(), paused=row.paused == "true")
            elif claim is QueueOwner.UNKNOWN:
                unknown[row.name] = id
        self._report(unknown)
        kept = set(unknown.values())
        stray: list[tuple[str, asyncio.Future[Reply]]] = []
        for name in listing.diverts:
            parts = broker_names.divert_parts(name)
            if parts is None or broker_names.plain(parts[0]) in _FEEDS or parts[0] in kept:
                continue
            if parts[0] in found:
                found[parts[0]].patterns.add(parts[1])
            elif self._owner.complete and self._owner.claim(self.broker, parts[0], None) is QueueOwner.OURS:
                stray.append((name, self._management.undivert(*parts)))
        paused = [id for id, held in found.items() if held.paused and id not in self._resuming]
        stray += [(id, self._management.resume(id)) for id in paused]
        await outcomes(stray)
        changed = found.keys() ^ self.held.keys()
        self.held = found
        await self._queue_differing()
        if changed:
            self._reconciler.news(changed)

    def _report(self, unknown: dict[str, str]) -> None:
        """Log the first queues that the store does not know, and keep all for the health report."""
        if unknown and not self.unknown:
            some = sorted(unknown)[:5]
            log.get(broker=self.broker).error("subserv.unknown-queues.found", count=len(unknown), queues=some)
        self.unknown = unknown

    async def _queue_differing(self) -> None:
        ids = list({**dict.fromkeys(self.held), **dict.fromkeys(self._owner.ids())})
        async for some in portions(ids):
            self._reconciler.queue([id for id in some if self._differs(id)])

    def _differs(self, id: str) -> bool:
        held = self.held.get(id)
        want = self._owner.want(self.broker, id, held=held is not None)
        if held is None:
            return want is not None and bool(want.patterns)
        if want is None or self._is_old(id, want, held) or held.patterns != want.patterns:
            return True
        if not want.patterns:
            self._retiring.add(id)
            self._retire_at = min(self._retire_at, self._loop.time())
        return False

    # queues that are kept until they are empty

    def _retire_due(self) -> float:
        return (NOW if self._retire_at <= self._loop.time() else self._retire_at) if self._retiring else NEVER

    async def _retire(self) -> None:
        batch = [self._retiring.pop() for _ in range(min(RETIRE_BATCH, len(self._retiring)))]
        self._retire_at = self._loop.time() + (0 if self._retiring else RETIRE_EVERY)
        kept = [id for id in batch if self._is_retiring(id)]
        depths = await asyncio.gather(*(self._management.depth(id) for id in kept), return_exceptions=True)
        empty = []
        for id, depth in zip(kept, depths, strict=True):
            if isinstance(depth, BaseException):
                self._reconciler.read_again()
            elif depth:
                self._retiring.add(id)
            elif self._is_retiring(id):
                empty.append(id)
                del self.held[id]  # no pattern leads there; the broker is asked to delete it
        self._owner.placement_changed(empty)
        await outcomes([(id, self._management.destroy(id)) for id in empty])

    def _is_retiring(self, id: str) -> bool:
        held = self.held.get(id)
        if held is None or held.patterns:
            return False
        want = self._owner.want(self.broker, id, held=True)
        return want is not None and not want.patterns
