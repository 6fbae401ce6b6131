"""Room that all users, and all address spaces, share: none takes what others still need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from enmasse.identity.principal import named
from enmasse.model.names import DEFAULT_SPACE


class SharedRoom:
    """Sums by user, by their full names, and by address space. A user may add as long as it has less than is left for
    all: so none gets more than half. So may a space, but the default one. What was found at a start counts, and may be
    more."""

    __slots__ = ("_of_spaces", "_of_users", "used")

    def __init__(self) -> None:
        self.used = 0
        self._of_users: Counter[str] = Counter()
        self._of_spaces: Counter[str] = Counter()

    def add(self, user: str, amount: int = 1, space: str | None = None) -> None:
        """Count what a user has more; a negative amount: what it has no longer. `space`: where it has that; None: in
        the space of the user."""
        self.used += amount
        _count(self._of_users, user, amount)
        space = named(user).space if space is None else space
        if space != DEFAULT_SPACE:
            _count(self._of_spaces, space, amount)

    def of(self, user: str) -> int:
        """Return what a user has."""
        return self._of_users[user]

    def of_space(self, space: str) -> int:
        """Return what the users of a space have."""
        return self._of_spaces[space]

    @property
    def of_spaces(self) -> Mapping[str, int]:
        """Return what each space has, without the default one."""
        return self._of_spaces

    def is_full(self, user: str, most: int, more: int = 0) -> bool:
        """Return True if the user may not add to what it has, after it got `more` already. `most`: the size of the
        room."""
        left = most - self.used - more
        return max(self._of_users[user], self._of_spaces[named(user).space]) + more >= left


def _count(sums: Counter[str], key: str, amount: int) -> None:
    sums[key] += amount
    if not sums[key]:
        del sums[key]
