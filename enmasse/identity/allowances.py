"""Use of the limits of address spaces by the clients of one process, and the shares of the process in these.

The configuration service splits a limit among the processes (enmasse/model/tenants/shares.py): two of them do not
double it. No sockets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from enmasse.clock import Timer
from enmasse.identity.principal import Principal
from enmasse.identity.space_plans import SpacePlans, used_up
from enmasse.model import feeds
from enmasse.model.names import DEFAULT_SPACE
from enmasse.model.tenants.shares import CONNECTIONS, CONNECTS, OF_USERS, STATED, Use

PATIENCE: Final = 2.0
"""Seconds that a login waits for room in a limit in which other processes may have a share to spare."""
MOVING: Final = 0.3
"""Seconds after which a login believes that others have used up a limit: a client that was moved here has just ended
its connection at another process, and the room of that one is on its way."""


class _Account:
    """One limit. `used`: by this process; `wanted`: logins that wait, or a rate; `share`: None until it is known;
    `total`: used by all processes, as the service has stated; it states each change of whether that is the limit.
    `born`: number of the report that has it first; shares that do not take that report into account belong to an
    earlier account. `of`: the user whose own limit it is; `limit`: that of a user's rate."""

    __slots__ = ("born", "limit", "of", "share", "total", "used", "wanted")

    def __init__(self) -> None:
        self.used = self.wanted = self.total = 0
        self.share: int | None = None
        self.born: int | None = None
        self.of: Principal | None = None
        self.limit: int | None = None


class Reservation:
    """Room that a login was given, and that its connection takes when it opens."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release

    def release(self) -> None:
        """Give the room back; does nothing the second time."""
        release, self._release = self._release, _nothing
        release()


class _Waiting:
    """A login that waits. `patient`: a connection that ends elsewhere may still make room for it."""

    __slots__ = ("keys", "patient", "principal", "then", "timer")

    def __init__(self, keys: list[str], principal: Principal, then: Callable[[], None]) -> None:
        self.keys, self.principal, self.then = keys, principal, then
        self.patient = True
        self.timer: Timer | None = None


class Allowances(SpacePlans):
    """Uses and shares of this process. `later(seconds, call)`: a timer; `of_user`: returns the limit of a user's own
    connections."""

    def __init__(
        self,
        later: Callable[[float, Callable[[], None]], Timer],
        of_user: Callable[[Principal], int | None],
    ) -> None:
        self.shared = False
        """The configuration service splits limits; False: each limit is this process's alone."""
        self.on_change: Callable[[bool], None] = _nothing
        """Called when there is something to report; True: others wait for it."""
        super().__init__()
        self._later = later
        self._of_user = of_user
        self.of_users = False
        """Some users have limits of their own."""
        self._rates_of_users = False
        self._accounts: dict[str, _Account] = {}
        self._changed: set[str] = set()
        self._number = self._seen = 0
        self._waiting: dict[_Waiting, None] = {}

    def configure(self, spaces: Mapping[str, feeds.ReachedSpace]) -> None:
        """Take other spaces, plans or limits."""
        if spaces == self._spaces:
            return
        super().configure(spaces)
        self._changed.update(self._accounts)
        self.on_change(False)
        self._answer()

    @property
    def limited(self) -> bool:
        """Return whether a space has limits, or a user may have some of its own."""
        return self.of_users or self._rates_of_users or super().limited

    def limit_users(self, connected: Iterable[Principal]) -> None:
        """Learn that users may have limits of their own, or others than before. `connected`: those of all connections,
        which count from the first time on."""
        if not self.of_users:
            self.of_users = True
            for principal in connected:
                self._account(_key_of_user(principal), principal).used += 1
        self._changed.update(key for key, account in self._accounts.items() if account.of is not None)
        self.on_change(False)
        self._answer()

    # connections

    def wait(self, principal: Principal, then: Callable[[], None], *, patience: float = MOVING) -> bool:
        """Call `then` when it is known whether there is room for a connection, within PATIENCE; return False, and call
        nothing, if that is known now. `patience`: seconds in which a connection that ends elsewhere may make room."""
        keys = self._keys(principal)
        if all(self._is_known(key, principal, patient=True) for key in keys):
            return False
        waiting = _Waiting(keys, principal, then)
        self._waiting[waiting] = None
        for key in keys:
            self._account(key, principal).wanted += 1
            self._changed.add(key)
        waiting.timer = self._later(patience, lambda: self._lose_patience(waiting, PATIENCE - patience))
        self.on_change(True)
        return True

    def _lose_patience(self, waiting: _Waiting, left: float) -> None:
        waiting.patient = False
        waiting.timer = self._later(left, lambda: self._end(waiting))
        self._answer()

    def reserve(self, principal: Principal) -> Reservation:
        """Keep room for a connection until it opens; without any nothing is kept."""
        keys = self._keys(principal)
        if not keys or not all(self._has_room(key, principal) for key in keys):
            return Reservation(_nothing)
        self._add(keys, 1, principal)
        return Reservation(lambda: self._add(keys, -1, principal))

    def refusal(self, principal: Principal) -> str:
        """Return why there cannot be another connection of this user; empty if there can."""
        for key in self._keys(principal):
            if not self._has_room(key, principal):
                return self._full(key, principal)
        return ""

    def entered(self, principal: Principal) -> None:
        """Count a connection that has opened."""
        if keys := self._keys(principal):
            self._add(keys, 1, principal)

    def left(self, principal: Principal) -> None:
        """Count a connection that was counted no longer."""
        if keys := self._keys(principal):
            self._add(keys, -1, principal)

    def _keys(self, principal: Principal) -> list[str]:
        """Return the limits that a connection counts in, also while the plan has none."""
        space, name = principal.space, principal.name
        keys = [] if space == DEFAULT_SPACE else [f"{CONNECTIONS}/{space}", f"{CONNECTIONS}/{space}/{name}"]
        if self.of_users:
            keys.append(_key_of_user(principal))
        return keys

    def _account(self, key: str, principal: Principal) -> _Account:
        account = self._accounts.setdefault(key, _Account())
        if key.startswith(OF_USERS):
            account.of = principal
        return account

    def _limit(self, key: str, principal: Principal | None = None) -> int | None:
        """Return a limit; None: without one. `principal`: the user, if there may be no account yet."""
        kind, space, *user = key.split("/", 2)
        if kind == OF_USERS:
            if principal is None and (account := self._accounts.get(key)) is not None:
                principal = account.of
            return None if principal is None else self._of_user(principal)
        if kind == CONNECTS:
            return account.limit if (account := self._accounts.get(key)) is not None else None
        limits = self.limits(space)
        return limits.connections_per_user if user else limits.connections

    def _has_room(self, key: str, principal: Principal) -> bool:
        limit = self._limit(key, principal)
        if limit is None:
            return True
        account = self._accounts.get(key)
        used, share = (0, None) if account is None else (account.used, account.share)
        if share is None and key.startswith(OF_USERS):
            share = limit  # without the configuration service the limit is that of each process
        return used < (min(share or 0, limit) if self.shared else limit)

    def _is_known(self, key: str, principal: Principal, *, patient: bool) -> bool:
        """Return whether there is room, or no process has any to spare. `patient`: what others use may become less."""
        limit = self._limit(key, principal)
        if not self.shared or limit is None:
            return True
        account = self._accounts.get(key)
        if account is None or account.share is None:
            return False
        return self._has_room(key, principal) or (account.used if patient else account.total) >= limit

    def _full(self, key: str, principal: Principal) -> str:
        plan, limit, account = self.plan(principal.space), self._limit(key, principal), self._accounts.get(key)
        used = 0 if account is None else max(account.total, account.used)
        remedy = "close one of them"
        if key.startswith(OF_USERS):
            return f"{principal.name} has {used} of {limit} connections: {remedy} first"
        if key.count("/") > 1:
            whose = f"{principal.name} has {used} of {limit} connections that the plan {plan!r} gives a user"
            return f"{whose}: {remedy}, or ask for another plan of the space"
        return used_up(used, limit or 0, "connections", plan, remedy)

    def _add(self, keys: list[str], count: int, principal: Principal) -> None:
        for key in keys:
            account = self._account(key, principal)
            account.used = max(0, account.used + count)
            self._changed.add(key)
        self.on_change(False)
        if count < 0 and self._waiting:
            self._answer()

    def _answer(self) -> None:
        """End the waiting of those of which it is known now whether there is room, one after the other."""
        for waiting in list(self._waiting):
            if all(self._is_known(key, waiting.principal, patient=waiting.patient) for key in waiting.keys):
                self._end(waiting)

    def _end(self, waiting: _Waiting) -> None:
        if waiting not in self._waiting:
            return
        del self._waiting[waiting]
        if waiting.timer is not None:
            waiting.timer.cancel()
        for key in waiting.keys:
            self._accounts[key].wanted -= 1
            self._changed.add(key)
        waiting.then()

    # other limits

    def use(self, name: str, space: str, used: int, wanted: int = 0, limit: int | None = None) -> None:
        """Set the use of another limit of a space, or of CONNECTS of a user there (SPACE/USER), whose `limit` this is;
        and the number that is wanted beside that."""
        key = f"{name}/{space}"
        account = self._accounts.setdefault(key, _Account())
        if (account.used, account.wanted, account.limit) != (used, wanted, limit):
            account.used, account.wanted, account.limit = used, wanted, limit
            self._rates_of_users |= limit is not None
            self._changed.add(key)
            self.on_change(False)

    def share(self, name: str, space: str, limit: int) -> int:
        """Return the share in another limit of a space; all of it until that is known."""
        account = self._accounts.get(f"{name}/{space}")
        return limit if account is None or account.share is None or not self.shared else min(account.share, limit)

    # the configuration service

    def connected(self) -> None:
        """Begin with a new connection to the configuration service, which states that it splits limits."""
        self.shared = True
        self._number = self._seen = 0
        self._changed = set(self._accounts)
        for account in self._accounts.values():
            account.born = None

    def report(self) -> feeds.UsageReport | None:
        """Return the next report; None: nothing has changed."""
        if not self._changed:
            return None
        changed, self._changed = self._changed, set()
        self._number += 1
        uses, removed = {}, []
        for key in changed:
            account = self._accounts[key]
            unlimited_user = key.count("/") > 1 and self._limit(key) is None
            if unlimited_user or not (account.used or account.wanted):
                if account.born is not None:
                    removed.append(key)
                account.born = account.share = None
                if not (account.used or account.wanted):
                    del self._accounts[key]
                continue
            if account.born is None:
                account.born = self._number
            limit = self._limit(key) if key.partition("/")[0] in STATED else None
            uses[key] = Use(account.used, account.wanted, account.share or 0, limit)
        if not uses and not removed:
            self._number -= 1
            return None
        return feeds.UsageReport(number=self._number, seen=self._seen, uses=uses, removed=removed)

    def take(self, body: feeds.Shares) -> None:
        """Take shares of the configuration service."""
        smaller, self._seen = False, body.number
        for key, (share, total) in ((key, (each.share, each.used)) for key, each in body.shares.items()):
            account = self._accounts.get(key)
            if account is None or account.born is None or body.seen < account.born:
                continue
            smaller |= account.share is not None and share < account.share
            self._changed.add(key)  # that it was taken is to be reported
            account.share, account.total = share, total
        self.on_change(smaller)
        self._answer()


def _key_of_user(principal: Principal) -> str:
    return f"{OF_USERS}/{principal.space}/{principal.name}"


def _nothing(*_: object) -> None:
    """Ignore a call."""
