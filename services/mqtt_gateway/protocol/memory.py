"""Memory of one gateway that its clients keep waiting: one limit for all of them, and which client is closed at it."""

from __future__ import annotations

from typing import Final, Protocol

from services.mqtt_gateway.protocol.timetable import STEP

LITTLE: Final = 64 * 1024
"""Bytes that a client may keep waiting regardless of the limit: closing it would free next to nothing."""


class MemoryHolder(Protocol):
    """A connection, as the memory that it holds sees it."""

    kept: int
    """Bytes that it keeps waiting. Only Memory writes it."""

    def measure(self) -> None:
        """Count again what the operating system may have taken meanwhile."""

    def waited(self) -> float:
        """Return the seconds since the wait for the client began."""

    def give_way(self) -> None:
        """Close: it holds most. Does not raise."""


class Memory:
    """Sum over all connections of incomplete and unprocessed packets, messages that wait for their client, and output
    that the client does not read. `total` may exceed `limit` by `LITTLE` for each client."""

    __slots__ = ("_large", "_making_room", "highest", "limit", "total")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self.highest = 0
        """Highest total since `fallen` returned True last."""
        self._large: dict[MemoryHolder, None] = {}  # those with more than LITTLE, the oldest first
        self._making_room = False

    def change(self, holder: MemoryHolder, more: int) -> None:
        """Count `more` bytes for a connection; negative: they were freed. Beyond the limit, the connections that have
        held most for longest give way, which may be this one."""
        before = holder.kept
        kept = holder.kept = before + more
        self.total += more
        if kept > LITTLE:
            if before <= LITTLE:
                self._large[holder] = None
        elif before > LITTLE:
            self._large.pop(holder, None)
        if more > 0:
            self.highest = max(self.highest, self.total)
            if self.total > self.limit and self._large and not self._making_room:
                self._make_room()

    def _make_room(self) -> None:
        self._making_room = True
        for each in list(self._large):
            each.measure()
        while self.total > self.limit and self._large:
            largest = max(self._large, key=_cost)
            del self._large[largest]
            largest.give_way()
        self._making_room = False

    def fallen(self, by: int) -> bool:
        """Return True if the total is lower by `by` bytes than its highest since this was last True."""
        if self.highest - self.total < by:
            return False
        self.highest = self.total
        return True


def _cost(holder: MemoryHolder) -> float:
    """Return bytes times seconds: of two connections that hold as much, the one that has held it longer is closed
    first."""
    return holder.kept * (holder.waited() + STEP)
