"""Periodic sweep in the background: reads all of a router's entities, a page at a time."""

from __future__ import annotations

from services.ragent.entities import ADDRESS_TYPES, ALL_TYPES, EntityKey
from services.ragent.management import RouterManagement
from services.ragent.pages import ConsumerCounts, results
from services.ragent.table import Expected, OwnEntities, Scan

SWEEP_PAGE = 250
SWEEP_EVERY = 2.0
"""Seconds between two sweeps, unless that is more than SWEEP_ROWS rows a second."""
SWEEP_ROWS = 2500
SWEEP_ANYWAY = 3600.0
"""Seconds after which everything is read even if the router states that nothing has changed."""

_CONSUMERS = "consumers"


class Sweep:
    """Reads type after type, and the counts of consumers last.

    A type without changes in its last scan is only compared page by page: equal bytes are not decoded. Nothing is read
    as long as the router states the revision that a sweep without changes began with.
    """

    def __init__(
        self,
        management: RouterManagement,
        table: OwnEntities,
        expected: Expected,
        consumers: ConsumerCounts,
    ) -> None:
        self._management = management
        self._table = table
        self._expected = expected
        self._consumers = consumers
        self._left: list[str] = []
        """Types that this sweep has yet to read."""
        self._scan: Scan | None = None
        self._began = 0.0
        self._rows = 0
        self._unchanged: dict[str, tuple[int, list[tuple[int, int]]]] = {}
        """Type → version of the table, digest and number of rows of each page, from a scan without changes."""
        self._compared = 0
        self._revision: str | None = None
        """Revision of the router as the sweep began; None: not known, or the sweep has found changes."""
        self._calm: tuple[str, dict[str, int]] | None = None
        """Revision of the router, and versions of the table, since which there was no change."""

    def touch(self, key: EntityKey) -> None:
        """Record an operation on this entity: a scan under way may have read it before or after."""
        if self._scan is not None and self._scan.type == key[0]:
            self._scan.touch(key[1])

    def forget(self) -> None:
        """Start over, because everything is being read by the reconciler."""
        self._scan = None
        self._compared = 0
        self._unchanged.clear()
        self._revision = self._calm = None

    async def page(self, now: float) -> tuple[float, Scan | None]:
        """Read the next page. Return the seconds until the next one, and the scan of a type if that is complete."""
        if not self._left:
            self._revision = await self._management.revision()
            unchanged = self._calm is not None and self._calm == (self._revision, self._table.version)
            if unchanged and now < self._began + SWEEP_ANYWAY:
                return SWEEP_EVERY, None
            self._left = [*ALL_TYPES, _CONSUMERS]
            self._began, self._rows = now, 0
        type_ = self._left[0]
        complete: Scan | None = None
        if type_ == _CONSUMERS:
            count, done = await self._consumers.page(self._management.query_consumers, SWEEP_PAGE)
        elif type_ in self._unchanged and self._scan is None:
            count, done = await self._compare(type_)
        else:
            count, complete = await self._read(type_)
            done = complete is not None
        self._rows += count
        if done:
            self._left.pop(0)
        if complete is not None and not (complete.quiet and not complete.missing()):
            self._revision = None
        if not self._left:
            self._calm = None if self._revision is None else (self._revision, dict(self._table.version))
        if self._left:
            return 0.0 if done else SWEEP_PAGE / SWEEP_ROWS, complete
        return max(0.0, self._began + max(SWEEP_EVERY, self._rows / SWEEP_ROWS) - now), complete

    async def _read(self, type_: str) -> tuple[int, Scan | None]:
        """Read the next page of a scan. Return its number of rows, and the scan if it is complete."""
        if self._scan is None:
            self._scan = Scan(self._table, type_, self._expected)
        scan = self._scan
        count = await read_page(self._management, scan, SWEEP_PAGE)
        if count >= SWEEP_PAGE:
            return count, None
        if type_ in ADDRESS_TYPES and scan.quiet and not scan.missing():
            self._unchanged[type_] = self._table.version[type_], scan.pages
        self._scan = None
        return count, scan

    async def _compare(self, type_: str) -> tuple[int, bool]:
        """Compare a page of a type that was as desired. If it differs, the whole type is scanned."""
        version, pages = self._unchanged[type_]
        if version == self._table.version[type_]:
            digest, count = pages[self._compared]
            offset = sum(rows for _, rows in pages[: self._compared])
            if (await self._management.query(type_, offset, SWEEP_PAGE)).digest == digest:
                self._compared = (self._compared + 1) % len(pages)
                return count, self._compared == 0
        self._compared = 0
        self._unchanged.pop(type_, None)
        return 0, False


async def read_page(management: RouterManagement, scan: Scan, size: int) -> int:
    """Read a scan's next page. Return its number of rows; 0 if the type has no pages and was read completely."""
    reply = await management.query(scan.type, scan.offset, size)
    names, rows = results(reply)
    count = scan.page(names, rows)
    scan.pages.append((reply.digest, count))
    return count if scan.type in ADDRESS_TYPES else 0
