"""Which queues on brokers are this suite's: the suite's id, and the numbers that this store has given out. Pure but for
`make_durable`.

The suite's id is that of the store's tables, so a backup of the store has it too; it is part of the names of all queues
and diverts, because several suites may use one broker. Each session, and each other subscriber, has a number, which its
queues are marked with. The numbers are microseconds since 1970 at the start of the service, then counted on: a store
that was restored from a backup never gives out a number that was given out after that backup. So a queue with a number
that the store does not know is one that it has forgotten, and not one that it has ended.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import msgspec

from enmasse.stores import Change, Store
from services.subserv import broker_names, records

EARLIER = 1 << 50
"""Numbers below are of subscribers whose queues were named without the suite's id, by earlier versions."""
MAX_LIVES = 1000
"""Ranges of numbers that are kept; beyond, the two oldest become one."""

Life = tuple[int, int]
"""The first and the last number that one run of the service has given out."""


class SuiteIdentity:
    """The suite's id and the numbers; `begin` before any other use."""

    def __init__(self) -> None:
        self.suite = ""
        self._lives: list[Life] = []
        self._earlier_shares: frozenset[str] = frozenset()
        self._last = 0
        self._written = 0
        """The greatest number that was part of a write."""
        self._durable = 0

    @property
    def has_earlier(self) -> bool:
        """Whether an earlier version, which named queues without the suite's id, has used this store."""
        return bool(self._lives) and self._lives[0][0] == 0

    def begin(self, suite: str, lives: Iterable[Life], last: int, earlier_shares: Iterable[str], now: int) -> None:
        """Begin to give out numbers. `last`: the greatest number stored; `now`: microseconds since 1970."""
        self.suite = suite
        self._earlier_shares = frozenset(earlier_shares)
        self._lives = list(lives)
        if self._lives:
            first, end = self._lives[-1]
            self._lives[-1] = first, max(end, last)
        if len(self._lives) >= MAX_LIVES:
            self._lives[:2] = [(self._lives[0][0], self._lives[1][1])]
        self._last = max(now, last + 1)
        self._lives.append((self._last, self._last))

    def changes(self) -> list[Change]:
        """Return the changes that store all of it, at the start."""
        return [
            Change(records.STATE, "lives", msgspec.msgpack.encode(self._lives)),
            Change(records.STATE, "earlier-shares", msgspec.msgpack.encode(sorted(self._earlier_shares))),
            self.used(self._last),
            Change(records.STATE, "start", None),
        ]

    def next(self) -> int:
        """Return a number greater than each before (at most 2**53)."""
        self._last += 1
        return self._last

    def used(self, number: int) -> Change:
        """Return what stores that this number was given out; part of the transaction that uses it first."""
        self._written = max(self._written, number)
        return Change(records.STATE, "number", str(self._written).encode())

    async def make_durable(self, store: Store, number: int) -> None:
        """Store that this number was given out, before a queue is marked with it. Raises StoreError."""
        if number > self._durable:
            await store.write([self.used(number)])
            self._durable = max(self._durable, number)

    def is_known(self, number: int) -> bool:
        """Return True if this store has given the number out: what has it and is not in the store has ended."""
        if not self._lives:
            return False
        at = bisect_right(self._lives, number, key=lambda life: life[0]) - 1
        if at < 0:
            return False
        return number <= (self._last if at == len(self._lives) - 1 else self._lives[at][1])

    def local(self, id: str, created: int) -> str:
        """Return the id on brokers of a session, or an AMQP client's subscription, with this number."""
        return id if created < EARLIER else broker_names.of_suite(id, self.suite)

    def share(self, id: str) -> str:
        """Return the id on brokers of a shared subscription."""
        return id if id in self._earlier_shares else broker_names.of_suite(id, self.suite)
