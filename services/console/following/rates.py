"""Rates of counters. No clock, no sockets."""

from __future__ import annotations

from collections import deque

WINDOW = 4
"""Looks over which a rate is taken: processes report once a second, not in step with the looks."""

Vector = tuple[int, ...]


class Meter:
    """Counters by key, each with `size` fields, as rates per second."""

    def __init__(self, size: int) -> None:
        self._none = (0.0,) * size
        self._touched: dict[str, Vector] = {}
        self._looks: dict[str, deque[tuple[float, Vector]]] = {}
        self._rates: dict[str, tuple[float, ...]] = {}

    def note(self, key: str, counters: Vector) -> None:
        """Note the counters of a key, which have changed."""
        self._touched[key] = counters

    def forget(self, key: str) -> None:
        """Forget a key."""
        for each in (self._touched, self._looks, self._rates):
            each.pop(key, None)

    def rest(self) -> None:
        """Forget the rates of all keys: the next look is the first one."""
        for each in (self._touched, self._looks, self._rates):
            each.clear()

    def rates(self, key: str) -> tuple[float, ...]:
        """Return the rates of a key."""
        return self._rates.get(key, self._none)

    def look(self, now: float) -> set[str]:
        """Compute the rates of keys that move; return those whose rates have changed. Call it once a second."""
        changed = set()
        touched, self._touched = self._touched, {}
        for key in touched.keys() | self._looks.keys():
            looks = self._looks.get(key)
            if looks is None:
                self._looks[key] = deque([(now, touched[key])], WINDOW)
                continue
            looks.append((now, touched.get(key, looks[-1][1])))
            (then, before), (_, latest) = looks[0], looks[-1]
            span = max(now - then, 0.001)
            rates = tuple([round(max(0, b - a) / span, 2) for a, b in zip(before, latest, strict=True)])
            if rates != self._rates.get(key, self._none):
                self._rates[key] = rates
                changed.add(key)
            if not any(rates) and len(looks) == WINDOW:
                del self._looks[key]
                self._rates.pop(key, None)
                looks = deque([looks[-1]], WINDOW)
                if key in touched:
                    self._looks[key] = looks
        return changed
