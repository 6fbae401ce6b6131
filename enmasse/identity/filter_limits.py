"""Work that the wildcard filters of one user make for the messages of others.

A name is compared with all filters at once (enmasse/name_tries.py), level by level. Filters that have their `+` at the
same levels are one path there, of which a name follows one branch, whatever their number; those with wildcards at the
last level alone follow the levels of the name. So filters are bounded by the places of their wildcards, not by their
number: 20,000 that had each their own places cost 9 ms for every name, though they covered none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from enmasse.identity.owned import owned, owner
from enmasse.identity.principal import ANONYMOUS
from enmasse.name_tries import ANY, SEPARATOR, SINGLE

MOST: Final = 2048
"""Levels of a user's filters, those with wildcards at the same levels counted once. A level takes about 0.25 µs for a
message to a name that is new."""
INNER: Final = 32
"""Levels that a level counts of a filter with a `#` before its last: such a one is compared at many levels of a name,
and with others it shares nothing."""


def account(client: str) -> str:
    """Return the key of the limits that a client's filters and selectors count to: its user's. Of clients without a
    user each counts by itself. `client`: as `owned` writes it."""
    user = owner(client).principal
    return client if user.name == ANONYMOUS else owned(user, "")


def title(client: str) -> str:
    """Return how whom these limits are of is shown."""
    user = owner(client).user
    return f"client {client[:200]!r}" if user == ANONYMOUS else f"user {user!r}"


def places(filter: str) -> str:
    """Return where a filter has its wildcards, the same text for filters that are one path; empty: it has none before
    its last level."""
    if SINGLE not in filter and ANY not in filter:
        return ""
    levels = filter.split(SEPARATOR)
    before = levels[:-1]
    if ANY in before:
        return filter
    if SINGLE not in before:
        return ""
    return SEPARATOR.join([level if level in (SINGLE, ANY) else "" for level in levels])


class FilterLimits:
    """Filters of all users. Those found at a start are counted, and may be more than MOST."""

    def __init__(self) -> None:
        self._filters: dict[str, Counter[str]] = {}
        self._levels: Counter[str] = Counter()

    def add(self, client: str, filters: Iterable[str]) -> None:
        """Count filters of a client."""
        who = account(client)
        for each in filters:
            if where := places(each):
                mine = self._filters.setdefault(who, Counter())
                mine[where] += 1
                if mine[where] == 1:
                    self._levels[who] += _levels(where)

    def remove(self, client: str, filters: Iterable[str]) -> None:
        """Count filters no longer that were counted."""
        who = account(client)
        for each in filters:
            if where := places(each):
                mine = self._filters[who]
                mine[where] -= 1
                if not mine[where]:
                    del mine[where]
                    self._levels[who] -= _levels(where)
                    if not mine:
                        del self._filters[who], self._levels[who]

    def room(self, client: str) -> Room:
        """Return what the client's user may add."""
        who = account(client)
        return Room(title(client), self._filters.get(who, {}), self._levels[who])


class Room:
    """Filters that one user may add. Those that `refusal` lets through count at once."""

    def __init__(self, who: str, known: Iterable[str], used: int) -> None:
        self._who = who
        self._known = known
        self._new: set[str] = set()
        self._used = used

    def refusal(self, filter: str) -> str:
        """Return why a filter is refused; empty: it may be added."""
        where = places(filter)
        if not where or where in self._known or where in self._new:
            return ""
        used = self._used + _levels(where)
        if used > MOST:
            return (
                f"the places at which filters of {self._who} have wildcards would take {used} levels, the most are "
                f"{MOST}: use the same places for `+` in all of them, or unsubscribe from some"
            )
        self._new.add(where)
        self._used = used
        return ""


def _levels(where: str) -> int:
    levels = where.split(SEPARATOR)
    return len(levels) * INNER if ANY in levels[:-1] else len(levels)
