"""The broker: what exists, what is stored, what is full, what time it is. Sans-IO.

The skin gives it a clock and four callbacks: `on_pending` (call `run_pending` in the next turn), `jobs.on_work` (call
`jobs.run` in the next turn), `on_commit(urgent)` (call `commit` at the end of this turn, or within a few milliseconds)
and `on_deadline(ms)` (call `tick` then).
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

from enmasse.identity.refused import Refusals
from enmasse.logs import log
from enmasse.network.fair_turns import InTurn
from services.broker.core import errors
from services.broker.core.history import History
from services.broker.core.jobs import Jobs
from services.broker.core.limits.broker_address import BrokerAddress
from services.broker.core.limits.broker_limits import BrokerLimits
from services.broker.core.limits.usage import BrokerTotals
from services.broker.core.messages.leading_sections import is_sealed
from services.broker.core.messages.payloads import Payloads
from services.broker.core.messages.selector_values import property_lookup
from services.broker.core.messages.stored_message import (
    DURABLE,
    PARTLY,
    PRIORITY_SHIFT,
    REWRITE,
    STORED,
    StoredMessage,
)
from services.broker.core.persistence import MAX_HOLDERS, Committed, MessageStore, PageStore, Progress
from services.broker.core.publishing.admission import Admission
from services.broker.core.publishing.arrivals import GROUPED, Arrival, Arrivals, Waiting
from services.broker.core.publishing.dead_letters import DeadLetters
from services.broker.core.publishing.duplicates import DuplicateIds
from services.broker.core.publishing.verdict import ACCEPT, RELEASE, WAIT, Verdict
from services.broker.core.queues.queue import Queue
from services.broker.core.queues.rotation import TURN
from services.broker.core.queues.stalls import Stalls, Standing
from services.broker.core.queues.timers import Timers
from services.broker.core.restored_queues import recover
from services.broker.core.revision import Revision
from services.broker.core.routing.catalogue import Catalogue
from services.broker.core.routing.routes import Route, stored_by
from services.broker.core.sorting import Sorting
from services.broker.core.transactions import Transactions
from services.broker.core.turn_shares import Share, Spent, endless

_log = log.get()


def _nothing(*_: Any) -> None:
    pass


_NO_LIMITS: Final = BrokerLimits()


class Broker:
    """The core as connections and management see it: catalogue, messages, time and durability."""

    def __init__(
        self,
        name: str,
        *,
        clock: Callable[[], int],
        wall: Callable[[], int] | None = None,
        store: MessageStore | None = None,
        pager: PageStore | None = None,
        limits: BrokerLimits = _NO_LIMITS,
        memory_limit: int = 64 << 20,
        defaults: dict[str, Any] | None = None,
        progress: Progress = _nothing,
    ) -> None:
        """`clock`: milliseconds that only go forward; everything goes by it. `wall`: milliseconds since 1970, which may
        jump (default: the clock): for times that clients set or see, or that are on disk. `memory_limit`: bytes of
        payloads kept in memory although they can be had from disk again. `defaults`: address settings for `#`.
        `progress`: of taking in what the store holds."""
        self.name = name
        self.clock = clock
        self.wall = wall or clock
        self.store = store
        self.identity = uuid.uuid4().hex if store is None else store.identity
        """With it, ids of messages are unique among all brokers and their starts."""
        self.ledger = BrokerTotals(
            global_max_size=limits.global_max_size, capacity=limits.capacity, memory_limit=memory_limit
        )
        self.catalogue = Catalogue(self, store, defaults, limits)
        self.duplicates = DuplicateIds()
        self.pager = pager
        self.history = History()
        self.refusals = Refusals(lambda: self.clock() / 1000)
        self.jobs = Jobs(lambda: self.ledger.disk_behind, lambda: self.share())
        self.payloads = Payloads(self.ledger, store, pager)
        self.admission = Admission(self.ledger, store, pager, limits, name)
        self.dead_letters = DeadLetters(self.catalogue, self.put, self.wall, self.removed_some)
        self.arrivals = Arrivals(self)
        self.sorting = Sorting(self)
        self.transactions = Transactions(self)
        self._unacknowledged: list[Committed] = []
        self._group: list[tuple[BrokerAddress, bytes]] | None = None
        """Duplicate ids that are remembered in memory with the group that is open."""
        self._committing = 0
        """Commits that have begun and have not ended."""
        self.on_pending: Callable[[], None] = _nothing
        self.on_commit: Callable[[bool], None] = _nothing
        self.on_deadline: Callable[[int], None] = _nothing
        self.stalls = Stalls(self.payloads.load)
        self.revision = Revision(self.ledger, self.stalls)
        self.unknown: set[int] = set()  # ids of queues whose definitions are damaged
        self.share: Share = endless
        """Set by the owner: begins the share of a turn that work for one client may take."""
        self.turn = TURN
        """Messages that a queue sends in one go."""
        self._pending: InTurn[Queue] = InTurn()
        self._postponed: set[Queue] = set()  # of these, those that are still to be dispatched
        self._woken = False  # `on_pending` was called, and `run_pending` not yet
        self._timers = Timers()
        self.commit_asked = 0  # 0 no, 1 soon, 2 now
        self._last_id = self.wall() << 14  # if there is no store; above those that an earlier process gave
        if store is not None:
            self.unknown = recover(self.catalogue, self.ledger, store, self.from_wall, progress)
            store.on_space = self.admission.check_disk
            store.on_failure(self._uncommitted)
            self.admission.check_disk()

    @property
    def now(self) -> int:
        """Return the time of the clock in milliseconds."""
        return self.clock()

    def to_wall(self, time: int) -> int:
        """Return a time of the clock in milliseconds since 1970; 0 stays 0."""
        return max(1, time + self.wall() - self.clock()) if time else 0

    def from_wall(self, time: int) -> int:
        """Return milliseconds since 1970 as a time of the clock; 0 stays 0."""
        return max(1, time - self.wall() + self.clock()) if time else 0

    def next_id(self, count: int = 1) -> int:
        """Reserve `count` consecutive ids; return the first."""
        if self.store is not None:
            return self.store.new_id(count)
        self._last_id += count
        return self._last_id - count + 1

    def new_queue(self, id: int, name: str, address: BrokerAddress, routing_type: str, **attributes: Any) -> Queue:
        """Make a queue; the catalogue enters it."""
        return Queue(self, id, name, address, routing_type, **attributes)

    def forget_queue(self, queue: Queue) -> None:
        """Cancel what is planned for a queue that is being deleted."""
        self._postponed.discard(queue)
        self._timers.forget(queue)
        self.stalls.drop(queue)
        queue.retire()
        self.revision.removed()
        self.history.queue_over(queue)

    def forget_address(self, address: BrokerAddress) -> None:
        """Drop the state of an address that was deleted."""
        address.retire()
        self.revision.removed()
        self.history.address_over(address)
        self.admission.forget(address)
        self.duplicates.forget(address)

    # -- what queues ask for -------------------------------------------------------------------------------------------
    def stall(self, who: Standing, queue: Queue, message: StoredMessage, error: OSError) -> None:
        """Stop sending for `who` until the message, which is back in its place, can be read."""
        if who not in self.stalls:
            _log.warning(
                "broker.message.read-failed",
                queue=queue.name,
                message=message.id,
                reason=str(error),
                space=queue.address.tenant,
            )
        self.on_deadline(self.stalls.add(who, queue, message, error, self.now))

    def lose(self, queue: Queue, message: StoredMessage) -> None:
        """Count and remove a message, already out of the queue's order, that can never be read again."""
        queue.count_lost()
        if self.store is not None and message.flags & STORED:
            self.store.losses.add(f"message {message.id} is gone or damaged", queue.name, 1)
        _log.error(
            "broker.message.lost",
            queue=queue.name,
            message=message.id,
            address=message.owner.name,
            space=message.owner.tenant,
        )
        queue.finish(message)
        self.removed_some()

    def removed_some(self) -> None:
        """Record soon that references were removed; senders that waited for room may continue."""
        if self.store is not None and not self.commit_asked:
            self.ask_commit(False)
        if self.admission.blocked:
            self.admission.check_blocked()

    def postpone(self, queue: Queue) -> None:
        """Call the queue's `dispatch` in a later turn."""
        if queue not in self._postponed:
            self._postponed.add(queue)
            self._pending.add(queue.address.tenant, queue)
            self._wake()

    def is_postponed(self, queue: Queue) -> bool:
        """Return whether `dispatch` will be called in a later turn."""
        return queue in self._postponed

    def _wake(self) -> None:
        if self._pending and not self._woken:
            self._woken = True
            self.on_pending()

    def run_pending(self, spent: Spent | None = None) -> bool:
        """Dispatch as many queues as there are, address spaces in turn, until `spent`. Return whether there is more to
        do, which `on_pending` has reported."""
        self._woken = False
        try:
            for _ in range(len(self._pending)):
                queue = self._pending.take()
                if queue in self._postponed:
                    self._postponed.remove(queue)
                    queue.dispatcher.dispatch(in_turn=True)
                if spent is not None and spent():
                    break
        finally:
            self._wake()
        return bool(self._pending)

    def disk_caught_up(self) -> None:
        """Resume producers and jobs that waited for the disk."""
        self.admission.disk_caught_up()
        self.jobs.wake()

    def judge_again(self, address: BrokerAddress) -> None:
        """Judge what waits for room at an address by its new settings."""
        self.admission.judge_again(address)

    def check_blocked(self) -> None:
        """Block and unblock producers again after a change of limits."""
        self.admission.check_blocked()

    # -- messages of the broker's own ----------------------------------------------------------------------------------
    def put(
        self, name: str, payload: bytes, *, durable: bool, priority: int = 4, routing_type: str | None = None
    ) -> bool:
        """Route a message that the broker itself made or moves: with the time to live that its address sets, limits of
        size do not apply. Return False if no queue takes it."""
        route = self.catalogue.route(name, routing_type)
        if route is None:
            return False
        flags = (DURABLE if durable else 0) | (REWRITE if is_sealed(payload) else 0) | priority << PRIORITY_SHIFT
        expires = route.owner.expiry(self.now, 0)
        if expires:
            flags |= REWRITE
        message = StoredMessage(0, payload, len(payload), flags, expires, route.owner, 0)
        try:
            return self.enter(route, message, payload) is not RELEASE
        except errors.BrokerError:
            return False

    def enter(
        self,
        route: Route,
        message: StoredMessage,
        payload: bytes,
        origin: str = "",
        due: int = 0,
        waiting: Waiting | None = None,
        delivery_id: int = 0,
        key: bytes | None = None,
        chosen: list[Queue] | None = None,
    ) -> Verdict:
        """Choose the queues of a new message from container `origin`, store it for the durable ones if it is durable,
        count it, and give it to its queues: if it is stored, when it is on disk. RELEASE: there is no queue for it, and
        nothing is done. WAIT: it is stored, and `waiting` is answered then. `key`: by which a copy is recognised.
        `chosen`: its queues, if they were chosen before. Raises BrokerError if more than MAX_HOLDERS queues would store
        it."""
        if chosen is not None:
            targets, stored = chosen, stored_by(chosen)
        elif route.plain:
            targets, stored = route.targets, route.stored
        else:
            targets, stored = self.choose(route, message, payload, origin)
        if not targets:
            return RELEASE
        owner = message.owner
        verdict = ACCEPT
        if self._group is not None:
            waiting = GROUPED
        if self.store is not None and message.flags & DURABLE and stored:
            if len(stored) > MAX_HOLDERS:
                raise errors.too_many_queues(owner.name, len(stored))
            message.id = self.store.add(
                payload,
                stored,
                priority=message.flags >> PRIORITY_SHIFT,
                expiry=self.to_wall(message.expires),
                not_before=self.to_wall(due),
                duplicate=(owner.id, key) if key is not None and owner.id else None,
            )
            message.flags |= STORED if len(stored) == len(targets) else STORED | PARTLY
            verdict = WAIT
        else:
            if self._group is None:
                waiting = None
            message.id = self.next_id()
            if key is not None:
                self.duplicates.add(owner, key)
                if self._group is not None:
                    self._group.append((owner, key))
        message.refs = len(targets)
        self.ledger.add(owner, 1, message.size)
        if message.flags & STORED or self._group is not None or any(queue.arriving for queue in targets):
            self.arrivals.add((message,), targets, (payload,), message.size, waiting, delivery_id, due)
            return verdict
        for queue in targets:
            queue.add(message, due)
        if message.refs and self.payloads.pressed_by(message):
            self.payloads.put_out(message)
        return verdict

    def choose(
        self, route: Route, message: StoredMessage, payload: bytes, origin: str
    ) -> tuple[list[Queue], list[int]]:
        """Return the queues for a message from container `origin`, and the ids of the durable ones."""
        if route.plain or (route.guarded and route.unmarked(payload)):
            return route.targets, route.stored
        return route.choose(property_lookup(payload, message, self.to_wall), origin)

    # -- time ----------------------------------------------------------------------------------------------------------
    def watch_expiries(self, queue: Queue) -> None:
        """Remove expired messages of the queue from time to time."""
        deadline = self._timers.watch_expiries(queue, self.now)
        if deadline:
            self.on_deadline(deadline)

    def wake_at(self, queue: Queue, due: int) -> None:
        """Call the queue's `wake` at a time of the clock (ms)."""
        self.on_deadline(self._timers.wake_at(queue, due))

    def tick(self) -> int:
        """Deliver messages that are due, remove those that have expired. Return when to call again (ms; 0 = never)."""
        now = self.now
        if self.stalls:
            self.stalls.retry(now)
        self._timers.run(now, self.share())
        self.transactions.expire(now)
        return min(filter(None, (self._timers.next, self.stalls.due, self.transactions.due)), default=0)

    @contextlib.contextmanager
    def group(self, size: int) -> Iterator[None]:
        """Make what is entered and removed inside, some `size` bytes, one step on disk; consumers get what is entered
        with that commit. An exception inside undoes what was entered; nothing may have been removed by then. Raises
        OSError before anything is done."""
        entered = len(self.arrivals)
        keys: list[tuple[BrokerAddress, bytes]] = []
        with contextlib.nullcontext() if self.store is None else self.store.group(size):
            self._group = keys
            try:
                yield
            except BaseException:
                self.arrivals.withdraw(entered)
                for owner, key in keys:
                    self.duplicates.remove(owner, key)
                raise
            finally:
                self._group = None
        if self.store is None:
            self.arrivals.committed(self.arrivals.take(), None)

    # -- durability ----------------------------------------------------------------------------------------------------
    def ask_commit(self, urgent: bool) -> None:
        """Ask for a commit: at the end of this turn if `urgent`, else within a few milliseconds."""
        wanted = 2 if urgent else 1
        if wanted > self.commit_asked and self.store is not None:
            self.commit_asked = wanted
            self.on_commit(urgent)

    def commit(self) -> None:
        """Write everything done so far to disk; `when_stored` and the arrivals are answered when it is there."""
        store = self.store
        if store is None or not self.commit_asked:
            return
        self.commit_asked = 0
        batch, waiting = self.arrivals.take(), self._unacknowledged
        self._unacknowledged = []
        self._committing += 1
        store.commit_now(lambda error: self._committed(batch, waiting, error))

    @property
    def commits_at_once(self) -> bool:
        """Something was done that is to be on disk with the end of this turn."""
        return self.commit_asked == 2

    def when_stored(self, done: Committed) -> None:
        """Call `done` when all changes so far are on disk, or could not be written; at once if none wait."""
        if self.store is None or not self.commit_asked:
            done(None)
        else:
            self._unacknowledged.append(done)

    def when_all_stored(self, done: Committed) -> None:
        """Call `done` as `when_stored` does, after the commits that are running have also ended."""
        if self._committing:
            self.ask_commit(urgent=False)
        self.when_stored(done)

    def _uncommitted(self) -> Committed:
        """Take the messages since the last `commit`: an earlier commit has failed, and the store has forgotten them."""
        batch = self.arrivals.take()
        return lambda error: self.arrivals.committed(batch, error)

    def _committed(self, batch: list[Arrival], waiting: list[Committed], error: OSError | None) -> None:
        self._committing -= 1
        self.arrivals.committed(batch, error)
        for done in waiting:
            done(error)
