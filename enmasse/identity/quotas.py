"""Limits of a user's connections at one process: how many are open, and how many are opened in a second.

No clock of its own, no sockets.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from enmasse.identity.principal import Principal
from enmasse.model.users import ConnectionLimits

MAX_USERS = 50_000
"""Users whose last connections are remembered; the oldest give way."""


class Quotas:
    """`now`: a clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._due: OrderedDict[str, float] = OrderedDict()
        """Full name of a user → when its connections so far would be spread evenly over time."""

    def too_many(self, user: str, limits: ConnectionLimits, others: int) -> str:
        """Return why a further connection is refused; empty if it may be open. `others`: those that are open."""
        if limits.connections is None or others < limits.connections:
            return ""
        return f"{user} may have {limits.connections} connections here: close one of them first"

    def too_often(self, user: Principal, limits: ConnectionLimits) -> str:
        """Return why a further connection is refused at this time; empty if it may be open, and then it counts. At most
        a second's connections may come at once."""
        rate = limits.connects_per_second
        if rate is None:
            return ""
        due, now = self._due, self._now()
        then = max(due.get(user.full_name, 0.0), now) + 1 / rate
        if then > now + 1.000001:
            return f"{user.name} may connect {rate} times a second: try again later"
        due[user.full_name] = then
        due.move_to_end(user.full_name)
        if len(due) > MAX_USERS:
            due.popitem(last=False)
        return ""
