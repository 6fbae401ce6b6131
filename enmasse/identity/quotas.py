"""Limit of the connections that a user opens in a second at one process, which has a share of it while other processes
let the user in too.

No clock of its own, no sockets.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from math import ceil
from typing import Final

from enmasse.clock import Timer
from enmasse.identity.allowances import Allowances
from enmasse.identity.principal import Principal
from enmasse.model.tenants.shares import CONNECTS, THOUSAND
from enmasse.model.users import ConnectionLimits

MAX_USERS = 50_000
"""Users whose last connections are remembered; the oldest give way."""
REPORT: Final = 1.0
"""Seconds in which a user's logins are counted for a report."""
IDLE: Final = 10
"""Reports without a login after which a user's share is given back: a user that waits for that gains no rate by it."""


class _Logins:
    """Logins of a user since the last report. `silent`: reports without any; `rate`: the user's limit."""

    __slots__ = ("came", "rate", "refused", "silent")

    def __init__(self) -> None:
        self.came = self.refused = self.silent = self.rate = 0


class Quotas:
    """`now`: a clock in seconds; `later(seconds, call)`: a timer. `allowances`: splits rates among processes."""

    def __init__(
        self,
        now: Callable[[], float],
        allowances: Allowances,
        later: Callable[[float, Callable[[], None]], Timer],
    ) -> None:
        self._now = now
        self._allowances = allowances
        self._later = later
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Full name of a user → how many connections could come at once after the last one, and when that came."""
        self._logins: dict[str, _Logins] = {}
        """By space and name of the user."""

    def too_often(self, user: Principal, limits: ConnectionLimits) -> str:
        """Return why a further connection is refused at this time; empty if it may be open, and then it counts. At most
        a second's connections may come at once, or one."""
        rate = limits.connects_per_second
        if rate is None:
            return ""
        key = f"{user.space}/{user.name}"
        levels, now = self._levels, self._now()
        share = max(1, self._allowances.share(CONNECTS, key, rate * THOUSAND)) / THOUSAND
        most = ceil(share)
        level, last = levels.get(user.full_name, (most, now))
        level = min(most, level + share * (now - last))
        refused = level < 0.999999
        self._count(key, rate, refused=refused)
        if refused:
            return f"{user.name} may connect {rate} times a second: try again later"
        levels[user.full_name] = level - 1, now
        levels.move_to_end(user.full_name)
        if len(levels) > MAX_USERS:
            levels.popitem(last=False)
        return ""

    def _count(self, key: str, rate: int, *, refused: bool) -> None:
        logins = self._logins.get(key)
        if logins is None:
            if len(self._logins) >= MAX_USERS:
                return
            if not self._logins:
                self._later(REPORT, self._report)
            logins = self._logins[key] = _Logins()
            self._allowances.use(CONNECTS, key, THOUSAND, 0, rate * THOUSAND)
        logins.rate, logins.silent = rate, 0
        logins.came += not refused
        logins.refused += refused

    def _report(self) -> None:
        for key, each in list(self._logins.items()):
            each.silent += 1
            if each.silent > IDLE:
                del self._logins[key]
                self._allowances.use(CONNECTS, key, 0)
                continue
            # One more than nothing is wanted, so that the share stays.
            used, wanted = each.came * THOUSAND, max(1, each.refused * THOUSAND)
            self._allowances.use(CONNECTS, key, used, wanted, each.rate * THOUSAND)
            each.came = each.refused = 0
        if self._logins:
            self._later(REPORT, self._report)
