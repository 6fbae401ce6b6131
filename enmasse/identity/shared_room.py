"""Room that all users share: none takes what others still need."""

from __future__ import annotations

from collections import Counter


class SharedRoom:
    """Sums by user, by their full names. A user may add as long as it has less than is left for all: so none gets more
    than half. What was found at a start counts, and may be more."""

    __slots__ = ("_of_users", "used")

    def __init__(self) -> None:
        self.used = 0
        self._of_users: Counter[str] = Counter()

    def add(self, user: str, amount: int = 1) -> None:
        """Count what a user has more; a negative amount: what it has no longer."""
        self.used += amount
        self._of_users[user] += amount
        if not self._of_users[user]:
            del self._of_users[user]

    def of(self, user: str) -> int:
        """Return what a user has."""
        return self._of_users[user]

    def is_full(self, user: str, most: int, more: int = 0) -> bool:
        """Return True if the user may not add to what it has, after it got `more` already. `most`: the size of the
        room."""
        return self._of_users[user] + more >= most - self.used - more
