"""Whether a message may come in: what the policies of full addresses, and of a full broker or disk, state."""

from __future__ import annotations

from enmasse.logs import log
from services.broker.core import errors
from services.broker.core.limits.broker_address import BrokerAddress
from services.broker.core.limits.broker_limits import BrokerLimits
from services.broker.core.limits.space_storage import SpaceTotals
from services.broker.core.limits.usage import UNCOMMITTED, BrokerTotals
from services.broker.core.persistence import MessageStore, PageStore
from services.broker.core.publishing.verdict import ACCEPT, RELEASE, Verdict

_log = log.get()
_HARD_LIMIT_SLACK = 1 << 20
_RAISE = "a limit of its flavor; receive some, or raise STORAGE_CAPACITY or MEMORY there"
_ALL_FULL = f"its broker holds as much as it may, {_RAISE}"
"""Without numbers: these are of all addresses of the broker, which may be of several address spaces."""


class Admission:
    """Knows the addresses whose producers have no credit."""

    def __init__(
        self,
        ledger: BrokerTotals,
        store: MessageStore | None,
        pager: PageStore | None,
        limits: BrokerLimits,
        broker: str,
    ) -> None:
        """`broker`: its name, for the log."""
        self._ledger = ledger
        self._store = store
        self._pager = pager
        self._limits = limits
        self._broker = broker
        self.blocked: set[BrokerAddress] = set()
        self._late: set[BrokerAddress] = set()  # of these, because the disk is behind, or the choice of queues

    # -- one message ---------------------------------------------------------------------------------------------------
    def refusal(self, owner: BrokerAddress, durable: bool, size: int, *, moved: bool = False) -> Verdict | None:
        """Return the verdict on a message of `size` bytes when a limit may be reached. None: it is taken; ACCEPT: it is
        dropped. `moved`: an administrator moves or restores it. Raises BrokerError if it is rejected."""
        space = owner.space
        if space is not None and space.size + size > space.most and not moved:
            return self._beyond_share(owner, space, size)
        policy = self._policy(owner, durable, size)
        if not policy:
            return None
        if policy == "DISK":
            raise errors.no_space()
        if policy == "STORE":
            raise errors.store_unusable()
        if policy == "DROP":
            return ACCEPT
        if policy == "FAIL":
            raise self.full(owner, size)
        # BLOCK, LATE: senders get no more credit; what they had was granted before, and is served up to a hard limit.
        if policy == "LATE":
            self.block_late(owner)
            return RELEASE if self._ledger.coming + size > 2 * UNCOMMITTED else None
        self.block(owner)
        if 0 <= owner.settings.reject_threshold < owner.size + size:
            raise self.full(owner, size)
        ledger = self._ledger
        if (
            owner.size + size > 2 * owner.limit + _HARD_LIMIT_SLACK
            or ledger.size + size > 2 * ledger.size_limit + _HARD_LIMIT_SLACK
        ):
            return RELEASE
        return None

    def _beyond_share(self, owner: BrokerAddress, space: SpaceTotals, size: int) -> Verdict:
        """Return RELEASE for a message that does not fit into the share of its space: nothing is lost, and another
        broker may have room to spare. Raises BrokerError if none has, unless producers of the address wait for room,
        and for one that is larger than the storage of the space."""
        given = space.given
        if given is not None and size > given.limit:  # it never fits, whoever waits
            raise errors.larger_than_space(size, given.limit)
        space.want(size)
        if given is not None and 0 < given.refused <= size and owner.settings.full_policy != "BLOCK":
            raise errors.space_full(given.limit)
        self.block(owner)
        return RELEASE

    def full(self, owner: BrokerAddress, size: int) -> errors.BrokerError:
        """Return the refusal of `size` bytes at a full address: which limit is reached, and what to do."""
        paged = owner.settings.page_limit_bytes
        if owner.count >= owner.limit_count:
            why = f"it holds {owner.count} of {owner.limit_count} messages; receive some"
        elif owner.settings.full_policy == "PAGE" and 0 <= paged <= owner.size:
            why = f"it holds {owner.size} of {paged} bytes, {_RAISE}"
        elif owner.size + size > owner.limit:
            why = f"it holds {owner.size} of {owner.limit} bytes; receive some, or raise its maxSize"
        else:
            why = _ALL_FULL
        return errors.address_full(owner.name, why)

    def full_policy(self, owner: BrokerAddress) -> str:
        """Return the policy for the next durable message: FAIL, BLOCK or DROP if the address, its space or the broker
        is full, DISK if the disk is full, STORE if the data directory cannot be used, LATE if the disk is behind;
        empty: the message is taken."""
        space = owner.space
        if not self._ledger.disk_policy and space is not None and space.size >= space.most:
            return "BLOCK" if owner.settings.full_policy == "BLOCK" else "FAIL"
        return self._policy(owner, True, 1)

    def _policy(self, owner: BrokerAddress, durable: bool, size: int) -> str:
        """Return what `full_policy` does, whatever the share of the space: moved messages may pass that."""
        ledger = self._ledger
        if ledger.disk_policy and durable:
            return ledger.disk_policy
        late = "LATE" if ledger.disk_behind and durable else ""
        beyond = ledger.size + size > ledger.capacity
        if not beyond and not ledger.is_full(owner):
            return late
        settings = owner.settings
        policy = settings.full_policy
        if policy == "PAGE" and self._can_page(durable):
            if beyond:
                policy = self._limits.capacity_policy
            elif 0 <= settings.page_limit_bytes <= owner.size:
                policy = settings.page_full_policy or "FAIL"
            else:
                policy = late
        return "BLOCK" if policy == "PAGE" else policy

    def _can_page(self, durable: bool) -> bool:
        return self._pager is not None or (durable and self._store is not None)

    # -- producers without credit --------------------------------------------------------------------------------------
    def after(self, owner: BrokerAddress, durable: bool) -> None:
        """Block producers if the address is full after a message was let in."""
        if owner.size >= owner.limit or owner.count >= owner.limit_count:
            policy = owner.settings.full_policy
            if policy == "BLOCK" or (policy == "PAGE" and not self._can_page(durable)):
                self.block(owner)

    def block(self, address: BrokerAddress) -> None:
        """Take the credit of all producers of a full address."""
        if address.blocked:
            return
        address.blocked = True
        self.blocked.add(address)
        for producer in address.producers:
            producer.block()

    def block_late(self, address: BrokerAddress) -> None:
        """Take the credit of all producers of an address whose messages wait; `caught_up` gives it again."""
        self.block(address)
        self._late.add(address)

    def check_blocked(self) -> None:
        """Unblock producers if there is room again, after messages have left or limits have changed."""
        for address in [address for address in self.blocked if self._has_room_again(address)]:
            self._unblock(address)

    def judge_again(self, address: BrokerAddress) -> None:
        """Unblock producers for whom other settings have another answer than to wait: what they have is let in,
        rejected or dropped at once. It needs no tenth free as after messages have left."""
        if address in self.blocked and address not in self._late and self.full_policy(address) != "BLOCK":
            self._unblock(address)

    def _unblock(self, address: BrokerAddress) -> None:
        address.blocked = False
        self.blocked.discard(address)
        for producer in list(address.producers):
            producer.unblock()

    def disk_caught_up(self) -> None:
        """Unblock producers that waited for the disk, unless something else blocks them."""
        for address in [address for address in self._late if not address.sorting]:
            self.caught_up(address)

    def caught_up(self, address: BrokerAddress) -> None:
        """Unblock the producers of an address whose messages no longer wait, unless something else blocks them. If that
        is the disk, `disk_caught_up` looks again."""
        policy = self.full_policy(address)
        if policy == "LATE":
            return
        self._late.discard(address)
        if address in self.blocked and policy != "BLOCK":
            self._unblock(address)

    def _has_room_again(self, address: BrokerAddress) -> bool:
        ledger = self._ledger
        if address in self._late:
            return False
        space = address.space
        if space is not None and not space.has_room_again(blocks=address.settings.full_policy == "BLOCK"):
            return False
        if ledger.size > ledger.capacity * 9 // 10:
            return False
        if address.settings.full_policy == "PAGE" and self._pager is not None:
            return True  # it was for the capacity that it was blocked
        if 0 <= ledger.global_max_size * 9 // 10 < ledger.size:
            return False
        return address.has_room_again

    def forget(self, address: BrokerAddress) -> None:
        """Forget a deleted address."""
        self.blocked.discard(address)
        self._late.discard(address)

    def check_disk(self) -> None:
        """Record whether the disk takes more messages. Other programs may change that."""
        store, before = self._store, self._ledger.disk_policy
        policy = "" if store is None or not store.full else "STORE" if store.unusable else "DISK"
        if policy == "DISK" != before:  # the store reports by itself that it is unusable
            _log.warning("broker.disk.filled", broker=self._broker)
        elif before == "DISK" and not policy:
            _log.warning("broker.disk.freed", broker=self._broker)
        self._ledger.set_disk_policy(policy)
