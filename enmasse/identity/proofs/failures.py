"""Failed logins: how long a further attempt has to wait. No clock of its own, no sockets.

Failures count for a user at an address, and for an address. They never count for a user alone, which would let clients
lock a user out from elsewhere. After a login at an address, failures of other users there do not affect the user.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from enmasse.model.users import MAX_NAME
from enmasse.network.host import counted_host

FREE = 5
"""Failures of a user at an address that have no consequence."""
FREE_ADDRESS = 50
"""Failures at an address, of any users, that have no consequence."""
LONGEST = 60.0
"""Seconds of the longest wait. The first wait is 1 s, each further failure doubles it."""
FORGOTTEN = 900.0
"""Seconds after the last failure until failures are forgotten."""
MAX_KEYS = 50_000
"""Users at addresses, and addresses, that are remembered; the oldest give way."""

Key = tuple[str, str]


class Failures:
    """Counts of failures. `now`: a clock in seconds. Addresses count as `counted_host` says."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failed: OrderedDict[Key, tuple[int, float]] = OrderedDict()
        """User (empty: all) and address → count, time of the last failure."""
        self._good: OrderedDict[Key, None] = OrderedDict()
        """Users and the addresses at which they have logged in."""

    def wait(self, user: str, address: str) -> float:
        """Return the seconds until this user may try again from this address; 0: at once. An empty user is one that
        the client does not state, as with a token: only the failures of the address count."""
        key = _key(user, address)
        own = self._left(key, FREE) if user else 0.0
        return own if key in self._good else max(own, self._left(("", key[1]), FREE_ADDRESS))

    def failed(self, user: str, address: str) -> None:
        """Count a failure."""
        own = _key(user, address)
        for key in {own, ("", own[1])}:
            count, last = self._failed.pop(key, (0, 0.0))
            if self._now() - last >= FORGOTTEN:
                count = 0
            self._failed[key] = count + 1, self._now()
            if len(self._failed) > MAX_KEYS:
                self._failed.popitem(last=False)

    def succeeded(self, user: str, address: str) -> None:
        """Forget the failures of this user at this address."""
        key = _key(user, address)
        self._failed.pop(key, None)
        self._good[key] = None
        self._good.move_to_end(key)
        if len(self._good) > MAX_KEYS:
            self._good.popitem(last=False)

    def _left(self, key: Key, free: int) -> float:
        count, last = self._failed.get(key, (0, 0.0))
        if count < free:
            return 0.0
        wait = min(LONGEST, 2.0 ** min(count - free, 10))
        return max(0.0, last + wait - self._now())


def _key(user: str, address: str) -> Key:
    return user[:MAX_NAME], counted_host(address)
