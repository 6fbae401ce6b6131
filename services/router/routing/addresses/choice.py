"""Chooses the next destination of an address."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter

from services.router.routing.addresses.destination import Destination
from services.router.routing.configuration import CLOSEST

UNLIMITED = 1 << 30
PART = 64
"""Destinations that are compared for a round: a message to thousands of receivers would cost a look at each."""
_LOAD = attrgetter("load")


class ChoiceLimits:
    """Limits common to all choices among the destinations of one address. (A separate object: a choice that refers to
    its address would keep both alive until the garbage collector runs.)"""

    __slots__ = ("share", "treatment")

    def __init__(self, treatment: str) -> None:
        self.treatment = treatment
        self.share = UNLIMITED  # most deliveries of a broker's that may be outstanding for a window


class Choice:
    """Destinations of one address to which a producer may send.

    `only` is the single one; of several, `choose` picks: the ring is a round of those that had the least load when it
    was built, and is rebuilt when it is used up. `nearer`: those that the
    treatment `closest` prefers; empty if all are equally near.
    """

    __slots__ = ("_at", "_limits", "_next", "_ring", "nearer", "only", "outs")

    def __init__(self, limits: ChoiceLimits, outs: Sequence[Destination] = ()) -> None:
        self.outs = list(outs)
        self.only: Destination | None = None
        self.nearer: Sequence[Destination] = ()
        self._limits = limits
        self._ring: Sequence[Destination] = ()
        self._at = 0
        self._next = 0  # place of the part that is looked at next
        self.changed()

    def add(self, out: Destination) -> None:
        """Add a destination."""
        self.outs.append(out)
        self.changed()

    def remove(self, out: Destination) -> None:
        """Remove a destination. Raises ValueError if it is absent."""
        self.outs.remove(out)
        self.changed()

    def changed(self) -> None:
        """Discard the round, because the destinations or the treatment have changed."""
        self.only = self.outs[0] if len(self.outs) == 1 else None
        self._ring = ()
        self._at = 0

    def choose(self) -> Destination | None:
        """Return the destination for the next delivery, in turn; it may have run out of credit since the round was
        built."""
        at = self._at
        ring = self._ring
        if at < len(ring):
            self._at = at + 1
            return ring[at]
        return self.ready()

    def turns(self) -> Iterator[Destination]:
        """Yield the destinations of deliveries that came together and change no load, in turn: the round holds for all
        of them. Nothing if none can take one now."""
        if self._at >= len(self._ring):
            self.ready()
            self._at = 0
        ring = self._ring
        while ring:
            for at in range(self._at, len(ring)):
                self._at = at + 1
                yield ring[at]
            self._at = 0

    def pick(self) -> Destination | None:
        """Return the destination for one delivery outside the hot path: one that can take it now, if possible."""
        out = self.only or self.choose()
        if out is None or out.ready:
            return out
        return self.ready()

    def ready(self) -> Destination | None:
        """Build a new round and return its first destination, which can take a delivery now unless none can."""
        outs = self.outs
        if len(outs) < 2:
            return outs[0] if outs else None
        if self._limits.treatment == CLOSEST:
            ready = [out for out in outs if out.ready]
            ring: Sequence[Destination] = [out for out in ready if out in self.nearer] if self.nearer else ready
            ring = ring or ready
        else:
            ring = next(filter(None, map(self._least, self._parts())), ())
        self._ring = ring
        self._at = 1
        if ring:
            return ring[0]
        # No destination can take it now: it waits where the load is least.
        room = outs if self._limits.treatment == CLOSEST else self._with_room(outs)
        return min(room or outs, key=_LOAD)

    def _parts(self) -> Iterator[Sequence[Destination]]:
        """Give the destinations to look at for a round: those with room, of many a part, another one each time;
        all if none has room."""
        outs = self.outs
        full = True
        for _ in range(0, len(outs), PART):
            start = self._next if self._next < len(outs) else 0
            self._next = start + PART
            room = self._with_room(outs[start : start + PART])
            full = full and not room
            yield room
        if full:
            yield outs

    def _with_room(self, outs: Sequence[Destination]) -> list[Destination]:
        """Return those that have neither a whole window outstanding nor their share of a broker's: others get nothing
        while one of these is there, however much they ask for."""
        share = self._limits.share
        return [out for out in outs if out.load < min(out.capacity, share) * out.windows]

    def _least(self, outs: Sequence[Destination]) -> Sequence[Destination]:
        """Return a round of those that can take a delivery now and have the least load."""
        ready = [out for out in outs if out.ready]
        if not ready:
            return ()
        loads = [out.load for out in ready]
        least = min(loads)
        # When much is under way, nearly the least counts as the least, and each gets a few in a row: a round is
        # worth its making, and outcomes arrive in ranges.
        limit = least + (least >> 3)
        turns = 1 + (least >> 2) if least > 3 else 1
        share = self._limits.share
        return [
            out
            for out, load in zip(ready, loads, strict=True)
            if load <= limit
            for _ in range(max(1, min(turns, min(out.capacity, share) * out.windows - load)))
        ]
