"""How a limit of an address space is split among the processes that its clients use. Pure.

The shares that processes have, or may still believe to have, are never more than the limit in all: a smaller share
counts once its process has taken it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final, Generic, TypeVar

import msgspec

CONNECTIONS: Final = "connections"
OF_USERS: Final = "userConnections"
"""Connections of a user at all processes, by its own limit in users.json; it is no limit of a space."""
CONNECTS: Final = "userConnects"
"""Connections that a user opens in THOUSAND seconds at all processes, by its own limit."""
THOUSAND: Final = 1000
STATED: Final = (OF_USERS, CONNECTS)
"""Limits that processes state with their use, as groups of a token may decide them."""
MESSAGES: Final = "messagesPerSecond"
BYTES: Final = "bytesPerSecond"
RATES: Final = (MESSAGES, BYTES)
COUNTED: Final = (CONNECTIONS, *RATES, "storage", "sessions", "retained", "wills")
"""Limits of which processes report the use, unless it is 0."""
P = TypeVar("P", bound=Hashable)
"""A process."""


class Use(msgspec.Struct, frozen=True, array_like=True):
    """Use of a limit by a process, the number that it wants beside that, and the share that it has. `limit`: of a user,
    as the process knows it; None: that of the plan."""

    used: int
    wanted: int = 0
    share: int = 0
    limit: int | None = None


class Sharer:
    """A process that uses a limit. `given`: the share that it was given last; `believed`: the largest that it may
    believe to have, as messages are under way; `sent`: number of the message with `given`, None before it is sent."""

    __slots__ = ("believed", "given", "sent", "use")

    def __init__(self, use: Use) -> None:
        self.use = use
        self.given = self.believed = use.share
        self.sent: int | None = None

    def give(self, share: int) -> None:
        """Give it another share."""
        self.given = share
        self.believed = max(self.believed, share)
        self.sent = None

    def report(self, use: Use, seen: int) -> None:
        """Take what the process has reported, after the message `seen`."""
        self.use = use
        if self.sent is not None and seen >= self.sent:
            self.believed = self.given


def used_in_all(parts: Iterable[Sharer]) -> int:
    """Return what all processes use."""
    return sum(part.use.used for part in parts)


def split(limit: int, parts: list[Sharer]) -> list[Sharer]:
    """Give each part its share; return those whose share is another one. Wanted numbers come first, the rest is split
    evenly. A limit below what is used lets each keep a part of it, in proportion: nothing more comes until that is
    less."""
    used = used_in_all(parts)
    if used >= limit:
        targets = [limit * part.use.used // max(1, used) for part in parts]
    else:
        extra = _even(limit - used, [part.use.wanted for part in parts])
        spare = limit - used - sum(extra)
        targets = [part.use.used + more + spare // len(parts) for part, more in zip(parts, extra, strict=True)]
    changed = []
    room = limit - sum(part.believed for part in parts)
    for part, target in zip(parts, targets, strict=True):
        before = part.believed
        share = target if target <= before else before + max(0, min(room, target - before))
        if share != part.given:
            part.give(share)
            room -= part.believed - before
            changed.append(part)
    return changed


def _even(free: int, wanted: list[int]) -> list[int]:
    """Return how much of what is free each gets, at most what it wants."""
    found = [0] * len(wanted)
    open_ = [place for place, want in enumerate(wanted) if want]
    while free and open_:
        each = max(1, free // len(open_))
        for place in list(open_):
            more = min(each, wanted[place] - found[place], free)
            found[place] += more
            free -= more
            if found[place] == wanted[place]:
                open_.remove(place)
    return found


def split_rate(limit: int, parts: list[Sharer]) -> list[Sharer]:
    """As `split`, of a rate: shares can be taken back, so that those that want more get equal shares beside those
    that need less; each keeps a little to begin with."""
    least = max(1, limit // (10 * len(parts)))
    left = limit - least * len(parts)
    needs = [max(0, part.use.used + part.use.wanted - least) for part in parts]
    extra = _even(left, needs)
    spare = (left - sum(extra)) // len(parts)
    changed = []
    for part, more in zip(parts, extra, strict=True):
        share = least + more + spare
        if abs(share - part.given) * 20 > part.given or not part.given:
            part.give(share)
            changed.append(part)
    return changed


class SharedLimit(Generic[P]):
    """A limit and the processes that use it. `rate`: of messages or bytes, not of things that are there."""

    def __init__(self, *, rate: bool) -> None:
        self.parts: dict[P, Sharer] = {}
        self._rate = rate
        self._full: int | None = None
        """The use of a limit that is used up, as processes know it; None: there is room."""

    @property
    def used(self) -> int:
        """Return what all processes use."""
        return used_in_all(self.parts.values())

    @property
    def stated(self) -> int | None:
        """Return the least limit that a process has stated; None: none has."""
        return min((part.use.limit for part in self.parts.values() if part.use.limit is not None), default=None)

    def report(self, process: P, use: Use, seen: int, limit: int | None) -> set[P]:
        """Take what a process has reported; return the processes that are to learn their shares. `limit` None: the
        plan has none."""
        part, new = self.parts.get(process), False
        if part is None:
            part, new = Sharer(use), True
            self.parts[process] = part
        asks = use.wanted > 0 and (new or use != part.use)
        part.report(use, seen)
        if limit is None:
            return set()
        told = {process} if asks else set()
        if new or self._full is not None or any(each.use.wanted for each in self.parts.values()):
            told |= self.split(limit)
        return told

    def remove(self, process: P, limit: int | None) -> set[P]:
        """Forget a process that uses nothing now; return the processes that are to learn their shares."""
        self.parts.pop(process, None)
        return set() if limit is None or not self.parts else self.split(limit)

    def split(self, limit: int) -> set[P]:
        """Split the limit again; return the processes that are to learn their shares."""
        changed = (split_rate if self._rate else split)(limit, list(self.parts.values()))
        full = None if self._rate or self.used < limit else self.used
        news, self._full = full != self._full, full
        return {process for process, part in self.parts.items() if news or part in changed}
