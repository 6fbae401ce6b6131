"""How much is held: by queues, by addresses, by the broker; and what may be held. Sizes are bytes, counts are messages.

All modules may read these numbers; only this one writes them. Messages that are handled together take one call.
"""

from __future__ import annotations

from typing import Any

from services.broker.core.limits.space_storage import UNLIMITED, SpaceStorage, SpaceTotals

UNCOMMITTED = 32 << 20  # bytes that may wait for a commit before producers have to wait


class Touched:
    """Totals that a reader looks at after a change. `quiet`: they have not changed since its last look; otherwise they
    are in the set `touched`."""

    __slots__ = ("_touched", "quiet")

    def __init__(self, touched: set[Any] | None = None) -> None:
        self.quiet = True
        self._touched: set[Any] = set() if touched is None else touched

    def touch(self) -> None:
        """Have the reader look at them."""
        if self.quiet:
            self.quiet = False
            self._touched.add(self)

    def seen(self) -> None:
        """Note that the reader has looked."""
        self._touched.discard(self)
        self.quiet = True

    def retire(self) -> None:
        """The reader need not look at them again: what they count for is gone."""
        self._touched.discard(self)
        self.quiet = False


class QueueTotals(Touched):
    """`count` and `bytes`: of the messages held, whether they wait, are scheduled, are being delivered, or are on their
    way (`arriving`, counted from when they are stored). The others count since the start of the broker."""

    __slots__ = (
        "acknowledged", "added", "arriving", "bytes", "bytes_acknowledged", "bytes_added", "count", "expired",
        "killed", "lost", "redelivered", "rejected", "replaced",
    )  # fmt: skip

    def __init__(self, touched: set[Any] | None = None) -> None:
        super().__init__(touched)
        self.count = self.bytes = self.arriving = 0
        self.bytes_added = self.bytes_acknowledged = 0
        self.redelivered = 0  # deliveries that failed, after which the message was to be delivered again
        self.rejected = 0  # messages that a consumer has rejected
        self.added = self.acknowledged = self.expired = self.killed = 0
        self.replaced = 0  # messages dropped by a ring, for newer ones
        self.lost = 0  # messages found to be gone from disk, or damaged there

    def count_added(self, count: int, size: int) -> None:
        """Add new messages that are in the queue."""
        self.count += count
        self.bytes += size
        self.added += count
        self.bytes_added += size
        if self.quiet:
            self.touch()

    def count_expected(self, count: int, size: int) -> None:
        """Count messages that are being stored and will arrive when that is done."""
        self.arriving += count
        self.count += count
        self.bytes += size
        self.added += count
        self.bytes_added += size
        if self.quiet:
            self.touch()

    def count_arrived(self, count: int) -> None:
        """Expected messages have arrived."""
        self.arriving -= count

    def count_missing(self, count: int, size: int) -> None:
        """Expected messages could not be stored."""
        self.arriving -= count
        self.count -= count
        self.bytes -= size
        self.added -= count
        self.bytes_added -= size
        self.touch()

    def count_restored(self, count: int, size: int) -> None:
        """Found at the start."""
        self.count += count
        self.bytes += size

    def count_changed(self, size: int) -> None:
        """Add the growth of a message that is held."""
        self.bytes += size
        self.touch()

    def count_removed(self, count: int, size: int) -> None:
        """Subtract messages that left the queue without being acknowledged."""
        self.count -= count
        self.bytes -= size
        if self.quiet:
            self.touch()

    def count_acknowledged(self, count: int, size: int) -> None:
        """Subtract messages that consumers have accepted."""
        self.acknowledged += count
        self.bytes_acknowledged += size
        self.count -= count
        self.bytes -= size
        if self.quiet:
            self.touch()

    def count_expired(self) -> None:
        """Count a message that has expired."""
        self.expired += 1

    def count_killed(self) -> None:
        """Count a message that has become a dead letter."""
        self.killed += 1

    def count_rejected(self) -> None:
        """Count a message that a consumer has rejected."""
        self.rejected += 1

    def count_redelivered(self) -> None:
        """Count a failed delivery of a message that is to be delivered again."""
        self.redelivered += 1

    def count_lost(self, count: int = 1) -> None:
        """Count messages that are gone from disk, or damaged there."""
        self.lost += count
        self.touch()

    def count_replaced(self, count: int) -> None:
        """Count messages that a ring has dropped."""
        self.replaced += count

    def clear(self) -> None:
        """Reset the totals of a queue that was deleted."""
        self.count = self.bytes = 0

    def reset_lost(self) -> None:
        """Start counting lost messages from zero."""
        self.touch()
        self.lost = 0


class AddressTotals(Touched):
    """`size` and `count`: of the messages held, each counted once whatever the number of queues that hold it."""

    __slots__ = ("bytes_routed", "careful", "count", "limit", "limit_count", "routed", "size", "space", "unrouted")

    def __init__(self, touched: set[Any] | None = None, space: SpaceTotals | None = None) -> None:
        """`space`: totals of the address space; None: it is the default one."""
        super().__init__(touched)
        self.size = self.count = 0
        self.routed = self.unrouted = self.bytes_routed = 0
        self.limit = self.limit_count = self.careful = UNLIMITED
        self.space = space

    def limit_to(self, size: int, count: int) -> None:
        """-1 = no limit."""
        self.limit = size if size >= 0 else UNLIMITED
        self.limit_count = count if count >= 0 else UNLIMITED
        self.look_closely()

    def look_closely(self) -> None:
        """Set `careful`: the size from which on each message is looked at closely. With a limit of the space that is
        any."""
        self.careful = self.limit if self.space is None or self.space.given is None else 0

    def count_unrouted(self) -> None:
        """Count a message that no queue took."""
        self.unrouted += 1
        self.touch()

    @property
    def full(self) -> bool:
        """Return True if a limit of its own is reached."""
        return self.size >= self.limit or self.count >= self.limit_count

    @property
    def has_room_again(self) -> bool:
        """Return True if an address that was full may receive again: a tenth must be free, so that senders do not stop
        and start with every message."""
        return self.size <= self.limit * 9 // 10 and self.count < self.limit_count


class BrokerTotals:
    """The broker's totals: `size` of all messages held, `resident` of those whose payload is in memory."""

    __slots__ = (
        "capacity",
        "coming",
        "disk_behind",
        "disk_limits",
        "disk_policy",
        "global_max_size",
        "memory_limit",
        "resident",
        "size",
        "size_limit",
        "spaces",
        "touched",
    )

    def __init__(self, *, global_max_size: int, capacity: int, memory_limit: int) -> None:
        """`global_max_size`, `capacity`: of all messages, -1 = no limit. `memory_limit`: of payloads kept in memory
        although they could be had from disk again."""
        self.touched: set[Any] = set()
        """Queues and addresses that have changed since a reader looked at them (`Touched`)."""
        self.spaces = SpaceStorage()
        self.size = self.resident = 0
        self.global_max_size = global_max_size
        self.capacity = capacity if capacity >= 0 else UNLIMITED
        self.size_limit = min(global_max_size if global_max_size >= 0 else UNLIMITED, self.capacity)
        self.memory_limit = memory_limit
        self.coming = 0  # bytes of messages that wait for a commit
        self.disk_behind = False  # these are so many that producers have to wait
        self.disk_policy = ""  # DISK or STORE: why no more messages can be stored
        self.disk_limits = False  # one or the other

    def add(self, owner: AddressTotals, count: int, size: int) -> None:
        """Messages have come, with their payloads."""
        owner.size += size
        if owner.space is not None:
            owner.space.size += size
        owner.count += count
        owner.routed += count
        owner.bytes_routed += size
        self.size += size
        self.resident += size
        if owner.quiet:
            owner.touch()

    def restore(self, owner: AddressTotals, count: int, size: int) -> None:
        """Messages were found at the start; their payloads are on disk."""
        owner.size += size
        if owner.space is not None:
            owner.space.size += size
        owner.count += count
        self.size += size

    def remove(self, owner: AddressTotals, count: int, size: int, resident: int) -> None:
        """Subtract messages that no queue holds now; `resident` bytes of them were in memory."""
        owner.size -= size
        if owner.space is not None:
            owner.space.size -= size
        owner.count -= count
        self.size -= size
        self.resident -= resident
        if owner.quiet:
            owner.touch()

    def change(self, owner: AddressTotals, size: int, resident: int) -> None:
        """Add the growth of a message that is held (`size`), and of its part in memory (`resident`)."""
        owner.size += size
        if owner.space is not None:
            owner.space.size += size
        self.size += size
        self.resident += resident

    def bring_in(self, size: int) -> None:
        """A payload is in memory again."""
        self.resident += size

    def put_out(self, size: int) -> None:
        """A payload is no longer in memory."""
        self.resident -= size

    def set_disk_policy(self, policy: str) -> None:
        """Record why no more messages can be stored: DISK (no space) or STORE (unusable); empty: they can."""
        self.disk_policy = policy
        self.disk_limits = bool(policy) or self.disk_behind

    def expect(self, size: int) -> None:
        """Add `size` bytes that wait for a commit."""
        self.coming += size
        if self.coming > UNCOMMITTED:
            self.disk_behind = self.disk_limits = True

    def committed(self, size: int) -> bool:
        """Subtract bytes that have been committed. Return whether producers that had to wait may continue now."""
        self.coming -= size
        if not self.disk_behind or self.coming > UNCOMMITTED // 2:
            return False
        self.disk_behind = False
        self.disk_limits = bool(self.disk_policy)
        return True

    def has_room(self, owner: AddressTotals, count: int, size: int) -> bool:
        """Return True if `count` more messages of `size` bytes reach no limit, so that they need no further check."""
        return not (
            owner.size + size >= owner.limit
            or owner.count + count >= owner.limit_count
            or self.size + size >= self.size_limit
            or self.disk_limits
            or (owner.space is not None and owner.space.size + size > owner.space.most)
        )

    def is_full(self, owner: AddressTotals) -> bool:
        """Return True if the address, or the broker, has reached a limit."""
        return owner.full or (0 <= self.global_max_size <= self.size)

    @property
    def presses(self) -> bool:
        """Whether more payloads are in memory than should be."""
        return self.resident > self.memory_limit
