"""Counters of connections at engines that count by link."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

Carried = tuple[str, str, Mapping[str, int]]
"""Link, its connection, and counters since the link was attached (`{"in": 5}`)."""
LARGEST = 2**62


class Moved:
    """Counters of connections: sums over their links, also over those that are gone. `fields`: the counters."""

    def __init__(self, *fields: str) -> None:
        self._zero = dict.fromkeys(fields, 0)
        self._links: dict[str, Mapping[str, int]] = {}
        self._sums: dict[str, dict[str, int]] = {}

    def take(self, links: Iterable[Carried], connections: Collection[str]) -> None:
        """Add what links have carried since the last call. Links and connections that are not there are forgotten."""
        now: dict[str, Mapping[str, int]] = {}
        for id, connection, counters in links:
            now[id] = counters
            before, sums = self._links.get(id, {}), self._sums.setdefault(connection, dict(self._zero))
            for field, count in counters.items():
                sums[field] = min(sums[field] + max(0, count - before.get(field, 0)), LARGEST)
        self._links = now
        self._sums = {id: sums for id, sums in self._sums.items() if id in connections}

    def of(self, connection: str) -> dict[str, int]:
        """Return the counters of a connection."""
        return dict(self._sums.get(connection, self._zero))
