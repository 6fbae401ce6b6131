"""Rates of the messages that clients of each address space send through one process, measured against its plan. Pure.

A space that has sent more than its rate is in debt, and time pays for it. The process decides which clients are not
read meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from enmasse.identity.allowances import Allowances
from enmasse.model.tenants.plans import SpaceLimits
from enmasse.model.tenants.shares import BYTES, MESSAGES

TICK: Final = 0.05
"""Seconds after which time is credited."""
BURST: Final = 0.25
"""Seconds for which a space that was silent may send at once."""
_REPORT: Final = 1.0
"""Seconds between two reports of rates."""


class _Bucket:
    """One rate of one space. `level`: what may come now; below 0 it is a debt. `came`: since the last report."""

    __slots__ = ("came", "level", "rate")

    def __init__(self, rate: int) -> None:
        self.level = self.came = 0.0
        self.rate = rate

    def count(self, amount: int) -> None:
        self.level -= amount
        self.came += amount


class SpaceAccount:
    """Buckets of a space, by the names of its limits."""

    __slots__ = ("buckets",)

    def __init__(self) -> None:
        self.buckets: dict[str, _Bucket] = {}

    def count(self, messages: int, size: int) -> None:
        """Count what clients of the space have sent; `size` in bytes."""
        for name, amount in ((MESSAGES, messages), (BYTES, size)):
            if (bucket := self.buckets.get(name)) is not None:
                bucket.count(amount)

    @property
    def in_debt(self) -> bool:
        """Return whether more has come than the plan allows."""
        return any(bucket.level < 0 for bucket in self.buckets.values())


class SpaceRates:
    """Accounts of the spaces that have a rate, by the shares of this process. `now`: a clock in seconds."""

    def __init__(self, allowances: Allowances, now: Callable[[], float]) -> None:
        self.spaces: dict[str, SpaceAccount] = {}
        self._allowances = allowances
        self._now = now
        self._last = self._reported = now()
        self._active = False

    @property
    def needed(self) -> bool:
        """Return whether a space has a rate."""
        return any(_rates(limits) for limits in self._allowances.all_limits().values())

    def begin(self) -> None:
        """Let time count from now on."""
        self._last = self._now()

    def pass_time(self) -> None:
        """Credit each space the time since the last call, by the shares that are in force now."""
        now = self._now()
        seconds, self._last = now - self._last, now
        before, self.spaces = self.spaces, {}
        for space, limits in self._allowances.all_limits().items():
            rates = _rates(limits)
            if not rates:
                continue
            account = self.spaces[space] = before.get(space) or SpaceAccount()
            account.buckets = {name: account.buckets.get(name) or _Bucket(rate) for name, rate in rates.items()}
            for name, bucket in account.buckets.items():
                bucket.rate = self._allowances.share(name, space, rates[name])
                bucket.level = min(bucket.level + bucket.rate * seconds, bucket.rate * BURST)

    def report(self) -> None:
        """Report the rates, at most each second, or at once when a space begins to send: others have shares of it."""
        now = self._now()
        accounts = self.spaces.values()
        active = any(bucket.came for account in accounts for bucket in account.buckets.values())
        if now - self._reported < _REPORT and (self._active or not active):
            return
        self._active = active
        seconds, self._reported = max(TICK, now - self._reported), now
        for space, account in self.spaces.items():
            in_debt = account.in_debt
            for name, bucket in account.buckets.items():
                self._allowances.use(name, space, round(bucket.came / seconds), bucket.rate if in_debt else 0)
                bucket.came = 0.0


def _rates(limits: SpaceLimits) -> Mapping[str, int]:
    """Return the rates among the limits of a plan."""
    found = {MESSAGES: limits.messages_per_second, BYTES: limits.bytes_per_second}
    return {name: limit for name, limit in found.items() if limit is not None}
