"""Numbers of addresses, brokers and routers over the last day: a point every ten seconds of the last hour, and one for
every five minutes of the day. Bounded: MOST series of 18 KB each at most. No clock, no sockets."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from enmasse.model.names import space_of


class Point(NamedTuple):
    """Numbers of a moment: rates since the point before, and what there is; NaN: not known, or there is no such
    number."""

    in_: float
    out: float
    messages: float
    size: float
    consumers: float
    producers: float


class ProcessPoint(NamedTuple):
    """Numbers of a broker or router, in the places of those of a Point. `busy`: the part of the time in which its event
    loop had work."""

    in_: float
    out: float
    messages: float
    memory: float
    connections: float
    busy: float


WIDTH: Final = len(Point._fields)
RATES: Final = 2
"""The first numbers of a point are rates: of five minutes the mean is kept, of the others the greatest."""
FINE, COARSE = 10, 300
"""Seconds between two points."""
HOUR, DAY = 3600, 86_400
PER: Final = COARSE // FINE
MOST: Final = 5000
"""Series that are kept."""
QUIET: Final = HOUR // FINE
"""Points after which a series that has not changed makes room for another one."""
A_TURN: Final = 50
"""Points that are taken before others have a go."""
_SLACK: Final = 32
"""Points beyond the last ones before these are removed."""
UNKNOWN: Final = Point(*[math.nan] * WIDTH)
IDLE: Final = UNKNOWN._replace(in_=0.0, out=0.0)
"""The point of an address that no process has a row of."""


class Ring:
    """The newest `most` points, one for each number of an interval. `end`: the number of the newest one."""

    __slots__ = ("end", "most", "values")

    def __init__(self, most: int, end: int = 0, values: array[float] | None = None) -> None:
        self.most = most
        self.end = end
        self.values = array("f") if values is None else values

    def add(self, number: int, point: Sequence[float]) -> None:
        """Add a point; of the numbers between it and the one before nothing is known."""
        missed = number - self.end - 1 if self.values else 0
        if missed >= self.most:
            self.values, missed = array("f"), 0
        if missed:
            self.values.extend(UNKNOWN * missed)
        self.values.extend(point)
        self.end = number
        if len(self.values) > (self.most + _SLACK) * WIDTH:
            del self.values[: -self.most * WIDTH]

    def since(self, number: int) -> Iterator[tuple[int, Point]]:
        """Yield number and point of those from `number` on of which something is known."""
        values = self.values
        first = self.end + 1 - len(values) // WIDTH
        for each in range(max(first, number, self.end + 1 - self.most), self.end + 1):
            at = (each - first) * WIDTH
            point = Point(*values[at : at + WIDTH])
            if not math.isnan(point.in_):
                yield each, point


class Series:
    """The points of one address. `last`: the newest one; `quiet`: points since it changed."""

    __slots__ = ("coarse", "fine", "last", "quiet")

    def __init__(self, fine: Ring | None = None, coarse: Ring | None = None) -> None:
        self.fine = fine or Ring(HOUR // FINE)
        self.coarse = coarse or Ring(DAY // COARSE)
        self.last: Point | None = None
        self.quiet = 0

    def add(self, number: int, point: Point) -> None:
        """Add a point of ten seconds."""
        fine = self.fine
        if fine.values and number // PER != fine.end // PER:
            of_before = fine.end // PER
            self.coarse.add(of_before, _gathered([each for _, each in fine.since(of_before * PER)]))
        fine.add(number, point)
        self.quiet = self.quiet + 1 if point == self.last else 0
        self.last = point

    def points(self, begin: float, interval: int) -> Iterator[tuple[float, Point]]:
        """Yield time (seconds since 1970) and point of those from `begin` on; `interval`: FINE or COARSE. The newest
        one of COARSE is that of the minutes which are not over."""
        if interval == FINE:
            for number, point in self.fine.since(math.ceil(begin / FINE)):
                yield float(number * FINE), point
            return
        for number, point in self.coarse.since(math.ceil(begin / COARSE)):
            yield float(number * COARSE), point
        number = self.fine.end // PER
        if self.fine.values and number * COARSE >= begin and number > self.coarse.end:
            point = _gathered([each for _, each in self.fine.since(number * PER)])
            if not math.isnan(point.in_):
                yield float(number * COARSE), point


class AddressHistory:
    """Series by name. When there are `most`, a further one takes the place of the one that has been quiet longest: of
    the address space that has most, if its own has fewer, else of its own, if that has not changed for an hour."""

    def __init__(self, most: int = MOST) -> None:
        self.series: dict[str, Series] = {}
        self._most = most
        self._of_spaces: dict[str, int] = {}
        """Address space → its series."""
        self._giving: dict[str, list[tuple[int, str]]] | None = None
        """Address space → its series by the time that they have been quiet, as of the begin of a sample."""
        self._end = 0

    def sample(self, number: int, points: Iterable[tuple[str, Point]], exists: Callable[[str], bool]) -> Iterator[None]:
        """Take a point for each name, in steps; `number` of the ten seconds since 1970. What does not exist any longer
        is dropped. Nothing is taken if the clock was set back by less than an hour, until it is where it was."""
        if number <= self._end:
            if self._end - number < QUIET:
                return
            self.series.clear()
            self._of_spaces.clear()
        self._end, self._giving = number, None
        seen = set()
        for n, (name, point) in enumerate(points, 1):
            if not n % A_TURN:
                yield
            series = self.series.get(name)
            if series is None and any(each > 0 for each in point) and exists(name) and self._has_room(space_of(name)):
                series = self._put(name, Series())
            if series is not None:
                series.add(number, point)
                seen.add(name)
        yield
        for name in [name for name in self.series if not exists(name)]:
            self._drop(name)
        for n, name in enumerate(self.series.keys() - seen, 1):
            if not n % A_TURN:
                yield
            self.series[name].add(number, IDLE)

    def points(self, name: str, begin: float, interval: int) -> list[tuple[float, Point]]:
        """Return time and point of a name from `begin` on."""
        found = self.series.get(name)
        return [] if found is None else list(found.points(begin, interval))

    def restore(self, name: str, series: Series) -> None:
        """Put a series that was saved."""
        if len(self.series) < self._most:
            self._put(name, series)

    def _has_room(self, space: str) -> bool:
        """Return whether there is room for a series of an address space, after another one had to go."""
        if len(self.series) < self._most:
            return True
        if self._giving is None:
            self._giving = {}
            for name, series in self.series.items():
                self._giving.setdefault(space_of(name), []).append((series.quiet, name))
            for each in self._giving.values():
                each.sort()
        fullest = max(self._of_spaces, key=self._of_spaces.__getitem__)
        has_fewer = self._of_spaces.get(space, 0) + 1 < self._of_spaces[fullest]
        giving = self._giving.get(fullest if has_fewer else space)
        if not giving or (giving[-1][0] < QUIET and not has_fewer):
            return False
        self._drop(giving.pop()[1])
        return True

    def _put(self, name: str, series: Series) -> Series:
        self.series[name] = series
        space = space_of(name)
        self._of_spaces[space] = self._of_spaces.get(space, 0) + 1
        return series

    def _drop(self, name: str) -> None:
        del self.series[name]
        space = space_of(name)
        self._of_spaces[space] -= 1
        if not self._of_spaces[space]:
            del self._of_spaces[space]


def summed(points: Iterable[tuple[str, Point]], sums: dict[str, Point]) -> Iterator[tuple[str, Point]]:
    """Yield the points of addresses, and put the sum of each address space into `sums`; it is UNKNOWN if one of them
    is."""
    for name, point in points:
        space = space_of(name)
        before = sums.get(space)
        sums[space] = point if before is None else _plus(before, point)
        yield name, point
    for space, point in sums.items():
        if math.isnan(point.in_):
            sums[space] = UNKNOWN


def _plus(one: Point, other: Point) -> Point:
    added = [a + b for a, b in zip(one, other, strict=True)]
    if math.isnan(added[0]) or not math.isnan(sum(added)):
        return Point._make(added)
    rest = [
        b if math.isnan(a) else a if math.isnan(b) else a + b for a, b in zip(one[RATES:], other[RATES:], strict=True)
    ]
    return Point(*added[:RATES], *rest)


def _gathered(points: Sequence[Point]) -> Point:
    """Return one point for several: the mean of rates, the greatest of the others; UNKNOWN for none."""
    if not points:
        return UNKNOWN
    columns = list(zip(*points, strict=True))
    rates = [sum(column) / len(points) for column in columns[:RATES]]
    known = [[each for each in column if not math.isnan(each)] for column in columns[RATES:]]
    return Point(*rates, *(max(column, default=math.nan) for column in known))
