"""The broker: what exists, what is stored, what is full, what time it is. Sans-IO.

The skin gives it a clock and three callbacks: `on_pending` (call `run_pending` in the next turn), `on_commit(urgent)`
(call `commit` at the end of this turn, or within a few milliseconds) and `on_deadline(ms)` (call `tick` then).
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from enmasse import log
from services.broker.core import errors
from services.broker.core.arrivals import Arrival, Arrivals, Waiting
from services.broker.core.broker_address import UNLIMITED, BrokerAddress
from services.broker.core.catalogue import ANYCAST, MULTICAST, Catalogue
from services.broker.core.duplicates import DuplicateIds
from services.broker.core.front import actual_expiry, moved, original_annotations
from services.broker.core.persistence import MessageStore, PageStore, Progress
from services.broker.core.properties import property_lookup
from services.broker.core.queue import Queue
from services.broker.core.recovery import recover
from services.broker.core.stalls import Stalls, Standing
from services.broker.core.stored_message import DURABLE, PARTLY, PRIORITY_SHIFT, STORED, StoredMessage
from services.broker.core.taking import expire_due

_log = log.get()

_EXPIRY_SCAN_MS = 500


def _nothing(*_: Any) -> None:
    pass


class Broker:
    def __init__(
        self,
        name: str,
        *,
        clock: Callable[[], int],
        wall: Callable[[], int] | None = None,
        store: MessageStore | None = None,
        pager: PageStore | None = None,
        global_max_size: int = -1,
        memory_limit: int = 64 << 20,
        capacity: int = -1,
        capacity_policy: str = "FAIL",
        defaults: dict[str, Any] | None = None,
        max_subscriptions: int = -1,
        progress: Progress = _nothing,
    ) -> None:
        """`clock`: milliseconds that only go forward; everything goes by it. `wall`: milliseconds since 1970, which may
        jump (default: the clock): for times that clients say or see, or that are on disk. `global_max_size`: bytes of
        all messages, -1 = no limit. `memory_limit`: bytes of payloads kept in memory where they can be had from disk
        again. `capacity`: bytes of messages, wherever they are, -1 = no limit; beyond it addresses that page do as
        `capacity_policy` says (FAIL, BLOCK or DROP). `defaults`: address settings for `#`. `max_subscriptions`: durable
        ones that a client may have, -1 = no limit. `progress`: of taking in what the store holds."""
        self.name = name
        self.clock = clock
        self.wall = wall or clock
        self.store = store
        self.catalogue = Catalogue(self, store, defaults, max_subscriptions)
        self.duplicates = DuplicateIds()
        self.pager = pager
        self.global_max_size = global_max_size
        self.capacity = capacity if capacity >= 0 else UNLIMITED
        self.capacity_policy = capacity_policy
        self.size_limit = min(global_max_size if global_max_size >= 0 else UNLIMITED, self.capacity)
        self.memory_limit = memory_limit
        self.size = 0  # bytes of all messages held
        self.resident = 0  # of these, in memory
        self.arrivals = Arrivals(self)
        self.unacknowledged: list[Callable[[OSError | None], None]] = []
        self.on_pending: Callable[[], None] = _nothing
        self.on_commit: Callable[[bool], None] = _nothing
        self.on_deadline: Callable[[int], None] = _nothing
        self.stalls = Stalls(self.load)
        self.unknown: set[int] = set()  # ids of queues whose definitions are damaged
        self._pending: dict[Queue, None] = {}
        self._blocked: set[BrokerAddress] = set()
        self._wakes: list[tuple[int, int, Queue]] = []
        self._expiring: dict[Queue, None] = {}
        self._next_scan = 0
        self.commit_asked = 0  # 0 no, 1 soon, 2 now
        self._last_id = 0  # where there is no store
        self.disk_full = False
        if store is not None:
            recover(self, store, progress)
            store.on_space = self.check_disk
            store.on_failure(self._uncommitted)
            self.check_disk()

    @property
    def now(self) -> int:
        return self.clock()

    def to_wall(self, time: int) -> int:
        """A time of the clock in milliseconds since 1970; 0 stays 0."""
        return max(1, time + self.wall() - self.clock()) if time else 0

    def from_wall(self, time: int) -> int:
        """Milliseconds since 1970 as a time of the clock; 0 stays 0."""
        return max(1, time - self.wall() + self.clock()) if time else 0

    def next_id(self, count: int = 1) -> int:
        """The first of so many ids that follow each other."""
        if self.store is not None:
            return self.store.new_id(count)
        self._last_id += count
        return self._last_id - count + 1

    def new_queue(self, id: int, name: str, address: BrokerAddress, routing_type: str, **attributes: Any) -> Queue:
        return Queue(self, id, name, address, routing_type, **attributes)

    def forget_queue(self, queue: Queue) -> None:
        self._pending.pop(queue, None)
        self._expiring.pop(queue, None)
        self.stalls.drop(queue)

    def forget_address(self, address: BrokerAddress) -> None:
        self._blocked.discard(address)
        self.duplicates.forget(address)

    # -- what queues ask for -------------------------------------------------------------------------------------------
    def load(self, message: StoredMessage) -> bytes | None:
        """The payload of a message, from disk where it is not in memory; None where it is gone for good: there is no
        such record, or its checksum is wrong. Raises OSError where it cannot be read now, which says nothing of the
        message: it stays where it is (see `stall`)."""
        if message.payload is not None:
            return message.payload
        try:
            if message.place is not None and self.pager is not None:
                return self.pager.read(message.place)
            if self.store is not None:
                return self.store.load(message.id)
        except LookupError:
            pass
        return None

    def stall(self, who: Standing, queue: Queue, message: StoredMessage, error: OSError) -> None:
        """`who` stands still until the message, which is back in its place, can be read."""
        if who not in self.stalls:
            _log.warning("message.unreadable", queue=queue.name, message=message.id, reason=str(error))
        self.on_deadline(self.stalls.add(who, queue, message, error, self.now))

    def lose(self, queue: Queue, message: StoredMessage) -> None:
        """A message, already out of the queue's order, that `load` says is gone for good."""
        queue.lost += 1
        if self.store is not None and message.flags & STORED:
            self.store.losses.add(f"message {message.id} is gone or damaged", queue.name, 1)
        _log.error("message.lost", queue=queue.name, message=message.id, address=message.owner.name)
        queue.finish(message)
        self.acknowledged_some()

    def put_out(self, message: StoredMessage) -> None:
        """Gives up the payload in memory where it is, or can be put, on disk."""
        payload = message.payload
        if payload is None:
            return
        if message.flags & (STORED | PARTLY) != STORED:
            if self.pager is None:
                return
            try:
                message.place = self.pager.write(payload)
            except OSError as error:
                _log.warning("paging.failed", address=message.owner.name, reason=str(error))
                return
        message.payload = None
        self.resident -= message.size

    def bring_in(self, messages: list[StoredMessage], size: int) -> None:
        """Reads payloads of messages that are next, one after the other, as far as memory and so many bytes go."""
        size = min(size, self.memory_limit - self.resident)
        count = 0
        for message in messages:
            size -= message.size
            if size < 0:
                break
            count += 1
        wanted = [message for message in messages[:count] if message.payload is None]
        stored = self.store.load_many([m.id for m in wanted if m.place is None]) if self.store is not None else {}
        for message in wanted:
            payload = stored.get(message.id)
            if message.place is not None:
                try:
                    payload = self.load(message)
                except OSError:
                    break  # said when it is about to be sent
            if payload is None:
                continue
            if message.place is not None and self.pager is not None:
                self.pager.release(message.place)
                message.place = None
            message.payload = payload
            self.resident += message.size

    def release(self, message: StoredMessage) -> None:
        """The last reference is gone."""
        owner = message.owner
        size = message.size
        owner.size -= size
        owner.count -= 1
        self.size -= size
        if message.payload is not None:
            self.resident -= size
        if message.place is not None and self.pager is not None:
            self.pager.release(message.place)
            message.place = None

    def acknowledged_some(self) -> None:
        """References were removed: to be recorded soon, and senders may go on where there was no space."""
        if self.store is not None and not self.commit_asked:
            self.ask_commit(False)
        if self._blocked:
            self.check_blocked()

    def record_attempts(self, queue: Queue, message: StoredMessage, attempts: int, due: int) -> None:
        if self.store is not None and queue.durable and message.flags & STORED:
            self.store.update(message.id, queue.id, delivery_count=attempts, not_before=self.to_wall(due))

    def postpone(self, queue: Queue) -> None:
        if not self._pending:
            self.on_pending()
        self._pending[queue] = None

    def run_pending(self) -> None:
        pending, self._pending = self._pending, {}
        for queue in pending:
            if not queue.deleted:
                queue.dispatch()

    # -- full addresses ------------------------------------------------------------------------------------------------
    def is_full(self, address: BrokerAddress) -> bool:
        return address.full or (0 <= self.global_max_size <= self.size)

    def block(self, address: BrokerAddress) -> None:
        if address.blocked:
            return
        address.blocked = True
        self._blocked.add(address)
        for producer in address.producers:
            producer.block()

    def check_blocked(self) -> None:
        for address in [address for address in self._blocked if self._has_room_again(address)]:
            address.blocked = False
            self._blocked.discard(address)
            for producer in list(address.producers):
                producer.unblock()

    def _has_room_again(self, address: BrokerAddress) -> bool:
        """A tenth, so that senders do not stop and go with every message."""
        if self.size > self.capacity * 9 // 10:
            return False
        if address.settings.full_policy == "PAGE" and self.pager is not None:
            return True  # it was for the capacity that it was blocked
        if 0 <= self.global_max_size * 9 // 10 < self.size:
            return False
        return address.size <= address.limit * 9 // 10 and address.count < address.limit_count

    # -- expiry and dead letters ---------------------------------------------------------------------------------------
    def expire(self, queue: Queue, message: StoredMessage) -> bool:
        """A message, already out of the queue's order, has expired: to the expiry address, or gone. False: it could
        not be read, is back in its place, and the queue stands still."""
        settings = queue.address.settings
        target = settings.expiry_address
        if target is not None and settings.auto_create_expiry:
            self._make_side_queue(target, queue, settings.expiry_prefix, settings.expiry_suffix)
        done = self._move(queue, message, target, actual_expiry(self.wall()))
        queue.expired += done
        return done

    def kill(self, queue: Queue, message: StoredMessage) -> bool:
        """A message, already out of the queue's order, cannot be delivered: to the dead-letter address, or gone. False
        as for `expire`."""
        settings = queue.address.settings
        target = settings.dead_letter_address
        if target is not None and settings.auto_create_dead_letter:
            self._make_side_queue(target, queue, settings.dead_letter_prefix, settings.dead_letter_suffix)
        done = self._move(queue, message, target, {})
        queue.killed += done
        return done

    def _make_side_queue(self, target: str, queue: Queue, prefix: str, suffix: str) -> None:
        name = f"{prefix}{queue.address.name}{suffix}"
        original = queue.address.name.replace("'", "''")
        if name not in self.catalogue.queues:
            self.catalogue.create_queue(
                target,
                name,
                MULTICAST,
                durable=True,
                filter=f"_AMQ_ORIG_ADDRESS='{original}'",
                auto_created=True,
                auto_delete=True,
                auto_create_address=True,
            )

    def _move(self, queue: Queue, message: StoredMessage, target: str | None, annotations: dict[str, Any]) -> bool:
        if target is not None and target != queue.address.name:
            try:
                payload = self.load(message)
            except OSError as error:
                queue.hold(message, error)
                return False
            if payload is None:
                self.lose(queue, message)
                return True
            self.move_copy(queue, message, payload, target, annotations)
        queue.finish(message)
        self.acknowledged_some()
        return True

    def move_copy(
        self, queue: Queue, message: StoredMessage, payload: bytes, target: str, annotations: dict[str, Any]
    ) -> bool:
        """A copy at another address, with annotations that say where it came from. False: nothing there took it."""
        if self.catalogue.route(target, None) is None:
            # Where a dead-letter or expiry address is named but does not exist, making it beats losing the message.
            try:
                self.catalogue.create_queue(
                    target, target, ANYCAST, durable=True, auto_created=True, auto_create_address=True
                )
            except errors.BrokerError as error:
                _log.warning("move.failed", target=target, queue=queue.name, reason=str(error))
                queue.lost += 1
                return False
        durable = bool(message.flags & DURABLE)
        notes = original_annotations(payload, queue.name, queue.address.name, queue.routing_type) | annotations
        copy = moved(payload, durable, message.flags >> PRIORITY_SHIFT, notes)
        return self.put(target, copy, durable=durable, priority=message.flags >> PRIORITY_SHIFT)

    def put(
        self, name: str, payload: bytes, *, durable: bool, priority: int = 4, routing_type: str | None = None
    ) -> bool:
        """A message of the broker's own making or moving: no limit stops it. False: no queue took it."""
        route = self.catalogue.route(name, routing_type)
        if route is None:
            return False
        flags = (DURABLE if durable else 0) | priority << PRIORITY_SHIFT
        message = StoredMessage(0, payload, len(payload), flags, 0, route.owner, 0)
        targets, stored = (
            (route.targets, route.stored)
            if route.plain
            else route.choose(property_lookup(payload, message, self.to_wall), "")
        )
        if not targets:
            return False
        if durable and stored and self.store is not None:
            message.id = self.store.add(payload, stored, priority=priority)
            message.flags |= STORED if len(stored) == len(targets) else STORED | PARTLY
        else:
            message.id = self.next_id()
        self.enqueue(message, payload, targets)
        return True

    def enqueue(
        self,
        message: StoredMessage,
        payload: bytes,
        targets: list[Queue],
        due: int = 0,
        waiting: Waiting | None = None,
        delivery_id: int = 0,
    ) -> None:
        """Counts a new message and gives it to its queues: if it is stored, when it is on disk."""
        owner = message.owner
        size = message.size
        message.refs = len(targets)
        owner.size += size
        owner.count += 1
        owner.routed += 1
        self.size += size
        self.resident += size
        if message.flags & STORED or any(queue.arriving for queue in targets):
            self.arrivals.add(message, targets, payload, waiting, delivery_id, due)
            return
        for queue in targets:
            queue.add(message, due)
        if message.refs and (self.resident > self.memory_limit or owner.size > owner.limit):
            self.put_out(message)

    # -- time ----------------------------------------------------------------------------------------------------------
    def expects(self, queue: Queue) -> None:
        if queue not in self._expiring:
            self._expiring[queue] = None
            self.on_deadline(self.now + _EXPIRY_SCAN_MS)

    def wakes(self, queue: Queue, due: int) -> None:
        heappush(self._wakes, (due, id(queue), queue))
        self.on_deadline(due)

    def tick(self) -> int:
        """Delivers what was scheduled, expires what is over. Returns when it is to be called again (ms; 0 = never)."""
        now = self.now
        if self.stalls:
            self.stalls.retry(now)
        while self._wakes and self._wakes[0][0] <= now:
            queue = heappop(self._wakes)[2]
            if not queue.deleted:
                queue.wake()
        if self._expiring and now >= self._next_scan:
            self._next_scan = now + _EXPIRY_SCAN_MS
            for queue in list(self._expiring):
                if queue.deleted or not queue.expiring:
                    self._expiring.pop(queue, None)
                else:
                    expire_due(queue)
        deadlines = [self._wakes[0][0]] if self._wakes else []
        if self.stalls:
            deadlines.append(self.stalls.due)
        if self._expiring:
            deadlines.append(self._next_scan)
        return min(deadlines, default=0)

    # -- durability ----------------------------------------------------------------------------------------------------
    def ask_commit(self, urgent: bool) -> None:
        wanted = 2 if urgent else 1
        if wanted > self.commit_asked and self.store is not None:
            self.commit_asked = wanted
            self.on_commit(urgent)

    def commit(self) -> None:
        """Everything done so far goes to disk; who waits is told when it is there."""
        store = self.store
        if store is None or not self.commit_asked:
            return
        self.commit_asked = 0
        batch, told = self.arrivals.take(), self.unacknowledged
        if batch or told:
            self.unacknowledged = []
            store.commit_now(lambda error: self._committed(batch, told, error))
        else:
            store.commit_now(None)

    def check_disk(self) -> None:
        """Whether the disk has room for more messages, which may change from outside."""
        full = self.store is not None and self.store.full
        if full != self.disk_full:
            self.disk_full = full
            _log.warning("disk.full" if full else "disk.space", broker=self.name)

    def when_stored(self, tell: Callable[[OSError | None], None]) -> None:
        """`tell` is called once what was done so far is on disk, or could not be written; at once if nothing waits."""
        if self.store is None or not self.commit_asked:
            tell(None)
        else:
            self.unacknowledged.append(tell)

    def _uncommitted(self) -> Callable[[OSError | None], None]:
        """What has arrived since the last `commit`: an earlier one has failed, and the store has forgotten it."""
        batch = self.arrivals.take()
        return lambda error: self.arrivals.committed(batch, error)

    def _committed(
        self, batch: list[Arrival], told: list[Callable[[OSError | None], None]], error: OSError | None
    ) -> None:
        self.arrivals.committed(batch, error)
        for tell in told:
            tell(error)
